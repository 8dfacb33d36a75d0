//! Blocks: some KiB of entries, the unit that is read, verified and cached.
//!
//! Entries stand in **groups**. The key of a group's first entry, its head, is stored whole, those
//! of the others as what differs from it. So any entry of a group can be decoded knowing the head
//! alone, and walking backwards costs what walking forwards does. Keys stand before values, so that
//! a search through a group touches a few neighbouring cache lines.
//!
//! ```text
//! groups    of each: its keys, then its values
//! heads     the keys of the groups' first entries, one behind the other
//! rows      of each group: where its keys, its values and its head begin
//! buckets   the hash index, or nothing
//! tail      how many groups, buckets and entries there are
//! ```
//!
//! Stored is that, compressed or not, and behind it its length, method and checksum.

mod builder;
mod cursor;
mod layout;
mod search;
#[cfg(test)]
mod tests;

pub(super) use builder::{BlockBuilder, seal};
pub(crate) use cursor::BlockCursor;
pub(crate) use search::Block;

/// Where a block is in its file, and which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    /// Its first byte in the file.
    pub(crate) offset: u64,
    /// Its length as it is stored.
    pub(crate) length: u32,
    /// Its checksum, which also stands at its end.
    pub(crate) crc32: u32,
}
