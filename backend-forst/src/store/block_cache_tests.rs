use super::*;
use crate::store::test_tables::blocks;

fn keys(count: u32) -> Vec<BlockKey> {
    let table = CacheId::unique();
    (0..count).map(|block| BlockKey { table, block }).collect()
}

#[test]
fn the_limit_holds_at_every_step() {
    let block = blocks(1).remove(0);
    for limit in [0, 20_000, 1 << 20, 9 << 20] {
        let cache = BlockCache::new(limit);
        for key in keys(5_000) {
            cache.insert(key, block.clone());
            assert!(cache.used_bytes() <= limit, "{} of {limit}", cache.used_bytes());
        }
        if limit >= 1 << 20 {
            assert!(cache.used_bytes() > limit / 2, "{} of {limit}", cache.used_bytes());
        }
        cache.set_limit(limit / 4);
        assert!(cache.used_bytes() <= limit / 4);
    }
}

#[test]
fn blocks_are_told_apart_and_counted() {
    let both = blocks(2);
    let cache = BlockCache::new(1 << 20);
    let keys = [keys(2), keys(2)].concat();
    cache.insert(keys[0], both[0].clone());
    cache.insert(keys[3], both[1].clone());
    let found: Vec<bool> = keys.iter().map(|key| cache.get(*key).is_some()).collect();
    assert_eq!(found, [true, false, false, true]);
    assert_eq!(cache.peek(keys[3]).unwrap().memory_bytes(), both[1].memory_bytes());
    assert_eq!((cache.hits.get(), cache.misses.get()), (2, 2));
}

/// What is in use stays while ten times the cache passes by.
#[test]
fn a_scan_does_not_wash_out_what_is_in_use() {
    let block = blocks(1).remove(0);
    let fits = (8 << 20) / (block.memory_bytes() as u32 + ENTRY_BYTES as u32);
    let cache = BlockCache::new(8 << 20);
    let hot = keys(fits / 2);
    let read = |key: &BlockKey| {
        let found = cache.get(*key).is_some();
        if !found {
            cache.insert(*key, block.clone());
        }
        found
    };
    for _ in 0..3 {
        for key in &hot {
            read(key);
        }
    }
    let mut hits = 0;
    let scan = keys(fits * 10);
    for (key, again) in scan.iter().zip(hot.iter().cycle()) {
        assert!(!read(key));
        hits += usize::from(read(again));
    }
    assert!(hits * 100 >= scan.len() * 95, "{hits} of {}", scan.len());
}
