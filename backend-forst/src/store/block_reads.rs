//! Blocks from the store: neighbours in one request, each read once for all who want it.

use std::ops::Range;
use std::sync::Arc;

use futures_util::FutureExt;
use weir_state_api::{BoxFuture, Result};

use super::block_cache::BlockKey;
use super::hydration::consider;
use super::neighbours::neighbours;
use super::single_flight::{Lead, Wait};
use super::table::Table;
use crate::format::{Block, BlockPlace, TableMeta};

/// Up to this many bytes that nobody wants are read rather than to make two requests of one.
const MAX_GAP: u64 = 64 << 10;

/// A request reads at most so much, but for a single block: larger ones are faster side by side.
const MAX_RANGE: u64 = 4 << 20;

/// Blocks that are there or on their way.
#[derive(Debug)]
struct Coming {
    /// In the order in which they were asked for.
    blocks: Vec<Option<Block>>,
    /// Those that are not there yet, by their places among them.
    later: Vec<(usize, Wait<Block>)>,
}

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
            return async move { coming?.arrive().await }.boxed();
        }
        let (table, meta, blocks) = (Arc::clone(self), self.load_meta(), blocks.to_vec());
        async move {
            let coming = table.begin_reads(&*meta.await?, &blocks);
            coming?.arrive().await
        }
        .boxed()
    }

    /// Begins to read what is not at hand and what nobody reads already.
    fn begin_reads(self: &Arc<Self>, meta: &TableMeta, numbers: &[usize]) -> Result<Coming> {
        let caches = self.tables.caches();
        let mut blocks = Vec::with_capacity(numbers.len());
        let mut missing = Vec::new();
        for (at, number) in numbers.iter().enumerate() {
            let key = self.key(*number);
            let block = match caches.blocks.get(key) {
                None => self.block_at_hand(key, &self.place(meta, *number)?)?,
                found => found,
            };
            if block.is_none() {
                missing.push((key, at));
            }
            blocks.push(block);
        }
        if missing.is_empty() {
            return Ok(Coming { blocks, later: Vec::new() });
        }
        // In the order of the file; each once, as it may be asked for twice.
        missing.sort_unstable_by_key(|(key, _)| key.block);
        let mut keys: Vec<BlockKey> = missing.iter().map(|(key, _)| *key).collect();
        keys.dedup();
        let (waits, mut lead) = caches.block_reads.ask_all(&keys);
        // Another may have read some since the cache was asked.
        lead.end_known(|key| caches.blocks.peek(key));
        if lead.keys().len() > 0 {
            self.shared.heat.add(lead.keys().len() as u32);
            self.spawn_reads(meta, lead)?;
            consider(self, meta);
        }
        let mut of_key = keys.iter().zip(&waits).peekable();
        let later = missing.into_iter().filter_map(|(key, at)| {
            while of_key.next_if(|(known, _)| **known != key).is_some() {}
            of_key.peek().map(|(_, wait)| (at, Wait::clone(wait)))
        });
        Ok(Coming { blocks, later: later.collect() })
    }

    fn spawn_reads(
        self: &Arc<Self>,
        meta: &TableMeta,
        mut lead: Lead<BlockKey, Block>,
    ) -> Result<()> {
        let places = lead.keys().map(|key| self.place(meta, key.block as usize));
        let places = places.collect::<Result<Vec<_>>>()?;
        for group in merge(&places) {
            let (lead, places) = (lead.split(group.len()), places[group].to_vec());
            let table = Arc::clone(self);
            self.tables
                .spawner()
                .spawn(async move { table.read_group(lead, &places).await }.boxed());
        }
        Ok(())
    }

    /// Reads neighbours with one request and tells all who wait for them.
    async fn read_group(&self, lead: Lead<BlockKey, Block>, places: &[BlockPlace]) {
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return };
        let (start, shared) = (first.offset, places.len() > 1);
        let range = start..end_of(last);
        let bytes = match self.tables.store().read_range(self.origin(), range).await {
            Ok(bytes) => bytes,
            Err(error) => {
                let error = Arc::new(error);
                return lead.done(places.iter().map(|_| Err(Arc::clone(&error))));
            }
        };
        let decoded = lead.keys().zip(places).map(|(key, place)| {
            let at = (place.offset - start) as usize; // within what was read
            let stored = bytes.slice(at..at + place.length as usize);
            // A block that is kept should not keep its neighbours.
            let block = match shared {
                true => Block::decode_copy(&stored, place, self.origin()),
                false => Block::decode(&stored, place, self.origin()),
            };
            if let Ok(block) = &block {
                self.tables.caches().blocks.insert(key, block.clone());
            }
            block.map_err(Arc::new)
        });
        let decoded: Vec<_> = decoded.collect();
        lead.done(decoded);
    }
}

impl Coming {
    async fn arrive(self) -> Result<Vec<Block>> {
        let Coming { mut blocks, later } = self;
        for (at, wait) in later {
            blocks[at] = Some(wait.result().await?);
        }
        Ok(blocks.into_iter().flatten().collect())
    }
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
