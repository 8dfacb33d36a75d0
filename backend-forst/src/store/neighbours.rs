//! Which of several ranges of an object are read with one request.

use std::ops::Range;

/// Groups of consecutive ranges, which ascend: `range` tells the one at an index. Those of a group leave at
/// most `max_gap` bytes between two of them, and a group is at most `max_range` bytes long unless a single
/// one is longer.
pub(super) fn neighbours(
    count: usize,
    range: impl Fn(usize) -> Range<u64>,
    max_gap: u64,
    max_range: u64,
) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for index in 0..count {
        if let (Some(group), Some(before)) = (groups.last_mut(), index.checked_sub(1)) {
            let gap = range(index).start.saturating_sub(range(before).end);
            let length = range(index).end - range(group.start).start;
            if gap <= max_gap && length <= max_range {
                group.end = index + 1;
                continue;
            }
        }
        groups.push(index..index + 1);
    }
    groups
}
