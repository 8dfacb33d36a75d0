//! State that lies far away, with many records in flight, against RocksDB on the local disk (workload W2).
//!
//! The store answers after 20 ms and gives 100 MB/s a stream. It is in memory, so that a read costs its
//! latency and not the processor's time for files. Both sides have the same memory: a quarter of the state for
//! blocks, 16 MiB for writes. Beyond that the one has all of its state on the local disk, where the system's
//! cache has room for it, the other copies of a part of it, or of nothing.

use std::sync::Arc;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use weir_backend_forst::{ForstBackendFactory, ForstOptions, ForstResources};
use weir_state_api::{
    Admission, BackendFactory, Codec, Environment, Error, ErrorKind, InFlight, InFlightLimits,
    KeyGroupRange, KeyedStore, MaxParallelism, OpenRequest, Ordered, RecordOperator, RecordState,
    Result, TokioSpawner, ValueState, block_on,
};

use crate::backends::{Backend, Budget, Purpose, local_folder, runtime};
use crate::clock::Stopwatch;
use crate::interrupt;
use crate::measure::{Recorder, Samples};
use crate::patterns::events::{Events, Skew, number_in, payload};
use crate::shuffle::shuffled;
use crate::slow_store::{SlowStore, Slowness};

const SUITE: &str = "far";
/// Decides who is better.
const TIME: &str = "time";
const KEPT: &str = "of rocks";
/// Bytes of each value.
const VALUE_LEN: usize = 100;
/// Records in flight, and requests to the store.
const RECORDS: usize = 16_384;
const REQUESTS: usize = 1_024;

/// How much is measured.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    pub(crate) keys: u64,
    /// Events in a round.
    pub(crate) events: u64,
    /// Local disk for copies of what is in the store, in percent of the state.
    pub(crate) caches: Vec<u32>,
}

impl Extent {
    fn state_bytes(&self) -> u64 {
        self.keys * (8 + VALUE_LEN as u64)
    }

    fn budget(&self) -> Budget {
        Budget { writes: 16 << 20, cache: self.state_bytes() / 4 }
    }
}

/// Reads, adds one, writes; answers the count.
struct Count(ValueState<Vec<u8>>);

fn add_one(old: Option<Vec<u8>>) -> Vec<u8> {
    let mut value = old.unwrap_or_default();
    let count = number_in(&value) + 1;
    payload(count, VALUE_LEN, &mut value);
    value
}

impl RecordOperator for Count {
    type Record = ();
    type Output = u64;

    async fn process(&self, (): &(), state: &mut RecordState<'_, u64>) -> Result<()> {
        let count = self.0.update(state, add_one).await?;
        state.emit(number_in(&count));
        Ok(())
    }
}

/// Counts events; answers a checksum that does not depend on their order.
trait CountAll {
    fn count_all(&mut self, events: &mut dyn Iterator<Item = i64>) -> Result<u64>;
}

struct Direct {
    store: KeyedStore<i64>,
    counts: ValueState<Vec<u8>>,
}

impl Direct {
    /// Each key has come once.
    fn fill(&mut self, keys: u64) -> Result<()> {
        let once = add_one(None);
        for key in shuffled(keys as i64, 42) {
            self.store.set_key(&key)?;
            self.counts.set(&mut self.store, &once)?;
        }
        Ok(())
    }
}

impl CountAll for Direct {
    fn count_all(&mut self, keys: &mut dyn Iterator<Item = i64>) -> Result<u64> {
        let mut sum = 0_u64;
        for key in keys {
            self.store.set_key(&key)?;
            let count = self.counts.update(&mut self.store, add_one).wait()?;
            sum = sum.wrapping_add(number_in(&count));
        }
        Ok(sum)
    }
}

impl CountAll for InFlight<Count, i64> {
    fn count_all(&mut self, keys: &mut dyn Iterator<Item = i64>) -> Result<u64> {
        let mut sum = 0_u64;
        for key in keys {
            while let Admission::Full(()) = self.submit(&key, ())? {
                self.wait_room()?;
            }
            sum = self.outputs().fold(sum, u64::wrapping_add);
        }
        self.wait_idle()?;
        Ok(self.outputs().fold(sum, u64::wrapping_add))
    }
}

struct Entrant {
    name: String,
    counting: Box<dyn CountAll>,
    events: Events,
    store: SlowStore,
    samples: Samples,
    _threads: Runtime,
    _folder: Option<TempDir>,
}

/// Measures counters of keys of both kinds.
pub(crate) fn run(recorder: &mut Recorder, extent: &Extent) -> Result<()> {
    for (skew, keys) in [(Skew::Zipf, "Zipf"), (Skew::Uniform, "uniform")] {
        let workload = format!("counter, {keys}, {} MB", extent.state_bytes() / 1_000_000);
        recorder.expect((extent.caches.len() + 1) * (recorder.rounds() + 2));
        let mut entrants = Vec::new();
        let far = extent.caches.iter().map(|&disk_percent| Holder::Forst { disk_percent });
        for holder in std::iter::once(Holder::Rocks).chain(far) {
            recorder.now(&format!("{workload}, {holder:?}: filling"));
            match Entrant::filled(holder, extent, skew) {
                Ok(entrant) => entrants.push(entrant),
                Err(error) => recorder.fail(&workload, &holder.name(), &error),
            }
            recorder.step();
        }
        // The first round warms up.
        for round in (0..=recorder.rounds()).take_while(|_| !interrupt::requested()) {
            let mut agreed = None;
            entrants.retain_mut(|entrant| {
                let name = entrant.name.clone();
                recorder.attempt(&workload, &name, || {
                    let answer = entrant.round(extent.events, round > 0)?;
                    if *agreed.get_or_insert(answer) == answer {
                        return Ok(());
                    }
                    Err(Error::new(ErrorKind::Corrupt, "other answers than the first"))
                })
            });
        }
        recorder.finished();
        // Interrupted before the first measured round.
        entrants.retain(|entrant| !entrant.samples.of(TIME).is_empty());
        compare_and_record(recorder, &workload, entrants);
    }
    Ok(())
}

/// The far ones with the one that is near.
fn compare_and_record(recorder: &mut Recorder, workload: &str, entrants: Vec<Entrant>) {
    let near = entrants.first().filter(|first| first.name == Holder::Rocks.name());
    let near = near.map_or(Vec::new(), |near| near.samples.of(TIME).to_vec());
    for entrant in entrants {
        let Entrant { name, mut samples, .. } = entrant;
        if name != Holder::Rocks.name() {
            let its = samples.of(TIME).to_vec();
            for (one, other) in its.iter().zip(&near) {
                samples.add(KEPT, "%", 100.0 * other / one);
            }
            let rocks = Holder::Rocks.name();
            recorder.compare(SUITE, workload, TIME, (&name, &its), (&rocks, &near));
        }
        samples.record(recorder, SUITE, workload, &name);
    }
}

/// Who holds the state, and where.
#[derive(Debug, Clone, Copy)]
enum Holder {
    Rocks,
    Forst { disk_percent: u32 },
}

impl Holder {
    fn name(self) -> String {
        match self {
            Holder::Rocks => "weir rocks".into(),
            Holder::Forst { disk_percent: 0 } => "weir forst, no disk".into(),
            Holder::Forst { disk_percent } => format!("weir forst, disk {disk_percent} %"),
        }
    }

    /// What opens its instance, and its local folder.
    fn factory(self, extent: &Extent) -> Result<(Box<dyn BackendFactory>, Option<TempDir>)> {
        let budget = extent.budget();
        match self {
            Holder::Rocks => Backend::Rocks.factory_within(Purpose::Access, budget),
            Holder::Forst { disk_percent } => {
                let folder = local_folder()?;
                let mut resources = ForstResources::builder()
                    .cache_bytes(budget.cache)
                    .memtable_bytes(budget.writes)
                    .requests_in_flight(REQUESTS);
                if disk_percent > 0 {
                    let bytes = extent.state_bytes() * u64::from(disk_percent) / 100;
                    resources = resources.disk_cache(folder.path().join("cache"), bytes);
                }
                // A disk cache holds whole tables, so they are as small as the state is.
                let options = ForstOptions::default()
                    .with_resources(resources.build()?)
                    .with_table_bytes((extent.state_bytes() / 25).clamp(1 << 20, 64 << 20));
                Ok((Box::new(ForstBackendFactory::new(options)), Some(folder)))
            }
        }
    }
}

impl Entrant {
    /// All keys have a count. The store is as near as it can be meanwhile.
    fn filled(holder: Holder, extent: &Extent, skew: Skew) -> Result<Self> {
        let (threads, name) = (runtime()?, holder.name());
        let (factory, folder) = holder.factory(extent)?;
        let far = SlowStore::new(Slowness::NONE);
        let mut environment = Environment::in_memory();
        environment.store = environment.store.layer(far.clone());
        environment.spawner = Arc::new(TokioSpawner::new(threads.handle().clone()));
        let mut request = OpenRequest::new(environment, "bench", Codec::<i64>::id(&Ordered));
        request.max_parallelism = MaxParallelism::default();
        request.key_groups = KeyGroupRange::all(request.max_parallelism);
        request.directory = "live/".into();
        let mut store = block_on(KeyedStore::open(&*factory, request))?;
        let counts = store.value("counts")?;
        let mut direct = Direct { store, counts };
        direct.fill(extent.keys)?;
        let counting: Box<dyn CountAll> = match holder {
            Holder::Rocks => Box::new(direct),
            Holder::Forst { .. } => {
                let limits = InFlightLimits::default().with_records(RECORDS);
                Box::new(InFlight::new(direct.store, Count(direct.counts), limits))
            }
        };
        far.change(Slowness::OBJECT_STORE);
        let events = Events::new(extent.keys, skew);
        let samples = Samples::default();
        Ok(Entrant {
            name,
            counting,
            events,
            store: far,
            samples,
            _threads: threads,
            _folder: folder,
        })
    }

    fn round(&mut self, events: u64, is_measured: bool) -> Result<u64> {
        let before = self.store.requests();
        let mut keys = self.events.by_ref().take(events as usize).map(|event| event.key);
        let watch = Stopwatch::start();
        let answer = self.counting.count_all(&mut keys)?;
        let elapsed = watch.stop();
        let after = self.store.requests();
        if is_measured {
            let each = |nanos: u128| nanos as f64 / events as f64;
            let samples = &mut self.samples;
            samples.add(TIME, "ns/op", each(elapsed.wall.as_nanos()));
            samples.add("thread CPU", "ns/op", each(elapsed.thread.as_nanos()));
            samples.add("process CPU", "ns/op", each(elapsed.process.as_nanos()));
            let reads = after.reads - before.reads;
            if reads > 0 {
                samples.add("requests", "/1000 events", 1e3 * reads as f64 / events as f64);
                samples.add(
                    "far read",
                    "B/op",
                    (after.bytes_read - before.bytes_read) as f64 / events as f64,
                );
            }
        }
        Ok(answer)
    }
}
