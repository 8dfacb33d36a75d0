//! Carrying out a compaction.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_state_api::stored_key::{group_of, state_of};
use weir_state_api::ttl::TtlTime;
use weir_state_api::{Error, ErrorKind, KeyGroup, KeyGroupRange, Result, StateId};

use super::input::{Input, RunInput};
use super::output::{OutputOptions, Outputs};
use crate::format::Entry;
use crate::lsm::{
    Direction, KeyRanges, KeyVersion, Merge, Resolver, ShardState, SortedSource, groups_between,
    key_bounds, span, traits_of,
};
use crate::store::{Courtesy, NewTable, Tables};

/// A compaction, ready to be carried out: all that it depends on, and nothing that changes.
#[derive(Debug, Clone)]
pub(crate) struct Compaction {
    pub(super) groups: KeyGroupRange,
    pub(super) states: Arc<Vec<ShardState>>,
    /// Newest first; the tables of each in the order of their keys.
    pub(super) runs: Vec<Vec<Input>>,
    /// What tables older than the inputs say something about: there, deletes must stay.
    pub(super) older: KeyRanges,
    /// Keys before which outputs must end: inputs that are moved as they are begin there.
    pub(super) cuts: Vec<Box<[u8]>>,
    /// When it began: what had expired then goes.
    pub(super) time: TtlTime,
}

/// What a compaction has done.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The key groups it has done: all, or the first ones when it was stopped.
    pub(crate) groups: KeyGroupRange,
    /// In the order of their keys.
    pub(crate) tables: Vec<NewTable>,
    /// Entries that came out.
    pub(crate) entries: u64,
}

/// Asks compactions to end early.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    pub(crate) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Compaction {
    /// Reads, merges and writes. Uses the CPU for long stretches: run it where that is welcome.
    ///
    /// When it is stopped, it ends at the next key group, and what it has done until then counts. When
    /// it dies, nothing has happened but that some objects exist which nobody names.
    ///
    /// # Errors
    /// Those of reading and writing tables; [`Corrupt`](ErrorKind::Corrupt) for entries that no
    /// instance can have written.
    pub(crate) async fn run(
        self,
        tables: &Arc<Tables>,
        options: OutputOptions,
        stop: &StopSignal,
    ) -> Result<Finished> {
        let densities = self.runs.iter().flatten().map(|input| input.table.density());
        let density = densities.reduce(|most, other| if most < other { other } else { most });
        let bytes = self.runs.iter().flatten().map(|input| input.table.length()).sum();
        let runs = self.runs.into_iter().map(RunInput::open);
        let runs = futures_util::future::try_join_all(runs).await?;
        let deleted = KeyRanges::union_of(runs.iter().flat_map(RunInput::range_deletes));
        let deleted = still_needed(&deleted, &self.older, self.groups);
        let eras = self.states.iter().map(|state| state.eras.current());
        let eras = (0..).map(StateId).zip(eras).collect();
        let outputs = Outputs::new(Arc::clone(tables), options, eras, deleted, self.cuts);
        let mut merging = Merging {
            merge: Merge::new(runs, Direction::Forward),
            states: self.states,
            older: self.older,
            resolver: Resolver::sweeping(self.time),
            outputs: outputs.with_expected(density, bytes),
            tables: Arc::clone(tables),
            courtesy: Courtesy::default(),
            entries: 0,
        };
        let end = match merging.until_end(stop).await {
            Ok(None) => span(self.groups).1,
            Ok(Some(stopped_before)) => stopped_before.0,
            Err(error) => return Err(merging.outputs.abandon(error).await),
        };
        let groups = groups_between(span(self.groups).0, end);
        let tables = merging.outputs.finish(&end.to_be_bytes()).await?;
        Ok(Finished { groups, tables, entries: merging.entries })
    }

    pub(crate) fn groups(&self) -> KeyGroupRange {
        self.groups
    }
}

/// The range deletes that older tables are concerned by.
fn still_needed(deleted: &KeyRanges, older: &KeyRanges, groups: KeyGroupRange) -> KeyRanges {
    let (from, to) = key_bounds(groups);
    let needed = deleted.overlapping(&from, &to).filter(|(from, to)| older.overlaps(from, to));
    KeyRanges::union_of(needed.map(|(from, to)| (from.to_vec(), to.to_vec())))
}

#[derive(Debug)]
struct Merging {
    merge: Merge<RunInput>,
    states: Arc<Vec<ShardState>>,
    older: KeyRanges,
    resolver: Resolver,
    outputs: Outputs,
    tables: Arc<Tables>,
    courtesy: Courtesy,
    entries: u64,
}

impl Merging {
    /// Merges to the end, or until it is stopped: then the key group it has not begun.
    async fn until_end(&mut self, stop: &StopSignal) -> Result<Option<KeyGroup>> {
        let mut last_group = None;
        while poll_fn(|context| self.merge.poll_next(context)).await? {
            let key = self.merge.key();
            let group = group_of(key);
            if last_group != group {
                if last_group.is_some() && stop.is_set() {
                    return Ok(group);
                }
                last_group = group;
            }
            self.courtesy.make_way(&self.tables.caches().priority);
            self.outputs.make_room(key).await?;
            self.write_key()?;
        }
        Ok(None)
    }

    fn write_key(&mut self) -> Result<()> {
        let key = self.merge.key();
        let number = state_of(key);
        let state = number.and_then(|number| Some((number, self.states.get(number.index())?)));
        let Some((number, state)) = state else { return Err(unknown_state(number)) };
        let versions = self.merge.versions().map(|(source, entry)| KeyVersion {
            kind: entry.kind,
            era: source.era(number),
            value: entry.value,
        });
        let nothing_older = !self.older.contains(key);
        let resolved = self.resolver.resolve(&state.eras, versions, nothing_older);
        let resolved = resolved.map_err(|error| error.state(&state.name))?;
        if let Some((kind, value)) = resolved.entry() {
            let entry = Entry { key, kind, value };
            self.outputs.add(entry, traits_of(&state.eras, entry))?;
            self.entries += 1;
        }
        Ok(())
    }
}

#[cold]
fn unknown_state(number: Option<StateId>) -> Error {
    let what = match number {
        Some(number) => format!("a table has an entry of state {}, which is unknown", number.0),
        None => "a table has a key that is too short".to_string(),
    };
    Error::new(ErrorKind::Corrupt, what).advice("restore another checkpoint")
}
