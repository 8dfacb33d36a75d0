//! Bounds what is handed over and not in the store yet.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::{Counters, count};

/// The account of bytes in flight, of all instances of a process.
#[derive(Debug)]
pub(crate) struct InFlight {
    limit: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    /// How many wait for room.
    waiting: usize,
}

/// Bytes in the account, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    account: Arc<InFlight>,
    bytes: u64,
}

impl InFlight {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(InFlight { limit, state: Mutex::default(), freed: Condvar::new() })
    }

    /// Enters bytes. While the account is full the calling thread waits; the last one in may go over
    /// the limit. `press` is called once before waiting. `None` after `timeout`.
    pub(crate) fn hold(
        self: &Arc<Self>,
        bytes: u64,
        timeout: Duration,
        counters: &Counters,
        press: impl FnOnce(),
    ) -> Option<Held> {
        let mut state = self.lock();
        let limit = self.limit;
        // What goes beyond the limit by itself goes alone.
        let full = |state: &mut State| state.bytes > 0 && state.bytes >= limit;
        if full(&mut state) {
            count(&counters.stalls, 1);
            let begun = Instant::now();
            state.waiting += 1;
            drop(state);
            press();
            let waited = self.freed.wait_timeout_while(self.lock(), timeout, full);
            let (guard, outcome) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.waiting -= 1;
            let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            counters.stalled_micros.fetch_add(micros, Ordering::Relaxed);
            if outcome.timed_out() {
                return None;
            }
        }
        state.bytes += bytes;
        Some(Held { account: Arc::clone(self), bytes })
    }

    /// The bytes in the account.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Whether somebody waits for room.
    pub(crate) fn is_awaited(&self) -> bool {
        self.lock().waiting > 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.lock().bytes -= self.bytes;
        self.account.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_account_makes_the_next_one_wait_until_there_is_room() {
        let (account, counters) = (InFlight::new(10), Counters::default());
        let first = account.hold(9, Duration::ZERO, &counters, || panic!("there is room"));
        let second = account.hold(100, Duration::ZERO, &counters, || panic!("there is some room"));
        assert_eq!(account.bytes(), 109);
        assert!(account.hold(1, Duration::ZERO, &counters, || {}).is_none());
        drop(first);
        // Whoever is pressed makes room from another thread.
        let third = std::thread::scope(|scope| {
            assert!(!account.is_awaited());
            account.hold(1, Duration::from_secs(600), &counters, || {
                assert!(account.is_awaited(), "known before it is pressed");
                scope.spawn(|| drop(second));
            })
        });
        assert!(third.is_some() && !account.is_awaited());
        assert_eq!((account.bytes(), counters.stalls.load(Ordering::Relaxed)), (1, 2));
    }

    #[test]
    fn without_any_room_one_goes_at_a_time() {
        let (account, counters) = (InFlight::new(0), Counters::default());
        let first = account.hold(9, Duration::MAX, &counters, || panic!("nothing is in flight"));
        assert!(first.is_some() && account.hold(9, Duration::ZERO, &counters, || {}).is_none());
    }
}
