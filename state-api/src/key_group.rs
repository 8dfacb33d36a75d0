//! Key groups: the unit in which keyed state moves between parallel instances.
//!
//! A key belongs to one of `max_parallelism` key groups for ever; a parallel instance owns a
//! contiguous range of them. The range formula is Apache Flink's, so both engines agree on who owns
//! what.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// The number of key groups of an operator; the upper limit of its parallelism.
///
/// Fixed for the life of a state: every snapshot carries it and a restore with another one is
/// refused. 1 to 32,768.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct MaxParallelism(u16);

impl MaxParallelism {
    /// The largest value: 32,768.
    pub const MAX: MaxParallelism = MaxParallelism(32_768);

    /// Accepts 1 to 32,768.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) for anything else.
    pub fn new(groups: u16) -> Result<Self> {
        if (1..=32_768).contains(&groups) {
            Ok(MaxParallelism(groups))
        } else {
            Err(Error::new(
                ErrorKind::InvalidUsage,
                format!("max parallelism must be 1 to 32768, not {groups}"),
            ))
        }
    }

    /// The number of key groups.
    pub fn get(self) -> u16 {
        self.0
    }

    /// The key group of a key's hash. Uniform, without a division.
    ///
    /// Uses the low half of the hash: the high bits stay independent of the group, so hash tables
    /// per key group can use them.
    #[inline]
    pub fn group_of_hash(self, hash: u64) -> KeyGroup {
        KeyGroup((((hash & 0xffff_ffff) * u64::from(self.0)) >> 32) as u16)
    }
}

impl Default for MaxParallelism {
    /// 128, as Flink's for parallelism up to 85.
    fn default() -> Self {
        MaxParallelism(128)
    }
}

impl TryFrom<u16> for MaxParallelism {
    type Error = Error;
    fn try_from(groups: u16) -> Result<Self> {
        Self::new(groups)
    }
}

impl From<MaxParallelism> for u16 {
    fn from(value: MaxParallelism) -> u16 {
        value.0
    }
}

impl fmt::Display for MaxParallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One key group: 0 to `max_parallelism - 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyGroup(pub u16);

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A contiguous, possibly empty range of key groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bounds", into = "Bounds")]
pub struct KeyGroupRange {
    start: u16,
    end: u16,
}

/// What is stored of a range; checked when it is read.
#[derive(Serialize, Deserialize)]
struct Bounds {
    start: u16,
    end: u16,
}

impl TryFrom<Bounds> for KeyGroupRange {
    type Error = Error;

    fn try_from(Bounds { start, end }: Bounds) -> Result<Self> {
        if start < end {
            Ok(KeyGroupRange { start, end })
        } else if start == end {
            Ok(Self::EMPTY)
        } else {
            Err(Error::new(
                ErrorKind::Corrupt,
                format!("a key-group range ends at {end} before it starts at {start}"),
            ))
        }
    }
}

impl From<KeyGroupRange> for Bounds {
    fn from(KeyGroupRange { start, end }: KeyGroupRange) -> Bounds {
        Bounds { start, end }
    }
}

impl KeyGroupRange {
    /// The range without any group.
    pub const EMPTY: KeyGroupRange = KeyGroupRange { start: 0, end: 0 };

    /// Groups `first..=last`; empty when `first > last`.
    pub fn new(first: u16, last: u16) -> Self {
        if first > last {
            Self::EMPTY
        } else {
            KeyGroupRange { start: first, end: last.saturating_add(1) }
        }
    }

    /// All groups of an operator.
    pub fn all(max_parallelism: MaxParallelism) -> Self {
        KeyGroupRange { start: 0, end: max_parallelism.get() }
    }

    /// The groups of parallel instance `subtask` out of `parallelism` (Flink's formula).
    ///
    /// The ranges of all subtasks partition the key groups: no gap, no overlap.
    ///
    /// ```
    /// use weir_state_api::{KeyGroupRange, MaxParallelism};
    ///
    /// let max = MaxParallelism::new(128)?;
    /// assert_eq!(KeyGroupRange::of_subtask(max, 3, 1)?, KeyGroupRange::new(43, 85));
    /// # Ok::<(), weir_state_api::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) when `parallelism` is 0 or above the maximum, or
    /// `subtask` is not below `parallelism`.
    pub fn of_subtask(
        max_parallelism: MaxParallelism,
        parallelism: u16,
        subtask: u16,
    ) -> Result<Self> {
        if parallelism == 0 || parallelism > max_parallelism.get() || subtask >= parallelism {
            return Err(Error::new(
                ErrorKind::InvalidUsage,
                format!(
                    "subtask {subtask} of {parallelism} does not exist at max parallelism \
                     {max_parallelism}"
                ),
            )
            .advice("choose a parallelism of 1 to the max parallelism"));
        }
        let (max, parallelism, subtask) =
            (u32::from(max_parallelism.get()), u32::from(parallelism), u32::from(subtask));
        let start = (subtask * max).div_ceil(parallelism);
        let end = ((subtask + 1) * max).div_ceil(parallelism);
        Ok(KeyGroupRange { start: start as u16, end: end as u16 })
    }

    /// The first group; meaningless when the range is empty.
    pub fn first(self) -> KeyGroup {
        KeyGroup(self.start)
    }

    /// The number of groups.
    pub fn len(self) -> usize {
        usize::from(self.end - self.start)
    }

    /// Whether the range holds no group.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether `group` belongs to the range.
    #[inline]
    pub fn contains(self, group: KeyGroup) -> bool {
        self.start <= group.0 && group.0 < self.end
    }

    /// Position of `group` inside the range, or `None` for a foreign group.
    #[inline]
    pub fn index_of(self, group: KeyGroup) -> Option<usize> {
        self.contains(group).then(|| usize::from(group.0 - self.start))
    }

    /// The groups that both ranges hold.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        if start < end { KeyGroupRange { start, end } } else { Self::EMPTY }
    }

    /// All groups in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = KeyGroup> + ExactSizeIterator {
        (self.start..self.end).map(KeyGroup)
    }
}

impl fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            f.write_str("empty")
        } else {
            write!(f, "{}..={}", self.start, self.end - 1)
        }
    }
}

impl fmt::Debug for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyGroupRange({self})")
    }
}

/// The subtask that owns `group` at the given parallelism (Flink's formula).
#[inline]
pub fn subtask_of_group(max_parallelism: MaxParallelism, parallelism: u16, group: KeyGroup) -> u16 {
    (u32::from(group.0) * u32::from(parallelism) / u32::from(max_parallelism.get())) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_flink() {
        let ranges = |max: u16, parallelism: u16| {
            (0..parallelism)
                .map(|i| {
                    KeyGroupRange::of_subtask(MaxParallelism(max), parallelism, i)
                        .unwrap()
                        .to_string()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(ranges(128, 2), ["0..=63", "64..=127"]);
        assert_eq!(ranges(128, 3), ["0..=42", "43..=85", "86..=127"]);
        assert_eq!(ranges(10, 3), ["0..=3", "4..=6", "7..=9"]);
        assert_eq!(ranges(32_768, 1), ["0..=32767"]);
    }

    #[test]
    fn ranges_partition_the_groups_and_agree_with_the_owner() {
        for max in [1, 2, 7, 10, 127, 128, 129, 1000, 32_768] {
            let max = MaxParallelism(max);
            for parallelism in [1, 2, 3, 5, 64, max.get()] {
                if parallelism > max.get() {
                    continue;
                }
                let mut next = 0;
                for subtask in 0..parallelism {
                    let range = KeyGroupRange::of_subtask(max, parallelism, subtask).unwrap();
                    for group in range.iter() {
                        assert_eq!(group.0, next);
                        assert_eq!(subtask_of_group(max, parallelism, group), subtask);
                        next += 1;
                    }
                }
                assert_eq!(next, max.get());
            }
        }
    }

    #[test]
    fn bad_parallelism_is_refused() {
        assert!(MaxParallelism::new(0).is_err());
        assert!(MaxParallelism::new(32_769).is_err());
        let max = MaxParallelism(4);
        assert!(KeyGroupRange::of_subtask(max, 5, 0).is_err());
        assert!(KeyGroupRange::of_subtask(max, 0, 0).is_err());
        assert!(KeyGroupRange::of_subtask(max, 2, 2).is_err());
    }

    #[test]
    fn an_inverted_range_does_not_decode() {
        let bytes = postcard::to_stdvec(&(9_u16, 4_u16)).unwrap();
        assert!(postcard::from_bytes::<KeyGroupRange>(&bytes).is_err());
        let range = KeyGroupRange::new(4, 8);
        let bytes = postcard::to_stdvec(&range).unwrap();
        assert_eq!(postcard::from_bytes::<KeyGroupRange>(&bytes).unwrap(), range);
    }

    #[test]
    fn intersection_of_disjoint_ranges_is_empty() {
        let a = KeyGroupRange::new(0, 9);
        assert_eq!(a.intersection(KeyGroupRange::new(10, 20)), KeyGroupRange::EMPTY);
        assert_eq!(a.intersection(KeyGroupRange::new(5, 20)), KeyGroupRange::new(5, 9));
        assert!(KeyGroupRange::new(3, 2).is_empty());
    }
}
