//! Batched reads.

use weir_state_api::{Address, PendingValues, Result, Values};

use super::instance::locate;
use super::lookup::{PendingReads, read_all};
use super::read::{Read, read};
use super::states::States;
use super::tree::Tree;

/// Reads all addresses: what memory or local disk answer goes to `values`, which has been reset to their
/// number; the rest is read together.
pub(crate) fn multi_get(
    tree: &Tree,
    states: &States,
    addresses: &[Address<'_>],
    values: &mut Values,
) -> Result<Option<PendingValues>> {
    let (mut key, mut buffer) = (Vec::new(), Vec::new());
    let (mut indexes, mut reads) = (Vec::new(), PendingReads::of(tree.version()));
    for (index, at) in addresses.iter().enumerate() {
        let target = locate(tree, states, at, &mut key, "multi_get")?;
        match read(tree, target, &key, &mut buffer)? {
            Read::Absent => {}
            Read::Found(value) => values.set(index, value),
            Read::Pending(search) => {
                indexes.push(index);
                reads.push(target, &key, search);
            }
        }
    }
    if reads.is_empty() {
        return Ok(None);
    }
    Ok(Some(Box::pin(async move { Ok(indexes.into_iter().zip(read_all(reads).await?).collect()) })))
}
