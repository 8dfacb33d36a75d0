//! What a user can set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::memory::RocksMemory;

/// For which hardware the defaults are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Preset {
    /// Flash: small blocks, LZ4, level compaction. Also the choice when in doubt.
    #[default]
    Flash,
    /// Spinning disks: large blocks, large files, fewer levels, read-ahead in compactions.
    SpinningDisk,
    /// Little memory (below some 64 MiB for an instance): indexes and filters in two levels, so that
    /// they are cached piece by piece; small files.
    LittleMemory,
}

/// How sorted files are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Compaction {
    /// RocksDB's level compaction: the least space and the best reads.
    #[default]
    Level,
    /// RocksDB's universal compaction: checkpoints upload a fifth to a third less of a large state that
    /// grows or is changed all over; needs up to twice the space and mostly reads slower. Figures and
    /// advice by operator: `docs/decisions/0004-rocks-layout.md`.
    Universal,
}

/// Where timers are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerMemory {
    /// On disk, with the next ones of each queue in memory: up to this many, about 100 bytes each.
    Head(usize),
    /// All in memory (and on disk from snapshot to snapshot): polling never reads the disk.
    All,
}

impl Default for TimerMemory {
    /// The next 65,536 of each queue.
    fn default() -> Self {
        TimerMemory::Head(1 << 16)
    }
}

/// Options of the RocksDB backend.
///
/// ```
/// use weir_backend_rocks::{Preset, RocksBackendFactory, RocksMemory, RocksOptions};
///
/// let options = RocksOptions::new("/var/lib/weir/state")
///     .with_memory(RocksMemory::new(1 << 30, 0.4))
///     .with_preset(Preset::SpinningDisk)
///     .with_rocksdb_option("max_background_jobs", "4")
///     .with_rocksdb_option("compression", "kZSTD");
/// let factory = RocksBackendFactory::new(options);
/// # let _ = factory;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RocksOptions {
    /// A local folder for the databases of running instances. Several processes may use the same one;
    /// each instance makes a folder of its own in it and removes what ended processes left behind.
    /// Needs room for the state of all instances, and for what compactions rewrite at a time.
    pub directory: PathBuf,
    /// The memory budget, shared by all instances that get a clone of it. Default: 256 MiB, half for
    /// writes.
    pub memory: RocksMemory,
    /// The hardware. Default: [`Preset::Flash`].
    pub preset: Preset,
    /// How files are merged. Default: [`Compaction::Level`].
    pub compaction: Compaction,
    /// Where timers are held. Default: the next 65,536 of each queue in memory.
    pub timers: TimerMemory,
    /// The longest value in bytes; a longer one is refused with
    /// [`TooLarge`](weir_state_api::ErrorKind::TooLarge). Default: 1 GiB, the contract's minimum;
    /// RocksDB could not store more than 4 GiB.
    ///
    /// Appending reads nothing and so does not know how long the whole becomes. A value that grows by
    /// appends may pass the limit by at most its own length before an append is refused. Below 64 MiB
    /// the limit is exact, and each append reads the length first.
    pub max_value_len: u64,
    /// Whether the files of the last checkpoints are kept on the local disk, as hard links, for a
    /// restart on the same machine: it then downloads only what is missing or differs. Costs the space
    /// of files that compactions have replaced since then. Default: off.
    pub local_recovery: bool,
    /// Whether accesses to states with a TTL also drive a walk that removes what has expired, besides
    /// compactions. It reads the whole state again and again, some entries an access, and gets
    /// everywhere in a known time. Compactions alone cost nothing extra, reach what is rarely written
    /// late (RocksDB's `periodic_compaction_seconds`, 30 days by default, is the limit), and leave a
    /// list that has expired in part as it is until it is appended to. Default: off.
    pub driven_clean_up: bool,
    /// Whether RocksDB counts what it does (cache hits, bytes compacted, time stalled), for metrics.
    /// Costs some percent of each access. Its properties are exported in any case. Default: off.
    pub statistics: bool,
    /// Writes to point states and maps are collected, and given to RocksDB together and in order: up to
    /// this many bytes for each database, which an instance usually has one of; half for point states, half for
    /// maps. Look-ups find them there. Scans of what has just been written, and snapshots, have them
    /// written first: a snapshot's synchronous part takes that much longer. They are not
    /// RocksDB's write buffers, but count towards the same share of [`memory`](Self::memory): all instances together
    /// get at most a quarter of that. 0: each write goes to RocksDB at once. Default: 1 MiB.
    pub write_batch_bytes: usize,
    /// Objects that are transferred at the same time by one snapshot or restore. Default: 4.
    pub parallel_transfers: usize,
    /// Options of RocksDB by their own names, as in its options files, over those of the preset.
    /// Checked when an instance is opened. Names of options that this backend depends on (comparator,
    /// merge operator and the like) are refused. What is set without it: `docs/rocksdb-options.md`.
    pub rocksdb: BTreeMap<String, String>,
}

impl RocksOptions {
    /// The defaults, with databases below this local folder.
    pub fn new(directory: impl AsRef<Path>) -> Self {
        RocksOptions {
            directory: directory.as_ref().to_path_buf(),
            memory: RocksMemory::default(),
            preset: Preset::default(),
            compaction: Compaction::default(),
            timers: TimerMemory::default(),
            max_value_len: 1 << 30,
            local_recovery: false,
            driven_clean_up: false,
            statistics: false,
            write_batch_bytes: 1 << 20,
            parallel_transfers: 4,
            rocksdb: BTreeMap::new(),
        }
    }

    /// Sets [`memory`](Self::memory).
    #[must_use]
    pub fn with_memory(mut self, memory: RocksMemory) -> Self {
        self.memory = memory;
        self
    }

    /// Sets [`preset`](Self::preset).
    #[must_use]
    pub fn with_preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// Sets [`compaction`](Self::compaction).
    #[must_use]
    pub fn with_compaction(mut self, compaction: Compaction) -> Self {
        self.compaction = compaction;
        self
    }

    /// Sets [`timers`](Self::timers).
    #[must_use]
    pub fn with_timers(mut self, timers: TimerMemory) -> Self {
        self.timers = timers;
        self
    }

    /// Sets [`max_value_len`](Self::max_value_len), in bytes.
    #[must_use]
    pub fn with_max_value_len(mut self, bytes: u64) -> Self {
        self.max_value_len = bytes;
        self
    }

    /// Sets [`local_recovery`](Self::local_recovery).
    #[must_use]
    pub fn with_local_recovery(mut self, on: bool) -> Self {
        self.local_recovery = on;
        self
    }

    /// Sets [`driven_clean_up`](Self::driven_clean_up).
    #[must_use]
    pub fn with_driven_clean_up(mut self, on: bool) -> Self {
        self.driven_clean_up = on;
        self
    }

    /// Sets [`statistics`](Self::statistics).
    #[must_use]
    pub fn with_statistics(mut self, on: bool) -> Self {
        self.statistics = on;
        self
    }

    /// Sets [`write_batch_bytes`](Self::write_batch_bytes).
    #[must_use]
    pub fn with_write_batch_bytes(mut self, bytes: usize) -> Self {
        self.write_batch_bytes = bytes;
        self
    }

    /// Sets [`parallel_transfers`](Self::parallel_transfers).
    #[must_use]
    pub fn with_parallel_transfers(mut self, transfers: usize) -> Self {
        self.parallel_transfers = transfers;
        self
    }

    /// Sets an option of RocksDB; see [`rocksdb`](Self::rocksdb).
    #[must_use]
    pub fn with_rocksdb_option(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Self {
        self.rocksdb.insert(name.into(), value.into());
        self
    }
}
