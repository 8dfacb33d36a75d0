//! The processor's time that threads have had, where `/proc` tells it.

use std::time::Duration;

/// Of the calling thread.
pub(crate) fn of_thread() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Of all threads of the process, also of those that have ended; in steps of 10 ms.
pub(crate) fn of_process() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name may hold anything, and ends with the last parenthesis.
    let mut numbers = told.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || numbers.next()?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (ticks()? + ticks()?)))
}
