//! Absent and empty are two things on every path.

use weir_state_api::{Address, KeyRef, MaxParallelism, Result, StateKind};

use super::{Case, group};
use crate::harness::{At, Harness, Store, descriptor, read};

pub(super) const CASES: &[Case] = group!["absent":
    an_option_of_none_is_a_value => "absent vs empty: `Some(None)` survives every path",
    zero_bytes_and_unit_are_values => "absent vs empty",
    the_byte_level_tells_them_apart => "absent vs empty",
];

fn check_restored(
    h: &Harness<'_>,
    mut store: Store,
    check: fn(&mut Store) -> Result<()>,
) -> Result<()> {
    check(&mut store)?;
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    check(&mut restored)?;
    let again = h.snapshot(&mut restored)?;
    check(&mut h.restore(&[again])?)
}

/// A stored `None` reads as `Some(None)`, is listed, and survives snapshots.
fn an_option_of_none_is_a_value(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let value = store.value::<Option<u32>>("v")?;
    value.set(store.at("none")?, &None)?;
    value.set(store.at("some")?, &Some(1))?;
    check_restored(h, store, |store| {
        let value = store.value::<Option<u32>>("v")?;
        assert_eq!(value.get(store.at("none")?).wait()?, Some(None));
        assert_eq!(value.get(store.at("some")?).wait()?, Some(Some(1)));
        assert_eq!(value.get(store.at("absent")?).wait()?, None);
        assert_eq!(store.keys("v")?.count(), 2);
        Ok(())
    })
}

/// An empty text and `()` are present: read, updated and listed as such.
fn zero_bytes_and_unit_are_values(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let unit = store.value::<()>("unit")?;
    let text = store.value::<String>("text")?;
    unit.set(store.at("a")?, &())?;
    text.set(&mut store, &String::new())?;
    check_restored(h, store, |store| {
        let unit = store.value::<()>("unit")?;
        let text = store.value::<String>("text")?;
        assert_eq!(unit.get(store.at("a")?).wait()?, Some(()));
        assert_eq!(text.get(store).wait()?.as_deref(), Some(""));
        text.update(store, |old| {
            assert_eq!(old.as_deref(), Some(""));
            String::new()
        })
        .wait()?;
        assert_eq!(unit.get(store.at("b")?).wait()?, None);
        let keys = [("a".to_string(), vec![])];
        assert_eq!(store.keys("unit")?.collect::<Result<Vec<_>>>()?, keys);
        assert_eq!(store.keys("text")?.collect::<Result<Vec<_>>>()?, keys);
        Ok(())
    })
}

/// Zero bytes put into a point state or a map entry are found, and gone after a delete.
fn the_byte_level_tells_them_apart(h: &Harness<'_>) -> Result<()> {
    let mut backend = h.open_bytes(h.request::<String>())?;
    let key = KeyRef::new(b"k", MaxParallelism::default())?;
    for kind in [StateKind::Value, StateKind::Map] {
        let state = backend.register(&descriptor(&kind.to_string(), kind))?;
        let at = Address { state, key, namespace: b"", map_key: b"" };
        assert_eq!(read(&mut *backend, &at)?, None);
        backend.put(&at, b"")?;
        assert_eq!(read(&mut *backend, &at)?, Some(Vec::new()), "{kind}");
        assert_eq!(backend.get_into(&at, &mut [0; 4])?, Some(0), "{kind}");
        backend.delete(&at)?;
        assert_eq!(read(&mut *backend, &at)?, None, "{kind}");
    }
    Ok(())
}
