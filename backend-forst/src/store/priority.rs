//! Work that somebody waits for goes before work that nobody waits for.
//!
//! A checkpoint waits until what was frozen is encoded. Where there are fewer cores than threads with
//! something to do, compactions would take half of the time from it; so they pause meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What is urgent at present, in the whole process.
#[derive(Debug, Default)]
pub(crate) struct Priority {
    /// As `running`, for who only looks.
    any: AtomicUsize,
    running: Mutex<usize>,
    over: Condvar,
}

/// Urgent work, until it is dropped. It must not wait for a compaction.
#[derive(Debug)]
pub(crate) struct Urgent<'p>(&'p Priority);

impl Priority {
    /// Something urgent begins.
    pub(crate) fn begin(&self) -> Urgent<'_> {
        self.change(|running| running + 1);
        Urgent(self)
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        let mut running = self.running();
        *running = change(*running);
        self.any.store(*running, Ordering::Relaxed);
    }

    fn running(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) {
        let waited = self.over.wait_while(self.running(), |running| *running > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Urgent<'_> {
    fn drop(&mut self) {
        self.0.change(|running| running - 1);
        self.0.over.notify_all();
    }
}

/// What one who makes way owes to itself: after a pause it goes on for as long as it has paused.
#[derive(Debug, Default)]
pub(crate) struct Courtesy {
    until: Option<Instant>,
}

impl Courtesy {
    /// Blocks while something is urgent. Costs a look at a number when nothing is.
    #[inline]
    pub(crate) fn make_way(&mut self, priority: &Priority) {
        if priority.any.load(Ordering::Relaxed) > 0 {
            self.pause(priority);
        }
    }

    #[cold]
    fn pause(&mut self, priority: &Priority) {
        let begun = Instant::now();
        if self.until.is_some_and(|until| begun < until) {
            return;
        }
        priority.wait();
        let now = Instant::now();
        self.until = Some(now + (now - begun));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn nobody_waits_while_nothing_is_urgent() {
        let priority = Priority::default();
        Courtesy::default().make_way(&priority);
        drop((priority.begin(), priority.begin()));
        Courtesy::default().make_way(&priority);
    }

    #[test]
    fn who_makes_way_waits_for_all_that_is_urgent() {
        let priority = Arc::new(Priority::default());
        let (one, other) = (priority.begin(), priority.begin());
        let gone_on = Arc::new(AtomicBool::new(false));
        let waiting = std::thread::spawn({
            let (priority, gone_on) = (Arc::clone(&priority), Arc::clone(&gone_on));
            move || {
                Courtesy::default().make_way(&priority);
                gone_on.store(true, Ordering::Release);
            }
        });
        drop(one);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!gone_on.load(Ordering::Acquire));
        drop(other);
        waiting.join().unwrap();
    }

    #[test]
    fn half_of_the_time_is_left_to_who_makes_way() {
        let priority = Priority::default();
        let mut courtesy = Courtesy { until: Some(Instant::now() + Duration::from_secs(3_600)) };
        let _urgent = priority.begin();
        // Does not block.
        courtesy.make_way(&priority);
    }
}
