//! How long a value may become.

use crate::{Error, ErrorKind, Result};

/// Below this limit the length of a value is read before each append.
const EXACT_BELOW: u64 = 64 << 20;

/// The longest value that a backend accepts.
#[derive(Debug, Clone, Copy)]
pub struct ValueLimit {
    bytes: u64,
    options: &'static str,
}

impl ValueLimit {
    /// A limit in bytes, which a user raises in these options of the backend.
    pub const fn new(bytes: u64, options: &'static str) -> Self {
        ValueLimit { bytes, options }
    }

    /// The limit in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Refuses lengths beyond the limit.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge), naming both lengths and the options.
    #[inline]
    pub fn check(self, len: usize) -> Result<()> {
        if len as u64 > self.bytes { Err(self.exceeded(len)) } else { Ok(()) }
    }

    /// Whether appends must know the length of what is there. Above, an
    /// [`AppendGuard`](crate::AppendGuard) says when to look.
    #[inline]
    pub fn is_exact(self) -> bool {
        self.bytes < EXACT_BELOW
    }

    #[cold]
    fn exceeded(self, len: usize) -> Error {
        Error::new(
            ErrorKind::TooLarge,
            format!("the value would have {len} bytes, the limit is {}", self.bytes),
        )
        .advice(format!("split it into entries of a map, or raise the limit in {}", self.options))
    }
}
