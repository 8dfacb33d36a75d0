//! How long a value may become.

use weir_state_api::{Error, ErrorKind, Result};

/// Below this limit the length of a value is read before each append.
const EXACT_BELOW: u64 = 64 << 20;

/// The longest value that is accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueLimit(pub(crate) u64);

impl ValueLimit {
    /// Refuses lengths beyond the limit.
    #[inline]
    pub(crate) fn check(self, len: usize) -> Result<()> {
        if len as u64 > self.0 { Err(self.exceeded(len)) } else { Ok(()) }
    }

    /// Whether appends must know the length of what is there.
    #[inline]
    pub(crate) fn is_exact(self) -> bool {
        self.0 < EXACT_BELOW
    }

    #[cold]
    fn exceeded(self, len: usize) -> Error {
        Error::new(
            ErrorKind::TooLarge,
            format!("the value would have {len} bytes, the limit is {}", self.0),
        )
        .advice("split it into entries of a map, or raise the limit in ForstOptions")
    }
}
