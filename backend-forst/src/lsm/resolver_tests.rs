use proptest::prelude::*;
use weir_state_api::ErrorKind;
use weir_state_api::ttl::{Stamp, StateTtl, TimeDomain};

use super::super::Era;
use super::*;

const TTL: StateTtl = StateTtl::new(100, TimeDomain::Processing);

fn plain(kind: StateKind) -> StateEras {
    StateEras::new(kind, Vec::new())
}

fn lists_with_ttl() -> StateEras {
    StateEras::new(StateKind::List, vec![Era::new(Some(TTL), TtlTime::new(0))])
}

fn put(value: &[u8]) -> KeyVersion<'_> {
    KeyVersion { kind: EntryKind::Put, era: 0, value }
}

fn append(value: &[u8]) -> KeyVersion<'_> {
    KeyVersion { kind: EntryKind::Append, era: 0, value }
}

const DELETE: KeyVersion<'_> = KeyVersion { kind: EntryKind::Delete, era: 0, value: b"" };

/// A list element, written at `at`.
fn element(at: i64, value: u8) -> Vec<u8> {
    [&[9][..], &Stamp::Written(at).to_bytes(), &[value]].concat()
}

#[test]
fn the_newest_put_or_delete_ends_the_search() {
    let state = plain(StateKind::List);
    let resolve = |versions: &[KeyVersion<'static>], nothing_older| {
        Resolver::for_reads().resolve(&state, versions.iter().copied(), nothing_older).unwrap()
    };
    let whole = |bytes: &'static [u8]| Resolved::Put(Cow::Borrowed(bytes));
    assert_eq!(resolve(&[], false), Resolved::Nothing);
    assert_eq!(resolve(&[put(b"b"), put(b"a")], false), whole(b"b"));
    assert_eq!(resolve(&[DELETE, put(b"a")], false), Resolved::Delete);
    assert_eq!(resolve(&[DELETE, put(b"a")], true), Resolved::Nothing);
    assert_eq!(resolve(&[append(b"c"), append(b"b"), put(b"a"), put(b"z")], false), whole(b"abc"));
    assert_eq!(resolve(&[append(b"c"), DELETE, put(b"a")], false), whole(b"c"));
    let operands = Resolved::Append(Cow::Borrowed(&b"bc"[..]));
    assert_eq!(resolve(&[append(b"c"), append(b"b")], false), operands);
    assert_eq!(resolve(&[append(b"c"), append(b"b")], true), whole(b"bc"));
}

#[test]
fn one_version_is_not_copied() {
    let state = plain(StateKind::Value);
    let resolved = Resolver::for_reads().resolve(&state, [put(b"v")], false).unwrap();
    assert!(matches!(resolved, Resolved::Put(Cow::Borrowed(b"v"))));
    let resolved = Resolver::for_reads().resolve(&state, [append(b"v")], true).unwrap();
    assert!(matches!(resolved, Resolved::Put(Cow::Borrowed(b"v"))));
}

#[test]
fn an_expired_version_never_uncovers_an_older_one() {
    let state = StateEras::new(StateKind::Value, vec![Era::new(Some(TTL), TtlTime::new(0))]);
    let old = [&Stamp::Written(900).to_bytes()[..], b"v"].concat();
    let older = [&Stamp::Until(9_999).to_bytes()[..], b"w"].concat();
    let sweeping = Resolver::sweeping(TtlTime::new(1_000));
    let versions = [put(&old), put(&older)];
    assert_eq!(sweeping.resolve(&state, versions, false).unwrap(), Resolved::Delete);
    assert_eq!(sweeping.resolve(&state, versions, true).unwrap(), Resolved::Nothing);
    let earlier = Resolver::sweeping(TtlTime::new(999));
    assert_eq!(earlier.resolve(&state, versions, false).unwrap().value().unwrap(), old);
    let read = Resolver::for_reads().resolve(&state, versions, true).unwrap();
    assert_eq!(read.value().unwrap(), old, "hiding is for the typed layer");
}

#[test]
fn operands_lose_expired_elements_and_an_empty_one_hides_nothing() {
    let state = lists_with_ttl();
    let sweeping = Resolver::sweeping(TtlTime::new(1_000));
    let (old, new) = (element(900, b'o'), element(901, b'n'));
    let resolve = |versions: &[KeyVersion<'_>], nothing_older| {
        let resolved = sweeping.resolve(&state, versions.iter().copied(), nothing_older).unwrap();
        resolved.entry().map(|(kind, bytes)| (kind, bytes.to_vec()))
    };
    let both = [append(&new), append(&old)];
    assert_eq!(resolve(&both, false), Some((EntryKind::Append, new.clone())));
    assert_eq!(resolve(&both, true), Some((EntryKind::Put, new.clone())));
    assert_eq!(resolve(&[append(&old)], false), None);
    assert_eq!(resolve(&[append(&old), put(&old)], false), Some((EntryKind::Delete, vec![])));
    assert_eq!(resolve(&[append(&old), put(&old)], true), None);
    assert_eq!(resolve(&[append(&new), put(&old)], false), Some((EntryKind::Put, new)));
}

#[test]
fn versions_of_several_eras_are_joined_in_the_newest() {
    let eras = [(None, 0), (Some(TTL), 1_000)].map(|(ttl, at)| Era::new(ttl, TtlTime::new(at)));
    let state = StateEras::new(StateKind::List, eras.to_vec());
    let new = element(1_040, b'c');
    let newest = KeyVersion { era: 1, ..append(&new) };
    let versions = [newest, append(b"\x01b"), put(b"\x01a")];
    let resolved = Resolver::for_reads().resolve(&state, versions, false).unwrap();
    let expected = [element(1_000, b'a'), element(1_000, b'b'), new.clone()].concat();
    assert_eq!(resolved, Resolved::Put(Cow::Owned(expected)));
    let unknown = KeyVersion { era: 2, ..append(b"") };
    let error = Resolver::for_reads().resolve(&state, [newest, unknown], true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

/// What happened to one key: oldest first.
#[derive(Debug, Clone)]
enum Step {
    Put(Vec<i64>),
    Append(Vec<i64>),
    Delete,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let times = || proptest::collection::vec(0..100_i64, 0..3);
    let step = prop_oneof![
        1 => times().prop_map(Step::Put),
        4 => times().prop_map(Step::Append),
        1 => Just(Step::Delete),
    ];
    proptest::collection::vec(step, 1..8)
}

fn list(times: &[i64]) -> Vec<u8> {
    times.iter().flat_map(|at| element(*at, *at as u8)).collect()
}

proptest! {
    /// Whatever neighbours are merged, and whenever: a read that hides what has expired sees the same.
    #[test]
    fn merging_in_any_order_changes_nothing_that_lives(
        steps in steps(),
        merges in proptest::collection::vec((any::<prop::sample::Index>(), 0..60_i64), 0..8),
    ) {
        let state = lists_with_ttl();
        let mut expected = Vec::new();
        let mut versions: Vec<Option<(EntryKind, Vec<u8>)>> = Vec::new();
        for step in &steps {
            versions.push(Some(match step {
                Step::Put(times) => {
                    expected.clone_from(times);
                    (EntryKind::Put, list(times))
                }
                Step::Append(times) => {
                    expected.extend(times);
                    (EntryKind::Append, list(times))
                }
                Step::Delete => {
                    expected.clear();
                    (EntryKind::Delete, Vec::new())
                }
            }));
        }
        fn newest_first(of: &[Option<(EntryKind, Vec<u8>)>]) -> impl Iterator<Item = KeyVersion<'_>> {
            let present = of.iter().rev().flatten();
            present.map(|(kind, value)| KeyVersion { kind: *kind, era: 0, value })
        }
        let mut now = 100;
        for (at, later) in merges {
            if versions.len() < 2 {
                break;
            }
            now += later;
            let at = at.index(versions.len() - 1);
            let resolved = Resolver::sweeping(TtlTime::new(now))
                .resolve(&state, newest_first(&versions[at..at + 2]), at == 0)
                .unwrap();
            let merged = resolved.entry().map(|(kind, value)| (kind, value.to_vec()));
            versions.splice(at..at + 2, [merged]);
        }
        let resolver = Resolver::sweeping(TtlTime::new(now));
        let resolved = resolver.resolve(&state, newest_first(&versions), true).unwrap();
        expected.retain(|at| at + 100 > now);
        let read = resolved.value().unwrap_or_default().into_owned();
        prop_assert_eq!(read, list(&expected));
    }
}
