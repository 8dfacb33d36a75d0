//! Timers: a set, an order, and no surprise after a restore.

use weir_state_api::{
    Codec, ErrorKind, KeyGroup, KeyRef, MaxParallelism, Millis, NextTimer, Ordered, Result,
    StateKind, TimerPoll, TimerRef, TimerState, block_on,
};

use super::{Case, group};
use crate::harness::{At, Harness, Store, descriptor};

pub(super) const CASES: &[Case] = group!["timers":
    registering_twice_fires_once => "timers: set semantics",
    deleting_an_unknown_timer_does_nothing => "timers: deleting an unknown timer is a no-op",
    timers_are_due_at_their_time => "timers",
    order_is_time_then_key_then_namespace => "timers: order",
    order_holds_across_key_groups_at_the_byte_level => "timers: order",
    extreme_times_are_times => "timers",
    callbacks_may_register_and_delete => "timers: a callback may register and delete timers",
    polling_sets_the_key => "timers",
    clearing_state_keeps_timers => "timers: clearing a key's state does not delete its timers",
    queues_are_independent => "timers: per kind",
    the_next_timer_is_known => "timers: arming a clock",
    timers_survive_a_restore_once => "timers; snapshots",
    fired_timers_stay_fired_after_a_restore => "timers; snapshots",
    timers_move_with_their_key_groups => "timers; rescaling",
    many_timers_come_in_order => "timers: order",
    a_timer_that_does_not_decode_is_an_error_and_stays => "TM-11",
];

type Fired = Vec<(Millis, String, u8)>;

fn poll_all(store: &mut Store, timers: &TimerState<u8>, now: Millis) -> Result<Fired> {
    let mut fired = Vec::new();
    while let Some(timer) = store.poll_timer(timers, now).wait()? {
        fired.push((timer.time, store.key()?, timer.namespace));
    }
    Ok(fired)
}

fn expected(timers: &[(Millis, &str, u8)]) -> Fired {
    timers.iter().map(|&(time, key, namespace)| (time, key.to_string(), namespace)).collect()
}

/// The same (time, key, namespace) is one timer; another namespace, key or time is another.
fn registering_twice_fires_once(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    for _ in 0..3 {
        timers.register(store.at("a")?, 5, &1)?;
        timers.register(&mut store, 5, &2)?;
        timers.register(&mut store, 6, &1)?;
        timers.register(store.at("b")?, 5, &1)?;
    }
    let fired = poll_all(&mut store, &timers, 10)?;
    assert_eq!(fired, expected(&[(5, "a", 1), (5, "a", 2), (5, "b", 1), (6, "a", 1)]));
    // Fired is gone: it may be registered anew.
    timers.register(store.at("a")?, 5, &1)?;
    assert_eq!(poll_all(&mut store, &timers, 10)?, expected(&[(5, "a", 1)]));
    Ok(())
}

/// Deleting what is not there changes nothing; deleting what is there removes exactly that.
fn deleting_an_unknown_timer_does_nothing(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    timers.delete(store.at("a")?, 5, &1)?;
    for namespace in [1, 2] {
        timers.register(&mut store, 5, &namespace)?;
    }
    timers.register(store.at("b")?, 5, &1)?;
    timers.delete(store.at("a")?, 5, &1)?;
    timers.delete(&mut store, 5, &1)?;
    timers.delete(&mut store, 4, &2)?;
    timers.delete(store.at("b")?, 5, &2)?;
    assert_eq!(poll_all(&mut store, &timers, 9)?, expected(&[(5, "a", 2), (5, "b", 1)]));
    Ok(())
}

/// A timer is due when its time is reached, not before and not only after.
fn timers_are_due_at_their_time(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    store.at("a")?;
    for time in [100, 101, 99] {
        timers.register(&mut store, time, &0)?;
    }
    assert_eq!(poll_all(&mut store, &timers, 98)?, []);
    assert_eq!(poll_all(&mut store, &timers, 99)?, expected(&[(99, "a", 0)]));
    assert_eq!(poll_all(&mut store, &timers, 100)?, expected(&[(100, "a", 0)]));
    // Late registration: due at the next poll.
    timers.register(store.at("a")?, 50, &0)?;
    assert_eq!(poll_all(&mut store, &timers, 100)?, expected(&[(50, "a", 0)]));
    assert_eq!(poll_all(&mut store, &timers, 101)?, expected(&[(101, "a", 0)]));
    Ok(())
}

/// Timers come by time, then key bytes, then namespace bytes, whatever their key groups and
/// whenever they were registered.
fn order_is_time_then_key_then_namespace(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    let mut all: Vec<(Millis, String, u8)> = Vec::new();
    for number in 0..60 {
        for time in [-3, 0, 7] {
            all.push((time, format!("key {number}"), (number % 3) as u8));
            all.push((time, format!("key {number}"), 200));
        }
    }
    for (time, key, namespace) in all.iter().rev() {
        timers.register(store.at(key)?, *time, namespace)?;
    }
    all.sort();
    assert_eq!(poll_all(&mut store, &timers, 7)?, all);
    Ok(())
}

/// The order of equal times is that of the key bytes even if the key groups run the other way.
fn order_holds_across_key_groups_at_the_byte_level(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let queue = backend.register(&descriptor("t", StateKind::Timers))?;
    let keys: [&[u8]; 6] = [b"", b"\0", b"a", b"a\0", b"b", b"\xff"];
    for (group, key) in (0..).zip(keys.iter().rev()) {
        for namespace in [&b"n"[..], b"", b"n\0"] {
            let key = KeyRef::with_group(key, KeyGroup(group * 20))?;
            backend.register_timer(&TimerRef { queue, time: 5, key, namespace })?;
        }
    }
    for key in keys {
        for namespace in [&b""[..], b"n", b"n\0"] {
            let timer = loop {
                match backend.poll_timer(queue, 5)? {
                    TimerPoll::Idle => panic!("the timer of {key:?} is missing"),
                    TimerPoll::Pending(future) => block_on(future)?,
                    TimerPoll::Due(timer) => {
                        break (timer.key.bytes().to_vec(), timer.namespace.to_vec());
                    }
                }
            };
            assert_eq!(timer, (key.to_vec(), namespace.to_vec()));
        }
    }
    Ok(())
}

/// Negative times, the smallest and the largest are ordinary; nothing overflows.
fn extreme_times_are_times(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    let times = [Millis::MIN, Millis::MIN + 1, -1, 0, 1, 253_402_300_800_000, Millis::MAX];
    for time in times.into_iter().rev() {
        timers.register(store.at("a")?, time, &0)?;
    }
    let handle = h.snapshot(&mut store)?;
    for mut store in [store, h.restore(&[handle])?] {
        let timers = store.timers::<u8>("t")?;
        assert_eq!(poll_all(&mut store, &timers, Millis::MIN)?, expected(&[(Millis::MIN, "a", 0)]));
        assert_eq!(poll_all(&mut store, &timers, -1)?.len(), 2);
        assert_eq!(poll_all(&mut store, &timers, Millis::MAX - 1)?.len(), 3);
        assert_eq!(poll_all(&mut store, &timers, Millis::MAX)?, expected(&[(Millis::MAX, "a", 0)]));
    }
    Ok(())
}

/// While timers fire, the callback may add due and future ones and delete others, its own too.
fn callbacks_may_register_and_delete(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    for (time, key) in [(10, "a"), (20, "b"), (30, "c"), (40, "d")] {
        timers.register(store.at(key)?, time, &0)?;
    }
    let mut fired = Vec::new();
    while let Some(timer) = store.poll_timer(&timers, 35).wait()? {
        let key = store.key()?;
        match (key.as_str(), timer.time) {
            ("a", 10) => {
                // Its own (again, once), one that is due before the next, and one too late.
                timers.delete(&mut store, 10, &0)?;
                timers.register(&mut store, 15, &1)?;
                timers.register(&mut store, 99, &1)?;
            }
            ("b", _) => timers.delete(store.at("c")?, 30, &0)?,
            ("a", 15) => timers.delete(&mut store, 99, &1)?,
            _ => {}
        }
        fired.push((timer.time, key, timer.namespace));
        assert!(fired.len() < 10, "timers fire for ever: {fired:?}");
    }
    assert_eq!(fired, expected(&[(10, "a", 0), (15, "a", 1), (20, "b", 0)]));
    assert_eq!(poll_all(&mut store, &timers, 1_000)?, expected(&[(40, "d", 0)]));
    Ok(())
}

/// The current key is the fired timer's, so that state access in the callback is the timer's.
fn polling_sets_the_key(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let (timers, value) = (store.timers::<u8>("t")?, store.value::<u32>("v")?);
    for (number, key) in (0..).zip(["a", "b", "c"]) {
        timers.register(store.at(key)?, 5, &0)?;
        value.set(&mut store, &number)?;
    }
    for (number, key) in (0..).zip(["a", "b", "c"]) {
        store.poll_timer(&timers, 5).wait()?.expect("a timer is due");
        assert_eq!(store.key()?, key);
        assert_eq!(value.get(&mut store).wait()?, Some(number));
    }
    Ok(())
}

/// A key without any state left still has its timers.
fn clearing_state_keeps_timers(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let (timers, value) = (store.timers::<u8>("t")?, store.value::<u32>("v")?);
    value.set(store.at("a")?, &1)?;
    timers.register(&mut store, 5, &0)?;
    value.clear(&mut store)?;
    assert_eq!(poll_all(&mut store, &timers, 5)?, expected(&[(5, "a", 0)]));
    Ok(())
}

/// Event-time and processing-time queues share nothing.
fn queues_are_independent(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let (event, processing) = (store.timers::<u8>("event")?, store.timers::<u8>("processing")?);
    event.register(store.at("a")?, 5, &0)?;
    processing.register(&mut store, 5, &1)?;
    processing.delete(&mut store, 5, &0)?;
    assert_eq!(poll_all(&mut store, &processing, 9)?, expected(&[(5, "a", 1)]));
    assert_eq!(poll_all(&mut store, &event, 9)?, expected(&[(5, "a", 0)]));
    Ok(())
}

/// `next_timer` is the time of the head, if known; an empty queue never shows a timer.
fn the_next_timer_is_known(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    let known = h.factory().capabilities().never_pends;
    assert!(matches!(store.next_timer(&timers)?, NextTimer::Empty | NextTimer::Unknown));
    for time in [50, 20, 80] {
        timers.register(store.at(&time.to_string())?, time, &0)?;
    }
    let check = |store: &mut Store, head: Millis| -> Result<()> {
        let next = store.next_timer(&timers)?;
        let right = next == NextTimer::At(head) || next == NextTimer::Unknown && !known;
        assert!(right, "{next:?}, not {head}");
        Ok(())
    };
    check(&mut store, 20)?;
    timers.delete(store.at("20")?, 20, &0)?;
    check(&mut store, 50)?;
    store.poll_timer(&timers, 60).wait()?;
    check(&mut store, 80)?;
    store.poll_timer(&timers, 80).wait()?;
    let next = store.next_timer(&timers)?;
    assert!(next == NextTimer::Empty || next == NextTimer::Unknown && !known, "{next:?}");
    Ok(())
}

/// Restored timers fire once each in the same order, due ones at the first poll without any other
/// event, and registering one of them again does not double it.
fn timers_survive_a_restore_once(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    for number in 0..100 {
        timers.register(store.at(&format!("key {}", number % 10))?, number / 5, &(number as u8))?;
    }
    let handle = h.snapshot(&mut store)?;
    let all = poll_all(&mut store, &timers, 50)?;
    assert_eq!(all.len(), 100);
    let mut restored = h.restore(&[handle])?;
    let timers = restored.timers::<u8>("t")?;
    timers.register(restored.at("key 3")?, 0, &3)?;
    assert_eq!(poll_all(&mut restored, &timers, 50)?, all);
    assert_eq!(poll_all(&mut restored, &timers, Millis::MAX)?, []);
    Ok(())
}

/// Timers with equal times that had fired or were deleted before the snapshot do not come back;
/// the rest are exactly those left.
fn fired_timers_stay_fired_after_a_restore(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    for number in 0..10 {
        timers.register(store.at(&format!("key {number}"))?, 5, &0)?;
    }
    for _ in 0..4 {
        store.poll_timer(&timers, 5).wait()?.expect("ten timers are due");
    }
    timers.delete(store.at("key 9")?, 5, &0)?;
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    let timers = restored.timers::<u8>("t")?;
    let left: Vec<_> = (4..9).map(|number| (5, format!("key {number}"), 0)).collect();
    assert_eq!(poll_all(&mut restored, &timers, 5)?, left);
    Ok(())
}

/// After a rescale each timer fires in exactly the instance that owns its key, in order.
fn timers_move_with_their_key_groups(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    for number in 0..200 {
        timers.register(store.at(&format!("key {number}"))?, number % 7, &0)?;
    }
    let handle = h.snapshot(&mut store)?;
    let mut together = Vec::new();
    for mut store in h.open_all(3, &[handle])? {
        let timers = store.timers::<u8>("t")?;
        let fired = poll_all(&mut store, &timers, 10)?;
        assert!(fired.is_sorted());
        for (_, key, _) in &fired {
            store.at(key)?;
        }
        together.extend(fired);
    }
    together.sort();
    let mut all: Vec<_> = (0..200).map(|number| (number % 7, format!("key {number}"), 0)).collect();
    all.sort();
    assert_eq!(together, all);
    Ok(())
}

/// Thousands of timers, with deletions and polls in between, come in order and each once.
fn many_timers_come_in_order(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    let mut model = std::collections::BTreeSet::new();
    for number in 0..4_000_i64 {
        let (time, key) = (number * 7_919 % 1_009, format!("key {}", number % 211));
        timers.register(store.at(&key)?, time, &0)?;
        model.insert((time, key, 0));
        if number % 5 == 0 {
            let (time, key) = (number * 31 % 1_009, format!("key {}", number % 97));
            timers.delete(store.at(&key)?, time, &0)?;
            model.remove(&(time, key, 0));
        }
        if number % 1_000 == 999 {
            let later = model.split_off(&(number / 8, String::new(), 0));
            let fired = poll_all(&mut store, &timers, number / 8 - 1)?;
            assert!(fired.into_iter().eq(std::mem::replace(&mut model, later)));
        }
    }
    assert!(poll_all(&mut store, &timers, Millis::MAX)?.into_iter().eq(model));
    Ok(())
}

/// A namespace that is no value of its type fails the poll, again and again: the timer is not lost.
fn a_timer_that_does_not_decode_is_an_error_and_stays(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let timers = store.timers::<u8>("t")?;
    timers.register(store.at("a")?, 7, &1)?;
    let handle = h.snapshot(&mut store)?;
    let (mut key, mut namespace) = (Vec::new(), Vec::new());
    Codec::encode(&Ordered, &"a".to_string(), &mut key)?;
    namespace.extend([0xff; 3]);
    let mut backend = h.open_bytes(h.request::<String>().restore_from(vec![handle.clone()]))?;
    let queue = backend.register(&handle.states[0])?;
    let key = KeyRef::new(&key, MaxParallelism::default())?;
    backend.register_timer(&TimerRef { queue, time: 5, key, namespace: &namespace })?;
    let spoiled = block_on(backend.snapshot(h.next_checkpoint())?.run())?;

    let mut store = h.restore(&[spoiled])?;
    let timers = store.timers::<u8>("t")?;
    for _ in 0..2 {
        let polled = store.poll_timer(&timers, 10).wait();
        assert_eq!(polled.map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
        let next = store.next_timer(&timers)?;
        assert!(matches!(next, NextTimer::At(5) | NextTimer::Unknown), "{next:?}");
    }
    Ok(())
}
