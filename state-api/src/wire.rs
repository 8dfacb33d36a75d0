//! Numbers and byte strings in stored bytes, read with every bound checked: what the formats of backends
//! are made of.
//!
//! Whoever reads names the object that the bytes are from; it is in each error.
//!
//! ```
//! use weir_state_api::wire::{Decoder, put_bytes, put_varint};
//!
//! # fn main() -> weir_state_api::Result<()> {
//! let mut stored = Vec::new();
//! put_varint(&mut stored, 300);
//! put_bytes(&mut stored, b"ann");
//!
//! let mut decoder = Decoder::new(&stored, "chk-7/part-0");
//! assert_eq!(decoder.number::<u16>()?, 300);
//! assert_eq!(decoder.bytes()?, b"ann");
//! decoder.finish("name")?;
//!
//! let error = Decoder::new(b"cut", "chk-7/part-0").take(5).unwrap_err();
//! assert_eq!(error.object_path(), Some("chk-7/part-0"));
//! # Ok(())
//! # }
//! ```
#![deny(clippy::indexing_slicing)]

use crate::{Error, ErrorKind, Result};

/// Appends a number in 1 to 10 bytes: 7 bits a byte, the lowest first, the top bit says "more".
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a byte string: its length, then its bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A signed number as one that is small when it is near zero, for [`put_varint`].
#[must_use]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The error for an object that is not what was written.
#[cold]
pub fn corrupt(origin: &str, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what)
        .object(origin)
        .advice("restore another checkpoint, and find out who changed this object")
}

/// The error for an object that a later version of this crate has written.
#[cold]
pub fn unknown_version(origin: &str, what: &str, version: u32, known: u32) -> Error {
    Error::new(
        ErrorKind::Incompatible,
        format!("the {what} has format version {version}, known is {known}"),
    )
    .object(origin)
    .advice("use a version of Weir that knows this format")
}

/// Reads from a byte string, front to back.
#[derive(Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    origin: &'a str,
}

impl<'a> Decoder<'a> {
    /// A decoder of `bytes`, which are part of the object `origin`.
    #[must_use]
    pub fn new(bytes: &'a [u8], origin: &'a str) -> Self {
        Decoder { rest: bytes, origin }
    }

    /// The error for what was read.
    #[cold]
    pub fn corrupt(&self, what: impl Into<String>) -> Error {
        corrupt(self.origin, what)
    }

    /// How many bytes are left to read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether all is read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt), here and in all below, when there are fewer, or what stands there is
    /// not what is asked for.
    #[inline]
    pub fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let split = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let Some((bytes, rest)) = split else {
            return Err(self
                .corrupt(format!("{len} more bytes are expected, {} are left", self.rest.len())));
        };
        self.rest = rest;
        Ok(bytes)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(self.corrupt("a number is cut off"));
        };
        self.rest = rest;
        Ok(*bytes)
    }

    /// The next four bytes as a number, little endian.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next eight bytes as a number, little endian.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next number, see [`put_varint`].
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.corrupt("a number is longer than 64 bits"))
    }

    /// The next number, which must fit the type asked for.
    pub fn number<T: TryFrom<u64>>(&mut self) -> Result<T> {
        let value = self.varint()?;
        T::try_from(value).map_err(|_| self.corrupt(format!("{value} is out of range")))
    }

    /// The next number, written through [`zigzag`].
    pub fn signed(&mut self) -> Result<i64> {
        self.varint().map(unzigzag)
    }

    /// The next byte, which must say yes or no.
    pub fn flag(&mut self) -> Result<bool> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(self.corrupt(format!("{other} is neither yes nor no"))),
        }
    }

    /// The next byte string, see [`put_bytes`].
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.varint()?;
        self.take(len)
    }

    /// The number of items that follow, each of `smallest` bytes or more: as many as there is room
    /// for, so that memory can be taken for them.
    pub fn count(&mut self, smallest: usize) -> Result<usize> {
        let count: usize = self.number()?;
        match count.checked_mul(smallest) {
            Some(len) if len <= self.rest.len() => Ok(count),
            _ => Err(self.corrupt(format!(
                "{count} items are stated, {} bytes are left for them",
                self.rest.len()
            ))),
        }
    }

    /// Checks that everything has been read.
    pub fn finish(self, what: &str) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(self.corrupt(format!("{more} bytes follow the {what}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_damaged_ones_are_errors() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(Decoder::new(&bytes, "x").varint().unwrap(), value);
            let narrow = Decoder::new(&bytes, "x").number::<u16>();
            assert_eq!(narrow.ok().map(u64::from), Some(value).filter(|&value| value < 65_536));
            bytes.pop();
            assert!(Decoder::new(&bytes, "x").varint().is_err());
        }
        let mut too_long = vec![0xff; 9];
        too_long.push(2);
        assert!(Decoder::new(&too_long, "x").varint().is_err());
        assert!(Decoder::new(&[0x80; 20], "x").varint().is_err());
        let error = Decoder::new(b"abc", "x").take(u64::MAX).unwrap_err();
        assert_eq!((error.kind(), error.object_path()), (ErrorKind::Corrupt, Some("x")));
    }

    #[test]
    fn signed_numbers_survive() {
        for value in [0, -1, 1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }

    #[test]
    fn a_count_beyond_what_is_there_is_an_error() {
        let count = |bytes: &[u8], smallest| Decoder::new(bytes, "x").count(smallest).ok();
        assert_eq!(count(&[2, 0, 0, 0], 1), Some(2));
        assert_eq!(count(&[2, 0, 0, 0], 2), None);
        assert_eq!(count(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], 16), None);
    }
}
