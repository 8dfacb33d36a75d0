//! Blocks from the store: neighbours in one request, each read once for all who want it.

use std::ops::Range;
use std::sync::Arc;

use futures_util::FutureExt;
use weir_state_api::{BoxFuture, Result};

use super::block_cache::BlockKey;
use super::hydration::consider;
use super::neighbours::neighbours;
use super::single_flight::{Lead, Ticket, Wait};
use super::table::Table;
use crate::format::{Block, BlockPlace, TableMeta};

/// Up to this many bytes that nobody wants are read rather than to make two requests of one.
const MAX_GAP: u64 = 64 << 10;

/// A request reads at most so much, but for a single block: larger ones are faster side by side.
const MAX_RANGE: u64 = 4 << 20;

/// A block that is there or on its way.
#[derive(Debug)]
enum Coming {
    Here(Block),
    Later(Wait<Block>),
}

/// A block that this reader must read, for itself and for whoever asks meanwhile.
type Wanted = (BlockPlace, Lead<BlockKey, Block>);

impl Table {
    /// Blocks, in the order they are asked for, from wherever they are. Reads begin at once, on the
    /// spawner, and go on when the future is dropped: that is a prefetch.
    ///
    /// # Errors
    /// The store's; [`Corrupt`](weir_state_api::ErrorKind::Corrupt) names the object.
    pub(crate) fn fetch_blocks(
        self: &Arc<Self>,
        blocks: &[usize],
    ) -> BoxFuture<'static, Result<Vec<Block>>> {
        if let Some(meta) = self.meta_now() {
            let coming = self.begin_reads(meta, blocks);
            return async move { arrive(coming?).await }.boxed();
        }
        let (table, meta, blocks) = (Arc::clone(self), self.load_meta(), blocks.to_vec());
        async move {
            let coming = table.begin_reads(&*meta.await?, &blocks);
            arrive(coming?).await
        }
        .boxed()
    }

    /// Begins to read what is not at hand and what nobody reads already.
    fn begin_reads(self: &Arc<Self>, meta: &TableMeta, blocks: &[usize]) -> Result<Vec<Coming>> {
        let caches = self.tables.caches();
        let places: Result<Vec<BlockPlace>> =
            blocks.iter().map(|block| self.place(meta, *block)).collect();
        let mut coming = Vec::with_capacity(blocks.len());
        let mut wanted = Vec::new();
        for (block, place) in blocks.iter().zip(places?) {
            let key = self.key(*block);
            let at_hand = match caches.blocks.get(key) {
                None => self.block_at_hand(key, &place)?,
                found => found,
            };
            coming.push(match at_hand {
                Some(block) => Coming::Here(block),
                None => match caches.block_reads.ask(key) {
                    Ticket::Wait(wait) => Coming::Later(wait),
                    // Another may have read it since the cache was asked.
                    Ticket::Lead(lead) => match caches.blocks.peek(key) {
                        Some(block) => {
                            lead.done(Ok(block.clone()));
                            Coming::Here(block)
                        }
                        None => {
                            let wait = lead.wait();
                            wanted.push((place, lead));
                            Coming::Later(wait)
                        }
                    },
                },
            });
        }
        if !wanted.is_empty() {
            self.shared.heat.add(wanted.len() as u32);
            self.spawn_reads(wanted);
            consider(self, meta);
        }
        Ok(coming)
    }

    fn spawn_reads(self: &Arc<Self>, mut wanted: Vec<Wanted>) {
        wanted.sort_by_key(|(place, _)| place.offset);
        let places: Vec<BlockPlace> = wanted.iter().map(|(place, _)| *place).collect();
        let mut wanted = wanted.into_iter();
        for group in merge(&places) {
            let group: Vec<Wanted> = wanted.by_ref().take(group.len()).collect();
            let table = Arc::clone(self);
            self.tables.spawner().spawn(async move { table.read_group(group).await }.boxed());
        }
    }

    /// Reads neighbours with one request and tells all who wait for them.
    async fn read_group(&self, group: Vec<Wanted>) {
        let (Some((first, _)), Some((last, _))) = (group.first(), group.last()) else { return };
        let start = first.offset;
        let range = start..end_of(last);
        let read = self.tables.store().read_range(self.origin(), range).await;
        match read {
            Ok(bytes) => {
                let shared = group.len() > 1;
                let decoded = group.into_iter().map(|(place, lead)| {
                    let at = (place.offset - start) as usize; // within what was read
                    let stored = bytes.slice(at..at + place.length as usize);
                    // A block that is kept should not keep its neighbours.
                    let block = match shared {
                        true => Block::decode_copy(&stored, &place, self.origin()),
                        false => Block::decode(&stored, &place, self.origin()),
                    };
                    if let Ok(block) = &block {
                        self.tables.caches().blocks.insert(*lead.key(), block.clone());
                    }
                    (lead, block.map_err(Arc::new))
                });
                // Who waits for many is woken when all are there, not for each.
                let decoded: Vec<_> = decoded.collect();
                decoded.into_iter().for_each(|(lead, block)| lead.done(block));
            }
            Err(error) => {
                let error = Arc::new(error);
                for (_, lead) in group {
                    lead.done(Err(Arc::clone(&error)));
                }
            }
        }
    }
}

async fn arrive(coming: Vec<Coming>) -> Result<Vec<Block>> {
    let mut blocks = Vec::with_capacity(coming.len());
    for block in coming {
        blocks.push(match block {
            Coming::Here(block) => block,
            Coming::Later(wait) => wait.result().await?,
        });
    }
    Ok(blocks)
}

fn end_of(place: &BlockPlace) -> u64 {
    place.offset + u64::from(place.length)
}

/// Which of the blocks, in the order of the file, are read with one request.
pub(super) fn merge(places: &[BlockPlace]) -> Vec<Range<usize>> {
    let range = |index: usize| places[index].offset..end_of(&places[index]);
    neighbours(places.len(), range, MAX_GAP, MAX_RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(gaps_and_lengths: &[(u64, u32)]) -> Vec<BlockPlace> {
        let mut offset = 0;
        let place = |(gap, length): &(u64, u32)| {
            offset += gap;
            let place = BlockPlace { offset, length: *length, crc32: 0 };
            offset += u64::from(*length);
            place
        };
        gaps_and_lengths.iter().map(place).collect()
    }

    #[test]
    fn neighbours_go_together_up_to_a_limit() {
        let near = places(&[(0, 10), (MAX_GAP, 10), (MAX_GAP + 1, 10), (0, 10)]);
        assert_eq!(merge(&near), [0..2, 2..4]);
        let large = places(&[(0, 3 << 20), (0, 1 << 20), (0, 1), (0, 8 << 20), (0, 1)]);
        assert_eq!(merge(&large), [0..2, 2..3, 3..4, 4..5]);
        assert!(merge(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn every_block_is_in_one_request_and_none_could_be_saved(
            places in prop::collection::vec((0..2 * MAX_GAP, 1..1_500_000_u32), 0..40),
        ) {
            let places = self::places(&places);
            let groups = merge(&places);
            let length = |group: &Range<usize>| end_of(&places[group.end - 1]) - places[group.start].offset;
            let gap = |index: usize| places[index].offset - end_of(&places[index - 1]);
            let mut next = 0;
            for group in &groups {
                prop_assert_eq!(group.start, next);
                next = group.end;
                prop_assert!(group.len() == 1 || length(group) <= MAX_RANGE);
                prop_assert!((group.start + 1..group.end).all(|index| gap(index) <= MAX_GAP));
            }
            prop_assert_eq!(next, places.len());
            for pair in groups.windows(2) {
                let wider = pair[0].start..pair[1].start + 1;
                prop_assert!(gap(pair[1].start) > MAX_GAP || length(&wider) > MAX_RANGE);
            }
        }
    }
}
