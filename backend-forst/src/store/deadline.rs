//! When a request has taken too long.
//!
//! To set a timer wakes the thread that keeps them, which costs more than a small read from a near store.
//! So requests that would be given up within the same second share one.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_timer::Delay;
use futures_util::FutureExt;
use futures_util::future::{Either, Shared};

/// As good as for ever, and no instant that overflows.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Times shorter than this are kept to the millisecond.
const SHORT: Duration = Duration::from_secs(10);

static TIMERS: LazyLock<Timers> = LazyLock::new(Timers::default);

/// The timers of the process that requests share.
#[derive(Debug)]
struct Timers {
    begun: Instant,
    /// By the second in which they end, counted from the beginning.
    ahead: Mutex<Vec<(u64, Shared<Delay>)>>,
}

impl Default for Timers {
    fn default() -> Self {
        Timers { begun: Instant::now(), ahead: Mutex::default() }
    }
}

/// Ends after this time; a long one up to a second later.
pub(super) fn passed(time: Duration) -> impl Future<Output = ()> + Send {
    if time < SHORT { Either::Left(Delay::new(time)) } else { Either::Right(TIMERS.after(time)) }
}

impl Timers {
    fn after(&self, time: Duration) -> Shared<Delay> {
        let now = self.begun.elapsed();
        let second = (now + time.min(LONGEST)).as_secs() + 1;
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, timer)) = ahead.iter().find(|(known, _)| *known == second) {
            return timer.clone();
        }
        // Those that have ended are nobody's any more.
        ahead.retain(|(second, _)| *second > now.as_secs());
        let timer = Delay::new(Duration::from_secs(second).saturating_sub(now)).shared();
        ahead.push((second, timer.clone()));
        timer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_timer_serves_a_second() {
        let timers = Timers::default();
        let long = Duration::from_secs(30);
        let first = timers.after(long);
        // The two may be of different seconds, the hundred are of two at most.
        let others: Vec<_> = (0..100).map(|_| timers.after(long)).collect();
        assert!(timers.ahead.lock().unwrap().len() <= 2);
        assert!(others.iter().any(|other| other.ptr_eq(&first)));
        assert!(!timers.after(long * 2).ptr_eq(&first));
        drop(timers.after(Duration::MAX));
    }

    #[test]
    fn it_ends_and_is_forgotten() {
        let timers = Timers::default();
        weir_state_api::block_on(timers.after(Duration::ZERO));
        let elapsed = timers.begun.elapsed();
        assert!(elapsed >= Duration::from_millis(999), "{elapsed:?}");
        drop(timers.after(Duration::from_secs(60)));
        assert_eq!(timers.ahead.lock().unwrap().len(), 1);
    }
}
