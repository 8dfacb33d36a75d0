//! Reading backends out at the byte level.

use std::collections::{BTreeMap, BTreeSet};

use weir_state_api::{
    Address, CodecId, Error, ErrorKind, KeyGroup, KeyRef, KeyedBackend, Lookup, MapRange, Millis,
    Order, Page, Result, ScanStep, StateDescriptor, StateId, StateKind, StateShape, TimerPoll,
    block_on,
};

use super::Store;

/// An entry of a scan: the key group if keys are listed, and the pair of byte strings.
pub type Scanned = (Option<KeyGroup>, Vec<u8>, Vec<u8>);

/// A descriptor for byte-level cases.
pub fn descriptor(name: &str, kind: StateKind) -> StateDescriptor {
    let bytes = CodecId::new("bytes", 1);
    let descriptor = StateDescriptor::new(name, kind, bytes.clone(), bytes.clone());
    if kind == StateKind::Map { descriptor.with_map_key(bytes) } else { descriptor }
}

/// The bytes at an address, whether the backend pends or not.
///
/// # Errors
/// Those of the read.
pub fn read(backend: &mut dyn KeyedBackend, at: &Address<'_>) -> Result<Option<Vec<u8>>> {
    match backend.get(at)? {
        Lookup::Absent => Ok(None),
        Lookup::Found(value) => Ok(Some(value.to_vec())),
        Lookup::Pending(future) => Ok(block_on(future)?.map(|value| value.to_vec())),
    }
}

/// All entries of a scan; checks that pages keep their limits.
///
/// # Errors
/// Those of the scan.
pub fn drain(start: impl FnOnce(&mut Page) -> Result<ScanStep>) -> Result<Vec<Scanned>> {
    let mut all = Vec::new();
    let mut page = Page::new();
    let mut step = start(&mut page)?;
    loop {
        let mut take = |page: &Page| {
            assert!(page.len() <= weir_state_api::PAGE_ENTRIES, "a page of {}", page.len());
            for (index, (first, second)) in page.iter().enumerate() {
                all.push((page.group(index), first.to_vec(), second.to_vec()));
            }
        };
        match step {
            ScanStep::Last => {
                take(&page);
                return Ok(all);
            }
            ScanStep::More(rest) => {
                take(&page);
                page.clear();
                step = rest.next(&mut page)?;
            }
            ScanStep::Pending(future) => {
                assert!(page.is_empty(), "a pending step must append nothing");
                (page, step) = block_on(future)?;
            }
        }
    }
}

/// Fails with the first differences when two contents are not the same.
///
/// # Panics
/// When they are not.
#[track_caller]
pub fn assert_same(found: &Contents, expected: &Contents) {
    if found == expected {
        return;
    }
    let entries = |a: &Contents, b: &Contents| -> Vec<String> {
        let differs = a.entries.iter().filter(|(at, value)| b.entries.get(*at) != Some(*value));
        differs.take(5).map(|entry| format!("{entry:?}")).collect()
    };
    panic!(
        "the contents differ\nfound, not expected: {:#?}\nexpected, not found: {:#?}\n\
         timers found, not expected: {:?}\ntimers expected, not found: {:?}\nstates: {:?}, \
         expected {:?}",
        entries(found, expected),
        entries(expected, found),
        found.timers.difference(&expected.timers).take(5).collect::<Vec<_>>(),
        expected.timers.difference(&found.timers).take(5).collect::<Vec<_>>(),
        found.states,
        expected.states,
    );
}

/// State name, key group, key, namespace, map key.
pub type EntryAddress = (String, KeyGroup, Vec<u8>, Vec<u8>, Vec<u8>);

/// Everything that instances hold, as bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// The value at each address.
    pub entries: BTreeMap<EntryAddress, Vec<u8>>,
    /// Queue name, time, key, namespace.
    pub timers: BTreeSet<(String, Millis, Vec<u8>, Vec<u8>)>,
    /// The names of all states, also of empty ones.
    pub states: BTreeSet<String>,
}

impl Contents {
    /// Reads everything out of an instance, which loses its timers by that.
    ///
    /// # Errors
    /// Those of reading.
    ///
    /// # Panics
    /// When something is listed twice, or of a key group that the instance does not own.
    pub fn take(store: &mut Store) -> Result<Self> {
        let mut contents = Contents::default();
        contents.add(store)?;
        Ok(contents)
    }

    /// As [`take`](Contents::take), of all instances together.
    ///
    /// # Errors
    /// Those of reading.
    ///
    /// # Panics
    /// Also when two instances hold the same.
    pub fn take_all(stores: &mut [Store]) -> Result<Self> {
        let mut contents = Contents::default();
        stores.iter_mut().try_for_each(|store| contents.add(store))?;
        Ok(contents)
    }

    fn add(&mut self, store: &mut Store) -> Result<()> {
        let owned = store.key_groups();
        let backend = store.backend();
        for (id, state) in backend.states() {
            self.states.insert(state.name.clone());
            if state.kind.shape() == StateShape::Queue {
                self.add_timers(backend, id, &state.name)?;
                continue;
            }
            for (group, key, namespace) in drain(|page| backend.scan_keys(id, None, page))? {
                let group = group.ok_or_else(|| {
                    Error::new(ErrorKind::InvalidUsage, "a listed key has no key group")
                })?;
                assert!(owned.contains(group), "{:?} holds a key of group {group}", state.name);
                let key_ref = KeyRef::with_group(&key, group)?;
                let at = Address { state: id, key: key_ref, namespace: &namespace, map_key: &[] };
                let found = if state.kind.shape() == StateShape::Ordered {
                    let scan =
                        |page: &mut Page| backend.scan(&at, MapRange::ALL, Order::Ascending, page);
                    drain(scan)?.into_iter().map(|(_, key, value)| (key, value)).collect()
                } else {
                    let value = read(backend, &at)?;
                    vec![(Vec::new(), value.expect("a listed key has a value"))]
                };
                assert!(!found.is_empty(), "{:?} lists a key without entries", state.name);
                for (map_key, value) in found {
                    let name = state.name.clone();
                    let at = (name, group, key.clone(), namespace.clone(), map_key);
                    let text = format!("{at:?}");
                    assert!(self.entries.insert(at, value).is_none(), "found twice: {text}");
                }
            }
        }
        Ok(())
    }

    fn add_timers(
        &mut self,
        backend: &mut dyn KeyedBackend,
        id: StateId,
        name: &str,
    ) -> Result<()> {
        loop {
            match backend.poll_timer(id, Millis::MAX)? {
                TimerPoll::Idle => return Ok(()),
                TimerPoll::Pending(future) => block_on(future)?,
                TimerPoll::Due(timer) => {
                    let (key, namespace) = (timer.key.bytes(), timer.namespace);
                    let entry = (name.to_string(), timer.time, key.to_vec(), namespace.to_vec());
                    let text = format!("{entry:?}");
                    assert!(self.timers.insert(entry), "a timer came due twice: {text}");
                }
            }
        }
    }
}
