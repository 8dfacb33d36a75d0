//! What the adapter costs: word count against the same program with a bare hash map, and reads that
//! take a millisecond against none.
//!
//! ```sh
//! cargo bench -p weir-engine-timely                       # 10 million words, 1 million distinct
//! cargo bench -p weir-engine-timely -- 1000000 100000 3   # words, distinct, rounds
//! ```
//!
//! Rounds are interleaved; the first one warms up. Ratios are of the same round, the median is shown.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::error::Error as StdError;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use timely::Config;
use timely::container::CapacityContainerBuilder;
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Exchange;
use timely::dataflow::operators::generic::{Operator as _, source};
use weir_backend_heap::HeapBackendFactory;
use weir_engine_timely::{
    EpochTime, Job, JobSettings, Keyed, KeyedContext, KeyedLogic, ReadState, Split, Stateful,
};
use weir_state_api::opendal::{Operator, services};
use weir_state_api::{BackendFactory, Environment, Result, SystemClock, TokioSpawner, ValueState};
use weir_tests::latency::{Latency, LatencyFactory};

const WORKERS: usize = 2;
const BATCH: u64 = 1024;

type Failure = Box<dyn StdError + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let words = numbers.next().unwrap_or(10_000_000);
    let distinct = numbers.next().unwrap_or(1_000_000).max(1);
    let rounds = numbers.next().unwrap_or(5);
    let input = Input { words, distinct };

    let mut ratios = Vec::new();
    for round in 0..=rounds {
        let (plain, expected) = timed(|| bare_hash_map(input))?;
        let heap = Arc::new(HeapBackendFactory::default());
        let (weir, (sum, checkpoints)) = timed(|| adapter(input, heap))?;
        assert_eq!(sum, expected, "the two programs count differently");
        let ratio = weir.as_secs_f64() / plain.as_secs_f64();
        if round > 0 {
            println!(
                "bare hash map {plain:.2?}, adapter with heap {weir:.2?} ({checkpoints} checkpoints): {ratio:.2}"
            );
            ratios.push(ratio);
        }
    }
    println!("median: {:.2} times the time of the bare hash map", median(&mut ratios));

    let input = Input { words: words / 5, distinct };
    let mut ratios = Vec::new();
    for round in 0..=rounds {
        let (warm, expected) = timed(|| cold_reads(input, 0))?;
        let (cold, sum) = timed(|| cold_reads(input, 5))?;
        assert_eq!(sum, expected, "cold reads change the counts");
        let ratio = warm.as_secs_f64() / cold.as_secs_f64();
        if round > 0 {
            println!("no cold reads {warm:.2?}, 5 % of 1 ms {cold:.2?}: {ratio:.2}");
            ratios.push(ratio);
        }
    }
    println!("median: {:.2} of the throughput without cold reads", median(&mut ratios));
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Input {
    words: u64,
    distinct: u64,
}

fn word(number: u64, distinct: u64) -> String {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("word-{}", (mixed ^ (mixed >> 29)) % distinct)
}

fn timed<T>(f: impl FnOnce() -> Result<T, Failure>) -> Result<(Duration, T), Failure> {
    let begun = Instant::now();
    let value = f()?;
    Ok((begun.elapsed(), value))
}

fn median(ratios: &mut [f64]) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The sum of all counts, as each is reached: depends on every update.
fn bare_hash_map(input: Input) -> Result<u64, Failure> {
    let total = Arc::new(AtomicU64::new(0));
    let of_workers = total.clone();
    let guards = timely::execute(Config::process(WORKERS), move |worker| {
        let (index, peers, total) =
            (worker.index() as u64, worker.peers() as u64, of_workers.clone());
        worker.dataflow::<u64, _, _>(|scope| {
            let words: StreamVec<'_, u64, String> =
                source::<_, CapacityContainerBuilder<Vec<String>>, _, _>(
                    scope,
                    "words",
                    |capability, info| {
                        let activator = scope.activator_for(info.address);
                        let (mut next, mut capability) = (index, Some(capability));
                        move |output| {
                            let Some(held) = &capability else { return };
                            let to = input.words.min(next + BATCH * peers);
                            let numbers = (next..to).step_by(peers as usize);
                            output
                                .session(held)
                                .give_iterator(numbers.map(|n| word(n, input.distinct)));
                            next += BATCH * peers;
                            if next >= input.words {
                                capability = None;
                            } else {
                                activator.activate();
                            }
                        }
                    },
                );
            let exchange = Exchange::new(|word: &String| {
                let mut hasher = DefaultHasher::new();
                word.hash(&mut hasher);
                hasher.finish()
            });
            let mut counts = HashMap::<String, u64>::new();
            words.unary::<CapacityContainerBuilder<Vec<()>>, _, _, _>(
                exchange,
                "count",
                move |_, _| {
                    move |input, _| {
                        input.for_each(|_, words| {
                            let mut sum = 0_u64;
                            for word in words.drain(..) {
                                let count = counts.entry(word).or_default();
                                *count += 1;
                                sum = sum.wrapping_add(*count);
                            }
                            total.fetch_add(sum, Relaxed);
                        });
                    }
                },
            );
        });
    })?;
    for worker in guards.join() {
        worker?;
    }
    Ok(total.load(Relaxed))
}

/// Every second word.
struct Words {
    next: u64,
    input: Input,
}

impl Split for Words {
    type Record = String;

    fn read(&mut self, records: &mut Vec<String>, limit: usize) -> Result<ReadState> {
        let step = WORKERS as u64;
        let to = self.input.words.min(self.next + limit as u64 * step);
        let numbers = (self.next..to).step_by(WORKERS);
        records.extend(numbers.map(|n| word(n, self.input.distinct)));
        self.next += limit as u64 * step;
        Ok(if self.next >= self.input.words { ReadState::Ended } else { ReadState::More })
    }

    fn offset(&self) -> u64 {
        self.next
    }
}

struct Count {
    counts: ValueState<u64>,
    total: Arc<AtomicU64>,
}

impl KeyedLogic for Count {
    type Key = String;
    type Record = String;
    type Out = ();
    type Timer = ();

    async fn process(&self, _: &String, context: &mut impl KeyedContext<Self>) -> Result<()> {
        let count = self.counts.update(context, |old| old.unwrap_or(0) + 1).await?;
        self.total.fetch_add(count, Relaxed);
        Ok(())
    }
}

/// The same with a checkpoint each second, into a folder. Also answers how many.
fn adapter(input: Input, backend: Arc<dyn BackendFactory>) -> Result<(u64, u64), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let root = folder.path().to_string_lossy().into_owned();
    let files = services::Fs::default().root(&root).atomic_write_dir(&format!("{root}/.staging"));
    let environment = Environment::new(
        Arc::new(SystemClock),
        Operator::new(files)?,
        Arc::new(TokioSpawner::new(runtime.handle().clone())),
    );
    let settings = JobSettings::new("word-count", environment);
    let total = Arc::new(AtomicU64::new(0));
    let of_workers = total.clone();
    let guards = timely::execute(Config::process(WORKERS), move |worker| {
        let job = Job::join(worker, settings.clone())?;
        worker.dataflow::<EpochTime, _, _>(|scope| {
            let words = job.source(scope, "words", WORKERS as u32, |split, offset| {
                let next = offset.max(u64::from(split));
                Ok(Words { next, input })
            });
            let total = of_workers.clone();
            words.stateful(
                &job,
                Keyed::new("count", backend.clone()),
                |word| word,
                |store| Ok(Count { counts: store.value("count")?, total }),
            );
        });
        job.run(worker)
    })?;
    let mut completed = 0;
    for worker in guards.join() {
        completed = worker??.completed;
    }
    Ok((total.load(Relaxed), completed))
}

/// The adapter on state of which so many reads of a hundred take about a millisecond.
fn cold_reads(input: Input, percent: u64) -> Result<u64, Failure> {
    let latency = Latency::seeded(1).with_hits(100 - percent).deferring();
    let backend = LatencyFactory::new(HeapBackendFactory::default(), latency.clone());
    let done = Arc::new(AtomicBool::new(false));
    // Once in a millisecond everything that was asked for until then arrives.
    let store = std::thread::spawn({
        let done = done.clone();
        move || {
            while !done.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                for _ in 0..latency.pending() {
                    latency.complete_one();
                }
            }
        }
    });
    let counted = adapter(input, Arc::new(backend));
    done.store(true, Relaxed);
    if store.join().is_err() {
        return Err("the simulated store has panicked".into());
    }
    counted.map(|(sum, _)| sum)
}
