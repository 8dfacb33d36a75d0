//! Who asked to be polled again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// Something that waits to be polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// The record in this lane.
    Lane(usize),
    /// This batch of reads.
    Batch(usize),
}

/// Collects wake-ups, from any thread, and passes the first one on to the engine.
#[derive(Debug, Default)]
pub(super) struct WakeQueue(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    woken: Vec<Woken>,
    engine: Option<Waker>,
}

impl WakeQueue {
    /// No code of others runs under the lock, so a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves what has been woken into `woken`, and wakes `engine` when more comes. Both in one step:
    /// a wake-up is either among those taken, or wakes the engine.
    pub(super) fn take(&self, engine: &Waker, woken: &mut Vec<Woken>) {
        let mut pending = self.lock();
        woken.append(&mut pending.woken);
        match &mut pending.engine {
            Some(known) => known.clone_from(engine),
            none => *none = Some(engine.clone()),
        }
    }

    /// Wakes the engine, if it waits.
    pub(super) fn wake_engine(&self) {
        let engine = self.lock().engine.take();
        if let Some(engine) = engine {
            engine.wake();
        }
    }
}

/// The waker of one lane or batch; used again for what comes into it next. A late wake-up for what
/// was there before costs a poll and does no harm.
#[derive(Debug)]
pub(super) struct Alarm {
    target: Arc<Target>,
    waker: Waker,
}

#[derive(Debug)]
struct Target {
    what: Woken,
    queued: AtomicBool,
    queue: Arc<WakeQueue>,
}

impl Alarm {
    pub(super) fn new(queue: &Arc<WakeQueue>, what: Woken) -> Self {
        let target =
            Arc::new(Target { what, queued: AtomicBool::new(false), queue: queue.clone() });
        Alarm { waker: Waker::from(target.clone()), target }
    }

    /// To be called before each poll: from now on a wake-up is queued again.
    pub(super) fn arm(&self) {
        // Acquires what was written before the wake-up that is answered now.
        if self.target.queued.load(Ordering::Relaxed) {
            self.target.queued.swap(false, Ordering::AcqRel);
        }
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl Wake for Target {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = {
            let mut pending = self.queue.lock();
            pending.woken.push(self.what);
            pending.engine.take()
        };
        if let Some(engine) = engine {
            engine.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_wake_up_is_taken_or_wakes_the_engine_and_is_queued_once() {
        let queue = Arc::new(WakeQueue::default());
        let (calls, mut woken) = (Arc::new(AtomicUsize::new(0)), Vec::new());
        let engine = {
            let calls = calls.clone();
            crate::waker_fn(move || {
                calls.fetch_add(1, Ordering::SeqCst);
            })
        };
        let alarm = Alarm::new(&queue, Woken::Lane(3));
        alarm.waker().wake_by_ref();
        queue.take(&engine, &mut woken);
        assert_eq!((woken.as_slice(), calls.load(Ordering::SeqCst)), (&[Woken::Lane(3)][..], 0));

        // Queued, not yet polled: once is enough.
        alarm.waker().wake_by_ref();
        queue.take(&engine, &mut woken);
        assert_eq!((woken.len(), calls.load(Ordering::SeqCst)), (1, 0));

        alarm.arm();
        alarm.waker().wake_by_ref();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        queue.take(&engine, &mut woken);
        assert_eq!(woken.len(), 2);
    }
}
