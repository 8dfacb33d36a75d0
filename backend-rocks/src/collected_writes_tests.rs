use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const ERA: u8 = 3;
const KEY: &[u8] = b"key";

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Append(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    WriteOut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few first bytes, and keys longer than what is compared beside them.
    let key = || {
        (0..4_u8, 0..20_usize, 0..3_u8)
            .prop_map(|(first, len, last)| [&[first][..], &vec![7; len], &[last]].concat())
    };
    let value = || proptest::collection::vec(any::<u8>(), 0..40);
    let step = prop_oneof![
        4 => (key(), value()).prop_map(|(key, value)| Step::Put(key, value)),
        4 => (key(), value()).prop_map(|(key, value)| Step::Append(key, value)),
        2 => key().prop_map(Step::Delete),
        1 => Just(Step::WriteOut),
    ];
    proptest::collection::vec(step, 0..200)
}

/// A store as RocksDB is one: values in their stored form.
#[derive(Default)]
struct Written(BTreeMap<Vec<u8>, Vec<u8>>);

impl Written {
    fn apply(&mut self, key: &[u8], write: Collected<'_>) {
        match write {
            Collected::Put(stored) => drop(self.0.insert(key.to_vec(), stored.to_vec())),
            Collected::Append(operand) => {
                let known = self.0.entry(key.to_vec()).or_default();
                known.pop();
                known.extend_from_slice(operand);
            }
            Collected::Delete => drop(self.0.remove(key)),
        }
    }

    /// What a look-up comes to.
    fn read(&self, collected: &CollectedWrites, key: &[u8]) -> Option<Vec<u8>> {
        let mut seen = Written::default();
        if let Some(stored) = self.0.get(key) {
            seen.0.insert(key.to_vec(), stored.clone());
        }
        if let Some(write) = collected.find(key[..].into()) {
            seen.apply(key, write);
        }
        seen.0.remove(key)
    }

    fn take(&mut self, collected: &mut CollectedWrites) {
        let keys: Vec<_> = collected.in_order().map(|(key, _)| key.to_vec()).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        collected.in_order().for_each(|(key, write)| self.apply(key, write));
        collected.clear();
        assert!(collected.is_empty() && collected.net_entries() == 0);
    }
}

proptest! {
    /// Whatever is collected, written at once or written together: it reads as if each write had
    /// been done when it came. What is collected stays within its limit.
    #[test]
    fn it_reads_as_if_each_write_had_been_done(steps in steps(), limit in 0..4_000_usize) {
        let (mut collected, mut written) = (CollectedWrites::new(limit), Written::default());
        let mut model = Written::default();
        let mut maps = BTreeSet::new();
        for step in steps {
            let (key, write) = match &step {
                Step::Put(key, value) => (key, Some((value, false))),
                Step::Append(key, value) => (key, Some((value, true))),
                Step::Delete(key) => (key, None),
                Step::WriteOut => {
                    written.take(&mut collected);
                    maps.clear();
                    continue;
                }
            };
            let stored = write.map(|(value, _)| [&value[..], &[ERA]].concat());
            let write = match (&stored, write) {
                (Some(stored), Some((_, true))) => Collected::Append(stored),
                (Some(stored), _) => Collected::Put(stored),
                (None, _) => Collected::Delete,
            };
            model.apply(key, write);
            let room = collected.room_for(key.len() + stored.as_ref().map_or(0, Vec::len));
            if room != Room::Enough {
                written.take(&mut collected);
                maps.clear();
            }
            let joined = room != Room::Never && {
                collected.note_map(&key[..1]);
                maps.insert(key[0]);
                match write {
                    Collected::Put(stored) => collected.put(key[..].into(), stored),
                    Collected::Delete => collected.delete(key[..].into()),
                    Collected::Append(_) => {}
                }
                !matches!(write, Collected::Append(operand) if !collected.append(key[..].into(), operand))
            };
            if !joined {
                written.take(&mut collected);
                maps.clear();
                written.apply(key, write);
            }
            prop_assert_eq!(written.read(&collected, key), model.0.get(key).cloned());
            prop_assert!(collected.bytes.len() + collected.entries.len() * ENTRY_BYTES <= limit);
            for first in 0..4 {
                prop_assert_eq!(collected.has_map(&[first]), maps.contains(&first));
            }
        }
        for key in model.0.keys().chain(written.0.keys()) {
            prop_assert_eq!(written.read(&collected, key), model.0.get(key).cloned());
        }
        written.take(&mut collected);
        prop_assert_eq!(written.0, model.0);
    }
}

#[test]
fn a_list_that_grows_is_seldom_copied() {
    let mut collected = CollectedWrites::new(1 << 20);
    for _ in 0..1_000 {
        assert!(collected.append(KEY.into(), &[1, ERA]));
    }
    let whole = [&vec![1; 1_000][..], &[ERA]].concat();
    assert_eq!(collected.find(KEY.into()), Some(Collected::Append(&whole)));
    assert!(collected.bytes.len() < 5_000, "{}", collected.bytes.len());
}

#[test]
fn what_was_written_under_another_ttl_is_not_joined() {
    let mut collected = CollectedWrites::new(1 << 20);
    collected.put(KEY.into(), &[1, ERA]);
    assert!(!collected.append(KEY.into(), &[2, ERA + 1]));
    assert_eq!(collected.find(KEY.into()), Some(Collected::Put(&[1, ERA])));
    collected.delete(KEY.into());
    assert!(collected.append(KEY.into(), &[2, ERA + 1]));
    assert_eq!(collected.find(KEY.into()), Some(Collected::Put(&[2, ERA + 1])));
}
