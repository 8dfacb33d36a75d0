//! Point reads: from memtable to memtable and run to run, newest first, until the value is known.
//!
//! A [`Search`] is where a read has come to. It goes on as long as memory or the local disk answer, and
//! says what it needs otherwise; who drives it (a single read, a batch) fetches that and goes on.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use weir_state_api::{Result, StateId};

use super::read::Target;
use super::{Shard, Table, TableView, Version};
use crate::format::{Block, EntryKind, TableMeta};
use crate::lsm::{KeyVersion, Resolver, StateEras};
use crate::store::load_ends;

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'k> {
    /// The stored key and its hash.
    pub(crate) key: &'k [u8],
    pub(crate) hash: u64,
    /// The state's stored number.
    pub(crate) state: StateId,
}

/// Operands that were found so far.
#[derive(Debug, Default)]
pub(crate) struct Operands {
    /// The era of the newest one, if there is one.
    newest: Option<u8>,
    /// That one. Most have no other, and are the value.
    newest_bytes: Vec<u8>,
    /// The others, newest first, each with its era.
    older: Vec<(u8, Vec<u8>)>,
}

impl Operands {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    /// One that is older than all others.
    pub(crate) fn push(&mut self, era: u8, operand: &[u8]) {
        if self.newest.is_some() {
            self.older.push((era, operand.to_vec()));
            return;
        }
        (self.newest, self.newest_bytes) = (Some(era), operand.to_vec());
    }
}

/// How far a read has come.
#[derive(Debug, Default)]
pub(crate) struct Search {
    operands: Operands,
    /// The run to look into next.
    run: usize,
    /// What it waits for, in that run.
    waits: Waits,
    /// What it waited for.
    meta: Option<Arc<TableMeta>>,
    block: Option<Block>,
}

/// What a search waits for.
#[derive(Debug, Clone, Copy, Default)]
enum Waits {
    #[default]
    Nothing,
    /// The end of a table.
    Meta,
    /// The block with this number.
    Block(usize),
}

/// What a search comes to.
#[derive(Debug)]
pub(crate) enum Reached {
    /// The value is in the buffer.
    Found,
    Absent,
    /// The end of this table must be read first.
    Meta(Table),
    /// This block of a table must be read first.
    Block(Table, usize),
}

impl Search {
    /// One below memtables that hold these operands.
    pub(crate) fn below(operands: Operands) -> Self {
        Search { operands, ..Search::default() }
    }

    /// Nothing older counts: `value`, if any, is the oldest version.
    pub(crate) fn finish(
        &mut self,
        eras: &StateEras,
        value: Option<(u8, &[u8])>,
        into: &mut Vec<u8>,
    ) -> Result<Reached> {
        into.clear();
        let operands = &mut self.operands;
        let resolved = match (operands.newest, value) {
            (None, None) => None,
            (None, Some((era, value))) => eras.convert(value, era)?,
            (Some(era), None) if operands.older.is_empty() => {
                match eras.convert(&operands.newest_bytes, era)? {
                    Some(Cow::Borrowed(_)) => {
                        std::mem::swap(into, &mut operands.newest_bytes);
                        return Ok(Reached::Found);
                    }
                    converted => converted,
                }
            }
            (Some(era), oldest) => {
                let operand = |era, value| KeyVersion { kind: EntryKind::Append, era, value };
                let newest = std::iter::once(operand(era, &operands.newest_bytes));
                let older = operands.older.iter().map(|(era, bytes)| operand(*era, bytes));
                let oldest =
                    oldest.map(|(era, value)| KeyVersion { kind: EntryKind::Put, era, value });
                let versions = newest.chain(older).chain(oldest);
                Resolver::for_reads().resolve(eras, versions, true)?.value()
            }
        };
        Ok(match resolved {
            Some(value) => {
                into.extend_from_slice(&value);
                Reached::Found
            }
            None => Reached::Absent,
        })
    }

    /// What it has come to, if it has come to something that must be read: not looked for again.
    fn need(&self, shard: &Shard, wanted: Wanted<'_>) -> Option<Reached> {
        if self.meta.is_some() || self.block.is_some() {
            return None;
        }
        let table = shard.runs().get(self.run)?.find(wanted.key)?.table();
        match self.waits {
            Waits::Nothing => None,
            Waits::Meta => Some(Reached::Meta(table.clone())),
            Waits::Block(number) => Some(Reached::Block(table.clone(), number)),
        }
    }

    /// The tables behind the one it has come to that may have the key, as far as their ends were not read.
    fn unread_ends<'v>(&self, shard: &'v Shard, key: &[u8]) -> impl Iterator<Item = &'v Table> {
        let runs = shard.runs().get(self.run + 1..).unwrap_or_default();
        let tables = runs.iter().filter_map(|run| run.find(key)).map(TableView::table);
        tables.filter(|table| table.meta_now().is_none())
    }

    /// Looks into the runs of a shard, from where it has come to. A value that is found is put into the
    /// buffer. Allocates nothing while blocks are in memory and no operands are met.
    pub(crate) fn go_on(
        &mut self,
        shard: &Shard,
        wanted: Wanted<'_>,
        into: &mut Vec<u8>,
    ) -> Result<Reached> {
        let Some(known) = shard.states().get(wanted.state.index()) else {
            return Ok(Reached::Absent);
        };
        let eras = &known.eras;
        while let Some(run) = shard.runs().get(self.run) {
            let Some(view) = run.find(wanted.key) else {
                self.run += 1;
                continue;
            };
            let table = view.table();
            let fetched = self.meta.take();
            let Some(meta) = fetched.as_ref().or_else(|| table.meta_now()) else {
                self.waits = Waits::Meta;
                return Ok(Reached::Meta(table.clone()));
            };
            let number = match (&self.block, self.waits) {
                (Some(_), Waits::Block(number)) => Some(number),
                _ if meta.may_contain(wanted.hash) => meta.block_of(wanted.key),
                _ => None,
            };
            if let Some(number) = number {
                let block = match self.block.take() {
                    Some(block) => Some(block),
                    None => table.block_now(number)?,
                };
                let Some(block) = block else {
                    self.waits = Waits::Block(number);
                    return Ok(Reached::Block(table.clone(), number));
                };
                if let Some((kind, value)) = block.get_hashed(wanted.key, wanted.hash) {
                    let era = meta.era_of(wanted.state).unwrap_or(0);
                    match kind {
                        EntryKind::Put => return self.finish(eras, Some((era, value)), into),
                        EntryKind::Delete => return self.finish(eras, None, into),
                        EntryKind::Append => self.operands.push(era, value),
                    }
                }
            }
            if !meta.range_deletes().is_empty() && meta.range_deletes().covers(wanted.key) {
                break;
            }
            self.run += 1;
        }
        self.finish(eras, None, into)
    }
}

/// Reads that wait, with all they need.
#[derive(Debug)]
pub(crate) struct PendingReads {
    version: Arc<Version>,
    /// The stored keys, one behind the other.
    keys: Vec<u8>,
    reads: Vec<PendingRead>,
}

#[derive(Debug)]
struct PendingRead {
    target: Target,
    /// Where its key is.
    key: Range<usize>,
    search: Search,
}

impl PendingReads {
    pub(crate) fn of(version: &Arc<Version>) -> Self {
        Self::with_capacity(version, 0)
    }

    /// With room for so many.
    pub(crate) fn with_capacity(version: &Arc<Version>, reads: usize) -> Self {
        let reads = Vec::with_capacity(reads);
        PendingReads { version: Arc::clone(version), keys: Vec::new(), reads }
    }

    /// Adds a read that has come to something that must be read first.
    pub(crate) fn push(&mut self, target: Target, key: &[u8], search: Search) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.reads.push(PendingRead { target, key: start..self.keys.len(), search });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.reads.len()
    }

    /// Whether reads of this version can be added.
    pub(crate) fn is_of(&self, version: &Arc<Version>) -> bool {
        Arc::ptr_eq(&self.version, version)
    }
}

/// Tables by what they are, with what is wanted of each.
#[derive(Debug, Default)]
struct Needs {
    /// The reads that wait for the end of each. Nobody waits for those of older runs, which are asked for
    /// at the same time: they are needed next unless a newer run has the key, and one after the other they
    /// would take a request's time each.
    metas: Vec<(Table, Vec<usize>)>,
    /// The blocks, ascending, and the reads that wait for each.
    blocks: Vec<(Table, Vec<(usize, usize)>)>,
}

impl Needs {
    /// What is wanted of a table, which is among them from now on.
    fn of_table<'l, T>(list: &'l mut Vec<(Table, Vec<T>)>, table: &Table) -> &'l mut Vec<T> {
        let known = list.iter().position(|(known, _)| Arc::ptr_eq(known, table));
        let index = known.unwrap_or_else(|| {
            list.push((Arc::clone(table), Vec::new()));
            list.len() - 1
        });
        &mut list[index].1
    }
}

/// Ends many reads together: in each round, all that they need of one table is asked for at once, and
/// all tables are read at the same time.
pub(crate) async fn read_all(pending: PendingReads) -> Result<Vec<Option<Bytes>>> {
    let PendingReads { version, keys, mut reads } = pending;
    // All values stand in one buffer, and share it.
    let mut found: Vec<Option<Range<usize>>> = vec![None; reads.len()];
    let mut values = Vec::new();
    let mut waiting: Vec<usize> = (0..reads.len()).collect();
    let mut buffer = Vec::new();
    while !waiting.is_empty() {
        let mut needs = Needs::default();
        for index in waiting.drain(..) {
            let read = &mut reads[index];
            let shard = &version.shards()[read.target.shard];
            let wanted = read.target.wanted(&keys[read.key.clone()]);
            let reached = match read.search.need(shard, wanted) {
                Some(need) => need,
                None => read.search.go_on(shard, wanted, &mut buffer)?,
            };
            match reached {
                Reached::Found => {
                    let start = values.len();
                    values.extend_from_slice(&buffer);
                    found[index] = Some(start..values.len());
                }
                Reached::Absent => {}
                Reached::Meta(table) => {
                    Needs::of_table(&mut needs.metas, &table).push(index);
                    for table in read.search.unread_ends(shard, wanted.key) {
                        Needs::of_table(&mut needs.metas, table);
                    }
                }
                Reached::Block(table, block) => {
                    Needs::of_table(&mut needs.blocks, &table).push((block, index));
                }
            }
        }
        let tables: Vec<Table> = needs.metas.iter().map(|(table, _)| Arc::clone(table)).collect();
        let metas = load_ends(&tables).into_iter().zip(needs.metas);
        let (metas, wait_for_metas): (Vec<_>, Vec<_>) = metas
            .filter(|(_, (_, indexes))| !indexes.is_empty())
            .map(|(meta, (_, indexes))| (meta, indexes))
            .unzip();
        let blocks = needs.blocks.iter_mut().map(|(table, wanted)| {
            wanted.sort_unstable();
            let mut numbers: Vec<usize> = wanted.iter().map(|(number, _)| *number).collect();
            numbers.dedup();
            table.fetch_blocks(&numbers)
        });
        let blocks: Vec<_> = blocks.collect();
        let (metas, blocks) = futures_util::future::try_join(
            futures_util::future::try_join_all(metas),
            futures_util::future::try_join_all(blocks),
        )
        .await?;
        for (indexes, meta) in wait_for_metas.into_iter().zip(metas) {
            for index in indexes {
                reads[index].search.meta = Some(Arc::clone(&meta));
                waiting.push(index);
            }
        }
        for ((_, wanted), blocks) in needs.blocks.into_iter().zip(blocks) {
            let mut blocks = blocks.into_iter();
            let mut last: Option<(usize, Block)> = None;
            for (number, index) in wanted {
                if last.as_ref().is_none_or(|(at, _)| *at != number) {
                    last = blocks.next().map(|block| (number, block));
                }
                reads[index].search.block = last.as_ref().map(|(_, block)| block.clone());
                waiting.push(index);
            }
        }
    }
    let values = Bytes::from(values);
    Ok(found.into_iter().map(|found| found.map(|range| values.slice(range))).collect())
}

/// Ends the only one of these reads.
pub(crate) async fn read_one(read: PendingReads) -> Result<Option<Bytes>> {
    Ok(read_all(read).await?.pop().flatten())
}
