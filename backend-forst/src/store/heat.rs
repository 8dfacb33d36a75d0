//! How much a table is read: what decides which ones are worth local disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time as caches see it: it passes with each read, and nothing ages while nothing is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadClock(Arc<AtomicU64>);

/// After so many reads, of all tables together, old ones count half.
const READS_PER_HALF_LIFE: u64 = 1 << 16;

impl ReadClock {
    fn half_lives(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) / READS_PER_HALF_LIFE) as u32 // wraps after 2^48 reads
    }
}

/// How often blocks of one table were read from local disk or from the store, with old reads counting
/// less and less. Reads that the block cache answers say nothing about what disk is good for.
#[derive(Debug)]
pub(crate) struct Heat {
    clock: ReadClock,
    /// The half-life of the last read, and above it the count as of then.
    state: AtomicU64,
}

impl Heat {
    pub(crate) fn new(clock: &ReadClock) -> Arc<Self> {
        let state = AtomicU64::new(u64::from(clock.half_lives()));
        Arc::new(Heat { clock: clock.clone(), state })
    }

    /// Counts some reads. Two at the very same time may count as one.
    pub(crate) fn add(&self, reads: u32) {
        self.clock.0.fetch_add(u64::from(reads), Ordering::Relaxed);
        let now = self.clock.half_lives();
        let count = self.count_at(now).saturating_add(reads);
        self.state.store(u64::from(count) << 32 | u64::from(now), Ordering::Relaxed);
    }

    /// The reads that still count.
    pub(crate) fn reads(&self) -> u32 {
        self.count_at(self.clock.half_lives())
    }

    fn count_at(&self, now: u32) -> u32 {
        let state = self.state.load(Ordering::Relaxed);
        let (count, then) = ((state >> 32) as u32, state as u32);
        count.checked_shr(now.wrapping_sub(then)).unwrap_or(0)
    }

    /// Reads per MiB of a table of `length` bytes: what a byte of cache is worth.
    pub(crate) fn density(&self, length: u64) -> Density {
        Density(f64::from(self.reads()) / (length.max(1) as f64) * MIB)
    }

    /// Makes it as hot as this, for a table of `length` bytes.
    pub(crate) fn warm_to(&self, density: Density, length: u64) {
        let count = (density.0 * length as f64 / MIB) as u32; // saturates
        let now = self.clock.half_lives();
        self.state.store(u64::from(count) << 32 | u64::from(now), Ordering::Relaxed);
    }
}

const MIB: f64 = (1_u64 << 20) as f64;

/// Reads per MiB.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub(crate) struct Density(pub(crate) f64);

impl Density {
    /// That of several tables together.
    pub(crate) fn of_all<'a>(tables: impl Iterator<Item = (&'a Heat, u64)>) -> Density {
        let (reads, length) = tables.fold((0.0, 0), |(reads, length), (heat, more)| {
            (reads + f64::from(heat.reads()), length + more)
        });
        Density(reads / (length.max(1) as f64) * MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_reads_count_less_and_less() {
        let clock = ReadClock::default();
        let (cold, hot) = (Heat::new(&clock), Heat::new(&clock));
        cold.add(100);
        hot.add(50);
        assert_eq!((cold.reads(), hot.reads()), (100, 50));
        for _ in 0..3 {
            hot.add(READS_PER_HALF_LIFE as u32);
        }
        assert_eq!(cold.reads(), 12);
        assert!(hot.reads() > READS_PER_HALF_LIFE as u32);
        for _ in 0..40 {
            hot.add(READS_PER_HALF_LIFE as u32);
        }
        assert_eq!(cold.reads(), 0);
    }

    #[test]
    fn density_is_per_byte() {
        let clock = ReadClock::default();
        let (small, large) = (Heat::new(&clock), Heat::new(&clock));
        small.add(8);
        large.add(8);
        assert_eq!(small.density(1 << 20), Density(8.0));
        assert!(small.density(1 << 20) > large.density(8 << 20));
        let tables = [(&*small, 1 << 20), (&*large, 7 << 20)];
        assert_eq!(Density::of_all(tables.into_iter()), Density(2.0));
        let new = Heat::new(&clock);
        new.warm_to(Density(2.0), 3 << 20);
        assert_eq!(new.reads(), 6);
    }
}
