use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::memory::RocksMemory;

/// Half a MiB for rows.
fn memory() -> RocksMemory {
    RocksMemory::new(0, 0.5)
}

fn cache() -> RowCache {
    RowCache::new(memory().for_rows())
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn find(rows: &mut RowCache, key: &[u8]) -> Option<Vec<u8>> {
    let place = rows.find(key.into())?;
    Some(rows.value(place).to_vec())
}

/// Reads a value of RocksDB, as an access does.
fn read(rows: &mut RowCache, key: &[u8], stored: &[u8]) {
    if find(rows, key).is_none() {
        rows.insert(key.into(), stored);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Read(u8),
    Change(u8, usize),
    Remove(u8),
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => any::<u8>().prop_map(Step::Read),
        4 => (any::<u8>(), 0..20_000_usize).prop_map(|(key, len)| Step::Change(key, len)),
        1 => any::<u8>().prop_map(Step::Remove),
        1 => Just(Step::Clear),
    ];
    proptest::collection::vec(step, 0..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is read, changed and removed, in however little memory: a row that is found is what
    /// RocksDB has.
    #[test]
    fn a_row_that_is_found_is_what_was_written(steps in steps()) {
        let (mut rows, mut stored) = (cache(), BTreeMap::new());
        let most = rows.memory.share();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Read(at) => {
                    let value: Option<&Vec<u8>> = stored.get(&at);
                    if let Some(row) = find(&mut rows, &[at]) {
                        prop_assert_eq!(Some(&row), value);
                    } else if let Some(value) = value {
                        rows.insert([at][..].into(), value);
                    }
                }
                Step::Change(at, len) => {
                    let value = vec![number as u8; len];
                    rows.change([at][..].into(), &value);
                    stored.insert(at, value);
                }
                Step::Remove(at) => {
                    rows.remove([at][..].into());
                    stored.remove(&at);
                    prop_assert_eq!(find(&mut rows, &[at]), None);
                }
                Step::Clear => {
                    rows.clear();
                    prop_assert!(rows.is_empty());
                }
            }
            prop_assert!(rows.memory_bytes() <= most);
            let used: usize = rows.generations.iter().map(Generation::used).sum();
            prop_assert!(used <= rows.memory_bytes());
        }
        for at in 0..=u8::MAX {
            if let Some(row) = find(&mut rows, &[at]) {
                prop_assert_eq!(Some(&row), stored.get(&at));
            }
        }
    }
}

/// A hundred keys are read all the time, others once: the hundred stay.
#[test]
fn what_is_read_often_stays() {
    let mut rows = cache();
    let value = [7; 100];
    for other in 1_000..101_000_u32 {
        read(&mut rows, &key(other), &value);
        read(&mut rows, &key(other % 100), &value);
    }
    let (hits, misses) = rows.hits_and_misses();
    assert_eq!(hits + misses, 200_000);
    assert!(misses < 100_300, "{misses}");
    assert!((0..100).all(|number| find(&mut rows, &key(number)).is_some()));
    assert_eq!(find(&mut rows, &key(1_000)), None);
}

/// Of keys that are all read once, few are kept; a small set that is read again and again comes in.
#[test]
fn where_nothing_is_read_again_few_rows_are_kept() {
    let mut rows = cache();
    let value = [7; 100];
    let seen_of = |rows: &RowCache, keys: std::ops::Range<u32>| {
        keys.filter(|number| rows.contains(key(*number)[..].into())).count()
    };
    (0..2 * WINDOW).for_each(|number| read(&mut rows, &key(number), &value));
    let last = seen_of(&rows, 2 * WINDOW - 800..2 * WINDOW);
    assert!((60..140).contains(&last), "{last}");
    for _ in 0..100 {
        (0..1_000).for_each(|number| read(&mut rows, &key(number), &value));
    }
    assert_eq!(seen_of(&rows, 0..1_000), 1_000);
}

#[test]
fn a_row_that_is_too_long_is_not_kept() {
    let mut rows = cache();
    read(&mut rows, b"long", &vec![0; MAX_ROW]);
    assert!(rows.is_empty());
    read(&mut rows, b"key", b"short");
    rows.change(b"key"[..].into(), &vec![0; MAX_ROW]);
    assert_eq!(find(&mut rows, b"key"), None);
}

#[test]
fn memory_is_shared_by_those_that_have_rows() {
    let memory = memory();
    let budget = memory.used_bytes();
    let fill = |rows: &mut RowCache| {
        (0..100_000).for_each(|number| read(rows, &key(number), b"value"));
        rows.memory_bytes()
    };
    let (mut first, idle) = (RowCache::new(memory.for_rows()), RowCache::new(memory.for_rows()));
    let alone = fill(&mut first);
    assert!(alone > 500_000, "{alone}");
    assert_eq!(memory.used_bytes() - budget, alone);
    let mut second = RowCache::new(memory.for_rows());
    fill(&mut second);
    // The first one gives back what is too much when it makes room the next time.
    first.clear();
    let shared = fill(&mut first);
    assert!(shared <= alone / 2, "{shared}");
    let of_second = fill(&mut second);
    assert!(of_second > alone / 4 && of_second + shared <= alone, "{of_second} {shared}");
    drop((first, second, idle));
    assert_eq!(memory.used_bytes(), budget);
}

#[test]
fn without_memory_nothing_is_kept() {
    let mut rows = RowCache::new(memory().with_row_share(0.0).for_rows());
    read(&mut rows, b"key", b"value");
    assert!(rows.is_empty() && rows.memory_bytes() == 0);
}
