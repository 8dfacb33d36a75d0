//! Scans to their end, and ranges.

use std::collections::BTreeMap;
use std::ops::Bound;

use weir_state_api::*;

pub(crate) fn page_to_vec(page: &Page) -> Vec<(Vec<u8>, Vec<u8>)> {
    page.iter().map(|(a, b)| (a.to_vec(), b.to_vec())).collect()
}

/// Runs a scan to its end.
pub(crate) fn drain(mut step: ScanStep, mut page: Page) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = page_to_vec(&page);
    while let ScanStep::More(scan) = step {
        page.clear();
        step = scan.next(&mut page).unwrap();
        all.extend(page_to_vec(&page));
    }
    assert!(matches!(step, ScanStep::Last));
    all
}

pub(crate) fn set<K: Ord>(map: &mut BTreeMap<K, Vec<u8>>, key: K, value: Option<Vec<u8>>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

pub(crate) fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

pub(crate) fn contains(range: MapRange<'_>, key: &[u8]) -> bool {
    let after_start = match range.from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
    };
    let before_end = match range.to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
    };
    after_start && before_end
}
