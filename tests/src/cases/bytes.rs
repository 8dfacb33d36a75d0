//! The byte level: what engines across a language border call.

use std::ops::Bound;

use weir_state_api::{
    Address, ErrorKind, KeyRef, Lookup, MAX_KEY_LEN, MapRange, MaxParallelism, Order, Page, Result,
    StateId, StateKind, TimerRef, Values, block_on,
};

use super::{Case, group};
use crate::harness::{At, Harness, descriptor, drain, read};

pub(super) const CASES: &[Case] = group!["bytes":
    get_into_copies_whole_values_only => "byte level: get_into",
    multi_get_answers_each_address => "byte level: multi_get",
    deferred_reads_see_the_state_as_of_their_call => "byte level: get_or_defer",
    put_entries_sets_one_after_the_other => "byte level: put_entries",
    append_grows_values_and_entries => "byte level: append",
    delete_range_removes_what_lies_inside => "map: range delete",
    unknown_states_are_invalid_usage => "an unknown state id is InvalidUsage",
    calls_of_the_wrong_shape_are_invalid_usage => "InvalidUsage for a state that is no map",
    states_are_listed_as_registered => "states()",
    physical_entries_cover_the_live_ones => "physical_entries",
    reads_never_pend => "capabilities: never_pends" if "never_pends",
];

fn key() -> KeyRef<'static> {
    KeyRef::new(b"key", MaxParallelism::default()).expect("the key is short")
}

/// The length is always told; bytes are copied only when all of them fit.
fn get_into_copies_whole_values_only(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let state = backend.register(&descriptor("v", StateKind::Value))?;
    let at = Address { state, key: key(), namespace: b"", map_key: b"" };
    let mut buffer = [9; 8];
    assert_eq!(backend.get_into(&at, &mut buffer)?, None);
    backend.put(&at, b"12345")?;
    assert_eq!(backend.get_into(&at, &mut buffer[..4])?, Some(5));
    assert_eq!(buffer, [9; 8]);
    assert_eq!(backend.get_into(&at, &mut buffer[..5])?, Some(5));
    assert_eq!(&buffer, b"12345\x09\x09\x09");
    assert_eq!(backend.get_into(&at, &mut [])?, Some(5));
    Ok(())
}

/// Of one map key the last entry counts; an entry that is refused ends it, and those before it stay.
fn put_entries_sets_one_after_the_other(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let state = backend.register(&descriptor("m", StateKind::Map))?;
    let at = Address { state, key: key(), namespace: b"n", map_key: b"ignored" };
    let mut page = Page::new();
    backend.put_entries(&at, &page)?;
    for (map_key, value) in [(b"b", &b"1"[..]), (b"a", b""), (b"b", b"longer")] {
        page.push(map_key, value);
    }
    backend.put_entries(&at, &page)?;
    page.clear();
    page.push(b"c", b"3");
    page.push(&[7; MAX_KEY_LEN + 1], b"4");
    page.push(b"d", b"5");
    let refused = backend.put_entries(&at, &page).expect_err("the map key is too long");
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    let found = drain(|page| backend.scan(&at, MapRange::ALL, Order::Ascending, page))?;
    let found: Vec<_> = found.into_iter().map(|(_, map_key, value)| (map_key, value)).collect();
    let entry = |map_key: &[u8], value: &[u8]| (map_key.to_vec(), value.to_vec());
    assert_eq!(found, [entry(b"a", b""), entry(b"b", b"longer"), entry(b"c", b"3")]);
    Ok(())
}

/// Every address gets its own answer: repeated, absent, empty, of several states and shapes.
fn multi_get_answers_each_address(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let state = backend.register(&descriptor("v", StateKind::Value))?;
    let map = backend.register(&descriptor("m", StateKind::Map))?;
    let there = Address { state, key: key(), namespace: b"", map_key: b"" };
    let empty = Address { namespace: b"n", ..there };
    let absent = Address { namespace: b"x", ..there };
    let entry = Address { state: map, map_key: b"k", ..there };
    backend.put(&there, b"value")?;
    backend.put(&empty, b"")?;
    backend.put(&entry, b"entry")?;
    let addresses = [there, absent, entry, there, empty, there];
    let mut values = Values::new();
    values.reset(40);
    let pending = backend.multi_get(&addresses, &mut values)?;
    assert_eq!(values.len(), addresses.len());
    let mut answers: Vec<_> =
        (0..values.len()).map(|index| values.get(index).map(<[u8]>::to_vec)).collect();
    if let Some(pending) = pending {
        for (index, value) in block_on(pending)? {
            assert_eq!(answers[index], None, "address {index} was answered twice");
            answers[index] = value.map(|value| value.to_vec());
        }
    }
    let expected: [Option<&[u8]>; 6] =
        [Some(b"value"), None, Some(b"entry"), Some(b"value"), Some(b""), Some(b"value")];
    assert_eq!(answers, expected.map(|value| value.map(<[u8]>::to_vec)));
    assert!(
        backend
            .multi_get(&[], &mut values)?
            .is_none_or(|pending| { block_on(pending).is_ok_and(|answers| answers.is_empty()) })
    );
    assert!(values.is_empty());
    Ok(())
}

/// A read that is deferred is answered when it is sent, in its turn, with what was there when it was
/// called: whatever was written to its own key and to others meanwhile.
fn deferred_reads_see_the_state_as_of_their_call(h: &Harness<'_>) -> Result<()> {
    const KEYS: u32 = 300;
    let mut backend = h.open_bytes(h.request::<String>())?;
    let state = backend.register(&descriptor("v", StateKind::Value))?;
    let value = |number: u32, round: u8| vec![round; 500 + number as usize % 7];
    let keys: Vec<[u8; 4]> = (0..KEYS).map(u32::to_be_bytes).collect();
    let key = |number: u32| KeyRef::new(&keys[number as usize], MaxParallelism::default());
    for round in 0..4 {
        let mut deferred = Vec::new();
        for number in 0..KEYS {
            let at = Address { state, key: key(number)?, namespace: b"", map_key: b"" };
            let expected = (round > 0 && number % 3 > 0).then(|| value(number, round - 1));
            match backend.get_or_defer(&at)? {
                None => deferred.push((number, expected)),
                Some(Lookup::Pending(future)) => {
                    let found = block_on(future)?;
                    assert_eq!(found.as_deref(), expected.as_deref(), "key {number}");
                }
                Some(Lookup::Found(found)) => assert_eq!(Some(found), expected.as_deref()),
                Some(Lookup::Absent) => assert_eq!(None, expected, "key {number}"),
            }
            if number % 3 == 0 {
                backend.delete(&at)?;
            } else {
                backend.put(&at, &value(number, round))?;
            }
        }
        let values = match backend.send_deferred() {
            Some(sent) => block_on(sent)?,
            None => Vec::new(),
        };
        assert_eq!(values.len(), deferred.len());
        for ((number, expected), value) in deferred.into_iter().zip(values) {
            assert_eq!(value.map(|value| value.to_vec()), expected, "key {number}");
        }
        assert!(backend.send_deferred().is_none(), "each read is sent once");
    }
    Ok(())
}

/// Appending to nothing creates, to something extends; a put in between replaces, in point states
/// and in map entries.
fn append_grows_values_and_entries(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    for kind in [StateKind::List, StateKind::Map] {
        let state = backend.register(&descriptor(&kind.to_string(), kind))?;
        let map_key: &[u8] = if kind == StateKind::Map { b"k" } else { b"" };
        let at = Address { state, key: key(), namespace: b"n", map_key };
        let mut model = Vec::new();
        for length in [1, 5, 20, 100, 3_000, 1] {
            let part = vec![length as u8; length];
            backend.append(&at, &part)?;
            model.extend(part);
            assert!(read(&mut *backend, &at)?.as_ref() == Some(&model), "{kind}, {length}");
        }
        backend.put(&at, b"ab")?;
        backend.append(&at, b"c")?;
        assert_eq!(read(&mut *backend, &at)?.as_deref(), Some(&b"abc"[..]));
        backend.delete(&at)?;
        backend.append(&at, b"d")?;
        assert_eq!(read(&mut *backend, &at)?.as_deref(), Some(&b"d"[..]));
    }
    Ok(())
}

/// A range delete takes the entries between its ends, in the given namespace only, and the map
/// disappears when nothing is left.
fn delete_range_removes_what_lies_inside(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let state = backend.register(&descriptor("m", StateKind::Map))?;
    let at = Address { state, key: key(), namespace: b"", map_key: b"ignored" };
    let other = Address { namespace: b"n", ..at };
    let bound = |kind: u8, key: &'static [u8]| match kind {
        0 => Bound::Unbounded,
        1 => Bound::Included(key),
        _ => Bound::Excluded(key),
    };
    for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
        for number in 0..=255 {
            backend.put(&Address { map_key: &[number], ..at }, b"x")?;
            backend.put(&Address { map_key: &[number], ..other }, b"y")?;
        }
        let range = MapRange { from: bound(from, &[20]), to: bound(to, &[200]) };
        backend.delete_range(&at, range)?;
        let crossed = MapRange { from: Bound::Included(&[9]), to: Bound::Excluded(&[3]) };
        backend.delete_range(&at, crossed)?;
        let left: Vec<u8> = drain(|page| backend.scan(&at, MapRange::ALL, Order::Ascending, page))?
            .iter()
            .map(|(_, map_key, _)| map_key[0])
            .collect();
        let inside = |number: &u8| {
            (from == 0 || *number > 20 || from == 1 && *number == 20)
                && (to == 0 || *number < 200 || to == 1 && *number == 200)
        };
        let expected: Vec<u8> = (0..=255).filter(|number| !inside(number)).collect();
        assert_eq!(left, expected, "ends {from} {to}");
        let mut start =
            |page: &mut Page| backend.scan(&other, MapRange::ALL, Order::Ascending, page);
        assert_eq!(drain(&mut start)?.len(), 256);
    }
    backend.delete_range(&at, MapRange::ALL)?;
    assert_eq!(drain(|page| backend.scan_keys(state, None, page))?.len(), 1);
    backend.delete_range(&at, MapRange::ALL)?;
    Ok(())
}

/// An id that no registration gave is refused by every call, without a panic.
fn unknown_states_are_invalid_usage(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    backend.register(&descriptor("v", StateKind::Value))?;
    for state in [StateId(1), StateId(7), StateId(u16::MAX)] {
        let at = Address { state, key: key(), namespace: b"", map_key: b"" };
        let timer = TimerRef { queue: state, time: 1, key: key(), namespace: b"" };
        let mut page = Page::new();
        let results = [
            backend.get(&at).map(drop),
            backend.get_into(&at, &mut [0; 8]).map(drop),
            backend.multi_get(&[at], &mut Values::new()).map(drop),
            backend.put(&at, b"x"),
            backend.delete(&at),
            backend.append(&at, b"x"),
            backend.update(&at, &mut |_, _| Ok(weir_state_api::Change::Put)).map(drop),
            backend.scan(&at, MapRange::ALL, Order::Ascending, &mut page).map(drop),
            backend.delete_range(&at, MapRange::ALL),
            backend.scan_keys(state, None, &mut page).map(drop),
            backend.register_timer(&timer),
            backend.delete_timer(&timer),
            backend.poll_timer(state, 1).map(drop),
            backend.next_timer(state).map(drop),
            backend.physical_entries(state).map(drop),
        ];
        for (number, result) in results.into_iter().enumerate() {
            let kind = result.err().map(|error| error.kind());
            assert_eq!(kind, Some(ErrorKind::InvalidUsage), "call {number} of {state:?}");
        }
    }
    Ok(())
}

/// Scanning a value, polling a map, putting into a queue: refused, and nothing happens.
fn calls_of_the_wrong_shape_are_invalid_usage(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let point = backend.register(&descriptor("v", StateKind::Value))?;
    let map = backend.register(&descriptor("m", StateKind::Map))?;
    let queue = backend.register(&descriptor("t", StateKind::Timers))?;
    let at = |state| Address { state, key: key(), namespace: b"", map_key: b"" };
    let timer = |queue| TimerRef { queue, time: 1, key: key(), namespace: b"" };
    let mut page = Page::new();
    let all = MapRange::ALL;
    let results = [
        backend.scan(&at(point), all, Order::Ascending, &mut page).map(drop),
        backend.scan(&at(queue), all, Order::Ascending, &mut page).map(drop),
        backend.delete_range(&at(point), all),
        backend.delete_range(&at(queue), all),
        backend.scan_keys(queue, None, &mut page).map(drop),
        backend.get(&at(queue)).map(drop),
        backend.put(&at(queue), b"x"),
        backend.append(&at(queue), b"x"),
        backend.register_timer(&timer(point)),
        backend.delete_timer(&timer(map)),
        backend.poll_timer(map, 9).map(drop),
        backend.next_timer(point).map(drop),
    ];
    for (number, result) in results.into_iter().enumerate() {
        let kind = result.err().map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::InvalidUsage), "call {number}");
    }
    assert!(page.is_empty());
    Ok(())
}

/// `states` lists every registered state once, with the descriptor and the id of its registration.
fn states_are_listed_as_registered(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    assert!(backend.states().is_empty());
    let mut expected = Vec::new();
    for kind in [StateKind::Value, StateKind::List, StateKind::Map, StateKind::Timers] {
        let descriptor = descriptor(&kind.to_string(), kind);
        expected.push((backend.register(&descriptor)?, descriptor.clone()));
        assert_eq!(backend.register(&descriptor)?, expected[expected.len() - 1].0);
    }
    let mut states = backend.states();
    states.sort_by_key(|(id, _)| *id);
    expected.sort_by_key(|(id, _)| *id);
    assert_eq!(states, expected);
    Ok(())
}

/// A state has at least as many physical entries as live ones.
fn physical_entries_cover_the_live_ones(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let (value, map) = (store.value::<u32>("v")?, store.map::<u32, u32>("m")?);
    for number in 0..100 {
        value.set(store.at(&number.to_string())?, &1)?;
        map.put(store.at("a")?, &number, &1)?;
    }
    let backend = store.backend();
    for (id, state) in backend.states() {
        assert!(backend.physical_entries(id)? >= 100, "{:?}", state.name);
    }
    assert!(backend.statistics().entries >= 200);
    Ok(())
}

/// A backend that says so answers every read at once, also right after a restore.
fn reads_never_pend(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let (value, map) = (store.value::<u32>("v")?, store.map::<u32, u32>("m")?);
    let timers = store.timers::<u8>("t")?;
    store.at("a")?;
    value.set(&mut store, &1)?;
    for number in 0..300 {
        map.put(&mut store, &number, &1)?;
    }
    timers.register(&mut store, 1, &1)?;
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    let (value, map) = (restored.value::<u32>("v")?, restored.map::<u32, u32>("m")?);
    let timers = restored.timers::<u8>("t")?;
    restored.at("a")?;
    assert!(value.get(&mut restored).is_ready());
    assert!(value.update(&mut restored, |_| 2).is_ready());
    assert!(map.get(&mut restored, &1).is_ready());
    let mut entries = map.entries(&mut restored).try_ready().expect("a scan is ready")?;
    while entries.next_entry().try_ready().expect("an entry is ready")?.is_some() {}
    assert!(restored.poll_timer(&timers, 1).is_ready());
    Ok(())
}
