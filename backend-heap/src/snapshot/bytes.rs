//! Numbers and strings in bytes, read with every bound checked.
#![deny(clippy::indexing_slicing)]

use weir_state_api::{Error, ErrorKind, Result};

/// Appends a number in 1 to 10 bytes: 7 bits a byte, the lowest first, the top bit says "more".
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The error for an object that is not what was written.
#[cold]
pub(crate) fn corrupt(object: &str, what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what)
        .object(object)
        .advice("restore another checkpoint, and find out who changed this object")
}

/// Reads from a byte string, front to back.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
    object: &'a str,
}

impl<'a> Decoder<'a> {
    /// A decoder of `bytes`, which are part of `object`.
    pub(crate) fn new(bytes: &'a [u8], object: &'a str) -> Self {
        Decoder { rest: bytes, object }
    }

    /// The error for what was read.
    #[cold]
    pub(crate) fn corrupt(&self, what: impl Into<String>) -> Error {
        corrupt(self.object, what)
    }

    /// Whether all is read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, len: u64) -> Result<&'a [u8]> {
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
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(self.corrupt("a number is cut off"));
        };
        self.rest = rest;
        Ok(*bytes)
    }

    /// The next number, see [`put_varint`].
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64> {
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

    /// The next number, which must fit `u16`.
    pub(crate) fn varint_u16(&mut self) -> Result<u16> {
        let value = self.varint()?;
        u16::try_from(value).map_err(|_| self.corrupt(format!("{value} is out of range")))
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
            bytes.pop();
            assert!(Decoder::new(&bytes, "x").varint().is_err());
        }
        let mut too_long = vec![0xff; 9];
        too_long.push(2);
        assert!(Decoder::new(&too_long, "x").varint().is_err());
        assert!(Decoder::new(&[0x80; 20], "x").varint().is_err());
        let error = Decoder::new(b"abc", "x").bytes(u64::MAX).unwrap_err();
        assert_eq!((error.kind(), error.object_path()), (ErrorKind::Corrupt, Some("x")));
    }
}
