//! Tables to test with.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opendal::Operator;
use opendal::services::Memory;
use weir_state_api::{Environment, InlineSpawner, ManualClock, Spawner, block_on};
use weir_tests::faults::Faults;

use super::*;
use crate::format::{
    Block, Compression, Entry, EntryKind, EntryTraits, FinishedTable, TableMeta, TableOptions,
    TableWriter,
};

/// A store in memory, broken on demand, and what reads tables from it.
pub(super) struct Fixture {
    pub(super) faults: Faults,
    pub(super) plain: Operator,
    pub(super) tables: Arc<Tables>,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with(&settings().build().unwrap())
    }

    pub(super) fn with(resources: &ForstResources) -> Self {
        Self::on(resources, Arc::new(InlineSpawner))
    }

    pub(super) fn on(resources: &ForstResources, spawner: Arc<dyn Spawner>) -> Self {
        let faults = Faults::new();
        let plain = Operator::new(Memory::default()).unwrap();
        let store = plain.clone().layer(faults.layer());
        let environment = Environment::new(Arc::new(ManualClock::new(0)), store, spawner);
        Fixture { faults, plain, tables: Tables::new(&environment, resources) }
    }

    /// Another instance of the same process, or the same one after a restart.
    pub(super) fn reopened(&self, resources: &ForstResources) -> Arc<Tables> {
        let store = self.plain.clone().layer(self.faults.layer());
        let environment =
            Environment::new(Arc::new(ManualClock::new(0)), store, Arc::new(InlineSpawner));
        Tables::new(&environment, resources)
    }

    /// A table of that many blocks with one key each.
    pub(super) fn stored(&self, blocks: usize) -> Arc<Table> {
        let destination = Destination::Store(ObjectNames::below("d/"));
        block_on(write(self.tables.sink(destination, 1, None), blocks)).unwrap().table
    }

    pub(super) fn reads(&self) -> u64 {
        self.faults.count(weir_tests::faults::StoreOp::Read)
    }
}

/// Another handle of a stored table, through other tables.
pub(super) fn again(table: &Table, tables: &Arc<Tables>) -> Arc<Table> {
    tables.open(table.object().unwrap().clone(), *table.meta_place())
}

/// Small, without pauses.
pub(super) fn settings() -> ForstResourcesBuilder {
    ForstResources::builder()
        .cache_bytes(8 << 20)
        .hydration_bytes_per_second(u64::MAX)
        .request_limits(RequestLimits {
            attempts: 4,
            first_pause: Duration::ZERO,
            longest_pause: Duration::ZERO,
            ..RequestLimits::default()
        })
}

/// How long the value in each block is.
pub(super) const VALUE_LEN: usize = 4_000;

/// The key of a block of a test table.
pub(super) fn key(block: usize) -> Vec<u8> {
    let number = u32::try_from(block).unwrap().to_be_bytes();
    [&[0, 1, 0, 2][..], &number].concat()
}

/// Its value.
pub(super) fn value(block: usize) -> Vec<u8> {
    (0..VALUE_LEN).map(|at| (at * 31 + block * 7) as u8).collect()
}

/// Asserts that this is that block of a test table.
#[track_caller]
pub(super) fn assert_block(block: &Block, number: usize) {
    assert_eq!(block.get(&key(number)), Some((EntryKind::Put, &value(number)[..])), "{number}");
}

fn writer(blocks: usize) -> TableWriter {
    let options = TableOptions {
        block_len: 1_000,
        compression: Compression::None,
        ..TableOptions::default()
    };
    let mut writer = TableWriter::new(options).unwrap();
    for block in 0..blocks {
        let (key, value) = (key(block), value(block));
        let entry = Entry { key: &key, kind: EntryKind::Put, value: &value };
        writer.add(entry, EntryTraits::POINT).unwrap();
    }
    writer
}

/// The bytes of a test table.
pub(super) fn table_bytes(blocks: usize) -> FinishedTable {
    writer(blocks).finish().unwrap()
}

/// Writes a test table.
pub(super) async fn write(mut sink: TableSink, blocks: usize) -> weir_state_api::Result<NewTable> {
    let mut writer = writer(blocks);
    sink.write(writer.take_ready());
    sink.finish(writer.finish().unwrap()).await
}

/// The blocks of a test table.
pub(super) fn blocks(count: usize) -> Vec<Block> {
    let table = table_bytes(count);
    let bytes = Bytes::from(table.ready.concat());
    let tail = usize::try_from(table.meta.offset).unwrap();
    let meta = TableMeta::decode(&bytes[tail..], &table.meta, "a test").unwrap();
    let decode = |block| {
        let place = meta.block_place(block).unwrap();
        let start = usize::try_from(place.offset).unwrap();
        Block::decode(&bytes.slice(start..start + place.length as usize), &place, "a test").unwrap()
    };
    (0..count).map(decode).collect()
}
