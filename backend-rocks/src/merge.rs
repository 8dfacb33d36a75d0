//! Appending without reading: RocksDB's merge operator.
//!
//! Elements are framed by the caller, so joining the bytes joins the lists, in any grouping.

use std::sync::Arc;

use rocksdb::{MergeOperands, Options};

use crate::eras::Eras;

/// Part of what RocksDB records in its files; may only change with the snapshot format.
const NAME: &str = "weir.append.v1";

/// Gives a family the operator. It serves for partial merges too, where no value is there.
pub(crate) fn set_merge_operator(family: &mut Options, eras: Arc<Eras>) {
    family.set_merge_operator_associative(NAME, move |key, existing, operands: &MergeOperands| {
        // What is there and what was appended, oldest first.
        eras.merge(key, || existing.into_iter().chain(operands))
    });
}
