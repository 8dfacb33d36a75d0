//! A shard as it was at one moment, for whatever outlives the call that asks.

use std::sync::Arc;
use std::task::{Context, Poll};

use weir_state_api::ttl::TtlTime;
use weir_state_api::{Result, StateId};

use super::sources::{KeyRange, MemorySource, PinnedMemory, RunSource, Source};
use super::{Shard, Version};
use crate::lsm::{Direction, KeyVersion, Merge, Resolver, ShardState, SortedSource};

/// Memtables and tables of one shard, pinned.
#[derive(Debug, Clone)]
pub(crate) struct ShardView {
    pub(crate) version: Arc<Version>,
    pub(crate) shard: usize,
    /// Newest first.
    pub(crate) memory: Vec<PinnedMemory>,
}

impl ShardView {
    pub(crate) fn shard(&self) -> &Shard {
        &self.version.shards()[self.shard]
    }

    /// The states by their stored numbers.
    pub(crate) fn states(&self) -> &Arc<Vec<ShardState>> {
        self.shard().states()
    }

    /// All versions of all keys in a range. `prefix_hash` as for [`RunSource::new`].
    pub(crate) fn walk(
        &self,
        range: &KeyRange,
        direction: Direction,
        prefix_hash: Option<u64>,
    ) -> Walk {
        let memory = self.memory.iter().map(|memory| {
            Source::Memory(MemorySource::new(memory.clone(), range.clone(), direction))
        });
        let runs = self.shard().runs().iter().filter_map(|run| {
            let any = !run.overlapping(&range.from, &range.to).is_empty();
            any.then(|| RunSource::new(run, range.clone(), direction, prefix_hash))
        });
        let mut runs: Vec<RunSource> = runs.collect();
        RunSource::load_first_ends(&mut runs);
        let runs = runs.into_iter().map(|run| Source::Run(Box::new(run)));
        Walk {
            merge: Merge::new(memory.chain(runs).collect(), direction),
            states: Arc::clone(self.states()),
            at_key: false,
        }
    }
}

/// A walk over the keys of a range, with what their versions come to.
#[derive(Debug)]
pub(crate) struct Walk {
    merge: Merge<Source>,
    states: Arc<Vec<ShardState>>,
    at_key: bool,
}

impl Walk {
    /// Makes sure that it stands at a key; `false` when there is none left.
    pub(crate) fn poll_key(&mut self, context: &mut Context<'_>) -> Poll<Result<bool>> {
        if self.at_key {
            return Poll::Ready(Ok(true));
        }
        let polled = self.merge.poll_next(context);
        if let Poll::Ready(Ok(there)) = polled {
            self.at_key = there;
        }
        polled
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.merge.key()
    }

    /// The value of the present key, which is of this state: handed to `take`, if there is one.
    pub(crate) fn with_value<R>(
        &self,
        state: StateId,
        take: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let Some(known) = self.states.get(state.index()) else { return Ok(None) };
        let versions = self.merge.versions().map(|(source, entry)| KeyVersion {
            kind: entry.kind,
            era: source.era(state),
            value: entry.value,
        });
        let resolved = Resolver::for_reads().resolve(&known.eras, versions, true)?;
        Ok(resolved.value().map(|value| take(&value)))
    }

    /// Whether the present key, which is of this state, has a value that is live at `time`.
    pub(crate) fn is_live(&self, state: StateId, time: &TtlTime) -> Result<bool> {
        let Some(known) = self.states.get(state.index()) else { return Ok(false) };
        let live = self.with_value(state, |value| match known.eras.ttl() {
            None => true,
            Some(ttl) => weir_state_api::ttl::is_live(known.eras.kind(), ttl, value, time),
        })?;
        Ok(live.unwrap_or(false))
    }

    /// Leaves the present key.
    pub(crate) fn leave(&mut self) {
        self.at_key = false;
    }
}
