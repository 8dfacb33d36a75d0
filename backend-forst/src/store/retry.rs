//! Requests that are made again when they fail, within limits.

use std::time::Duration;

use futures_timer::Delay;
use futures_util::future::{Either, select};
use uuid::Uuid;
use weir_state_api::{Error, Result};

use super::deadline::passed;

/// Limits for requests to the store.
///
/// A request that failed and may succeed later is made again, after a pause that doubles and of which
/// a random part is left out, so that many instances do not come back at once. Errors that will not go
/// away (a missing object, no permission), and those that a retrying layer below has already given up
/// on, are not retried.
///
/// ```
/// use std::time::Duration;
/// use weir_backend_forst::RequestLimits;
///
/// let limits = RequestLimits { attempts: 3, ..RequestLimits::default() };
/// assert_eq!(limits.timeout, Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestLimits {
    /// How often a request is made at most; at least once. Default: 6.
    pub attempts: u32,
    /// The pause before the second attempt. Default: 50 ms.
    pub first_pause: Duration,
    /// The longest pause. Default: 5 s.
    pub longest_pause: Duration,
    /// How long one attempt may take, in addition to one second for each MiB that it moves. What takes
    /// longer is given up and counts as failed, up to a second later. Default: 30 s.
    pub timeout: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        RequestLimits {
            attempts: 6,
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
        }
    }
}

impl RequestLimits {
    /// The longest pause before the attempt that follows `failed` failed ones.
    fn pause_after(&self, failed: u32) -> Duration {
        let doubled = 1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first_pause.saturating_mul(doubled).min(self.longest_pause)
    }

    /// Waits before the next attempt: between half of the pause and all of it.
    pub(crate) async fn pause(&self, failed: u32) {
        let longest = self.pause_after(failed);
        if longest.is_zero() {
            return;
        }
        let random = u32::from(Uuid::new_v4().as_bytes()[0]);
        Delay::new(longest / 2 + longest / 2 * random / 255).await;
    }

    /// The result of `request`, or an error of kind [`Unavailable`](weir_state_api::ErrorKind) when it
    /// takes too long for the `bytes` it moves.
    pub(crate) async fn in_time<T>(
        &self,
        bytes: u64,
        request: impl Future<Output = opendal::Result<T>>,
    ) -> opendal::Result<T> {
        let timeout = self.timeout.saturating_add(Duration::from_secs(bytes >> 20));
        let request = std::pin::pin!(request);
        match select(request, passed(timeout)).await {
            Either::Left((result, _)) => result,
            Either::Right(((), _)) => Err(opendal::Error::new(
                opendal::ErrorKind::Unexpected,
                format!("no answer within {timeout:?}"),
            )
            .set_temporary()),
        }
    }

    /// Makes a request until it succeeds, fails for good, or has been made as often as allowed.
    /// `attempt` is given the number of attempts before.
    pub(crate) async fn retry<T, F: Future<Output = Result<T, Failed>>>(
        &self,
        mut attempt: impl FnMut(u32) -> F,
    ) -> Result<T> {
        let mut failed = 0;
        loop {
            match attempt(failed).await {
                Ok(value) => return Ok(value),
                Err(failure) => {
                    failed += 1;
                    if !failure.again || failed >= self.attempts {
                        return Err(failure.error);
                    }
                }
            }
            self.pause(failed).await;
        }
    }
}

/// A failed attempt.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// Whether another attempt may succeed.
    pub(crate) again: bool,
}

impl Failed {
    /// An attempt that the store failed.
    pub(crate) fn store(operation: &str, path: &str, source: opendal::Error) -> Self {
        // A layer below that retries says so of what it gave up on: to retry that would multiply.
        let persistent = source.is_persistent();
        let error = Error::store(operation, path, source);
        Failed { again: error.is_retryable() && !persistent, error }
    }

    /// An attempt whose result is not usable, but may be next time.
    pub(crate) fn again(error: Error) -> Self {
        Failed { error, again: true }
    }

    /// An attempt that no other can better.
    pub(crate) fn for_good(error: Error) -> Self {
        Failed { error, again: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use weir_state_api::{ErrorKind, block_on};

    fn at_once(attempts: u32) -> RequestLimits {
        RequestLimits { attempts, first_pause: Duration::ZERO, ..RequestLimits::default() }
    }

    fn run(limits: &RequestLimits, failure: impl Fn() -> opendal::Error) -> (ErrorKind, u32) {
        let made = Cell::new(0);
        let result: Result<()> = block_on(limits.retry(|before| {
            assert_eq!(before, made.get());
            made.set(made.get() + 1);
            let failure = failure();
            async move { Err(Failed::store("read", "a", failure)) }
        }));
        (result.unwrap_err().kind(), made.get())
    }

    #[test]
    fn only_what_may_pass_is_retried_and_not_for_ever() {
        use opendal::ErrorKind as Kind;
        let temporary = || opendal::Error::new(Kind::RateLimited, "slow down").set_temporary();
        assert_eq!(run(&at_once(3), temporary), (ErrorKind::Unavailable, 3));
        assert_eq!(run(&at_once(0), temporary), (ErrorKind::Unavailable, 1));
        let given_up = || temporary().set_persistent();
        assert_eq!(run(&at_once(3), given_up), (ErrorKind::Unavailable, 1));
        let missing = || opendal::Error::new(Kind::NotFound, "not there");
        assert_eq!(run(&at_once(3), missing), (ErrorKind::NotFound, 1));
    }

    #[test]
    fn success_ends_it() {
        let result = block_on(at_once(3).retry(|before| async move {
            match before {
                2 => Ok(before),
                _ => Err(Failed::again(Error::new(ErrorKind::Corrupt, "short"))),
            }
        }));
        assert_eq!(result.unwrap(), 2);
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let limits = RequestLimits::default();
        let pauses: Vec<_> = [1, 2, 3, 8, 40, u32::MAX]
            .map(|failed| limits.pause_after(failed).as_millis())
            .to_vec();
        assert_eq!(pauses, [50, 100, 200, 5_000, 5_000, 5_000]);
    }

    #[test]
    fn a_request_without_an_answer_is_given_up() {
        let limits = RequestLimits { timeout: Duration::ZERO, ..RequestLimits::default() };
        let never = std::future::pending::<opendal::Result<()>>();
        let error = block_on(limits.in_time(0, never)).unwrap_err();
        assert!(error.is_temporary(), "{error}");
        let now = block_on(limits.in_time(0, async { Ok(1) }));
        assert_eq!(now.unwrap(), 1);
    }
}
