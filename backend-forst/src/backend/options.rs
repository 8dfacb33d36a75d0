//! What a user can set for all instances of a factory.

use std::sync::Arc;

use super::steps::ForstSteps;
use crate::compaction::CompactionService;
use crate::format::{Compression, FilterKind, TableOptions};
use crate::store::ForstResources;

/// Options of the backend.
///
/// What instances share (caches, memory for writes, limits of requests) is in
/// [`ForstResources`]; clones of it share the same.
///
/// ```
/// use weir_backend_forst::{ForstBackendFactory, ForstOptions};
///
/// let options = ForstOptions::default()
///     .with_max_frozen(4)
///     .with_inline_tail_bytes(16 << 10);
/// let factory = ForstBackendFactory::new(options);
/// # let _ = factory;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ForstOptions {
    /// Caches, budgets and limits, shared by all instances that get a clone.
    pub resources: ForstResources,
    /// How blocks of tables are compressed that compactions write. Default: LZ4.
    pub compression: Compression,
    /// How blocks of tables are compressed that are flushed from memory: what a checkpoint waits for, and
    /// compactions soon rewrite. Default: not at all. Where the way to the store is narrow, LZ4 uploads
    /// about half as much for about twice the work of a flush.
    pub flush_compression: Compression,
    /// The length of blocks before compression, in bytes. Default: 8 KiB.
    pub block_bytes: usize,
    /// The length of tables at which compactions begin another one, in bytes. Default: 64 MiB.
    pub table_bytes: u64,
    /// The memory that one instance's writes take at most before they become a table, in bytes, also when
    /// the shared budget has room. Default: 64 MiB.
    pub memtable_bytes: usize,
    /// The least that is flushed ahead of a checkpoint, in bytes of memory. Where checkpoints are taken, what
    /// is written from one to the next is flushed in about four pieces as it comes, so that a checkpoint
    /// waits for the last one only; not where keys are overwritten again and again in that time. More,
    /// smaller tables are compacted in return. `usize::MAX` turns it off. Default: 1 MiB.
    pub stream_out_bytes: usize,
    /// Whether memtables that were flushed go on to answer reads of single keys while the shared budget has
    /// room for them, so that a checkpoint does not make cold what is in use. Default: yes.
    pub keep_flushed: bool,
    /// Frozen memtables of one instance that may wait for their flush. Beyond, a write waits until one is
    /// done, and the wait is counted. Default: 4.
    pub max_frozen: usize,
    /// Flushed tables of one instance that may lie above each other until a compaction merges them. Beyond,
    /// a write that fills a memtable waits for a compaction, as long as one is running, and the wait is
    /// counted: reads look into each of these tables. Default: 24, the least that counts is 8.
    pub max_level0_tables: usize,
    /// What was written since the last checkpoint is stored in the checkpoint's manifest as long as it
    /// is no longer than this, in bytes, instead of as an object: again by each checkpoint, until there
    /// is enough for an object. Default: 8 KiB, which leaves the manifest in the handle.
    pub inline_tail_bytes: u64,
    /// A manifest is a part of the handle as long as it is no longer than this, in bytes, instead of an
    /// object. Default: 16 KiB.
    pub inline_manifest_bytes: usize,
    /// The first timers of each queue that are held in memory, about 100 bytes each. Default: 65,536.
    pub timers_in_memory: usize,
    /// The longest value in bytes; a longer one is refused with
    /// [`TooLarge`](weir_state_api::ErrorKind::TooLarge). Default: 1 GiB, the contract's minimum.
    ///
    /// Appending reads nothing and so does not know how long the whole becomes. Below 64 MiB, a value
    /// in memory is measured before each append; one that lies in the store may pass the limit by at
    /// most its own length before an append is refused.
    pub max_value_len: u64,
    /// Whether tables are compacted. Off is for tests. Default: on.
    pub compaction: bool,
    /// Who carries out compactions of tables in the store, for example other processes. Default: each
    /// instance itself, through the environment's spawner.
    pub compaction_service: Option<Arc<dyn CompactionService>>,
    /// Who drives compactions, and asks for flushes besides. Default: nobody, they run by themselves.
    pub steps: Option<ForstSteps>,
}

impl Default for ForstOptions {
    fn default() -> Self {
        ForstOptions {
            resources: ForstResources::default(),
            compression: Compression::default(),
            flush_compression: Compression::None,
            block_bytes: 8 << 10,
            table_bytes: 64 << 20,
            memtable_bytes: 64 << 20,
            stream_out_bytes: 1 << 20,
            keep_flushed: true,
            max_frozen: 4,
            max_level0_tables: 24,
            inline_tail_bytes: 8 << 10,
            inline_manifest_bytes: 16 << 10,
            timers_in_memory: 1 << 16,
            max_value_len: 1 << 30,
            compaction: true,
            compaction_service: None,
            steps: None,
        }
    }
}

impl ForstOptions {
    /// Sets [`compaction_service`](Self::compaction_service).
    #[must_use]
    pub fn with_compaction_service(mut self, service: Arc<dyn CompactionService>) -> Self {
        self.compaction_service = Some(service);
        self
    }

    /// Sets [`steps`](Self::steps) to a clone of these.
    #[must_use]
    pub fn with_steps(mut self, steps: &ForstSteps) -> Self {
        self.steps = Some(steps.clone());
        self
    }

    /// Of tables that compactions write.
    pub(crate) fn table_options(&self) -> TableOptions {
        TableOptions {
            block_len: self.block_bytes,
            compression: self.compression,
            ..TableOptions::default()
        }
    }

    /// Of tables that are flushed from memory: made quickly rather than small.
    pub(crate) fn flush_options(&self) -> TableOptions {
        TableOptions {
            compression: self.flush_compression,
            filter: FilterKind::BlockedBloom,
            ..self.table_options()
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $setter:ident: $field:ident, $type:ty;)*) => {
        impl ForstOptions {$(
            $(#[$doc])*
            #[must_use]
            pub fn $setter(mut self, value: $type) -> Self {
                self.$field = value;
                self
            }
        )*}
    };
}

setters! {
    /// Sets [`resources`](Self::resources).
    with_resources: resources, ForstResources;
    /// Sets [`compression`](Self::compression).
    with_compression: compression, Compression;
    /// Sets [`flush_compression`](Self::flush_compression).
    with_flush_compression: flush_compression, Compression;
    /// Sets [`block_bytes`](Self::block_bytes).
    with_block_bytes: block_bytes, usize;
    /// Sets [`table_bytes`](Self::table_bytes).
    with_table_bytes: table_bytes, u64;
    /// Sets [`memtable_bytes`](Self::memtable_bytes).
    with_memtable_bytes: memtable_bytes, usize;
    /// Sets [`stream_out_bytes`](Self::stream_out_bytes).
    with_stream_out_bytes: stream_out_bytes, usize;
    /// Sets [`keep_flushed`](Self::keep_flushed).
    with_keep_flushed: keep_flushed, bool;
    /// Sets [`max_frozen`](Self::max_frozen).
    with_max_frozen: max_frozen, usize;
    /// Sets [`max_level0_tables`](Self::max_level0_tables).
    with_max_level0_tables: max_level0_tables, usize;
    /// Sets [`inline_tail_bytes`](Self::inline_tail_bytes).
    with_inline_tail_bytes: inline_tail_bytes, u64;
    /// Sets [`inline_manifest_bytes`](Self::inline_manifest_bytes).
    with_inline_manifest_bytes: inline_manifest_bytes, usize;
    /// Sets [`timers_in_memory`](Self::timers_in_memory).
    with_timers_in_memory: timers_in_memory, usize;
    /// Sets [`max_value_len`](Self::max_value_len).
    with_max_value_len: max_value_len, u64;
    /// Sets [`compaction`](Self::compaction).
    with_compaction: compaction, bool;
}
