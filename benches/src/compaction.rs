//! What level and universal compaction of RocksDB and the tree in object storage write, and what they
//! leave, under the access patterns of real operators (workload W2).
//!
//! Everything is scaled down together: a state of 100 MB in files of 4 MB and levels from 16 MB on is
//! as deep as one of some gigabytes with the defaults. A deeper tree writes more.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use weir_backend_forst::{ForstBackendFactory, ForstOptions, ForstResources};
use weir_backend_rocks::{Compaction, RocksBackendFactory, RocksMemory, RocksOptions};
use weir_state_api::{
    BackendFactory, CheckpointId, Codec, Environment, Error, ErrorKind, KeyedStore, ListState,
    Notification, OpenRequest, Ordered, Result, SnapshotRequest, TokioSpawner, Ttl, ValueState,
};

use crate::backends::{StandingClock, folder_store, local_folder, runtime};
use crate::clock::Stopwatch;
use crate::interrupt;
use crate::measure::{Recorder, Samples};
use crate::shuffle::{Random, shuffled};
use crate::stage::{VALUE_LEN, value_of};
use crate::zipf::Zipf;

const SUITE: &str = "compaction";
/// Checkpoints while a pattern runs.
const CHECKPOINTS: usize = 20;
/// Appends to a window before it is read and cleared.
const PER_WINDOW: usize = 4;

/// An access pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// Each key once, in random order: state that only grows.
    Grow,
    /// Read, change, write; all keys alike.
    Update,
    /// Read, change, write; keys as Zipf has them.
    UpdateSkewed,
    /// Append four times, then read and clear.
    Window,
    /// Write if absent, with a lifetime; ten times as many keys as live at a time.
    Deduplicate,
}

const PATTERNS: [(Pattern, &str); 5] = [
    (Pattern::Grow, "grow"),
    (Pattern::Update, "update, uniform"),
    (Pattern::UpdateSkewed, "update, Zipf 0.99"),
    (Pattern::Window, "append, clear"),
    (Pattern::Deduplicate, "deduplicate, TTL"),
];

/// Whose compaction is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tree {
    Rocks(Compaction),
    Forst,
}

const TREES: [(Tree, &str); 3] = [
    (Tree::Rocks(Compaction::Level), "rocks, level"),
    (Tree::Rocks(Compaction::Universal), "rocks, universal"),
    (Tree::Forst, "forst"),
];

impl Tree {
    /// Memory for a tenth of the state, files of a twenty-fifth, RocksDB's levels from a sixth on.
    fn factory(self, folder: &Path, bytes: usize) -> Result<Box<dyn BackendFactory>> {
        Ok(match self {
            Tree::Rocks(compaction) => {
                let options = RocksOptions::new(folder)
                    .with_memory(RocksMemory::new(bytes / 10, 0.5))
                    .with_compaction(compaction)
                    .with_statistics(true)
                    .with_rocksdb_option("target_file_size_base", (bytes / 25).to_string())
                    .with_rocksdb_option("max_bytes_for_level_base", (bytes / 6).to_string());
                Box::new(RocksBackendFactory::new(options))
            }
            Tree::Forst => {
                let resources = ForstResources::builder()
                    .cache_bytes(bytes as u64 / 20)
                    .memtable_bytes(bytes as u64 / 20)
                    .disk_cache(folder.join("cache"), 10 * bytes as u64)
                    .build()?;
                let options = ForstOptions::default()
                    .with_resources(resources)
                    .with_table_bytes(bytes as u64 / 25);
                Box::new(ForstBackendFactory::new(options))
            }
        })
    }
}

/// Decides who is better.
const WRITTEN: &str = "written";

/// Measures each tree under all patterns, or those of that name, with so many bytes of values and five
/// times as many writes. In each round every tree begins empty, one after the other.
pub(crate) fn run(recorder: &mut Recorder, bytes: u64, only: Option<&str>) -> Result<()> {
    let figures = Figures::install()?;
    let order = shuffled((bytes / VALUE_LEN as u64) as i64, 42);
    let wanted: Vec<_> = PATTERNS
        .into_iter()
        .filter(|(_, name)| only.is_none_or(|only| name.contains(only)))
        .collect();
    recorder.expect(wanted.len() * TREES.len() * recorder.rounds());
    for (pattern, workload) in wanted {
        let mut entrants: Vec<_> =
            TREES.iter().map(|(tree, name)| (*tree, *name, Samples::default())).collect();
        for _ in 0..recorder.rounds() {
            entrants.retain_mut(|(tree, name, samples)| {
                if interrupt::requested() {
                    return !samples.of(WRITTEN).is_empty();
                }
                recorder.now(&format!("{workload}, {name}"));
                let done = measure(pattern, *tree, &order, &figures, samples);
                recorder.step();
                done.map_err(|error| recorder.fail(workload, name, &error)).is_ok()
            });
        }
        for (_, name, samples) in entrants {
            samples.record(recorder, SUITE, workload, name);
        }
    }
    recorder.finished();
    Ok(())
}

fn measure(
    pattern: Pattern,
    tree: Tree,
    order: &[i64],
    figures: &Figures,
    samples: &mut Samples,
) -> Result<()> {
    figures.forget();
    let mut operator = Operator::open(tree, order.len() * VALUE_LEN)?;
    let writes = order.len() * 5;
    let watch = Stopwatch::start();
    let mut written = 0;
    for step in 0..CHECKPOINTS {
        let (from, to) = (writes * step / CHECKPOINTS, writes * (step + 1) / CHECKPOINTS);
        written += operator.run(pattern, order, from..to)?;
        operator.checkpoint(step as u64 + 1)?;
    }
    let elapsed = watch.stop();
    let user = written as f64;
    // What is written in object storage is uploaded.
    let uploaded = operator.store.statistics().bytes_uploaded as f64;
    let (written, files) = match tree {
        Tree::Rocks(_) => (
            figures.get("weir_rocks_flushed_bytes_total")
                + figures.get("weir_rocks_compaction_written_bytes_total"),
            figures.get("weir_rocks_file_bytes"),
        ),
        Tree::Forst => (uploaded, operator.named as f64),
    };
    samples.add(WRITTEN, "x", written / user);
    samples.add("uploaded", "x", uploaded / user);
    samples.add("files at the end", "MB", files / 1e6);
    samples.add("task's CPU", "ns/op", elapsed.thread.as_nanos() as f64 / writes as f64);
    samples.add("all CPU", "ns/op", elapsed.process.as_nanos() as f64 / writes as f64);
    if matches!(pattern, Pattern::Window | Pattern::Deduplicate) {
        return Ok(());
    }
    let reads = order.len() / 5;
    let watch = Stopwatch::start();
    for key in &order[..reads] {
        operator.store.set_key(key)?;
        std::hint::black_box(operator.value.get(&mut operator.store).wait()?);
    }
    samples.add("read", "ns/op", watch.stop().thread.as_nanos() as f64 / reads as f64);
    Ok(())
}

/// An operator with its states.
struct Operator {
    store: KeyedStore<i64>,
    value: ValueState<Vec<u8>>,
    window: ListState<Vec<u8>>,
    seen: ValueState<()>,
    clock: Arc<StandingClock>,
    random: Random,
    zipf: Option<Zipf>,
    bytes: Vec<u8>,
    /// What the last checkpoint names, in bytes.
    named: u64,
    tokio: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

impl Operator {
    fn open(tree: Tree, bytes: usize) -> Result<Self> {
        let (folder, tokio) = (local_folder()?, runtime()?);
        let factory = tree.factory(&folder.path().join("local"), bytes)?;
        let clock = Arc::new(StandingClock::default());
        let mut environment = Environment::in_memory();
        environment.clock = clock.clone();
        environment.store = folder_store(&folder.path().join("store"))?;
        environment.spawner = Arc::new(TokioSpawner::new(tokio.handle().clone()));
        let mut request = OpenRequest::new(environment, "bench", Codec::<i64>::id(&Ordered));
        request.directory = "live/".into();
        let mut store: KeyedStore<i64> = tokio.block_on(KeyedStore::open(&*factory, request))?;
        Ok(Operator {
            value: store.value("value")?,
            window: store.list("window")?,
            seen: store.with_ttl(Ttl::new(Duration::from_millis(1_000))).value("seen")?,
            store,
            clock,
            random: Random(7),
            zipf: None,
            bytes: Vec::new(),
            named: 0,
            tokio,
            _folder: folder,
        })
    }

    /// Runs some operations; how many bytes of keys and values they wrote.
    fn run(
        &mut self,
        pattern: Pattern,
        order: &[i64],
        operations: std::ops::Range<usize>,
    ) -> Result<usize> {
        let count = order.len();
        let mut written = 0;
        for index in operations {
            let key = match pattern {
                Pattern::Grow | Pattern::Deduplicate => grown(order, index),
                Pattern::Update => order[self.random.below(count as u64) as usize],
                Pattern::UpdateSkewed => {
                    let zipf = self.zipf.get_or_insert_with(|| Zipf::new(count as u64, 0.99));
                    order[zipf.next(&mut self.random) as usize]
                }
                // Some thousand windows are open at a time.
                Pattern::Window => (index / (PER_WINDOW * 4_096) * 4_096 + index % 4_096) as i64,
            };
            self.store.set_key(&key)?;
            value_of(key, index as u64, &mut self.bytes);
            written += 8 + match pattern {
                Pattern::Window => self.append(index)?,
                Pattern::Deduplicate => self.deduplicate(index, count)?,
                Pattern::Grow => {
                    self.value.set(&mut self.store, &self.bytes)?;
                    VALUE_LEN
                }
                Pattern::Update | Pattern::UpdateSkewed => {
                    std::hint::black_box(self.value.get(&mut self.store).wait()?);
                    self.value.set(&mut self.store, &self.bytes)?;
                    VALUE_LEN
                }
            };
        }
        Ok(written)
    }

    fn append(&mut self, index: usize) -> Result<usize> {
        self.window.add(&mut self.store, &self.bytes)?;
        if index / 4_096 % PER_WINDOW == PER_WINDOW - 1 {
            std::hint::black_box(self.window.get(&mut self.store).wait()?);
            self.window.clear(&mut self.store)?;
        }
        Ok(VALUE_LEN)
    }

    /// A lifetime is half as many operations as there are keys.
    fn deduplicate(&mut self, index: usize, keys: usize) -> Result<usize> {
        self.clock.set((index * 2_000 / keys) as i64);
        if self.seen.get(&mut self.store).wait()?.is_none() {
            self.seen.set(&mut self.store, &())?;
            return Ok(8);
        }
        Ok(0)
    }

    fn checkpoint(&mut self, number: u64) -> Result<()> {
        let id = CheckpointId(number);
        let request = SnapshotRequest::checkpoint(id, format!("chk-{number}"));
        let handle = self.tokio.block_on(self.store.snapshot(request)?.run())?;
        self.named = handle.total_bytes();
        self.store.notify(Notification::Complete(id))?;
        self.store.notify(Notification::Subsumed(CheckpointId(number - 1)))
    }
}

/// Keys without end, each once.
fn grown(order: &[i64], index: usize) -> i64 {
    order[index % order.len()] + (index / order.len() * order.len()) as i64
}

/// What the backend exports through the `metrics` facade.
#[derive(Debug, Clone, Default)]
struct Figures(Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>);

impl Figures {
    fn install() -> Result<Self> {
        let figures = Figures::default();
        metrics::set_global_recorder(figures.clone()).map_err(|error| {
            Error::new(ErrorKind::InvalidUsage, "metrics are recorded already").source(error)
        })?;
        Ok(figures)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<AtomicU64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, key: &Key) -> Arc<AtomicU64> {
        Arc::clone(self.lock().entry(key.name().to_string()).or_default())
    }

    fn forget(&self) {
        self.lock().clear();
    }

    /// Counters are integers, gauges the bits of a float.
    fn get(&self, name: &str) -> f64 {
        let bits = self.lock().get(name).map_or(0, |slot| slot.load(Ordering::Relaxed));
        if name.ends_with("_total") { bits as f64 } else { f64::from_bits(bits) }
    }
}

impl metrics::Recorder for Figures {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.slot(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.slot(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
