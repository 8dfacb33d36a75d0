use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Waker;

use proptest::prelude::*;
use weir_state_api::{ErrorKind, block_on};

use super::super::vec_source::VecSource;
use super::*;
use crate::format::EntryKind;

fn put(key: &str, value: &str) -> (Vec<u8>, EntryKind, Vec<u8>) {
    (key.into(), EntryKind::Put, value.into())
}

/// A key with the values of its versions.
type Found = (Vec<u8>, Vec<Vec<u8>>);

/// All keys with the values of their visible versions, newest first.
fn drain(merge: &mut Merge<VecSource>) -> Result<Vec<Found>> {
    let mut keys = Vec::new();
    while block_on(poll_fn(|context| merge.poll_next(context)))? {
        let versions = merge.versions().map(|(_, entry)| entry.value.to_vec()).collect();
        keys.push((merge.key().to_vec(), versions));
    }
    Ok(keys)
}

#[test]
fn each_key_comes_once_with_its_versions_newest_first() {
    for (direction, expected) in [
        (Direction::Forward, [("a", "2 1"), ("b", "1"), ("c", "3 2"), ("d", "3")]),
        (Direction::Backward, [("d", "3"), ("c", "3 2"), ("b", "1"), ("a", "2 1")]),
    ] {
        let source = |entries: &[_]| VecSource::new(entries.to_vec(), direction);
        let sources = vec![
            source(&[put("c", "3"), put("d", "3")]),
            source(&[]),
            source(&[put("a", "2"), put("c", "2")]).pending(),
            source(&[put("a", "1"), put("b", "1")]),
        ];
        let merged = drain(&mut Merge::new(sources, direction)).unwrap();
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        let merged: Vec<_> = merged
            .iter()
            .map(|(key, versions)| {
                (text(key), versions.iter().map(text).collect::<Vec<_>>().join(" "))
            })
            .collect();
        assert_eq!(merged, expected.map(|(key, versions)| (key.into(), versions.into())));
    }
}

#[test]
fn a_range_delete_hides_older_sources_only() {
    let ranges = vec![(b"b".to_vec(), b"d".to_vec())];
    let middle = VecSource::new([put("b", "2")], Direction::Forward).with_range_deletes(ranges);
    let newest = VecSource::new([put("c", "3")], Direction::Forward);
    let oldest = ["a", "b", "c", "c\0", "d"].map(|key| put(key, "1"));
    let oldest = VecSource::new(oldest, Direction::Forward);
    let merged = drain(&mut Merge::new(vec![newest, middle, oldest], Direction::Forward)).unwrap();
    let expected: Vec<Found> =
        [("a", vec!["1"]), ("b", vec!["2"]), ("c", vec!["3"]), ("c\0", vec![]), ("d", vec!["1"])]
            .into_iter()
            .map(|(key, versions)| (key.into(), versions.into_iter().map(Into::into).collect()))
            .collect();
    assert_eq!(merged, expected);
}

#[test]
fn a_failed_read_is_an_error_and_the_walk_goes_on_when_asked_again() {
    let entries = ["a", "b", "c"].map(|key| put(key, "1"));
    for fails_at in 0..4 {
        let failing = VecSource::new(entries.clone(), Direction::Forward).failing_at(fails_at);
        let other = VecSource::new([put("bb", "2"), put("d", "2")], Direction::Forward).pending();
        let mut merge = Merge::new(vec![other, failing], Direction::Forward);
        let mut keys = Vec::new();
        let mut errors = 0;
        loop {
            match block_on(poll_fn(|context| merge.poll_next(context))) {
                Ok(true) => keys.push(String::from_utf8(merge.key().to_vec()).unwrap()),
                Ok(false) => break,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable);
                    errors += 1;
                }
            }
        }
        assert_eq!((errors, keys.join(" ")), (1, "a b bb c d".to_string()));
    }
}

#[test]
fn all_sources_that_wait_are_polled_before_the_merge_waits() {
    let source = || VecSource::new([put("a", "1")], Direction::Forward).pending();
    let mut merge = Merge::new(vec![source(), source(), source()], Direction::Forward);
    let mut context = Context::from_waker(Waker::noop());
    assert!(merge.poll_next(&mut context).is_pending());
    assert!(merge.poll_next(&mut context).is_ready(), "the reads had not overlapped");
}

proptest! {
    #[test]
    fn merges_like_ordered_maps(
        sources in proptest::collection::vec(
            (
                proptest::collection::btree_map(0..20_u8, any::<u8>(), 0..12),
                proptest::collection::vec((0..20_u8, 0..8_u8), 0..2),
                any::<bool>(),
            ),
            0..6,
        ),
        backward in any::<bool>(),
    ) {
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        let mut expected: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        for (age, (entries, _, _)) in sources.iter().enumerate() {
            for (key, value) in entries {
                let hidden = sources[..age].iter().any(|(_, ranges, _)| {
                    ranges.iter().any(|(from, len)| (*from..from + len).contains(key))
                });
                let versions = expected.entry(*key).or_default();
                if !hidden {
                    versions.push(*value);
                }
            }
        }
        let built = sources.iter().map(|(entries, ranges, pends)| {
            let entries =
                entries.iter().map(|(key, value)| (vec![*key], EntryKind::Put, vec![*value]));
            let ranges = ranges.iter().map(|(from, len)| (vec![*from], vec![from + len]));
            let source = VecSource::new(entries, direction).with_range_deletes(ranges.collect());
            if *pends { source.pending() } else { source }
        });
        let mut merged = drain(&mut Merge::new(built.collect(), direction)).unwrap();
        if backward {
            merged.reverse();
        }
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(key, values)| (vec![key], values.into_iter().map(|value| vec![value]).collect()))
            .collect::<Vec<Found>>();
        prop_assert_eq!(merged, expected);
    }
}
