//! What RocksDB knows about itself, exported through the `metrics` facade.
//!
//! Gauges and counters carry the labels `operator` and `first_group`, the first key group of the
//! instance. They are set when news of a checkpoint comes, so they are as old as that.

use metrics::{Label, counter, gauge};
use rocksdb::properties::{self, PropName};
use rocksdb::statistics::Ticker;

use crate::memory::RocksMemory;
use crate::shard::{Shard, Shards};

/// Properties that are summed over all families and databases of an instance.
const PROPERTIES: &[(&str, &PropName)] = &[
    ("weir_rocks_write_buffer_bytes", properties::CUR_SIZE_ALL_MEM_TABLES),
    ("weir_rocks_pinned_write_buffer_bytes", properties::SIZE_ALL_MEM_TABLES),
    ("weir_rocks_table_reader_bytes", properties::ESTIMATE_TABLE_READERS_MEM),
    ("weir_rocks_pending_compaction_bytes", properties::ESTIMATE_PENDING_COMPACTION_BYTES),
    ("weir_rocks_live_versions", properties::NUM_LIVE_VERSIONS),
    ("weir_rocks_live_bytes", properties::ESTIMATE_LIVE_DATA_SIZE),
    ("weir_rocks_file_bytes", properties::TOTAL_SST_FILES_SIZE),
    ("weir_rocks_entries", properties::ESTIMATE_NUM_KEYS),
];

/// Properties of whole databases.
const DATABASE_PROPERTIES: &[(&str, &PropName)] = &[
    ("weir_rocks_flushes_running", properties::NUM_RUNNING_FLUSHES),
    ("weir_rocks_compactions_running", properties::NUM_RUNNING_COMPACTIONS),
    ("weir_rocks_delayed_write_bytes_per_second", properties::ACTUAL_DELAYED_WRITE_RATE),
    ("weir_rocks_writes_stopped", properties::IS_WRITE_STOPPED),
    ("weir_rocks_background_errors", properties::BACKGROUND_ERRORS),
];

/// Counters of RocksDB's statistics, when they are on.
const TICKERS: &[(&str, Ticker)] = &[
    ("weir_rocks_block_cache_hits_total", Ticker::BlockCacheHit),
    ("weir_rocks_block_cache_misses_total", Ticker::BlockCacheMiss),
    ("weir_rocks_filter_useful_total", Ticker::BloomFilterUseful),
    ("weir_rocks_write_buffer_hits_total", Ticker::MemtableHit),
    ("weir_rocks_write_buffer_misses_total", Ticker::MemtableMiss),
    ("weir_rocks_stall_microseconds_total", Ticker::StallMicros),
    ("weir_rocks_flushed_bytes_total", Ticker::FlushWriteBytes),
    ("weir_rocks_compaction_read_bytes_total", Ticker::CompactReadBytes),
    ("weir_rocks_compaction_written_bytes_total", Ticker::CompactWriteBytes),
];

/// Exports the state of an instance. Costs some microseconds.
pub(crate) fn export(operator: &str, shards: &Shards, memory: &RocksMemory) {
    let first = shards.iter().next().map_or(0, |shard| shard.groups.first().0);
    let labels = vec![
        Label::new("operator", operator.to_string()),
        Label::new("first_group", first.to_string()),
    ];
    let databases = || shards.iter().map(|shard| &shard.database);
    for (name, property) in PROPERTIES {
        let sum: u64 = databases().map(|database| database.family_property(property)).sum();
        gauge!(*name, labels.clone()).set(sum as f64);
    }
    for (name, property) in DATABASE_PROPERTIES {
        let sum: u64 = databases().map(|database| database.property(property)).sum();
        gauge!(*name, labels.clone()).set(sum as f64);
    }
    for (name, ticker) in TICKERS {
        let counts = databases().map(|database| database.ticker(*ticker));
        if let Some(sum) = counts.sum::<Option<u64>>() {
            counter!(*name, labels.clone()).absolute(sum);
        }
    }
    let collected = shards.iter().map(Shard::collected_bytes);
    gauge!("weir_rocks_collected_write_bytes", labels.clone()).set(collected.sum::<u64>() as f64);
    let row_bytes = shards.iter().map(Shard::row_bytes).sum::<u64>();
    gauge!("weir_rocks_row_cache_bytes", labels.clone()).set(row_bytes as f64);
    let looks = shards.iter().map(|shard| shard.rows.hits_and_misses());
    let (hits, misses) = looks.fold((0, 0), |sum, looks| (sum.0 + looks.0, sum.1 + looks.1));
    counter!("weir_rocks_row_cache_hits_total", labels.clone()).absolute(hits);
    counter!("weir_rocks_row_cache_misses_total", labels).absolute(misses);
    gauge!("weir_rocks_memory_budget_bytes").set(memory.budget_bytes() as f64);
    gauge!("weir_rocks_memory_used_bytes").set(memory.used_bytes() as f64);
}
