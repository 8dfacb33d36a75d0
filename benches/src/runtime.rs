//! Records through the runtime: source, `key_by`, count, sink; with checkpoints each second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use weir_runtime::{
    Context, JobConfig, JobGraph, KeyedOperator, ReadStatus, Record, Sink, SinkOpening, SinkWriter,
    Source, SplitReader,
};
use weir_state_api::{CheckpointId, Error, ErrorKind, Millis, OperatorState, Result, ValueState};

use crate::clock::{Elapsed, Stopwatch};
use crate::interrupt;
use crate::measure::{Recorder, Samples};

const KEYS: u64 = 100_000;

const SUITE: &str = "runtime";
const PER_CORE: &str = "per core";

pub(crate) fn run(recorder: &mut Recorder, records: u64) -> Result<()> {
    let workload = format!("count {records}");
    let mut entrants = Vec::from(
        [
            ("1 s checkpoints", Duration::from_secs(1)),
            ("100 ms checkpoints", Duration::from_millis(100)),
            ("one at the end", Duration::from_hours(1)),
        ]
        .map(|(name, interval)| (name, interval, Samples::default())),
    );
    recorder.expect((recorder.rounds() + 1) * entrants.len());
    // The first round warms up.
    for round in 0..=recorder.rounds() {
        entrants.retain_mut(|(name, interval, samples)| {
            if interrupt::requested() {
                return round > 1;
            }
            recorder.now(name);
            let measured = measure(records, *interval);
            recorder.step();
            match measured {
                Ok(_) if round == 0 => true,
                Ok((elapsed, checkpoints)) => {
                    let rate = |time: Duration| records as f64 / time.as_secs_f64().max(1e-9) / 1e6;
                    samples.add("throughput", "M/s", rate(elapsed.wall));
                    samples.add(PER_CORE, "M/s", rate(elapsed.process));
                    samples.add("checkpoints", "", checkpoints as f64);
                    true
                }
                Err(error) => {
                    recorder.fail(&workload, name, &error);
                    false
                }
            }
        });
    }
    recorder.finished();
    for (name, _, samples) in entrants {
        samples.record(recorder, SUITE, &workload, name);
    }
    Ok(())
}

/// Runs the job once: what it took, and how many checkpoints there were.
fn measure(records: u64, interval: Duration) -> Result<(Elapsed, usize)> {
    let written = Arc::new(AtomicU64::new(0));
    let watch = Stopwatch::start();
    let report = count(records, interval, written.clone())?;
    let elapsed = watch.stop();
    if written.load(Relaxed) != checksum(records) {
        return Err(Error::new(ErrorKind::Corrupt, "not every count has arrived once"));
    }
    Ok((elapsed, report.checkpoints.len()))
}

fn count(
    records: u64,
    interval: Duration,
    written: Arc<AtomicU64>,
) -> Result<weir_runtime::JobReport> {
    let graph = JobGraph::new("count");
    graph
        .source("numbers", Numbers { records })?
        .key_by(|key: &u64| *key)
        .process("count", |store| Ok(Count(store.value("count")?)))?
        .sink("sum", SumSink(written))?;
    let mut config = JobConfig::default();
    config.checkpoints.interval = interval;
    weir_runtime::run(&graph, config)
}

/// The sum of all counts that the job emits.
fn checksum(records: u64) -> u64 {
    let (rounds, rest) = (records / KEYS, records % KEYS);
    KEYS * rounds * (rounds + 1) / 2 + rest * (rounds + 1)
}

struct Count(ValueState<u64>);

impl KeyedOperator for Count {
    type Key = u64;
    type In = u64;
    type Out = (u64, u64);
    type Timer = ();

    fn process(&mut self, key: u64, context: &mut Context<'_, Self>) -> Result<()> {
        let count = self.0.update(context, |old| old.unwrap_or(0) + 1).wait()?;
        context.emit((key, count))
    }
}

struct Numbers {
    records: u64,
}

impl Source for Numbers {
    type Out = u64;

    fn splits(&self) -> u32 {
        1
    }

    fn open(&self, _: u32, offset: u64) -> Result<Box<dyn SplitReader<u64>>> {
        Ok(Box::new(Reader { next: offset, end: self.records }))
    }
}

struct Reader {
    next: u64,
    end: u64,
}

impl SplitReader<u64> for Reader {
    fn read(&mut self, limit: usize, records: &mut Vec<Record<u64>>) -> Result<ReadStatus> {
        let end = self.end.min(self.next + limit as u64);
        // Multiplying by a number prime to KEYS visits all keys in a scattered order.
        records.extend(
            (self.next..end)
                .map(|n| Record { time: n as Millis, value: n.wrapping_mul(61_583) % KEYS }),
        );
        self.next = end;
        Ok(if end == self.end { ReadStatus::End } else { ReadStatus::More })
    }

    fn watermark(&self) -> Millis {
        self.next as Millis - 1
    }
}

/// Adds up what it gets.
struct SumSink(Arc<AtomicU64>);

impl Sink<(u64, u64)> for SumSink {
    fn open(&self, _: &SinkOpening) -> Result<Box<dyn SinkWriter<(u64, u64)>>> {
        Ok(Box::new(SumWriter(self.0.clone())))
    }
}

struct SumWriter(Arc<AtomicU64>);

impl SinkWriter<(u64, u64)> for SumWriter {
    fn write(&mut self, batch: Vec<Record<(u64, u64)>>) -> Result<()> {
        self.0.fetch_add(batch.iter().map(|record| record.value.1).sum(), Relaxed);
        Ok(())
    }

    fn prepare(&mut self, _: CheckpointId) -> Result<OperatorState> {
        Ok(OperatorState::new())
    }

    fn commit(&mut self, _: CheckpointId) -> Result<()> {
        Ok(())
    }
}
