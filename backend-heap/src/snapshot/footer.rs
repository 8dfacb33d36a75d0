//! The ends of an object: the header, and the footer that says what lies where.
#![deny(clippy::indexing_slicing)]

use weir_state_api::wire::{Decoder, corrupt, put_varint};
use weir_state_api::{Error, ErrorKind, KeyGroup, Result, StateShape};

use super::FORMAT_VERSION;

/// The first bytes of an object.
const HEADER_MAGIC: [u8; 8] = *b"WEIRHEAP";

/// The last bytes of an object.
const TRAILER_MAGIC: [u8; 8] = *b"WEIRHEND";

/// Magic and version.
pub(crate) const HEADER_LEN: u64 = 12;

/// Length and checksum of the footer, length of the object, magic.
pub(crate) const TRAILER_LEN: u64 = 28;

/// What an object says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Footer {
    /// The states that sections refer to.
    pub(crate) states: Vec<StoredState>,
    /// All sections in the order in which they lie in the object, by key group, then state; the
    /// first one begins behind the header, and no byte lies between them.
    pub(crate) sections: Vec<Section>,
}

/// A state, as far as its entries need it; the handle knows the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredState {
    pub(crate) name: String,
    pub(crate) shape: StateShape,
}

/// Where the entries of one state in one key group are, and what they must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) group: KeyGroup,
    /// Index into the footer's states.
    pub(crate) state: u16,
    /// Whether it replaces what earlier objects of the chain hold, or changes it.
    pub(crate) extent: SectionExtent,
    /// Removed keys in it; they come first.
    pub(crate) removals: u64,
    /// Records in it: (key, namespace) pairs, or timers.
    pub(crate) records: u64,
    /// Its first byte in the object.
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) crc32: u32,
}

/// How a section relates to the same state and key group in earlier objects of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionExtent {
    /// It is all that there is.
    Whole,
    /// The removed keys go, the records come or replace those of the same keys.
    Change,
}

impl Section {
    /// The byte behind its last one.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// The header.
pub(crate) fn header() -> Vec<u8> {
    [&HEADER_MAGIC[..], &FORMAT_VERSION.to_le_bytes()].concat()
}

/// Checks a header.
pub(crate) fn check_header(bytes: &[u8], object: &str) -> Result<()> {
    let mut decoder = Decoder::new(bytes, object);
    if decoder.array()? != HEADER_MAGIC {
        return Err(corrupt(object, "the object does not begin as a heap snapshot does"));
    }
    let version = u32::from_le_bytes(decoder.array()?);
    if version != FORMAT_VERSION {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!("the object has format version {version}, known is {FORMAT_VERSION}"),
        )
        .object(object)
        .advice("use a version of Weir that knows this format"));
    }
    Ok(())
}

impl Footer {
    /// Footer and trailer. `offset` is where they begin in the object.
    pub(crate) fn encode(&self, offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 12 * self.sections.len());
        put_varint(&mut out, self.states.len() as u64);
        for state in &self.states {
            put_varint(&mut out, state.name.len() as u64);
            out.extend_from_slice(state.name.as_bytes());
            out.push(shape_code(state.shape));
        }
        put_varint(&mut out, self.sections.len() as u64);
        for section in &self.sections {
            put_varint(&mut out, u64::from(section.group.0));
            put_varint(&mut out, u64::from(section.state));
            out.push(match section.extent {
                SectionExtent::Whole => 0,
                SectionExtent::Change => 1,
            });
            put_varint(&mut out, section.removals);
            put_varint(&mut out, section.records);
            put_varint(&mut out, section.length);
            out.extend_from_slice(&section.crc32.to_le_bytes());
        }
        let length = out.len() as u64;
        let crc32 = crc32fast::hash(&out);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&crc32.to_le_bytes());
        out.extend_from_slice(&(offset + length + TRAILER_LEN).to_le_bytes());
        out.extend_from_slice(&TRAILER_MAGIC);
        out
    }

    /// The checksum of the whole object, from those of its parts: no section need be read for it.
    /// `tail` are footer and trailer.
    pub(crate) fn object_crc32(&self, tail: &[u8]) -> u32 {
        let mut whole = crc32fast::Hasher::new();
        whole.update(&header());
        for section in &self.sections {
            let part = crc32fast::Hasher::new_with_initial_len(section.crc32, section.length);
            whole.combine(&part);
        }
        whole.update(tail);
        whole.finalize()
    }

    /// Reads the trailer: the last [`TRAILER_LEN`] bytes of an object of `object_length` bytes.
    pub(crate) fn locate(trailer: &[u8], object_length: u64, object: &str) -> Result<Located> {
        let mut decoder = Decoder::new(trailer, object);
        let length = u64::from_le_bytes(decoder.array()?);
        let crc32 = u32::from_le_bytes(decoder.array()?);
        let stated = u64::from_le_bytes(decoder.array()?);
        if decoder.array()? != TRAILER_MAGIC {
            return Err(corrupt(object, "the object does not end as a heap snapshot does"));
        }
        if stated != object_length {
            let what =
                format!("the object has {object_length} bytes, it was written with {stated}");
            return Err(corrupt(object, what));
        }
        let offset = object_length
            .checked_sub(TRAILER_LEN)
            .and_then(|end| end.checked_sub(length))
            .filter(|&offset| offset >= HEADER_LEN)
            .ok_or_else(|| corrupt(object, "the footer is longer than the object"))?;
        Ok(Located { offset, length, crc32 })
    }
}

/// Where the footer is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Located {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    crc32: u32,
}

impl Located {
    /// Reads the footer.
    pub(crate) fn decode(self, bytes: &[u8], object: &str) -> Result<Footer> {
        if bytes.len() as u64 != self.length || crc32fast::hash(bytes) != self.crc32 {
            return Err(corrupt(object, "the footer fails its checksum"));
        }
        let mut decoder = Decoder::new(bytes, object);
        let mut footer = Footer::default();
        for _ in 0..decoder.varint()? {
            let len = decoder.varint()?;
            let name = decoder.take(len)?.to_vec();
            let name = String::from_utf8(name)
                .map_err(|_| decoder.corrupt("the name of a state is not UTF-8"))?;
            let [code] = decoder.array()?;
            let shape = shape_of(code)
                .ok_or_else(|| decoder.corrupt(format!("{code} is no shape of a state")))?;
            footer.states.push(StoredState { name, shape });
        }
        let mut offset = HEADER_LEN;
        for _ in 0..decoder.varint()? {
            let section = decode_section(&mut decoder, offset)?;
            let known = usize::from(section.state) < footer.states.len();
            let ascending = footer
                .sections
                .last()
                .is_none_or(|last| (last.group, last.state) < (section.group, section.state));
            if !known || !ascending {
                return Err(decoder.corrupt("the index of sections is out of order"));
            }
            offset = section.end();
            footer.sections.push(section);
        }
        if !decoder.is_empty() || offset != self.offset {
            return Err(decoder.corrupt("the index does not account for every byte"));
        }
        Ok(footer)
    }
}

fn decode_section(decoder: &mut Decoder<'_>, offset: u64) -> Result<Section> {
    Ok(Section {
        group: KeyGroup(decoder.number()?),
        state: decoder.number()?,
        extent: match decoder.array()? {
            [0] => SectionExtent::Whole,
            [1] => SectionExtent::Change,
            [code] => return Err(decoder.corrupt(format!("{code} is no extent of a section"))),
        },
        removals: decoder.varint()?,
        records: decoder.varint()?,
        offset,
        length: decoder.varint()?,
        crc32: u32::from_le_bytes(decoder.array()?),
    })
}

fn shape_code(shape: StateShape) -> u8 {
    match shape {
        StateShape::Point => 0,
        StateShape::Ordered => 1,
        StateShape::Queue => 2,
    }
}

fn shape_of(code: u8) -> Option<StateShape> {
    match code {
        0 => Some(StateShape::Point),
        1 => Some(StateShape::Ordered),
        2 => Some(StateShape::Queue),
        _ => None,
    }
}
