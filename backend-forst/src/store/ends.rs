//! Ends of several tables, with as few requests as there can be.
//!
//! A checkpoint may have put copies of the ends of tables that lie above each other into one object, one
//! behind the other. Who needs several of them reads them together.

use std::ops::Range;
use std::sync::Arc;

use futures_util::FutureExt;
use weir_state_api::{BoxFuture, ObjectRef, Result};

use super::cache_id::CacheId;
use super::neighbours::neighbours;
use super::single_flight::Lead;
use super::table::Table;
use crate::format::TableMeta;

/// Up to this many bytes that nobody wants are read rather than to make two requests of one.
const MAX_GAP: u64 = 1 << 20;

/// A request reads at most so much, but for a single end: larger ones are faster side by side.
const MAX_RANGE: u64 = 8 << 20;

/// A copy of a table's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndCopy {
    /// The object with it and others.
    pub(crate) object: Arc<ObjectRef>,
    /// Its first byte there.
    pub(crate) offset: u64,
}

/// A table whose end this reader must read, for itself and for whoever asks meanwhile.
struct Wanted {
    table: Arc<Table>,
    copy: EndCopy,
    lead: Lead<CacheId, Arc<TableMeta>>,
}

impl Wanted {
    fn range(&self) -> Range<u64> {
        let start = self.copy.offset;
        start..start + u64::from(self.table.meta_place().length)
    }
}

/// Begins to read the ends of these tables, those that stand side by side with one request. Reads go on
/// when the futures are dropped.
pub(crate) fn load_ends(tables: &[Arc<Table>]) -> Vec<BoxFuture<'static, Result<Arc<TableMeta>>>> {
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut coming = Vec::with_capacity(tables.len());
    for table in tables {
        let copy = table.end_copy().filter(|_| table.end_at_hand().is_none());
        let Some(copy) = copy.cloned() else {
            coming.push(table.load_meta());
            continue;
        };
        let (wait, lead) = table.tables.caches().meta_reads.ask(table.shared.id);
        if let Some(lead) = lead {
            match table.meta_now() {
                Some(meta) => lead.done([Ok(Arc::clone(meta))]),
                None => wanted.push(Wanted { table: Arc::clone(table), copy, lead }),
            }
        }
        coming.push(table.kept(wait));
    }
    for group in merge(wanted) {
        let Some(first) = group.first() else { continue };
        let spawner = Arc::clone(first.table.tables.spawner());
        spawner.spawn(read_group(group).boxed());
    }
    coming
}

/// Those that are read with one request.
fn merge(mut wanted: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    wanted.sort_by(|a, b| {
        let place = |wanted: &Wanted| wanted.copy.offset;
        a.copy.object.path.cmp(&b.copy.object.path).then(place(a).cmp(&place(b)))
    });
    let mut lengths = Vec::new();
    for of_object in wanted.chunk_by(|a, b| a.copy.object.path == b.copy.object.path) {
        let range = |index: usize| of_object[index].range();
        let groups = neighbours(of_object.len(), range, MAX_GAP, MAX_RANGE);
        lengths.extend(groups.into_iter().map(|group| group.len()));
    }
    let mut wanted = wanted.into_iter();
    lengths.into_iter().map(|length| wanted.by_ref().take(length).collect()).collect()
}

/// Reads neighbours with one request and tells all who wait for them. A copy is not needed: one that
/// cannot be read or is not as it was written is passed over.
async fn read_group(group: Vec<Wanted>) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let (start, end) = (first.range().start, last.range().end);
    let path = &first.copy.object.path;
    let read = first.table.tables.store().read_range(path, start..end).await;
    if let Err(error) = &read {
        tracing::warn!(%error, "copies of tables' ends are not read; the tables themselves are");
    }
    for Wanted { table, copy, lead } in group {
        let kept = read.as_ref().ok().and_then(|bytes| {
            let at = (copy.offset - start) as usize; // within what was read
            let copied = bytes.get(at..at + table.meta_place().length as usize)?;
            let kept = table.keep_copied_meta(copied, &copy.object.path);
            kept.inspect_err(|error| tracing::warn!(%error, "a copy of a table's end is damaged"))
                .ok()
        });
        let meta = match kept {
            Some(meta) => Ok(meta),
            None => table.read_meta().await.map_err(Arc::new),
        };
        lead.done([meta]);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_state_api::{ErrorKind, block_on};
    use weir_tests::faults::{StoreOp, When};

    use super::super::test_tables::*;
    use super::super::{ForstResources, ObjectKind, ObjectNames};
    use super::*;

    /// Tables of so many blocks whose ends stand in one object, each with so many odd bytes behind it,
    /// opened as after a restore; and the path of that object.
    fn restored(
        fixture: &Fixture,
        resources: &ForstResources,
        blocks: &[(usize, usize)],
    ) -> (Vec<Arc<Table>>, String) {
        let (mut parts, mut opened, mut offset) = (Vec::new(), Vec::new(), 0);
        for (blocks, behind) in blocks {
            let table = fixture.stored(*blocks);
            let mut part = table.meta_now().unwrap().encode(table.meta_place()).unwrap();
            part.resize(part.len() + behind, 7);
            opened.push((table, offset));
            offset += part.len() as u64;
            parts.push(Bytes::from(part));
        }
        let names = ObjectNames::below("d/");
        let put = fixture.tables.store().put_new(&names, ObjectKind::Ends, &parts);
        let object = Arc::new(block_on(put).unwrap());
        let tables = fixture.reopened(resources);
        let reopened = opened.iter().map(|(table, offset)| {
            let copy = EndCopy { object: Arc::clone(&object), offset: *offset };
            let object = table.object().unwrap().clone();
            tables.open_with(object, *table.meta_place(), Some(copy))
        });
        (reopened.collect(), object.path.clone())
    }

    fn blocks_of(tables: &[Arc<Table>]) -> Vec<usize> {
        let metas = block_on(futures_util::future::try_join_all(load_ends(tables))).unwrap();
        metas.iter().map(|meta| meta.block_count()).collect()
    }

    #[test]
    fn ends_that_stand_side_by_side_are_read_with_one_request() {
        let fixture = Fixture::new();
        let resources = settings().build().unwrap();
        let (tables, _) = restored(&fixture, &resources, &[(3, 0), (5, 0), (7, 0), (9, 0)]);
        let alone = fixture.stored(2);
        let alone = again(&alone, &fixture.reopened(&resources));
        let wanted = [&tables[3], &alone, &tables[0], &tables[2]].map(Arc::clone);
        assert_eq!(blocks_of(&wanted), [9, 2, 3, 7]);
        assert_eq!(fixture.reads(), 2, "side by side, and alone");
        assert!(tables[1].meta_now().is_none(), "nobody wants it");
        assert_eq!(blocks_of(&wanted), [9, 2, 3, 7]);
        assert_eq!(fixture.reads(), 2, "from memory");
        assert_eq!(blocks_of(&tables), [3, 5, 7, 9]);
        assert_eq!(fixture.reads(), 3);
        assert_eq!(fixture.tables.caches().meta_reads.len(), 0);
    }

    #[test]
    fn what_lies_far_apart_is_read_with_a_request_each() {
        let fixture = Fixture::new();
        let far = usize::try_from(MAX_GAP).unwrap() + 1;
        let (tables, _) =
            restored(&fixture, &settings().build().unwrap(), &[(3, far - 1), (5, far), (7, 0)]);
        assert_eq!(blocks_of(&tables), [3, 5, 7]);
        assert_eq!(fixture.reads(), 2);
    }

    /// Copies that are damaged, cut off, gone, or of other tables: the tables have their own ends.
    #[test]
    fn nothing_depends_on_copies() {
        let damages: [fn(&mut Vec<u8>); 3] =
            [|bytes| bytes[20] ^= 1, |bytes| bytes.truncate(100), |bytes| bytes.rotate_left(1)];
        for damage in damages {
            let fixture = Fixture::new();
            let (tables, path) =
                restored(&fixture, &settings().build().unwrap(), &[(3, 0), (5, 0)]);
            let mut bytes = block_on(fixture.plain.read(&path)).unwrap().to_vec();
            damage(&mut bytes);
            block_on(fixture.plain.write(&path, bytes)).unwrap();
            assert_eq!(blocks_of(&tables), [3, 5]);
        }
        let fixture = Fixture::new();
        let (tables, path) = restored(&fixture, &settings().build().unwrap(), &[(3, 0), (5, 0)]);
        block_on(fixture.plain.delete(&path)).unwrap();
        assert_eq!(blocks_of(&tables), [3, 5]);
    }

    #[test]
    fn a_store_that_fails_is_told_to_all_and_asked_again() {
        let fixture = Fixture::new();
        let (tables, _) = restored(&fixture, &settings().build().unwrap(), &[(3, 0), (5, 0)]);
        fixture.faults.fail_always(StoreOp::Read, When::Before);
        for end in load_ends(&tables) {
            assert_eq!(block_on(end).unwrap_err().kind(), ErrorKind::Unavailable);
        }
        fixture.faults.heal();
        assert_eq!(blocks_of(&tables), [3, 5]);
    }
}
