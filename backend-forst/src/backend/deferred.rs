//! Reads that wait for others, so that they go to the store together.

use std::sync::Arc;

use futures_util::future::try_join_all;
use weir_state_api::DeferredValues;

use super::Version;
use super::lookup::{PendingReads, Search, read_all};
use super::read::Target;

/// Reads that have come to something that must be read first, in the order of their calls. Each goes on
/// from there when they are sent, in the version of its call.
#[derive(Debug, Default)]
pub(crate) struct DeferredReads {
    /// One for each version that they were called in: a flush may end between two of them.
    by_version: Vec<PendingReads>,
    /// How many the last batch had.
    last: usize,
}

impl DeferredReads {
    /// Adds a read of the current version.
    pub(crate) fn push(
        &mut self,
        version: &Arc<Version>,
        target: Target,
        key: &[u8],
        search: Search,
    ) {
        match self.by_version.last_mut() {
            Some(reads) if reads.is_of(version) => reads.push(target, key, search),
            _ => {
                let mut reads = PendingReads::with_capacity(version, self.last);
                reads.push(target, key, search);
                self.by_version.push(reads);
            }
        }
    }

    /// Begins all reads.
    pub(crate) fn send(&mut self) -> Option<DeferredValues> {
        self.last = self.by_version.iter().map(PendingReads::len).sum();
        let mut by_version = std::mem::take(&mut self.by_version);
        let last = by_version.pop()?;
        if by_version.is_empty() {
            return Some(Box::pin(read_all(last)));
        }
        by_version.push(last);
        let all = try_join_all(by_version.into_iter().map(read_all));
        Some(Box::pin(async move { Ok(all.await?.concat()) }))
    }
}
