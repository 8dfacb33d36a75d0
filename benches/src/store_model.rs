//! What a store is like: how late it answers, how fast a stream is, what a request costs.

use std::time::Duration;

use clap::ValueEnum;

use crate::slow_store::{Requests, Slowness};

/// A model of a store, over a local folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreModel {
    /// The folder as it is: a local disk.
    Folder,
    /// Answers after 20 ms, 100 MB/s a stream; free.
    ObjectStore,
    /// Amazon S3 Standard: answers after 100 ms, 88 MB/s a stream.
    S3Standard,
    /// Amazon S3 Express One Zone: answers after 5 ms, 88 MB/s a stream.
    S3Express,
}

/// What a store charges, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prices {
    thousand_writes: f64,
    thousand_reads: f64,
    gigabyte_written: f64,
    gigabyte_read: f64,
}

impl Prices {
    /// What so many requests cost, in US dollars. Storage is not in it.
    pub(crate) fn cost(&self, requests: Requests) -> f64 {
        let Requests { reads, writes, bytes_read, bytes_written } = requests;
        let gigabytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        self.thousand_writes * writes as f64 / 1e3
            + self.thousand_reads * reads as f64 / 1e3
            + self.gigabyte_written * gigabytes(bytes_written)
            + self.gigabyte_read * gigabytes(bytes_read)
    }
}

impl StoreModel {
    /// How slow it is.
    ///
    /// Amazon's guidelines for the performance of S3 name 100 to 200 ms to the first byte and 85 to
    /// 90 MB/s for a request; they call the latency of S3 Express One Zone one-digit milliseconds and
    /// name no other bandwidth for it.
    pub(crate) const fn slowness(self) -> Slowness {
        let (first_byte, bytes_per_second) = match self {
            StoreModel::Folder => return Slowness::NONE,
            StoreModel::ObjectStore => return Slowness::OBJECT_STORE,
            StoreModel::S3Standard => (100, 88_000_000),
            StoreModel::S3Express => (5, 88_000_000),
        };
        Slowness { first_byte: Duration::from_millis(first_byte), bytes_per_second }
    }

    /// What it charges, if anything: list prices in us-east-1 in 2026.
    pub(crate) const fn prices(self) -> Option<Prices> {
        match self {
            StoreModel::Folder | StoreModel::ObjectStore => None,
            StoreModel::S3Standard => Some(Prices {
                thousand_writes: 0.005,
                thousand_reads: 0.0004,
                gigabyte_written: 0.0,
                gigabyte_read: 0.0,
            }),
            StoreModel::S3Express => Some(Prices {
                thousand_writes: 0.001_13,
                thousand_reads: 0.000_03,
                gigabyte_written: 0.0032,
                gigabyte_read: 0.0006,
            }),
        }
    }

    /// What stands behind the name of a workload.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            StoreModel::Folder => "",
            StoreModel::ObjectStore => ", slow store",
            StoreModel::S3Standard => ", S3 Standard",
            StoreModel::S3Express => ", S3 Express",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_the_provider_s_own_example() {
        // Amazon's FAQ: a million writes and nine million reads of 10 KB in S3 Express One Zone.
        let kilobytes = 10 * 1_024;
        let requests = Requests {
            reads: 9_000_000,
            writes: 1_000_000,
            bytes_read: 9_000_000 * kilobytes,
            bytes_written: 1_000_000 * kilobytes,
        };
        let cost = StoreModel::S3Express.prices().unwrap().cost(requests);
        assert!((cost - (1.13 + 0.27 + 0.03 + 0.05)).abs() < 0.01, "{cost}");
    }
}
