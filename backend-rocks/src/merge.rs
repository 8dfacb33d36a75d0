//! Appending without reading: RocksDB's merge operator.
//!
//! Elements are framed by the caller, so joining the bytes joins the lists, in any grouping.

use rocksdb::MergeOperands;

use crate::stored_value::{load, seal};

/// Part of what RocksDB records in its files; may only change with the snapshot format.
pub(crate) const NAME: &str = "weir.append.v1";

/// Joins what is there and what was appended, oldest first. Serves for partial merges too, where
/// nothing is there. `None`, which RocksDB reports as corruption, for bytes that were not stored by
/// this backend.
pub(crate) fn append(
    _key: &[u8],
    existing: Option<&[u8]>,
    operands: &MergeOperands,
) -> Option<Vec<u8>> {
    let parts = || existing.into_iter().chain(operands);
    let mut joined = Vec::with_capacity(parts().map(<[u8]>::len).sum());
    for part in parts() {
        joined.extend_from_slice(load(part).ok()?);
    }
    seal(&mut joined);
    Some(joined)
}
