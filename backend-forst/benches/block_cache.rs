//! The block cache's library, chosen by measurement: `quick_cache` against `moka` and `foyer`.
//!
//! All hold blocks of 16 KiB within the same number of bytes, by the same keys and hash.
//!
//! - `hit`: one look-up of a block that is in the cache, from one thread and from two at once.
//! - `insert`: one block into a full cache.
//! - The hit ratio, printed once: Zipf-distributed reads at a cache of 10 % of the blocks, then the
//!   same interrupted by a scan over all blocks. A miss inserts.
//!
//! ```text
//! cargo bench -p weir-backend-forst --bench block_cache
//! ```

use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};

const BLOCK_LEN: usize = 16 << 10;
/// How many blocks fit.
const CACHED: u64 = 4_096;
/// How many there are.
const BLOCKS: u64 = CACHED * 10;
const ZIPF: f64 = 0.9;

type Key = (u128, u32);

/// What the block cache needs of a library.
trait BlockCache: Send + Sync + 'static {
    fn with_capacity(bytes: u64) -> Self;
    fn get(&self, key: &Key) -> Option<Bytes>;
    fn insert(&self, key: Key, block: Bytes);
}

struct Quick(quick_cache::sync::Cache<Key, Bytes, Len, Folded>);

#[derive(Clone)]
struct Len;

impl quick_cache::Weighter<Key, Bytes> for Len {
    fn weight(&self, _: &Key, block: &Bytes) -> u64 {
        block.len() as u64
    }
}

impl BlockCache for Quick {
    fn with_capacity(bytes: u64) -> Self {
        let items = bytes as usize / BLOCK_LEN;
        let lifecycle = quick_cache::sync::DefaultLifecycle::default();
        Quick(quick_cache::sync::Cache::with(items, bytes, Len, Folded, lifecycle))
    }

    fn get(&self, key: &Key) -> Option<Bytes> {
        self.0.get(key)
    }

    fn insert(&self, key: Key, block: Bytes) {
        self.0.insert(key, block);
    }
}

struct Moka(moka::sync::Cache<Key, Bytes, Folded>);

impl BlockCache for Moka {
    fn with_capacity(bytes: u64) -> Self {
        let cache = moka::sync::Cache::builder()
            .max_capacity(bytes)
            .weigher(|_: &Key, block: &Bytes| block.len() as u32)
            .build_with_hasher(Folded);
        Moka(cache)
    }

    fn get(&self, key: &Key) -> Option<Bytes> {
        self.0.get(key)
    }

    fn insert(&self, key: Key, block: Bytes) {
        self.0.insert(key, block);
    }
}

/// The part in memory of the hybrid cache; `LFU` says which of its two ways to evict that withstand scans.
struct Foyer<const LFU: bool>(foyer_memory::Cache<Key, Bytes, Folded>);

impl<const LFU: bool> BlockCache for Foyer<LFU> {
    fn with_capacity(bytes: u64) -> Self {
        let eviction: foyer_memory::EvictionConfig = if LFU {
            foyer_memory::LfuConfig::default().into()
        } else {
            foyer_memory::S3FifoConfig::default().into()
        };
        let cache = foyer_memory::CacheBuilder::new(bytes as usize)
            .with_eviction_config(eviction)
            .with_hash_builder(Folded)
            .with_weighter(|_: &Key, block: &Bytes| block.len())
            .build();
        Foyer(cache)
    }

    fn get(&self, key: &Key) -> Option<Bytes> {
        self.0.get(key).map(|entry| entry.value().clone())
    }

    fn insert(&self, key: Key, block: Bytes) {
        self.0.insert(key, block);
    }
}

/// Keys are hashes already: one multiplication spreads the number of the block.
#[derive(Clone, Default)]
struct Folded;

#[derive(Default)]
struct FoldedHasher(u64);

impl BuildHasher for Folded {
    type Hasher = FoldedHasher;

    fn build_hasher(&self) -> FoldedHasher {
        FoldedHasher(0)
    }
}

impl FoldedHasher {
    fn fold(&mut self, number: u64) {
        let wide = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (wide as u64) ^ (wide >> 64) as u64;
    }
}

impl Hasher for FoldedHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.fold(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.fold(u64::from(number));
    }

    fn write_u128(&mut self, number: u128) {
        self.fold(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn key(number: u64) -> Key {
    // Some hundred blocks to a table.
    let table = u128::from(number / 256).wrapping_mul(0xd134_2543_de82_ef95_0123_4567_89ab_cdef);
    (table, number as u32 % 256)
}

/// Pseudo-random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `n`, small ones being likelier (the density of a Zipf distribution, integrated).
    fn zipf(&mut self, n: u64) -> u64 {
        let power = 1.0 - ZIPF;
        let rank = ((n as f64).powf(power) * self.unit()).powf(1.0 / power);
        (rank as u64).min(n - 1)
    }
}

fn block() -> Bytes {
    Bytes::from(vec![7; BLOCK_LEN])
}

fn full<C: BlockCache>() -> Arc<C> {
    let cache = C::with_capacity(CACHED * BLOCK_LEN as u64);
    for number in 0..CACHED {
        cache.insert(key(number), block());
    }
    Arc::new(cache)
}

fn hits<C: BlockCache>(criterion: &mut Criterion, name: &str) {
    let cache = full::<C>();
    // What a sharded cache has really kept.
    let kept: Vec<u64> = (0..CACHED).filter(|number| cache.get(&key(*number)).is_some()).collect();
    let mut random = Random(1);
    let get = |cache: &C, random: &mut Random| {
        let number = kept[random.next() as usize % kept.len()];
        black_box(cache.get(&key(number)));
    };
    let mut group = criterion.benchmark_group("hit");
    group.bench_function(format!("{name}/1 thread"), |bencher| {
        bencher.iter(|| get(&cache, &mut random));
    });
    let stop = Arc::new(AtomicBool::new(false));
    let other = {
        let (cache, stop, kept) = (Arc::clone(&cache), Arc::clone(&stop), kept.clone());
        std::thread::spawn(move || {
            let mut random = Random(2);
            while !stop.load(Ordering::Relaxed) {
                let number = kept[random.next() as usize % kept.len()];
                black_box(cache.get(&key(number)));
            }
        })
    };
    group.bench_function(format!("{name}/2 threads"), |bencher| {
        bencher.iter(|| get(&cache, &mut random));
    });
    stop.store(true, Ordering::Relaxed);
    other.join().expect("the reader does not panic");
    group.finish();
}

fn inserts<C: BlockCache>(criterion: &mut Criterion, name: &str) {
    let (cache, block) = (full::<C>(), block());
    let mut next = CACHED;
    criterion.benchmark_group("insert").bench_function(name, |bencher| {
        bencher.iter(|| {
            next += 1;
            cache.insert(key(next), block.clone());
        });
    });
}

/// Reads, as a share of which the cache answered.
fn ratio<C: BlockCache>(cache: &C, reads: u64, random: &mut Random, scan_every: u64) -> f64 {
    let block = block();
    // Likely blocks are not neighbours.
    let spread = |rank: u64| rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % BLOCKS;
    let mut hits = 0;
    let mut scanned = 0;
    for read in 0..reads {
        if scan_every > 0 && read % scan_every == 0 {
            scanned = BLOCKS;
        }
        // A scan goes along with the reads, four blocks for each.
        for _ in 0..scanned.min(4) {
            scanned -= 1;
            if cache.get(&key(scanned)).is_none() {
                cache.insert(key(scanned), block.clone());
            }
        }
        let key = key(spread(random.zipf(BLOCKS)));
        if cache.get(&key).is_some() {
            hits += 1;
        } else {
            cache.insert(key, block.clone());
        }
    }
    hits as f64 / reads as f64
}

fn ratios<C: BlockCache>(name: &str) {
    let cache = C::with_capacity(CACHED * BLOCK_LEN as u64);
    let mut random = Random(3);
    ratio(&cache, 400_000, &mut random, 0);
    let reads = ratio(&cache, 400_000, &mut random, 0);
    let scanned = ratio(&cache, 400_000, &mut random, 40_000);
    println!("hit ratio of {name}: {reads:.3} reads alone, {scanned:.3} with scans");
}

fn all(criterion: &mut Criterion) {
    ratios::<Quick>("quick_cache");
    ratios::<Moka>("moka");
    ratios::<Foyer<true>>("foyer, w-TinyLFU");
    ratios::<Foyer<false>>("foyer, S3-FIFO");
    hits::<Quick>(criterion, "quick_cache");
    hits::<Moka>(criterion, "moka");
    hits::<Foyer<true>>(criterion, "foyer, w-TinyLFU");
    hits::<Foyer<false>>(criterion, "foyer, S3-FIFO");
    inserts::<Quick>(criterion, "quick_cache");
    inserts::<Moka>(criterion, "moka");
    inserts::<Foyer<true>>(criterion, "foyer, w-TinyLFU");
    inserts::<Foyer<false>>(criterion, "foyer, S3-FIFO");
}

criterion_group!(benches, all);
criterion_main!(benches);
