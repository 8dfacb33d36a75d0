//! The elements of a stored list: each behind its length, with a TTL behind its stamp too.

use super::stamp::write_stamp;
use super::{STAMP_LEN, Stamp};
use crate::codec::{read_length, write_length};
use crate::{Error, ErrorKind, Result};

/// A first element may be short and the others long.
const MOST_GUESSED: usize = 128;

/// Reads a stored list element by element: the frame's content, stamp included.
#[derive(Debug, Clone)]
pub(crate) struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    pub(crate) fn new(stored: &'a [u8]) -> Self {
        Elements { rest: stored }
    }

    /// How many there are, if the others are as long as the first one; not more than what may be
    /// reserved on a guess.
    #[inline]
    pub(crate) fn guess_len(&self) -> usize {
        let Some(&length) = self.rest.first() else { return 0 };
        let framed = usize::from(length) + 1;
        // A list of one element is told without a division, for which all that follows would wait.
        if framed == self.rest.len() { 1 } else { (self.rest.len() / framed).min(MOST_GUESSED) }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&length, behind) = self.rest.split_first()?;
        // Nearly all elements are shorter than 128 bytes.
        if length < 0x80
            && let Some((element, rest)) = behind.split_at_checked(usize::from(length))
        {
            self.rest = rest;
            return Some(Ok(element));
        }
        let mut rest = self.rest;
        match read_length(&mut rest).and_then(|length| rest.split_off(..length)) {
            Some(element) => {
                self.rest = rest;
                Some(Ok(element))
            }
            None => {
                self.rest = &[];
                Some(Err(cut_short()))
            }
        }
    }
}

/// Appends an element to a list: its length, a stamp if the state has a TTL, and what `encode`
/// writes.
#[inline(always)]
pub(crate) fn write_element(
    out: &mut Vec<u8>,
    stamp: Option<Stamp>,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    // Encode behind a guess of one length byte; move only when the guess was wrong.
    let start = out.len();
    out.push(0);
    write_stamp(stamp, out);
    encode(out)?;
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
    } else {
        make_room_for_length(out, start, length);
    }
    Ok(())
}

/// Puts a length that takes more than the one byte that was left for it.
#[inline(never)]
fn make_room_for_length(out: &mut Vec<u8>, start: usize, length: usize) {
    let mut prefix = Vec::with_capacity(10);
    write_length(length, &mut prefix);
    out.splice(start..=start, prefix);
}

/// Appends an element that is already encoded.
pub(super) fn write_stamped(out: &mut Vec<u8>, stamp: Stamp, value: &[u8]) {
    write_length(STAMP_LEN + value.len(), out);
    out.extend_from_slice(&stamp.to_bytes());
    out.extend_from_slice(value);
}

/// Appends an element that is already encoded, without a stamp.
pub(super) fn write_bare(out: &mut Vec<u8>, value: &[u8]) {
    write_length(value.len(), out);
    out.extend_from_slice(value);
}

/// The error for stored bytes that end too early.
#[cold]
pub(crate) fn cut_short() -> Error {
    Error::new(ErrorKind::Corrupt, "a stored value or list element is cut short")
        .advice("restore an older checkpoint")
}
