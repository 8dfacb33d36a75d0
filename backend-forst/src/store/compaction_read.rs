//! Whole tables, block by block, past the block cache.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use weir_state_api::{Result, Spawned};

use super::table::Table;
use crate::format::{Block, BlockPlace, TableMeta};

/// How much is read at once, but for a single block that is larger.
const STRIPE: u64 = 2 << 20;

/// Blocks of a table in order, for who reads all of them once. One stripe is read ahead; neither the
/// block cache nor the table's heat notices.
#[derive(Debug)]
pub(crate) struct BlockStream {
    table: Arc<Table>,
    meta: Arc<TableMeta>,
    /// Blocks that no stripe was begun for.
    rest: Range<usize>,
    here: VecDeque<Block>,
    ahead: Option<Spawned<Vec<Block>>>,
}

impl Table {
    /// The blocks in a range, in order.
    pub(crate) fn read_for_compaction(
        self: &Arc<Self>,
        meta: Arc<TableMeta>,
        blocks: Range<usize>,
    ) -> BlockStream {
        let rest = blocks.start..blocks.end.min(meta.block_count());
        let table = Arc::clone(self);
        let mut stream = BlockStream { table, meta, rest, here: VecDeque::new(), ahead: None };
        stream.begin_stripe();
        stream
    }

    /// Reads neighbours from memory, local disk or the store.
    async fn read_stripe(self: Arc<Self>, places: Vec<BlockPlace>) -> Result<Vec<Block>> {
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return Ok(Vec::new());
        };
        let start = first.offset;
        let end = last.offset + u64::from(last.length);
        let decode = |bytes: &bytes::Bytes| -> Result<Vec<Block>> {
            let blocks = places.iter().map(|place| {
                let at = (place.offset - start) as usize; // within what was read
                let stored = bytes.slice(at..at + place.length as usize);
                Block::decode(&stored, place, self.origin())
            });
            blocks.collect()
        };
        if let Some(bytes) = self.resident_bytes() {
            // The index was checked against the length of the file.
            return decode(&bytes.slice(start as usize..end as usize));
        }
        if let Some(disk) = &self.tables.caches().disk
            && let Some(bytes) = disk.read(self.shared.id, start, (end - start) as usize)
        {
            match decode(&bytes) {
                Ok(blocks) => return Ok(blocks),
                Err(_) => disk.remove_damaged(self.shared.id),
            }
        }
        decode(&self.tables.store().read_range(self.origin(), start..end).await?)
    }
}

impl BlockStream {
    /// The next block; `None` behind the last. After an error the stream is over.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Block>>> {
        loop {
            if let Some(block) = self.here.pop_front() {
                return Poll::Ready(Ok(Some(block)));
            }
            let Some(ahead) = &mut self.ahead else { return Poll::Ready(Ok(None)) };
            let blocks = ready!(Pin::new(ahead).poll(context));
            self.ahead = None;
            match blocks {
                Ok(blocks) => {
                    self.here.extend(blocks);
                    self.begin_stripe();
                }
                Err(error) => {
                    self.rest = 0..0;
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    fn begin_stripe(&mut self) {
        let mut places: Vec<BlockPlace> = Vec::new();
        let mut length = 0;
        for block in self.rest.clone() {
            let Some(place) = self.meta.block_place(block) else { break };
            length += u64::from(place.length);
            if !places.is_empty() && length > STRIPE {
                break;
            }
            places.push(place);
        }
        self.rest.start += places.len();
        if !places.is_empty() {
            let read = Arc::clone(&self.table).read_stripe(places);
            self.ahead = Some(Spawned::future(&**self.table.tables.spawner(), read));
        }
    }
}
