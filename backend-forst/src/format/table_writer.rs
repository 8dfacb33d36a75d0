//! Writing a table, in one pass and with the memory of a block, the index and eight bytes a key.

use bytes::Bytes;
use weir_state_api::stored_key::state_of;
use weir_state_api::{Error, ErrorKind, Result, StateId, StateShape};

use super::block::{BlockBuilder, BlockPlace, seal};
use super::compression::{Compression, Compressor};
use super::entry::{Entry, EntryTraits};
use super::filter::{Filter, FilterKind, filter_hash};
use super::index::{Index, separator};
use super::properties::TableProperties;
use super::range_deletes::RangeDeletes;
use super::table_meta::{MetaPlace, encode_end};

/// How tables are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableOptions {
    /// The length that blocks have before compression, in bytes. Only a block with a single entry is
    /// longer.
    pub(crate) block_len: usize,
    /// How blocks are compressed.
    pub(crate) compression: Compression,
    /// The filter that the table gets.
    pub(crate) filter: FilterKind,
    /// Whether blocks with entries that are looked up get a hash index.
    pub(crate) hash_index: bool,
    /// How many entries share one whole key.
    pub(crate) restart_interval: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_len: 16 << 10,
            compression: Compression::default(),
            filter: FilterKind::BinaryFuse8,
            hash_index: true,
            restart_interval: 16,
        }
    }
}

/// Writes a table.
#[derive(Debug)]
pub(crate) struct TableWriter {
    options: TableOptions,
    block: BlockBuilder,
    compressor: Compressor,
    /// Finished bytes that were not taken yet, those that grow to a part, and the length of all, and the
    /// checksum of all parts.
    ready: Vec<Bytes>,
    part: Vec<u8>,
    length: u64,
    crc32: crc32fast::Hasher,
    index: Index,
    /// The separator of the block being filled.
    separator: Vec<u8>,
    first_key: Option<Vec<u8>>,
    last_key: Vec<u8>,
    hashes: Vec<u64>,
    last_prefix_hash: Option<u64>,
    range_deletes: Vec<(Vec<u8>, Vec<u8>)>,
    eras: Vec<(StateId, u8)>,
    properties: TableProperties,
}

/// The end of a table, and what is known of it as a whole.
#[derive(Debug)]
pub(crate) struct FinishedTable {
    /// The bytes that were not taken yet.
    pub(crate) ready: Vec<Bytes>,
    /// The length of the file.
    pub(crate) length: u64,
    /// The checksum of the whole file.
    pub(crate) crc32: u32,
    /// Where its end is.
    pub(crate) meta: MetaPlace,
    /// What is in it.
    pub(crate) properties: TableProperties,
}

impl TableWriter {
    /// Begins a table.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) for a level of compression that does not exist.
    pub(crate) fn new(options: TableOptions) -> Result<Self> {
        Ok(TableWriter {
            options,
            block: BlockBuilder::new(options.restart_interval),
            compressor: Compressor::new(options.compression)?,
            ready: Vec::new(),
            part: Vec::new(),
            length: 0,
            crc32: crc32fast::Hasher::new(),
            index: Index::default(),
            separator: Vec::new(),
            first_key: None,
            last_key: Vec::new(),
            hashes: Vec::new(),
            last_prefix_hash: None,
            range_deletes: Vec::new(),
            eras: Vec::new(),
            properties: TableProperties::default(),
        })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) when its key is not greater than the last one, or
    /// not a stored key; [`TooLarge`](ErrorKind::TooLarge) when it has no room in a block. The table
    /// is as it was.
    pub(crate) fn add(&mut self, entry: Entry<'_>, traits: EntryTraits) -> Result<()> {
        self.add_hashed(entry, filter_hash(entry.key), traits)
    }

    /// Adds an entry; the [`filter_hash`] of its key is known.
    ///
    /// # Errors
    /// Those of [`add`](TableWriter::add).
    pub(crate) fn add_hashed(
        &mut self,
        entry: Entry<'_>,
        hash: u64,
        traits: EntryTraits,
    ) -> Result<()> {
        let Some(state) = state_of(entry.key) else {
            return Err(misuse("a key is too short to be a stored key"));
        };
        if self.first_key.is_some() && entry.key <= self.last_key.as_slice() {
            return Err(misuse("the keys of a table must be strictly ascending"));
        }
        let raw_len = entry.key.len() + entry.value.len();
        if raw_len > MAX_ENTRY_LEN {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("an entry has {raw_len} bytes, the limit is {MAX_ENTRY_LEN}"),
            ));
        }
        if self.block.is_empty() {
            self.begin_block(entry.key);
        } else if self.block.estimated_len() + raw_len > self.options.block_len {
            self.end_block()?;
            self.begin_block(entry.key);
        }
        let looked_up = traits.shape != StateShape::Queue;
        if looked_up && self.options.filter != FilterKind::None {
            self.hashes.push(hash);
            if traits.shape == StateShape::Ordered {
                self.add_map_prefix(entry.key, traits.map_prefix_len);
            }
        }
        self.block.add(&entry, hash, looked_up && self.options.hash_index);
        self.last_key.clear();
        self.last_key.extend_from_slice(entry.key);
        self.properties.count(state, entry.kind, traits.expiry, raw_len);
        Ok(())
    }

    fn add_map_prefix(&mut self, key: &[u8], prefix_len: usize) {
        let hash = filter_hash(key.get(..prefix_len).unwrap_or(key));
        let is_known = self.last_prefix_hash.replace(hash) == Some(hash);
        // The key of an empty map key is what the others begin with.
        if !is_known && self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Says that everything from `from` up to and without `to` is gone from older tables. Ranges may
    /// come in any order, before, between and behind entries, and may overlap.
    pub(crate) fn add_range_delete(&mut self, from: &[u8], to: &[u8]) {
        self.range_deletes.push((from.to_vec(), to.to_vec()));
    }

    /// Says of which era the entries of a state are; 0 if it is not said.
    pub(crate) fn set_eras(&mut self, eras: Vec<(StateId, u8)>) {
        self.eras = eras;
    }

    /// About how long the file would be if it ended now.
    pub(crate) fn estimated_len(&self) -> u64 {
        let end = Filter::estimated_len(self.options.filter, self.hashes.len())
            + self.index.memory_bytes();
        self.length + (self.block.estimated_len() + end) as u64
    }

    /// Finished bytes since the last call, to be written out in this order.
    pub(crate) fn take_ready(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.ready)
    }

    fn begin_block(&mut self, key: &[u8]) {
        self.separator.clear();
        if self.first_key.is_none() {
            self.first_key = Some(key.to_vec());
            self.separator.extend_from_slice(key);
        } else {
            self.separator.extend_from_slice(separator(&self.last_key, key));
        }
    }

    fn end_block(&mut self) -> Result<()> {
        let raw = self.block.finish();
        let too_large = |_| Error::new(ErrorKind::TooLarge, "a block is longer than 4 GiB");
        let raw_len = u32::try_from(raw.len()).map_err(too_large)?;
        let (stored, code) = self.compressor.compress(raw)?;
        let start = self.part.len();
        let crc32 = seal(stored, code, raw_len, &mut self.part);
        let length = u32::try_from(self.part.len() - start).map_err(too_large)?;
        self.index.push(&self.separator, BlockPlace { offset: self.length, length, crc32 });
        self.length += u64::from(length);
        self.block.clear();
        if self.part.len() >= PART_LEN {
            let next = Vec::with_capacity(PART_LEN + PART_LEN / 8);
            let part = std::mem::replace(&mut self.part, next);
            self.push_ready(part);
        }
        Ok(())
    }

    fn push_ready(&mut self, bytes: Vec<u8>) {
        self.crc32.update(&bytes);
        self.ready.push(Bytes::from(bytes));
    }

    /// Ends the table.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) when a part of it is longer than 4 GiB.
    pub(crate) fn finish(mut self) -> Result<FinishedTable> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        let last = std::mem::take(&mut self.part);
        if !last.is_empty() {
            self.push_ready(last);
        }
        let range_deletes = RangeDeletes::union_of(std::mem::take(&mut self.range_deletes));
        self.complete_properties(&range_deletes);
        let filter = Filter::build(self.options.filter, std::mem::take(&mut self.hashes));
        let (parts, meta) =
            encode_end(&filter, &self.index, &range_deletes, &self.properties, self.length)?;
        self.length += parts.len() as u64;
        self.push_ready(parts);
        Ok(FinishedTable {
            ready: self.ready,
            length: self.length,
            crc32: self.crc32.finalize(),
            meta,
            properties: self.properties,
        })
    }

    fn complete_properties(&mut self, range_deletes: &RangeDeletes) {
        let properties = &mut self.properties;
        for (state, era) in &self.eras {
            if let Ok(at) = properties.states.binary_search_by_key(state, |of| of.state) {
                properties.states[at].era = *era;
            }
        }
        properties.range_deletes = range_deletes.len() as u64;
        let entries = self.first_key.take().map(|first| {
            // The very next byte string is the first one behind the last key.
            (first, [&self.last_key[..], &[0]].concat())
        });
        let deletes = range_deletes.bounds().map(|(from, to)| (from.to_vec(), to.to_vec()));
        let ranges = entries.into_iter().chain(deletes);
        let whole = ranges
            .reduce(|(from, to), (other_from, other_to)| (from.min(other_from), to.max(other_to)));
        if let Some((first, end)) = whole {
            properties.first_key = first.into_boxed_slice();
            properties.end_key = end.into_boxed_slice();
        }
    }
}

/// About how many bytes leave the writer at once: some stores hand each part to another thread.
const PART_LEN: usize = 1 << 20;

/// The longest entry: what leaves room for the rest of its block in 4 GiB.
const MAX_ENTRY_LEN: usize = 2 << 30;

fn misuse(what: &str) -> Error {
    Error::new(ErrorKind::InvalidUsage, what)
}
