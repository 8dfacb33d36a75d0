//! Keys: ambiguous bytes, limits, foreign groups, groups from the engine.

use weir_state_api::{
    Address, ErrorKind, KeyGroup, KeyGroupRange, KeyHashVersion, KeyRef, MAX_KEY_LEN, MapRange,
    MaxParallelism, Native, Order, Ordered, Page, Result, StateKind, TimerRef,
};

use super::{Case, group};
use crate::conformance::TESTABLE_VALUE_LEN;
use crate::harness::{At, Harness, descriptor, drain, foreign_and_own_key, read};

pub(super) const CASES: &[Case] = group!["keys":
    clearing_one_of_similar_keys_spares_the_others => "composite keys are unambiguous",
    key_and_namespace_do_not_run_together => "composite keys are unambiguous",
    namespace_and_map_key_do_not_run_together => "composite keys are unambiguous",
    empty_keys_are_keys => "composite keys are unambiguous",
    keys_of_many_types_are_kept_apart => "keys",
    foreign_keys_are_refused_when_set => "foreign key",
    foreign_keys_are_refused_at_the_byte_level => "foreign key",
    a_refused_key_leaves_no_key_set => "foreign key",
    long_keys_are_accepted_up_to_the_limit => "size limits: keys up to 64 KiB",
    long_namespaces_and_map_keys_are_accepted_up_to_the_limit => "S-22",
    values_over_the_limit_are_refused_at_the_call => "size limits" if "max_value_len",
    the_engine_may_assign_key_groups => "engine key groups",
    keys_with_engine_groups_can_be_visited => "engine key groups; enumeration",
    small_and_large_numbers_of_key_groups_work => "key groups",
];

const SIMILAR: [&[u8]; 8] =
    [b"", b"\x61", b"\x61\x00", b"\x61\xff", b"\x61\x61", b"\xff", b"\xff\xff", b"\x00"];

/// Clearing the map of one key leaves those of keys that are its prefixes or extensions complete:
/// all in one key group, so that they are neighbours.
fn clearing_one_of_similar_keys_spares_the_others(h: &Harness<'_>) -> Result<()> {
    for victim in SIMILAR {
        let mut backend = h.open_bytes(h.request::<String>())?;
        let state = backend.register(&descriptor("m", StateKind::Map))?;
        let at = |key, map_key| -> Result<Address<'_>> {
            let key = KeyRef::with_group(key, KeyGroup(127))?;
            Ok(Address { state, key, namespace: b"", map_key })
        };
        for key in SIMILAR {
            for map_key in [&b"\x00"[..], b"", b"\xff"] {
                backend.put(&at(key, map_key)?, key)?;
            }
        }
        backend.delete_range(&at(victim, b"")?, MapRange::ALL)?;
        for key in SIMILAR {
            let scan = |page: &mut Page| {
                backend.scan(&at(key, b"")?, MapRange::ALL, Order::Ascending, page)
            };
            let count = if key == victim { 0 } else { 3 };
            assert_eq!(drain(scan)?.len(), count, "{key:?} after clearing {victim:?}");
        }
        let listed = drain(|page| backend.scan_keys(state, None, page))?;
        assert_eq!(listed.len(), SIMILAR.len() - 1);
    }
    Ok(())
}

/// (key, namespace) pairs whose concatenation is the same are different addresses.
fn key_and_namespace_do_not_run_together(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let state = backend.register(&descriptor("v", StateKind::Value))?;
    let pairs: Vec<(&[u8], &[u8])> = vec![
        (b"1", b"11"),
        (b"11", b"1"),
        (b"111", b""),
        (b"", b"111"),
        (b"1\0", b"1"),
        (b"1", b"\x001"),
    ];
    let at = |(key, namespace)| -> Result<Address<'_>> {
        Ok(Address { state, key: KeyRef::with_group(key, KeyGroup(3))?, namespace, map_key: b"" })
    };
    for (number, &pair) in (0_u8..).zip(&pairs) {
        backend.put(&at(pair)?, &[number])?;
    }
    for (number, &pair) in (0_u8..).zip(&pairs) {
        assert_eq!(read(&mut *backend, &at(pair)?)?, Some(vec![number]), "{pair:?}");
    }
    let mut listed = drain(|page| backend.scan_keys(state, None, page))?;
    listed.sort();
    let mut expected: Vec<_> = pairs
        .iter()
        .map(|(key, namespace)| (Some(KeyGroup(3)), key.to_vec(), namespace.to_vec()))
        .collect();
    expected.sort();
    assert_eq!(listed, expected);
    backend.delete(&at(pairs[0])?)?;
    assert_eq!(read(&mut *backend, &at(pairs[1])?)?, Some(vec![1]));
    Ok(())
}

/// (namespace, map key) pairs whose concatenation is the same are different entries.
fn namespace_and_map_key_do_not_run_together(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let state = backend.register(&descriptor("m", StateKind::Map))?;
    let key = KeyRef::with_group(b"k", KeyGroup(3))?;
    let pairs: [(&[u8], &[u8]); 5] =
        [(b"1", b"11"), (b"11", b"1"), (b"111", b""), (b"", b"111"), (b"\xff", b"\xff")];
    for (number, (namespace, map_key)) in (0_u8..).zip(pairs) {
        backend.put(&Address { state, key, namespace, map_key }, &[number])?;
    }
    for (number, (namespace, map_key)) in (0_u8..).zip(pairs) {
        let at = Address { state, key, namespace, map_key };
        let scan = |page: &mut Page| backend.scan(&at, MapRange::ALL, Order::Ascending, page);
        assert_eq!(drain(scan)?, [(None, map_key.to_vec(), vec![number])]);
    }
    Ok(())
}

/// A key of zero bytes, in the empty and in other namespaces, has state like any other.
fn empty_keys_are_keys(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open_keyed::<()>()?;
    let value = store.value::<u32>("v")?;
    let list = store.namespaced::<u8>().list_with::<u32, _>("l", Native)?;
    let timers = store.timers::<()>("t")?;
    store.set_key(&())?;
    value.set(&mut store, &1)?;
    list.at(&1)?.add(&mut store, &2)?;
    timers.register(&mut store, 5, &())?;
    assert_eq!(value.get(&mut store).wait()?, Some(1));
    assert_eq!(store.keys("v")?.collect::<Result<Vec<_>>>()?, [((), vec![])]);
    assert_eq!(store.keys("l")?.collect::<Result<Vec<_>>>()?, [((), vec![1])]);
    assert_eq!(store.poll_timer(&timers, 5).wait()?.map(|timer| timer.time), Some(5));
    Ok(())
}

/// Keys of numbers, negative ones too, and of tuples map to states of their own.
fn keys_of_many_types_are_kept_apart(h: &Harness<'_>) -> Result<()> {
    let mut numbers = h.open_keyed::<i64>()?;
    let value = numbers.value::<i64>("v")?;
    let keys = [i64::MIN, -256, -1, 0, 1, 255, 256, i64::MAX];
    for key in keys {
        numbers.set_key(&key)?;
        value.set(&mut numbers, &key)?;
    }
    for key in keys {
        numbers.set_key(&key)?;
        assert_eq!((numbers.key()?, value.get(&mut numbers).wait()?), (key, Some(key)));
    }
    let mut pairs = h.open_keyed::<(String, Option<u8>)>()?;
    let value = pairs.value::<u32>("v")?;
    let keys = [("a", None), ("a", Some(0)), ("a\0", None), ("", Some(97))];
    for (number, (text, option)) in (0..).zip(keys) {
        pairs.set_key(&(text.to_string(), option))?;
        value.set(&mut pairs, &number)?;
    }
    assert_eq!(pairs.keys("v")?.count(), keys.len());
    Ok(())
}

/// A key of another instance's group is refused by `set_key`.
fn foreign_keys_are_refused_when_set(h: &Harness<'_>) -> Result<()> {
    for mut store in h.open_all(3, &[])? {
        let (foreign, own) = foreign_and_own_key(&store);
        assert_eq!(store.set_key(&foreign).unwrap_err().kind(), ErrorKind::ForeignKey);
        store.set_key(&own)?;
        let state = store.value::<u32>("v")?;
        let error = store.get_many(&state, &[own, foreign]).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ForeignKey);
    }
    Ok(())
}

/// Every call of the backend itself refuses a foreign key group, and nothing is stored.
fn foreign_keys_are_refused_at_the_byte_level(h: &Harness<'_>) -> Result<()> {
    let mut request = h.request::<String>();
    request.key_groups = KeyGroupRange::new(43, 85);
    let mut backend = h.open_bytes(request)?;
    let value = backend.register(&descriptor("v", StateKind::Value))?;
    let map = backend.register(&descriptor("m", StateKind::Map))?;
    let queue = backend.register(&descriptor("t", StateKind::Timers))?;
    for group in [0, 42, 86, 127] {
        let key = KeyRef::with_group(b"k", KeyGroup(group))?;
        let at = Address { state: value, key, namespace: b"", map_key: b"" };
        let in_map = Address { state: map, ..at };
        let timer = TimerRef { queue, time: 1, key, namespace: b"" };
        let mut page = Page::new();
        let all = MapRange::ALL;
        let results = [
            backend.get(&at).map(drop),
            backend.get_into(&at, &mut [0; 8]).map(drop),
            backend.multi_get(&[at], &mut weir_state_api::Values::new()).map(drop),
            backend.put(&at, b"x"),
            backend.delete(&at),
            backend.append(&at, b"x"),
            backend.update(&at, &mut |_, _| Ok(weir_state_api::Change::Put)).map(drop),
            backend.put(&in_map, b"x"),
            backend.scan(&in_map, all, Order::Ascending, &mut page).map(drop),
            backend.delete_range(&in_map, all),
            backend.register_timer(&timer),
            backend.delete_timer(&timer),
        ];
        for (number, result) in results.into_iter().enumerate() {
            let kind = result.err().map(|error| error.kind());
            assert_eq!(kind, Some(ErrorKind::ForeignKey), "call {number}, group {group}");
        }
    }
    for group in [43, 85] {
        let key = KeyRef::with_group(b"k", KeyGroup(group))?;
        backend.put(&Address { state: value, key, namespace: b"", map_key: b"" }, b"x")?;
    }
    assert_eq!(drain(|page| backend.scan_keys(value, None, page))?.len(), 2);
    assert!(!matches!(backend.next_timer(queue)?, weir_state_api::NextTimer::At(_)));
    Ok(())
}

/// After a refused key no key is set: a forgotten check cannot write under the old one.
fn a_refused_key_leaves_no_key_set(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open_all(2, &[])?.remove(0);
    let value = store.value::<u32>("v")?;
    let (foreign, own) = foreign_and_own_key(&store);
    value.set(store.at(&own)?, &1)?;
    for bad in [foreign, "x".repeat(MAX_KEY_LEN + 1)] {
        assert!(store.set_key(&bad).is_err());
        assert_eq!(value.set(&mut store, &2).unwrap_err().kind(), ErrorKind::InvalidUsage);
    }
    assert_eq!(value.get(store.at(&own)?).wait()?, Some(1));
    Ok(())
}

/// A key of exactly 64 KiB works, a longer one is refused by `set_key` with a typed error.
fn long_keys_are_accepted_up_to_the_limit(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    // The codec ends a string with two zero bytes.
    let longest = "x".repeat(MAX_KEY_LEN - 2);
    value.set(store.at(&longest)?, &1)?;
    assert_eq!(store.at(&format!("{longest}x")).unwrap_err().kind(), ErrorKind::TooLarge);
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    let value = restored.value::<u32>("v")?;
    assert_eq!(value.get(restored.at(&longest)?).wait()?, Some(1));
    Ok(())
}

/// Namespaces and map keys of exactly 64 KiB work, longer ones are refused by every call that would
/// write, also at the byte level.
fn long_namespaces_and_map_keys_are_accepted_up_to_the_limit(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let map = backend.register(&descriptor("m", StateKind::Map))?;
    let queue = backend.register(&descriptor("t", StateKind::Timers))?;
    let key = KeyRef::new(b"k", MaxParallelism::default())?;
    let (most, over) = (vec![7; MAX_KEY_LEN], vec![7; MAX_KEY_LEN + 1]);
    let longest = Address { state: map, key, namespace: &most, map_key: &most };
    backend.put(&longest, b"v")?;
    backend.register_timer(&TimerRef { queue, time: 1, key, namespace: &most })?;
    let namespace = Address { namespace: &over, map_key: b"", ..longest };
    let map_key = Address { namespace: b"", map_key: &over, ..longest };
    for at in [namespace, map_key] {
        let refused = |result: Result<()>| {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::TooLarge);
        };
        refused(backend.put(&at, b"v"));
        refused(backend.append(&at, b"v"));
        // Where the old value has to be read first, the write that follows is refused.
        match backend.update(&at, &mut |_, _| Ok(weir_state_api::Change::Put)) {
            Ok(weir_state_api::Updated::Pending(_)) => {}
            updated => refused(updated.map(drop)),
        }
    }
    let timer = TimerRef { queue, time: 1, key, namespace: &over };
    assert_eq!(backend.register_timer(&timer).unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(read(&mut *backend, &longest)? == Some(b"v".to_vec()));
    Ok(())
}

/// A value of the largest length is stored; a longer one is refused by the very call, for puts,
/// appends and updates, and the old value stays.
fn values_over_the_limit_are_refused_at_the_call(h: &Harness<'_>) -> Result<()> {
    let limit = h.factory().capabilities().max_value_len;
    assert!(limit <= TESTABLE_VALUE_LEN);
    let limit = limit as usize;
    let mut backend = h.open_bytes(h.request::<String>())?;
    let state = backend.register(&descriptor("v", StateKind::Value))?;
    let key = KeyRef::new(b"k", MaxParallelism::default())?;
    let at = Address { state, key, namespace: b"", map_key: b"" };
    backend.put(&at, &vec![1; limit])?;
    assert_eq!(backend.put(&at, &vec![2; limit + 1]).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(backend.append(&at, b"x").unwrap_err().kind(), ErrorKind::TooLarge);
    let grown = backend.update(&at, &mut |_, out| {
        out.resize(limit + 1, 3);
        Ok(weir_state_api::Change::Put)
    });
    match grown {
        Ok(weir_state_api::Updated::Pending(_)) => {}
        grown => assert_eq!(grown.unwrap_err().kind(), ErrorKind::TooLarge),
    }
    assert!(read(&mut *backend, &at)? == Some(vec![1; limit]));
    Ok(())
}

/// With groups from the engine, keys keep the group they came with, whatever their hash says,
/// through timers and a rescale; the store refuses to derive one.
fn the_engine_may_assign_key_groups(h: &Harness<'_>) -> Result<()> {
    let max = MaxParallelism::default();
    let request = |parallelism, subtask| -> Result<_> {
        let mut request = h.request::<String>().for_subtask(max, parallelism, subtask)?;
        request.key_hash = KeyHashVersion::EngineGroups;
        Ok(request)
    };
    let mut store = h.open_request::<String>(request(1, 0)?)?;
    let value = store.value::<u16>("v")?;
    let timers = store.timers::<()>("t")?;
    assert_eq!(store.at("a").map(drop).unwrap_err().kind(), ErrorKind::InvalidUsage);
    let encoded = |text: &str| {
        let mut bytes = Vec::new();
        weir_state_api::Codec::encode(&Ordered, &text.to_string(), &mut bytes).map(|()| bytes)
    };
    for group in 0..128 {
        store.set_encoded_key(&encoded(&format!("key {group}"))?, KeyGroup(group))?;
        value.set(&mut store, &group)?;
        timers.register(&mut store, i64::from(group), &())?;
    }
    let task = store.snapshot(h.next_checkpoint())?;
    let handle = weir_state_api::block_on(task.run())?;
    for subtask in 0..3 {
        let request = request(3, subtask)?.restore_from(vec![handle.clone()]);
        let owned = request.key_groups;
        let mut store = h.open_request::<String>(request)?;
        let (value, timers) = (store.value::<u16>("v")?, store.timers::<()>("t")?);
        for group in 0..128 {
            let set = store.set_encoded_key(&encoded(&format!("key {group}"))?, KeyGroup(group));
            assert_eq!(set.is_ok(), owned.contains(KeyGroup(group)));
            if set.is_ok() {
                assert_eq!(value.get(&mut store).wait()?, Some(group));
            }
        }
        for group in owned.iter() {
            let fired = store.poll_timer(&timers, 1_000).wait()?.expect("a timer per group");
            assert_eq!(fired.time, i64::from(group.0));
            assert_eq!(value.get(&mut store).wait()?, Some(group.0));
        }
    }
    Ok(())
}

/// Enumeration hands a visitor each key under the group the engine gave it; a batched read by key
/// is refused, since it would have to derive one.
fn keys_with_engine_groups_can_be_visited(h: &Harness<'_>) -> Result<()> {
    let mut request = h.request::<String>();
    request.key_hash = KeyHashVersion::EngineGroups;
    let mut store = h.open_request::<String>(request)?;
    let value = store.value::<u16>("v")?;
    for group in 0..128 {
        let mut bytes = Vec::new();
        weir_state_api::Codec::encode(&Ordered, &format!("key {group}"), &mut bytes)?;
        store.set_encoded_key(&bytes, KeyGroup(group))?;
        value.set(&mut store, &group)?;
    }
    let mut visited = 0;
    store.for_each_key("v", |store, key| {
        visited += 1;
        let group = value.get(store).wait()?.expect("a visited key has a value");
        assert_eq!(key, format!("key {group}"));
        value.clear(store)
    })?;
    assert_eq!((visited, store.keys("v")?.count()), (128, 0));
    let refused = store.get_many(&value, &["key 1".to_string()]).wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidUsage);
    Ok(())
}

/// One key group, and 32,768 of them, are both served and restored.
fn small_and_large_numbers_of_key_groups_work(h: &Harness<'_>) -> Result<()> {
    for groups in [1, 2, 129, 32_768] {
        let mut request = h.request::<String>();
        request.max_parallelism = MaxParallelism::new(groups)?;
        request.key_groups = KeyGroupRange::all(request.max_parallelism);
        let mut store = h.open_request::<String>(request.clone())?;
        let value = store.value::<u32>("v")?;
        for number in 0..200 {
            value.set(store.at(&number.to_string())?, &number)?;
        }
        let handle = h.snapshot(&mut store)?;
        let mut restored = h.open_request::<String>(request.restore_from(vec![handle]))?;
        let value = restored.value::<u32>("v")?;
        for number in 0..200 {
            assert_eq!(value.get(restored.at(&number.to_string())?).wait()?, Some(number));
        }
        assert_eq!(restored.keys("v")?.count(), 200);
    }
    Ok(())
}
