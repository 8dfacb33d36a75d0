//! What stands behind a stored key.
//!
//! ```text
//! payload | era u8
//! ```
//!
//! The era says how to read the payload; it stands at the end, where adding and taking it off copies
//! nothing. It lets the meaning of stored bytes change without rewriting them: a value is converted
//! when it is read, merged or compacted. So far there is one era, in which the payload is the value.

use weir_state_api::{Error, ErrorKind, Result};

/// The only era so far.
const CURRENT_ERA: u8 = 0;

/// Writes `value` in its stored form over `out`.
#[inline]
pub(crate) fn store(value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.reserve(value.len() + 1);
    out.extend_from_slice(value);
    seal(out);
}

/// Turns a value into its stored form in place.
#[inline]
pub(crate) fn seal(value: &mut Vec<u8>) {
    value.push(CURRENT_ERA);
}

/// The value in a stored one.
#[inline]
pub(crate) fn load(stored: &[u8]) -> Result<&[u8]> {
    match stored {
        [value @ .., CURRENT_ERA] => Ok(value),
        _ => Err(unknown_era(stored)),
    }
}

#[cold]
fn unknown_era(stored: &[u8]) -> Error {
    let what = match stored.last() {
        Some(era) => format!("a stored value is of era {era}, known is {CURRENT_ERA}"),
        None => "a stored value lacks its era".to_string(),
    };
    Error::new(ErrorKind::Corrupt, what)
        .advice("restore with the version of Weir that wrote the snapshot")
}
