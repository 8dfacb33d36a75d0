//! What compactions leave out: expired values, and what is outside of the shard.

use std::ffi::CStr;
use std::sync::Arc;

use rocksdb::CompactionDecision;
use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use weir_state_api::stored_key::{group_of, state_of};
use weir_state_api::ttl::{TtlTime, Verdict};
use weir_state_api::{KeyGroupRange, StateShape};

use crate::eras::{CompactionScope, Eras, StateEras};

const NAME: &CStr = c"weir.clean.v1";

/// Makes a filter for each compaction of one family.
pub(crate) struct Cleaners {
    pub(crate) eras: Arc<Eras>,
    pub(crate) groups: KeyGroupRange,
    pub(crate) shape: StateShape,
}

impl CompactionFilterFactory for Cleaners {
    type Filter = Cleaner;

    fn create(&mut self, _context: CompactionFilterContext) -> Cleaner {
        let time = self.eras.time();
        Cleaner {
            // RocksDB makes a filter on each thread that takes part in a compaction, and drops it there.
            _scope: CompactionScope::enter(time),
            states: self.eras.states(),
            time,
            groups: self.groups,
            has_values: self.shape != StateShape::Queue,
        }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

/// Decides about each value that a compaction meets. The time is that of its beginning: what expires
/// meanwhile goes with the next one.
///
/// A value that is left out becomes a tombstone as long as there may be older ones below, so nothing
/// comes back. Operands of merges are not seen here: the merge itself leaves expired elements out, as long
/// as the filter of its compaction is there.
pub(crate) struct Cleaner {
    _scope: CompactionScope,
    states: Arc<Vec<StateEras>>,
    time: TtlTime,
    groups: KeyGroupRange,
    has_values: bool,
}

impl Cleaner {
    fn is_gone(&self, key: &[u8], value: &[u8]) -> bool {
        let Some(group) = group_of(key) else { return false };
        if !self.groups.contains(group) {
            return true;
        }
        if !self.has_values {
            return false;
        }
        let state = state_of(key).and_then(|state| self.states.get(state.index()));
        // What takes the place of a value in part expired, this interface cannot pass on; the list
        // keeps it until it is appended to, cleaned up, or expired as a whole. Damaged bytes stay for
        // the reader to report.
        state.is_some_and(|state| {
            !state.never_expires() && matches!(state.clean(value, &self.time), Ok(Verdict::Drop))
        })
    }
}

impl CompactionFilter for Cleaner {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        if self.is_gone(key, value) { CompactionDecision::Remove } else { CompactionDecision::Keep }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}
