//! Ranges of map keys, and scans over them.

use std::fmt;
use std::ops::Bound;

use crate::{BoxFuture, Page, Result};

/// A range of map keys.
#[derive(Debug, Clone, Copy)]
pub struct MapRange<'a> {
    /// Where it begins.
    pub from: Bound<&'a [u8]>,
    /// Where it ends.
    pub to: Bound<&'a [u8]>,
}

impl MapRange<'_> {
    /// All map keys.
    pub const ALL: MapRange<'static> = MapRange { from: Bound::Unbounded, to: Bound::Unbounded };

    /// Whether no key can lie in the range (also when its ends are crossed).
    pub fn is_empty(&self) -> bool {
        match (self.from, self.to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
            | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
            _ => false,
        }
    }
}

/// Direction of a scan over encoded map keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Smallest first.
    #[default]
    Ascending,
    /// Largest first.
    Descending,
}

/// The rest of a scan. It owns what it needs: it neither borrows the backend nor sees changes made
/// after the scan began.
pub trait Scan: Send {
    /// Appends the next entries to `page`.
    ///
    /// # Errors
    /// Those of reading; the scan has ended then, never silently short.
    fn next(self: Box<Self>, page: &mut Page) -> Result<ScanStep>;
}

/// The outcome of a step of a scan.
#[must_use]
pub enum ScanStep {
    /// The page was filled and nothing follows.
    Last,
    /// The page was filled and more may follow.
    More(Box<dyn Scan>),
    /// Nothing was appended; the next entries need remote I/O.
    Pending(BoxFuture<'static, Result<(Page, ScanStep)>>),
}

impl fmt::Debug for ScanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScanStep::Last => "Last",
            ScanStep::More(_) => "More",
            ScanStep::Pending(_) => "Pending",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossed_ranges_are_empty() {
        let range = |from, to| MapRange { from, to }.is_empty();
        assert!(!MapRange::ALL.is_empty());
        assert!(range(Bound::Included(b"b"), Bound::Included(b"a")));
        assert!(!range(Bound::Included(b"a"), Bound::Included(b"a")));
        assert!(range(Bound::Included(b"a"), Bound::Excluded(b"a")));
        assert!(range(Bound::Excluded(b"a"), Bound::Included(b"a")));
        assert!(!range(Bound::Excluded(b"a"), Bound::Unbounded));
    }
}
