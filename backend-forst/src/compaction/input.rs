//! The tables of one run, read in order and past the block cache.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use weir_state_api::{Error, ErrorKind, KeyGroupRange, Result, StateId};

use crate::format::{BlockCursor, Entry, TableMeta};
use crate::lsm::{SortedSource, key_bounds};
use crate::store::{BlockStream, Table};

/// A table, and the key groups in which it takes part in a compaction.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) table: Arc<Table>,
    pub(crate) groups: KeyGroupRange,
}

/// An input whose meta is in memory.
#[derive(Debug)]
struct OpenInput {
    table: Arc<Table>,
    meta: Arc<TableMeta>,
    from: [u8; 2],
    to: [u8; 2],
}

/// One run as a source for a merge. Holds one block and what is read ahead.
#[derive(Debug)]
pub(super) struct RunInput {
    waiting: VecDeque<OpenInput>,
    present: Option<Reading>,
    /// Those with range deletes, until the end: a merge asks for them at any time.
    deleting: Vec<(Arc<TableMeta>, [u8; 2], [u8; 2])>,
}

#[derive(Debug)]
struct Reading {
    input: OpenInput,
    blocks: BlockStream,
    cursor: Option<BlockCursor>,
}

impl RunInput {
    /// Opens the tables of a run: reads their metas, no block.
    ///
    /// # Errors
    /// Those of reading; [`Corrupt`](ErrorKind::Corrupt) when the tables are not disjoint and in
    /// order.
    pub(super) async fn open(inputs: Vec<Input>) -> Result<Self> {
        let metas = inputs.iter().map(|input| input.table.load_meta());
        let metas = futures_util::future::try_join_all(metas).await?;
        let mut run = RunInput { waiting: VecDeque::new(), present: None, deleting: Vec::new() };
        let mut reached: Vec<u8> = Vec::new();
        for (Input { table, groups }, meta) in inputs.into_iter().zip(metas) {
            let (from, to) = key_bounds(groups);
            let properties = meta.properties();
            let first = properties.first_key.as_ref().max(from.as_slice());
            if first < reached.as_slice() {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    "the tables of a run are not disjoint and in order",
                )
                .object(table.origin())
                .advice("restore another checkpoint"));
            }
            reached = properties.end_key.as_ref().min(to.as_slice()).to_vec();
            if !meta.range_deletes().is_empty() {
                run.deleting.push((Arc::clone(&meta), from, to));
            }
            run.waiting.push_back(OpenInput { table, meta, from, to });
        }
        Ok(run)
    }

    /// The range deletes that take part.
    pub(super) fn range_deletes(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        self.deleting.iter().flat_map(|(meta, from, to)| {
            let clip = move |(start, end): (&[u8], &[u8])| {
                (start.max(from.as_slice()).to_vec(), end.min(to.as_slice()).to_vec())
            };
            meta.range_deletes().overlapping(from, to).map(clip)
        })
    }
}

impl OpenInput {
    fn read(self) -> Reading {
        let meta = &self.meta;
        let behind = meta.last_block_before(&self.to).map_or(0, |last| last + 1);
        let blocks = meta.first_block_from(&self.from)..behind;
        let blocks = self.table.read_for_compaction(Arc::clone(meta), blocks);
        Reading { input: self, blocks, cursor: None }
    }
}

impl Reading {
    /// Ready with whether it stands at an entry; `false` behind the last.
    fn poll_entry(&mut self, context: &mut Context<'_>) -> Poll<Result<bool>> {
        loop {
            if let Some(cursor) = &mut self.cursor
                && let Some(entry) = cursor.entry()
            {
                return Poll::Ready(Ok(entry.key < self.input.to.as_slice()));
            }
            let Some(block) = ready!(self.blocks.poll_next(context))? else {
                return Poll::Ready(Ok(false));
            };
            let cursor = match &mut self.cursor {
                Some(cursor) => {
                    cursor.enter(block);
                    cursor
                }
                none => none.insert(BlockCursor::new(block)),
            };
            if cursor.entry().is_some_and(|entry| entry.key < self.input.from.as_slice()) {
                cursor.seek(&self.input.from);
            }
        }
    }
}

impl SortedSource for RunInput {
    fn poll_entry(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            if let Some(reading) = &mut self.present {
                if ready!(reading.poll_entry(context))? {
                    return Poll::Ready(Ok(()));
                }
                self.present = None;
            }
            match self.waiting.pop_front() {
                Some(input) => self.present = Some(input.read()),
                None => return Poll::Ready(Ok(())),
            }
        }
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.present.as_ref()?.cursor.as_ref()?.entry()
    }

    fn advance(&mut self) {
        if let Some(cursor) = self.present.as_mut().and_then(|reading| reading.cursor.as_mut()) {
            cursor.next();
        }
    }

    fn era(&self, state: StateId) -> u8 {
        let present = self.present.as_ref();
        present.and_then(|reading| reading.input.meta.era_of(state)).unwrap_or(0)
    }

    fn hides(&self, key: &[u8]) -> bool {
        self.deleting.iter().any(|(meta, from, to)| {
            from.as_slice() <= key && key < to.as_slice() && meta.range_deletes().covers(key)
        })
    }
}
