//! What the adapter costs, as ratios of runs that alternate:
//!
//! - `heap`: word count with a checkpoint each second, against the same program with a bare hash map
//!   and no checkpoints;
//! - `checkpoint`: word count on state in object storage, with a checkpoint each second against none
//!   but the last;
//! - `cold`: one record in twenty reads what is neither in memory nor on local disk, from a store that
//!   takes a millisecond, against the same records with all in memory.
//!
//! ```sh
//! cargo bench -p weir-engine-timely                      # 10 million words, 1 million distinct
//! cargo bench -p weir-engine-timely -- --only heap --rounds 3 --words 1000000 --distinct 100000
//! ```
//!
//! The first round warms up; medians are shown.

mod cpu;
mod far_store;
mod input;
mod job;
mod plain;

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use weir_backend_forst::{ForstBackendFactory, ForstOptions, ForstResources};
use weir_backend_heap::HeapBackendFactory;
use weir_engine_timely::Keyed;
use weir_state_api::opendal::{Operator, services};
use weir_state_api::store_requests::objects_under;
use weir_state_api::{BackendFactory, InFlightLimits, block_on};

use far_store::Far;
use input::{BROKEN, Input};
use job::{Outcome, Program, files};

type Failure = Box<dyn StdError + Send + Sync>;

const EACH_SECOND: Duration = Duration::from_secs(1);
/// None but the last one.
const NEVER: Duration = Duration::from_secs(100_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    Heap,
    Checkpoint,
    Cold,
}

#[derive(Debug, Parser)]
struct Options {
    /// Only this suite.
    #[arg(long, value_enum)]
    only: Option<Suite>,
    /// Words to count.
    #[arg(long, default_value_t = 10_000_000)]
    words: u64,
    /// Different words among them.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(20..))]
    distinct: u64,
    /// Rounds that count.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// The length of blocks of tables with cold words, in bytes.
    #[arg(long, default_value_t = 8 << 10)]
    block_bytes: usize,
    /// Cold reads that are sent in one go.
    #[arg(long, default_value_t = 1024)]
    reads: usize,
    /// How long they are gathered, in milliseconds.
    #[arg(long, default_value_t = 5)]
    gather: u64,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Failure> {
    let options = Options::parse();
    for (suite, run) in [
        (Suite::Heap, heap as fn(&Options) -> Result<(), Failure>),
        (Suite::Checkpoint, checkpoint),
        (Suite::Cold, cold),
    ] {
        if options.only.is_none_or(|only| only == suite) {
            run(&options)?;
        }
    }
    Ok(())
}

fn heap(options: &Options) -> Result<(), Failure> {
    let input = Input::new(options.words, options.distinct);
    let mut ratios = Vec::new();
    for round in 0..=options.rounds {
        let begun = Instant::now();
        let expected = plain::run(input, options.workers)?;
        let plain = begun.elapsed();
        let heap: Arc<dyn BackendFactory> = Arc::new(HeapBackendFactory::default());
        let folder = tempfile::tempdir()?;
        let begun = Instant::now();
        let program = program(options, input, heap, EACH_SECOND);
        let outcome = program.run(files(folder.path())?)?;
        let weir = begun.elapsed();
        assert_eq!(outcome.sum, expected, "the two programs count differently");
        if round > 0 {
            let ratio = weir.as_secs_f64() / plain.as_secs_f64();
            println!(
                "heap: bare hash map {plain:.2?}, adapter {weir:.2?} with {} checkpoints: {ratio:.2}",
                outcome.checkpoints
            );
            ratios.push(ratio);
        }
    }
    println!("heap: {:.2} times the time of the bare hash map", median(&mut ratios));
    Ok(())
}

fn checkpoint(options: &Options) -> Result<(), Failure> {
    let input = Input::new(options.words, options.distinct);
    let run = |interval| -> Result<Outcome, Failure> {
        let folder = tempfile::tempdir()?;
        let forst: Arc<dyn BackendFactory> = Arc::new(ForstBackendFactory::default());
        program(options, input, forst, interval).run(files(folder.path())?)
    };
    let mut ratios = Vec::new();
    for round in 0..=options.rounds {
        let without = run(NEVER)?;
        let with = run(EACH_SECOND)?;
        assert_eq!(with.sum, without.sum, "checkpoints change the counts");
        if round > 0 {
            let ratio = without.time.as_secs_f64() / with.time.as_secs_f64();
            println!(
                "checkpoint: without {:.2?}, with {} checkpoints {:.2?}: {ratio:.2}",
                without.time, with.checkpoints, with.time
            );
            for (what, outcome) in [("without", &without), ("with", &with)] {
                if let (Some(workers), Some(others)) = (outcome.workers_busy, outcome.others_busy) {
                    println!(
                        "  {what}: the workers' processor time {workers:.2?}, that of others \
                         {others:.2?}, {:.0?} for each of {} checkpoints",
                        others / (outcome.checkpoints as u32).max(1),
                        outcome.checkpoints
                    );
                }
            }
            ratios.push(ratio);
        }
    }
    println!("checkpoint: {:.2} of the throughput without checkpoints", median(&mut ratios));
    Ok(())
}

/// The state holds old words, in tables of the store. Then records come for new words, which are in
/// memory, and among them some for old ones: in one of two runs, the blocks that they are in are in the
/// cache; in the other, each is a read of the store.
fn cold(options: &Options) -> Result<(), Failure> {
    let old = options.distinct.next_multiple_of(options.workers as u64);
    let prepared = memory()?;
    let filled = Input { old, end: old, distinct: 1, per_mille: 0, breaks: true };
    let first = ForstOptions::default().with_block_bytes(options.block_bytes);
    let first: Arc<dyn BackendFactory> = Arc::new(ForstBackendFactory::new(first));
    match program(options, filled, first, EACH_SECOND).run(prepared.clone()) {
        Err(error) if error.to_string().contains(BROKEN) => {}
        Err(error) => return Err(error),
        Ok(_) => return Err("the preparation has ended too early".into()),
    }

    let words = options.words / 5;
    let distinct = options.distinct / 20;
    // A few come twice.
    let input = Input { old, end: old + words, distinct, per_mille: 53, breaks: false };
    let percent = 100.0 * input.come_again() as f64 / words as f64;
    let forst = |cache_bytes| -> Result<Arc<dyn BackendFactory>, Failure> {
        let resources = ForstResources::builder()
            .cache_bytes(cache_bytes)
            .memtable_bytes(1 << 30)
            .requests_in_flight(512);
        let forst = ForstOptions::default()
            .with_resources(resources.build()?)
            .with_memtable_bytes(1 << 30)
            .with_block_bytes(options.block_bytes);
        Ok(Arc::new(ForstBackendFactory::new(forst)))
    };
    let run = |forst: &Arc<dyn BackendFactory>| -> Result<(Outcome, u64), Failure> {
        let store = memory()?;
        block_on(copy(&prepared, &store))?;
        let far = Far::new(Duration::from_millis(1));
        let store = store.layer(far.clone());
        let outcome = program(options, input, forst.clone(), NEVER).run(store)?;
        Ok((outcome, far.requests()))
    };
    // One holds all blocks from the first round on; the other has room for filters and indexes.
    let (near, far) = (forst(256 << 20)?, forst(2 << 20)?);
    let mut ratios = Vec::new();
    for round in 0..=options.rounds {
        let (warm, few) = run(&near)?;
        let (cold, requests) = run(&far)?;
        assert_eq!(cold.sum, warm.sum, "where blocks are changes the counts");
        if round > 0 {
            let ratio = warm.time.as_secs_f64() / cold.time.as_secs_f64();
            println!(
                "cold: all in memory {:.2?} ({few} requests), {percent:.1} % of the records not \
                 {:.2?} ({requests} requests): {ratio:.2}",
                warm.time, cold.time
            );
            ratios.push(ratio);
        }
    }
    println!("cold: {:.2} of the throughput without cold reads", median(&mut ratios));
    Ok(())
}

fn program(
    options: &Options,
    input: Input,
    backend: Arc<dyn BackendFactory>,
    interval: Duration,
) -> Program {
    let keyed = Keyed::new("count", backend)
        .with_limits(InFlightLimits::default().with_reads(options.reads))
        .with_gather(Duration::from_millis(options.gather));
    Program { input, workers: options.workers, keyed, interval }
}

/// A store in memory: all that a read costs is its latency, not the processor's time for files.
fn memory() -> Result<Operator, Failure> {
    Ok(Operator::new(services::Memory::default())?)
}

async fn copy(from: &Operator, to: &Operator) -> Result<(), Failure> {
    for (path, _) in objects_under(from, "").await? {
        // In one piece, as files are: a buffer of many would be put together by each read.
        to.write(&path, from.read(&path).await?.to_bytes()).await?;
    }
    Ok(())
}

fn median(ratios: &mut [f64]) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
}
