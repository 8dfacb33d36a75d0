//! User functions that fail or panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_state_api::{
    Address, Change, Error, ErrorKind, KeyRef, MaxParallelism, Native, Result, StateKind, Updated,
};

use super::folding::Join;
use super::{Case, group};
use crate::harness::{At, Harness, descriptor, read};

pub(super) const CASES: &[Case] = group!["failures":
    a_failing_update_leaves_the_value => "a failing user function leaves the state as it was",
    a_failing_fold_leaves_the_accumulator => "a failing user function leaves the state as it was",
    a_failing_merge_leaves_all_namespaces => "a failing user function leaves the state as it was",
    a_panicking_function_leaves_the_state => "a failing user function leaves the state as it was",
    byte_level_updates_keep_put_and_delete => "update",
];

/// A failing `try_update` returns a typed error naming the state; value or absence stay.
fn a_failing_update_leaves_the_value(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    store.at("a")?;
    for before in [None, Some(7)] {
        if let Some(before) = before {
            value.set(&mut store, &before)?;
        }
        let failed = value.try_update(&mut store, |_| Err("no".into())).wait().unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::UserFunction);
        assert_eq!(failed.state_name(), Some("v"));
        assert_eq!(value.get(&mut store).wait()?, before);
        assert_eq!(store.keys("v")?.count(), usize::from(before.is_some()));
    }
    Ok(())
}

/// A failing reduce or add leaves the stored value, also when it had changed its accumulator.
fn a_failing_fold_leaves_the_accumulator(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let sum = store.reducing("r", |a: u8, b| a.checked_add(b).ok_or_else(|| "overflow".into()))?;
    let joined = store.aggregating("a", Join)?;
    store.at("a")?;
    let bad = joined.add(&mut store, "bad".into()).wait().unwrap_err();
    assert_eq!(bad.kind(), ErrorKind::UserFunction);
    assert_eq!(joined.get(&mut store).wait()?, None);
    sum.add(&mut store, 200).wait()?;
    joined.add(&mut store, "x".into()).wait()?;
    assert_eq!(sum.add(&mut store, 100).wait().unwrap_err().kind(), ErrorKind::UserFunction);
    assert!(joined.add(&mut store, "bad".into()).wait().is_err());
    assert_eq!(sum.get(&mut store).wait()?, Some(200));
    assert_eq!(joined.get(&mut store).wait()?.as_deref(), Some("1:x"));
    sum.add(&mut store, 55).wait()?;
    assert_eq!(sum.get(&mut store).wait()?, Some(255));
    Ok(())
}

/// A merge whose function fails half-way has moved nothing.
fn a_failing_merge_leaves_all_namespaces(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.namespaced::<u8>().value::<u32>("v")?;
    let joined = store.namespaced::<u8>().aggregating_with("a", Native, Join)?;
    store.at("a")?;
    for (namespace, text) in [(1, "a"), (2, "b"), (3, "unmergeable")] {
        value.at(&namespace)?.set(&mut store, &namespace.into())?;
        joined.at(&namespace)?.add(&mut store, text.into()).wait()?;
    }
    let merge = |a, b| if b == 3 { Err("no threes".into()) } else { Ok(a + b) };
    let failed = value.merge(&mut store, &1, &[2, 3], merge).wait().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::UserFunction);
    assert!(joined.merge(&mut store, &1, &[2, 3]).wait().is_err());
    for (namespace, text) in [(1, "1:a"), (2, "1:b"), (3, "1:unmergeable")] {
        assert_eq!(value.at(&namespace)?.get(&mut store).wait()?, Some(namespace.into()));
        assert_eq!(joined.at(&namespace)?.get(&mut store).wait()?.as_deref(), Some(text));
    }
    Ok(())
}

/// A user function that panics leaves the value, and the instance goes on, snapshots included.
fn a_panicking_function_leaves_the_state(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<u32>("v")?;
    let joined = store.aggregating("a", Join)?;
    value.set(store.at("a")?, &1)?;
    joined.add(&mut store, "x".into()).wait()?;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        value.update(&mut store, |_| panic!("a panicking update")).wait()
    }));
    assert!(panicked.is_err());
    let panicked = catch_unwind(AssertUnwindSafe(|| joined.add(&mut store, "panic".into()).wait()));
    assert!(panicked.is_err());
    store.at("a")?;
    assert_eq!(value.get(&mut store).wait()?, Some(1));
    assert_eq!(joined.get(&mut store).wait()?.as_deref(), Some("1:x"));
    value.update(&mut store, |old| old.unwrap_or(0) + 1).wait()?;
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    let value = restored.value::<u32>("v")?;
    assert_eq!(value.get(restored.at("a")?).wait()?, Some(2));
    Ok(())
}

/// At the byte level the function's verdict decides, whatever it wrote to the buffer.
fn byte_level_updates_keep_put_and_delete(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let key = KeyRef::new(b"k", MaxParallelism::default())?;
    for kind in [StateKind::Value, StateKind::Map] {
        let state = backend.register(&descriptor(&kind.to_string(), kind))?;
        let map_key: &[u8] = if kind == StateKind::Map { b"mk" } else { b"" };
        let at = Address { state, key, namespace: b"n", map_key };
        let steps: [(Result<Change>, Option<&[u8]>); 7] = [
            (Ok(Change::Keep), None),
            (Ok(Change::Delete), None),
            (Ok(Change::Put), Some(b"new")),
            (Err(Error::new(ErrorKind::UserFunction, "no")), Some(b"new")),
            (Ok(Change::Keep), Some(b"new")),
            (Ok(Change::Delete), None),
            (Err(Error::new(ErrorKind::UserFunction, "no")), None),
        ];
        let mut before: Option<Vec<u8>> = None;
        for (number, (verdict, after)) in steps.into_iter().enumerate() {
            let (mut verdict, fails) = (Some(verdict), number == 3 || number == 6);
            let updated = backend.update(&at, &mut |old, out| {
                assert_eq!(old, before.as_deref(), "{kind}, step {number}");
                assert!(out.is_empty(), "the buffer must come empty");
                out.extend_from_slice(b"new");
                verdict.take().expect("the function runs once")
            });
            match updated {
                // The caller has to write itself then: nothing to check here.
                Ok(Updated::Pending(_)) => return Ok(()),
                updated => assert_eq!(updated.is_err(), fails, "{kind}, step {number}"),
            }
            before = after.map(<[u8]>::to_vec);
            assert_eq!(read(&mut *backend, &at)?, before, "{kind}, step {number}");
        }
    }
    Ok(())
}
