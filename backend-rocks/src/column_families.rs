//! The three column families of a database, and how RocksDB is set up for each.
//!
//! One per access pattern, not one per state: a checkpoint then flushes at most three files, however
//! many states there are, and memory for writes is not split among states. Inside a family the key
//! group comes first, then the state (`docs/decisions/0004-rocks-layout.md`).

use std::sync::Arc;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, ColumnFamilyDescriptor, DBCompactionStyle,
    DBCompressionType, DEFAULT_COLUMN_FAMILY_NAME, LogLevel, Options, SliceTransform,
};
use weir_state_api::stored_key::{STATE_PREFIX_LEN, part_len};
use weir_state_api::{Error, ErrorKind, KeyGroupRange, Result, StateShape};

use crate::compaction_filter::Cleaners;
use crate::eras::Eras;
use crate::merge::set_merge_operator;
use crate::options::{Compaction, Preset, RocksOptions};

/// The shapes of state; each has a family.
pub(crate) const SHAPES: [StateShape; 3] =
    [StateShape::Point, StateShape::Ordered, StateShape::Queue];

/// The name of the family of a shape.
pub(crate) fn family_name(shape: StateShape) -> &'static str {
    match shape {
        // RocksDB opens this one in any case.
        StateShape::Point => DEFAULT_COLUMN_FAMILY_NAME,
        StateShape::Ordered => "maps",
        StateShape::Queue => "timers",
    }
}

/// Options that the backend's own correctness rests on.
const RESERVED: &[&str] = &[
    "allow_ingest_behind",
    "atomic_flush",
    "cf_paths",
    "compaction_filter",
    "compaction_filter_factory",
    "comparator",
    "create_if_missing",
    "create_missing_column_families",
    "db_log_dir",
    "db_paths",
    "disable_auto_compactions",
    "env",
    "error_if_exists",
    "inplace_update_support",
    "merge_operator",
    "prefix_extractor",
    "ttl",
    "wal_dir",
    "write_buffer_manager",
];

/// The options of a database and of its families.
pub(crate) struct DatabaseOptions {
    pub(crate) database: Options,
    pub(crate) families: Vec<ColumnFamilyDescriptor>,
}

impl DatabaseOptions {
    /// Translates and checks the user's options.
    ///
    /// Without `compactions`, none start until [`Database::start_compactions`](crate::database::Database::start_compactions).
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) for an option that RocksDB does not know, whose value
    /// it does not understand, or that is reserved.
    pub(crate) fn new(
        options: &RocksOptions,
        groups: KeyGroupRange,
        eras: &Arc<Eras>,
        compactions: bool,
    ) -> Result<Self> {
        let named = NamedOptions::check(options)?;
        let mut database = named.apply(database_options(options))?;
        database.create_if_missing(true);
        database.create_missing_column_families(true);
        if options.statistics {
            database.enable_statistics();
        }
        database.set_write_buffer_manager(&options.memory.writes);
        let families = SHAPES.map(|shape| {
            let mut family = named.apply(family_options(options, shape))?;
            family.set_disable_auto_compactions(!compactions);
            if shape == StateShape::Ordered {
                family.set_prefix_extractor(SliceTransform::create(
                    "weir.map.v1",
                    map_prefix,
                    Some(is_map_key),
                ));
            }
            if shape != StateShape::Queue {
                set_merge_operator(&mut family, Arc::clone(eras));
            }
            let eras = Arc::clone(eras);
            family.set_compaction_filter_factory(Cleaners { eras, groups, shape });
            Ok(ColumnFamilyDescriptor::new(family_name(shape), family))
        });
        let families = families.into_iter().collect::<Result<_>>()?;
        Ok(DatabaseOptions { database, families })
    }
}

fn database_options(options: &RocksOptions) -> Options {
    let mut database = Options::default();
    // One thread writes, without a log: the machinery for groups of writers only costs.
    database.set_allow_concurrent_memtable_write(false);
    database.set_enable_write_thread_adaptive_yield(false);
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    database.set_max_background_jobs(processors.clamp(2, 8) as i32);
    database.set_max_subcompactions(2);
    // Copied by each checkpoint.
    database.set_max_manifest_file_size(1 << 20);
    database.set_log_level(LogLevel::Warn);
    database.set_keep_log_file_num(2);
    database.set_max_log_file_size(4 << 20);
    // What is checked when files are opened, RocksDB need not sum up beforehand.
    database.set_skip_stats_update_on_db_open(true);
    if options.preset == Preset::SpinningDisk {
        database.set_compaction_readahead_size(4 << 20);
    }
    database
}

fn family_options(options: &RocksOptions, shape: StateShape) -> Options {
    let mut family = Options::default();
    family.set_write_buffer_size(options.memory.write_buffer_size());
    family.set_max_write_buffer_number(4);
    family.set_compression_type(DBCompressionType::Lz4);
    match options.compaction {
        Compaction::Level => family.set_compaction_style(DBCompactionStyle::Level),
        Compaction::Universal => family.set_compaction_style(DBCompactionStyle::Universal),
    }
    match options.preset {
        Preset::Flash => {}
        Preset::SpinningDisk => {
            family.set_target_file_size_base(256 << 20);
            family.set_max_bytes_for_level_base(1 << 30);
        }
        Preset::LittleMemory => {
            family.set_target_file_size_base(16 << 20);
            family.set_max_bytes_for_level_base(64 << 20);
        }
    }
    if shape == StateShape::Point {
        // Most reads of a fresh key would otherwise walk the skip list for nothing.
        family.set_memtable_prefix_bloom_ratio(0.05);
        family.set_memtable_whole_key_filtering(true);
    }
    family.set_block_based_table_factory(&table_options(options, shape));
    family
}

fn table_options(options: &RocksOptions, shape: StateShape) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&options.memory.cache);
    // Indexes and filters count towards the budget.
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_block_size(match options.preset {
        Preset::Flash | Preset::LittleMemory => 8 << 10,
        Preset::SpinningDisk => 64 << 10,
    });
    if options.preset == Preset::LittleMemory {
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_partition_filters(true);
        table.set_pin_top_level_index_and_filter(true);
    }
    match shape {
        StateShape::Point | StateShape::Ordered => table.set_bloom_filter(10.0, false),
        // Timers are only ever walked.
        StateShape::Queue => {}
    }
    table
}

/// What the entries of one map have in common: group, state, key, namespace.
fn map_prefix(stored: &[u8]) -> &[u8] {
    &stored[..map_prefix_len(stored).unwrap_or(stored.len())]
}

fn is_map_key(stored: &[u8]) -> bool {
    map_prefix_len(stored).is_some()
}

fn map_prefix_len(stored: &[u8]) -> Option<usize> {
    let key = part_len(stored.get(STATE_PREFIX_LEN..)?)?;
    let namespace = part_len(&stored[STATE_PREFIX_LEN + key..])?;
    Some(STATE_PREFIX_LEN + key + namespace)
}

/// Options by RocksDB's own names, known to be valid.
struct NamedOptions(String);

impl NamedOptions {
    fn check(options: &RocksOptions) -> Result<Self> {
        // What has no setter. There is no log to recover from: flushing on close would be in vain.
        let mut text = "avoid_flush_during_shutdown=true;".to_string();
        for (name, value) in &options.rocksdb {
            if RESERVED.contains(&name.as_str()) {
                return Err(refused(name, value)
                    .advice("leave it out: the backend sets it, and its correctness rests on it"));
            }
            let setting = format!("{name}={value};");
            if name.contains([';', '=']) {
                return Err(refused(name, value).advice("use the name that RocksDB documents"));
            }
            Options::default().get_options_from_string(&setting).map_err(|error| {
                refused(name, value)
                    .source(error)
                    .advice("use the name and form of value that RocksDB's options files have")
            })?;
            text.push_str(&setting);
        }
        Ok(NamedOptions(text))
    }

    fn apply(&self, mut base: Options) -> Result<Options> {
        base.get_options_from_string(&self.0).map_err(|error| {
            Error::new(ErrorKind::InvalidUsage, "RocksDB refuses the options together")
                .source(error)
                .advice("set fewer of them")
        })
    }
}

#[cold]
fn refused(name: &str, value: &str) -> Error {
    Error::new(ErrorKind::InvalidUsage, format!("the RocksDB option {name}={value} is refused"))
}
