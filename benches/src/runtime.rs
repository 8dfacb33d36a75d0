//! Records through the runtime: source, `key_by`, count, sink; with checkpoints each second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use weir_runtime::{
    Context, JobConfig, JobGraph, KeyedOperator, ReadStatus, Record, Sink, SinkOpening, SinkWriter,
    Source, SplitReader,
};
use weir_state_api::{CheckpointId, Millis, OperatorState, Result, ValueState};

use crate::measure::Recorder;

const KEYS: u64 = 100_000;

/// Processor time of the whole process, in seconds.
fn processor_seconds() -> f64 {
    // Fields 14 and 15 of /proc/self/stat, in clock ticks of 10 ms on Linux.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    ticks as f64 / 100.0
}

pub(crate) fn run(recorder: &mut Recorder, records: u64) -> Result<()> {
    let workload = format!("count {records}");
    for (name, interval) in [
        ("1 s checkpoints", Duration::from_secs(1)),
        ("100 ms checkpoints", Duration::from_millis(100)),
        ("one at the end", Duration::from_hours(1)),
    ] {
        let (mut rates, mut core_rates, mut checkpoints) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..recorder.rounds().min(5) {
            let written = Arc::new(AtomicU64::new(0));
            let before = processor_seconds();
            let report = count(records, interval, written.clone())?;
            let used = processor_seconds() - before;
            assert_eq!(written.load(Relaxed), checksum(records), "every count arrives once");
            rates.push(records as f64 / report.elapsed.as_secs_f64() / 1e6);
            core_rates.push(records as f64 / used.max(0.01) / 1e6);
            checkpoints.push(report.checkpoints.len() as f64);
        }
        recorder.add("runtime", &workload, name, "throughput", "M/s", rates);
        recorder.add("runtime", &workload, name, "per core", "M/s", core_rates);
        recorder.add("runtime", &workload, name, "checkpoints", "", checkpoints);
    }
    Ok(())
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
