//! An opened table: everything but its blocks, in memory.

use weir_state_api::{Error, ErrorKind, Result, StateId};

use super::block::BlockPlace;
use super::filter::Filter;
use super::footer::Footer;
use super::index::Index;
use super::properties::TableProperties;
use super::range_deletes::RangeDeletes;
use super::wire::{Decoder, corrupt};

/// Where the end of a table is, which is read to open it, and which table it is. Stands in manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MetaPlace {
    /// Its first byte in the file: the end of the blocks.
    pub(crate) offset: u64,
    /// How many bytes there are from there to the end of the file.
    pub(crate) length: u32,
    /// Their checksum, which also stands in them.
    pub(crate) crc32: u32,
}

impl MetaPlace {
    /// The length of the whole file.
    pub(crate) fn file_len(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

/// Everything that is read when a table is opened.
#[derive(Debug)]
pub(crate) struct TableMeta {
    properties: TableProperties,
    filter: Filter,
    index: Index,
    range_deletes: RangeDeletes,
}

impl TableMeta {
    /// Reads the end of the file `origin`, at `place`.
    ///
    /// # Errors
    /// [`Corrupt`](weir_state_api::ErrorKind::Corrupt) when it is damaged or the end of another
    /// table; [`Incompatible`](weir_state_api::ErrorKind::Incompatible) when a later version has
    /// written it.
    pub(crate) fn decode(tail: &[u8], place: &MetaPlace, origin: &str) -> Result<Self> {
        let damaged = |what: &str| corrupt(origin, format!("the end of the table {what}"));
        if tail.len() != place.length as usize {
            let what = format!("has {} bytes, {} are expected", tail.len(), place.length);
            return Err(damaged(&what));
        }
        let (footer, parts, crc32) = Footer::open(tail, origin)?;
        if crc32 != place.crc32 || footer.blocks_len != place.offset {
            return Err(damaged("is intact, but that of another table than is named"));
        }
        let mut decoder = Decoder::new(parts, origin);
        let filter = Filter::decode(decoder.take(footer.filter_len.into())?, origin)?;
        if filter.is_of_version_1() != footer.is_of_version_1 {
            return Err(damaged("has a filter of another version"));
        }
        let index = decoder.take(footer.index_len.into())?;
        let index = Index::decode(index, footer.blocks_len, origin)?;
        let range_deletes = decoder.take(footer.range_deletes_len.into())?;
        let range_deletes = RangeDeletes::decode(range_deletes, origin)?;
        let mut inner = Decoder::new(decoder.take(footer.properties_len.into())?, origin);
        let properties = TableProperties::decode(&mut inner)?;
        inner.finish("properties")?;
        decoder.finish("parts of the table")?;
        if properties.range_deletes != range_deletes.len() as u64
            || properties.states.is_empty() != (index.block_count() == 0)
        {
            return Err(damaged("has properties of another table"));
        }
        Ok(TableMeta { properties, filter, index, range_deletes })
    }

    /// The end of the table, byte by byte as it was read, if this is what stands at `place`.
    pub(crate) fn encode(&self, place: &MetaPlace) -> Option<Vec<u8>> {
        let TableMeta { properties, filter, index, range_deletes } = self;
        let (end, encoded) =
            encode_end(filter, index, range_deletes, properties, place.offset).ok()?;
        (encoded == *place).then_some(end)
    }

    /// What is in it.
    pub(crate) fn properties(&self) -> &TableProperties {
        &self.properties
    }

    /// Whether a key of a point state or a map, or a map with a prefix, may be in the table; `hash`
    /// is its [`filter_hash`](super::filter_hash). Timers are not in the filter: do not ask for them.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The only block that can hold `key`.
    #[inline]
    pub(crate) fn block_of(&self, key: &[u8]) -> Option<usize> {
        self.index.block_of(key)
    }

    /// The first block that can hold a key from `key` on; there may be none in it, but then the next
    /// one begins behind `key`. The number of blocks when there are none.
    pub(crate) fn first_block_from(&self, key: &[u8]) -> usize {
        self.index.block_of(key).unwrap_or(0)
    }

    /// The last block that can hold a key before `key`, for scans backwards.
    pub(crate) fn last_block_before(&self, key: &[u8]) -> Option<usize> {
        self.index.last_block_before(key)
    }

    /// How many blocks there are.
    pub(crate) fn block_count(&self) -> usize {
        self.index.block_count()
    }

    /// Where a block is; `None` beyond the last.
    pub(crate) fn block_place(&self, block: usize) -> Option<BlockPlace> {
        self.index.place(block).copied()
    }

    /// The ranges whose entries in older tables are gone.
    pub(crate) fn range_deletes(&self) -> &RangeDeletes {
        &self.range_deletes
    }

    /// The era of the entries of a state; `None` when there are none.
    pub(crate) fn era_of(&self, state: StateId) -> Option<u8> {
        self.properties.of_state(state).map(|of| of.era)
    }

    /// The memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<TableMeta>()
            + self.filter.memory_bytes()
            + self.index.memory_bytes()
            + self.range_deletes.memory_bytes()
            + self.properties.memory_bytes()
    }
}

/// The end of a table: what follows `blocks_len` bytes of blocks, and where it is then.
///
/// # Errors
/// [`TooLarge`](ErrorKind::TooLarge) from 4 GiB on.
pub(super) fn encode_end(
    filter: &Filter,
    index: &Index,
    range_deletes: &RangeDeletes,
    properties: &TableProperties,
    blocks_len: u64,
) -> Result<(Vec<u8>, MetaPlace)> {
    let mut parts = Vec::new();
    let mut lengths = [0; 4];
    for (part, length) in lengths.iter_mut().enumerate() {
        let start = parts.len();
        match part {
            0 => filter.encode(&mut parts),
            1 => index.encode(&mut parts),
            2 => range_deletes.encode(&mut parts),
            _ => properties.encode(&mut parts),
        }
        *length = u32::try_from(parts.len() - start).map_err(|_| {
            Error::new(ErrorKind::TooLarge, "a part of a table is longer than 4 GiB")
        })?;
    }
    let [filter_len, index_len, range_deletes_len, properties_len] = lengths;
    let footer = Footer {
        blocks_len,
        filter_len,
        index_len,
        range_deletes_len,
        properties_len,
        is_of_version_1: filter.is_of_version_1(),
    };
    let crc32 = footer.seal(&mut parts);
    let length = u32::try_from(parts.len())
        .map_err(|_| Error::new(ErrorKind::TooLarge, "the end of a table is longer than 4 GiB"))?;
    Ok((parts, MetaPlace { offset: blocks_len, length, crc32 }))
}
