//! The last bytes of a table: what it is, and where its parts are.
#![deny(clippy::indexing_slicing)]

use weir_state_api::Result;

use super::wire::{Decoder, corrupt, unknown_version};

/// The latest version of table files. A table says the first one whose readers can read it.
const TABLE_VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"WEIRFTBL";

/// The length of a footer.
pub(super) const FOOTER_LEN: usize = 40;

/// Magic and checksum, at the end.
const SEAL_LEN: usize = 12;

/// Where the parts behind the blocks are: filter, index, range deletes, properties, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    /// The length of all blocks, and so where the filter begins.
    pub(super) blocks_len: u64,
    pub(super) filter_len: u32,
    pub(super) index_len: u32,
    pub(super) range_deletes_len: u32,
    pub(super) properties_len: u32,
    /// Whether readers of version 1 can read the table.
    pub(super) is_of_version_1: bool,
}

impl Footer {
    /// Appends the footer to the parts it describes; the checksum of everything but the magic.
    pub(super) fn seal(&self, parts: &mut Vec<u8>) -> u32 {
        parts.extend_from_slice(&self.blocks_len.to_le_bytes());
        let lengths =
            [self.filter_len, self.index_len, self.range_deletes_len, self.properties_len];
        let version = if self.is_of_version_1 { 1 } else { TABLE_VERSION };
        for number in lengths.into_iter().chain([version]) {
            parts.extend_from_slice(&number.to_le_bytes());
        }
        let crc32 = crc32fast::hash(parts);
        parts.extend_from_slice(&crc32.to_le_bytes());
        parts.extend_from_slice(&MAGIC);
        crc32
    }

    /// Reads the footer at the end of `tail`, which begins where the blocks end. The footer, the
    /// bytes of the parts, and the checksum of them all.
    pub(super) fn open<'a>(tail: &'a [u8], origin: &str) -> Result<(Footer, &'a [u8], u32)> {
        let Some(parts_len) = tail.len().checked_sub(FOOTER_LEN) else {
            let what =
                format!("the end of a table has {FOOTER_LEN} bytes or more, not {}", tail.len());
            return Err(corrupt(origin, what));
        };
        let (parts, footer) = tail.split_at(parts_len);
        let mut decoder = Decoder::new(footer, origin);
        let blocks_len = decoder.u64()?;
        let [filter_len, index_len, range_deletes_len, properties_len] =
            [decoder.u32()?, decoder.u32()?, decoder.u32()?, decoder.u32()?];
        let version = decoder.u32()?;
        let crc32 = decoder.u32()?;
        if decoder.array()? != MAGIC {
            return Err(corrupt(origin, "the object does not end as a table does"));
        }
        // Before the checksum: a newer version may checksum differently.
        if !(1..=TABLE_VERSION).contains(&version) {
            return Err(unknown_version(origin, "table", version, TABLE_VERSION));
        }
        let (checksummed, _) = tail.split_at(tail.len() - SEAL_LEN);
        if crc32fast::hash(checksummed) != crc32 {
            return Err(corrupt(origin, "the end of the table fails its checksum"));
        }
        let footer = Footer {
            blocks_len,
            filter_len,
            index_len,
            range_deletes_len,
            properties_len,
            is_of_version_1: version == 1,
        };
        Ok((footer, parts, crc32))
    }
}
