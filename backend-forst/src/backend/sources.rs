//! Memtables and runs as sorted sequences, for scans.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use weir_state_api::{BoxFuture, Result, StateId};

use super::frozen::era_in;
use super::{Run, Table, TableView};
use crate::format::{Block, BlockCursor, Entry, TableMeta};
use crate::lsm::{Direction, SortedSource};
use crate::memtable::{DeletedRanges, Position, Sequence};
use crate::store::load_ends;

/// The stored keys that a scan covers: from the first up to and without the second.
#[derive(Debug, Clone)]
pub(crate) struct KeyRange {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
}

/// A range of the entries of one map.
#[derive(Debug, Clone)]
pub(crate) struct MapPart {
    pub(crate) shard: usize,
    /// The state's stored number.
    pub(crate) state: StateId,
    /// Of what all keys of the map begin with.
    pub(crate) hash: u64,
    /// The length of that.
    pub(crate) prefix_len: usize,
    pub(crate) range: KeyRange,
}

impl MapPart {
    /// Buffers for one.
    pub(crate) fn nothing() -> Self {
        MapPart {
            shard: 0,
            state: StateId(0),
            hash: 0,
            prefix_len: 0,
            range: KeyRange { from: Vec::new(), to: Vec::new() },
        }
    }

    /// What all keys of the map begin with: so do the keys that a range begins with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.range.from[..self.prefix_len]
    }
}

/// A memtable as it was when a scan began.
#[derive(Debug, Clone)]
pub(crate) struct PinnedMemory {
    /// Maps, in the order of their keys.
    pub(crate) entries: Arc<[Sequence]>,
    /// `None` without any.
    pub(crate) deleted: Option<Arc<DeletedRanges>>,
    /// The era of each state by its stored number.
    pub(crate) eras: Arc<Vec<u8>>,
}

impl PinnedMemory {
    /// Whether there is anything.
    pub(crate) fn is_any(&self) -> bool {
        !self.entries.is_empty() || self.deleted.is_some()
    }
}

/// A source of a scan.
#[derive(Debug)]
pub(crate) enum Source {
    Memory(MemorySource),
    Run(Box<RunSource>),
}

/// One memtable.
#[derive(Debug)]
pub(crate) struct MemorySource {
    memory: PinnedMemory,
    range: KeyRange,
    direction: Direction,
    /// The maps that are left, the present one among them.
    maps: Range<usize>,
    /// The entries that are left of it, the present one among them.
    left: Range<Position>,
}

impl MemorySource {
    pub(crate) fn new(memory: PinnedMemory, range: KeyRange, direction: Direction) -> Self {
        let maps = &memory.entries;
        let first = maps.partition_point(|map| map.is_before(&range.from));
        let end = first + maps[first..].partition_point(|map| !map.is_behind(&range.to));
        let left = Position::START..Position::START;
        let mut source = MemorySource { memory, range, direction, maps: first..end, left };
        source.enter();
        source
    }

    fn map(&self) -> Option<&Sequence> {
        let index = match self.direction {
            _ if self.maps.is_empty() => return None,
            Direction::Forward => self.maps.start,
            Direction::Backward => self.maps.end - 1,
        };
        self.memory.entries.get(index)
    }

    /// Goes over to the next map with an entry in the range, if the present one has none left.
    fn enter(&mut self) {
        while let Some(map) = self.map() {
            let left = map.bound(&self.range.from)..map.bound(&self.range.to);
            if !left.is_empty() {
                self.left = left;
                return;
            }
            self.leave();
        }
    }

    fn leave(&mut self) {
        match self.direction {
            Direction::Forward => self.maps.start += 1,
            Direction::Backward => self.maps.end -= 1,
        }
    }
}

/// What a run waits for.
enum Fetched {
    Meta(Arc<TableMeta>),
    Blocks(usize, Vec<Block>),
}

/// One run: table by table, block by block. Reads ahead more and more while it is followed.
pub(crate) struct RunSource {
    tables: VecDeque<TableView>,
    range: KeyRange,
    direction: Direction,
    /// When all wanted keys begin with the same bytes: the hash of those, for filters.
    prefix_hash: Option<u64>,
    meta: Option<Arc<TableMeta>>,
    /// The part of the range that the present table answers for, when it is open.
    within: KeyRange,
    cursor: Option<BlockCursor>,
    /// Whether the cursor stands at an entry of the range.
    there: bool,
    /// The next block of the table to enter; `None` when it has none.
    next_block: Option<usize>,
    /// Blocks read ahead, in the direction of the scan.
    ahead: VecDeque<(usize, Block)>,
    read_ahead: usize,
    pending: Option<BoxFuture<'static, Result<Fetched>>>,
    /// Of the tables up to the present one.
    deleted: DeletedRanges,
}

/// Blocks that a scan reads ahead at most: a MiB, uncompressed.
const MAX_READ_AHEAD: usize = 64;

impl RunSource {
    /// `prefix_hash`: of what all keys of the range begin with, if that is what the keys of one map do.
    pub(crate) fn new(
        run: &Run,
        range: KeyRange,
        direction: Direction,
        prefix_hash: Option<u64>,
    ) -> Self {
        let mut tables: VecDeque<_> =
            run.overlapping(&range.from, &range.to).iter().cloned().collect();
        if direction == Direction::Backward {
            tables.make_contiguous().reverse();
        }
        RunSource {
            tables,
            within: KeyRange { from: Vec::new(), to: Vec::new() },
            range,
            direction,
            prefix_hash,
            meta: None,
            cursor: None,
            there: false,
            next_block: None,
            ahead: VecDeque::new(),
            read_ahead: 1,
            pending: None,
            deleted: DeletedRanges::default(),
        }
    }

    /// Begins to read the ends of the tables that these sources begin with, as far as they are not in
    /// memory: those that stand side by side with one request.
    pub(crate) fn load_first_ends(sources: &mut [RunSource]) {
        let is_missing = |source: &RunSource| {
            let first = source.tables.front();
            first.is_some_and(|view| view.table().meta_now().is_none())
        };
        let missing = sources.iter_mut().filter(|source| is_missing(source));
        let missing: Vec<_> = missing.collect();
        let tables = missing.iter().filter_map(|source| source.tables.front());
        let tables: Vec<Table> = tables.map(|view| Arc::clone(view.table())).collect();
        for (source, end) in missing.into_iter().zip(load_ends(&tables)) {
            source.pending = Some(Box::pin(async move { Ok(Fetched::Meta(end.await?)) }));
        }
    }

    /// Takes in what is read when a table is opened, and finds the block to begin with.
    fn open(&mut self, meta: Arc<TableMeta>) {
        let Some(table) = self.tables.front() else { return };
        let KeyRange { from, to } = &mut self.within;
        table.first_key().max(&self.range.from).clone_into(from);
        table.end_key().min(&self.range.to).clone_into(to);
        for (start, end) in meta.range_deletes().overlapping(from, to) {
            self.deleted.add(start.max(from), end.min(to));
        }
        let wanted = self.prefix_hash.is_none_or(|hash| meta.may_contain(hash));
        self.next_block = match self.direction {
            _ if !wanted => None,
            Direction::Forward => Some(meta.first_block_from(from)),
            Direction::Backward => meta.last_block_before(to),
        }
        .filter(|block| *block < meta.block_count());
        self.meta = Some(meta);
    }

    /// Goes over to a block, at its first entry in the range.
    fn enter(&mut self, number: usize, block: Block, meta: &TableMeta) {
        let cursor = match &mut self.cursor {
            Some(cursor) => {
                cursor.enter(block);
                cursor
            }
            None => self.cursor.insert(BlockCursor::new(block)),
        };
        match self.direction {
            Direction::Forward => {
                cursor.seek(&self.within.from);
                self.next_block = Some(number + 1).filter(|next| *next < meta.block_count());
            }
            Direction::Backward => {
                cursor.seek_before(&self.within.to);
                self.next_block = number.checked_sub(1);
            }
        }
        self.check_bounds();
    }

    /// Whether the cursor stands inside of the range; behind its end no further block is wanted.
    fn check_bounds(&mut self) {
        let Some(entry) = self.cursor.as_ref().and_then(BlockCursor::entry) else {
            self.there = false;
            return;
        };
        // It has been sought from the other end on.
        self.there = match self.direction {
            Direction::Forward => *entry.key < self.within.to[..],
            Direction::Backward => *entry.key >= self.within.from[..],
        };
        if !self.there {
            self.next_block = None;
        }
    }

    /// Begins to read a block, and some that follow.
    fn fetch(&mut self, number: usize, meta: &TableMeta) {
        let Some(table) = self.tables.front() else { return };
        let KeyRange { from, to } = &self.within;
        let count = self.read_ahead;
        let blocks: Vec<usize> = match self.direction {
            Direction::Forward => {
                let last = meta.last_block_before(to).unwrap_or(number).max(number);
                (number..=last.min(number + count - 1)).collect()
            }
            Direction::Backward => {
                let first = meta.first_block_from(from).min(number);
                (first.max((number + 1).saturating_sub(count))..=number).collect()
            }
        };
        let first = blocks[0];
        let fetch = table.table().fetch_blocks(&blocks);
        self.read_ahead = (count * 2).min(MAX_READ_AHEAD);
        self.pending = Some(Box::pin(async move { Ok(Fetched::Blocks(first, fetch.await?)) }));
    }

    fn take_ahead(&mut self, number: usize) -> Option<Block> {
        let (next, _) = self.ahead.front()?;
        if *next != number {
            self.ahead.clear();
            return None;
        }
        self.ahead.pop_front().map(|(_, block)| block)
    }

    fn poll_pending(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(Ok(())) };
        let fetched = ready!(pending.as_mut().poll(context));
        self.pending = None;
        match fetched? {
            Fetched::Meta(meta) => self.open(meta),
            Fetched::Blocks(first, blocks) => {
                self.ahead = (first..).zip(blocks).collect();
                if self.direction == Direction::Backward {
                    self.ahead.make_contiguous().reverse();
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl SortedSource for RunSource {
    fn poll_entry(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while !self.there {
            ready!(self.poll_pending(context))?;
            let Some(table) = self.tables.front().map(|view| Arc::clone(view.table())) else {
                return Poll::Ready(Ok(()));
            };
            let Some(meta) = self.meta.clone() else {
                match table.meta_now().cloned() {
                    Some(meta) => self.open(meta),
                    None => {
                        let load = table.load_meta();
                        self.pending =
                            Some(Box::pin(async move { Ok(Fetched::Meta(load.await?)) }));
                    }
                }
                continue;
            };
            let Some(number) = self.next_block else {
                self.tables.pop_front();
                self.meta = None;
                self.ahead.clear();
                continue;
            };
            match self.take_ahead(number) {
                Some(block) => self.enter(number, block, &meta),
                None => match table.block_now(number)? {
                    Some(block) => self.enter(number, block, &meta),
                    None => self.fetch(number, &meta),
                },
            }
        }
        Poll::Ready(Ok(()))
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.cursor.as_ref().filter(|_| self.there)?.entry()
    }

    fn advance(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            match self.direction {
                Direction::Forward => cursor.next(),
                Direction::Backward => cursor.prev(),
            }
        }
        self.check_bounds();
    }

    fn era(&self, state: StateId) -> u8 {
        self.meta.as_ref().and_then(|meta| meta.era_of(state)).unwrap_or(0)
    }

    fn hides(&self, key: &[u8]) -> bool {
        self.deleted.covers(key)
    }
}

impl SortedSource for MemorySource {
    fn poll_entry(&mut self, _context: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let map = self.map()?;
        match self.direction {
            Direction::Forward => map.entry(self.left.start),
            Direction::Backward => map.entry(map.previous(self.left.end)?),
        }
    }

    fn advance(&mut self) {
        let Some(map) = self.map() else { return };
        match self.direction {
            Direction::Forward => self.left.start = map.next(self.left.start),
            Direction::Backward => {
                self.left.end = map.previous(self.left.end).unwrap_or(self.left.start);
            }
        }
        if self.left.is_empty() {
            self.leave();
            self.enter();
        }
    }

    fn era(&self, state: StateId) -> u8 {
        era_in(&self.memory.eras, state)
    }

    fn hides(&self, key: &[u8]) -> bool {
        self.memory.deleted.as_ref().is_some_and(|deleted| deleted.covers(key))
    }
}

impl SortedSource for Source {
    fn poll_entry(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Source::Memory(source) => source.poll_entry(context),
            Source::Run(source) => source.poll_entry(context),
        }
    }

    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            Source::Memory(source) => source.entry(),
            Source::Run(source) => source.entry(),
        }
    }

    fn advance(&mut self) {
        match self {
            Source::Memory(source) => source.advance(),
            Source::Run(source) => source.advance(),
        }
    }

    fn era(&self, state: StateId) -> u8 {
        match self {
            Source::Memory(source) => source.era(state),
            Source::Run(source) => source.era(state),
        }
    }

    fn hides(&self, key: &[u8]) -> bool {
        match self {
            Source::Memory(source) => source.hides(key),
            Source::Run(source) => source.hides(key),
        }
    }
}

impl std::fmt::Debug for RunSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunSource").field("tables", &self.tables.len()).finish_non_exhaustive()
    }
}
