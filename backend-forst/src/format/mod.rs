//! The bytes of table files and manifests.
//!
//! A **table** is a sorted file: blocks of entries, and behind them everything that is read when it
//! is opened. A **manifest** names the tables of a snapshot. Nothing here reads or writes a store:
//! bytes come in, bytes go out. `docs/formats/forst-table.md` and `docs/formats/forst-manifest.md`
//! describe them byte by byte.
//!
//! | file | concept |
//! |---|---|
//! | `entry.rs` | a key, what happened to it, a value |
//! | `compression.rs` | how blocks are compressed |
//! | `block/` | some KiB of entries: built, searched, walked |
//! | `filter.rs` | which keys are certainly not in a table |
//! | `index.rs` | which block a key is in |
//! | `range_deletes.rs` | ranges whose older entries are gone |
//! | `properties.rs` | what is in a table, without looking into it |
//! | `footer.rs` | where all that lies |
//! | `table_writer.rs` | writes a table in one pass |
//! | `table_meta.rs` | an opened table |
//! | `manifest.rs`, `era.rs` | which tables a snapshot consists of, and how old values are read |
//!
//! # Trust
//!
//! Decoders check the checksum first, then every length and offset, so what they return can be used
//! without further checks. Whoever names a part of a file also names its checksum (the manifest that
//! of a table's end, the table's index that of each block): an intact piece of another file is not
//! taken for the right one.

mod block;

mod compression;
mod entry;
mod era;
mod filter;
mod footer;
mod index;
mod manifest;
mod properties;
mod range_deletes;
mod table_meta;
mod table_writer;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod manifest_tests;
#[cfg(test)]
mod table_tests;

use weir_state_api::wire;

pub(crate) use block::{Block, BlockCursor, BlockPlace};
pub use compression::Compression;
pub(crate) use entry::{Entry, EntryKind, EntryTraits};
pub(crate) use era::Era;
pub(crate) use filter::{FilterKind, filter_hash};
pub(crate) use manifest::{
    EndPlace, MANIFEST_VERSION, Manifest, OLDEST_MANIFEST_VERSION, RunManifest, ShardManifest,
    StateManifest, TableEntry, TablePlace,
};
pub(crate) use properties::{StateProperties, TableProperties};
pub(crate) use table_meta::{MetaPlace, TableMeta};
pub(crate) use table_writer::{FinishedTable, TableOptions, TableWriter};
