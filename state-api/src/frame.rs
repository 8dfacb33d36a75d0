//! The envelope of small metadata objects: magic, version, length, postcard body, checksum.
//!
//! ```text
//! 0   8  magic, says what it is
//! 8   4  format version, u32 little endian
//! 12  4  body length n, u32 little endian
//! 16  n  body (postcard)
//! 16+n 4 CRC-32 (IEEE) of everything before, u32 little endian
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, ErrorKind, Result};

const HEADER_LEN: usize = 16;
const CHECKSUM_LEN: usize = 4;

/// One kind of enveloped metadata.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Eight bytes that say what the object is.
    pub magic: [u8; 8],
    /// The version that is written, and the only one that is read.
    pub version: u32,
}

impl Frame {
    /// Encodes `body` into an envelope.
    ///
    /// # Panics
    /// When the body cannot be serialized: a broken invariant of the type, not of the data.
    pub fn encode<T: Serialize>(&self, body: &T) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&self.magic);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let mut bytes =
            postcard::to_extend(body, bytes).expect("plain metadata serializes without failing");
        let length = u32::try_from(bytes.len() - HEADER_LEN).expect("metadata is below 4 GiB");
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes an envelope; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) for wrong magic, length or checksum;
    /// [`Incompatible`](ErrorKind::Incompatible) for an unknown version.
    pub fn decode<T: DeserializeOwned>(&self, bytes: &[u8], origin: &str) -> Result<T> {
        let corrupt = |what: &str| {
            Error::new(ErrorKind::Corrupt, format!("the metadata {what}"))
                .object(origin)
                .advice("restore another checkpoint")
        };
        let field = |at: usize| {
            bytes
                .get(at..at + 4)
                .and_then(|field| field.try_into().ok())
                .map(u32::from_le_bytes)
                .ok_or_else(|| corrupt("is truncated"))
        };
        if bytes.get(..8) != Some(&self.magic) {
            return Err(corrupt(if bytes.len() < 8 {
                "is truncated"
            } else {
                "has a foreign magic"
            }));
        }
        // Before the checksum: a newer version may checksum differently.
        let version = field(8)?;
        if version != self.version {
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!("the metadata has format version {version}, known is {}", self.version),
            )
            .object(origin)
            .advice("use a version of Weir that knows this format"));
        }
        let end = HEADER_LEN
            .checked_add(field(12)? as usize)
            .filter(|&end| end.checked_add(CHECKSUM_LEN) == Some(bytes.len()))
            .ok_or_else(|| corrupt("has not the length it states"))?;
        if crc32fast::hash(&bytes[..end]) != field(end)? {
            return Err(corrupt("fails its checksum"));
        }
        match postcard::take_from_bytes(&bytes[HEADER_LEN..end]) {
            Ok((body, [])) => Ok(body),
            Ok(_) => Err(corrupt("has bytes behind its body")),
            Err(error) => Err(corrupt("does not decode").source(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame = Frame { magic: *b"WEIRTEST", version: 3 };

    #[test]
    fn golden_bytes() {
        let bytes = FRAME.encode(&(7_u32, "ab"));
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "574549525445535403000000040000000702616287cb1851");
        assert_eq!(FRAME.decode::<(u32, String)>(&bytes, "x").unwrap(), (7, "ab".to_string()));
    }

    #[test]
    fn a_body_with_more_behind_it_is_refused() {
        let bytes = FRAME.encode(&(7_u32, "ab", 1_u8));
        let error = FRAME.decode::<(u32, String)>(&bytes, "x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }

    #[test]
    fn every_damage_is_found() {
        let bytes = FRAME.encode(&(7_u32, "ab"));
        for length in 0..bytes.len() {
            let error = FRAME.decode::<(u32, String)>(&bytes[..length], "x").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "length {length}: {error}");
        }
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1;
            let error = FRAME.decode::<(u32, String)>(&damaged, "x").unwrap_err();
            let version_byte = (8..12).contains(&position);
            let expected = if version_byte { ErrorKind::Incompatible } else { ErrorKind::Corrupt };
            assert_eq!(error.kind(), expected, "position {position}: {error}");
            assert_eq!(error.object_path(), Some("x"));
        }
    }
}
