//! Collects what a run measures: figures, failures, the options of the contestants.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_state_api::{Error, ErrorKind, Result};

use crate::machine::Machine;
use crate::statistics::{Median, median_of};

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    pub(crate) suite: &'static str,
    pub(crate) workload: String,
    pub(crate) contestant: String,
    pub(crate) metric: String,
    pub(crate) unit: &'static str,
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) rounds: usize,
}

/// What could not be measured, and why.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Failure {
    pub(crate) workload: String,
    pub(crate) contestant: String,
    pub(crate) message: String,
}

/// Who took part, with which options.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Participant {
    pub(crate) contestant: String,
    pub(crate) options: String,
}

/// How many times as fast one contestant is as another, by its thread's processor time.
#[derive(Debug, Clone)]
pub(crate) struct Comparison {
    pub(crate) workload: String,
    pub(crate) one: String,
    pub(crate) other: String,
    pub(crate) ratio: Median,
}

/// Workloads that belong together in reports.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) workloads: Vec<String>,
}

/// Collects and prints figures.
#[derive(Debug)]
pub(crate) struct Recorder {
    rounds: usize,
    pub(crate) machine: Machine,
    pub(crate) participants: Vec<Participant>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) sections: Vec<Section>,
    pub(crate) comparisons: Vec<Comparison>,
}

#[derive(Serialize)]
struct Json<'a> {
    header: Header<'a>,
    records: &'a [Figure],
    failures: &'a [Failure],
}

#[derive(Serialize)]
struct Header<'a> {
    machine: &'a Machine,
    contestants: &'a [Participant],
}

impl Recorder {
    pub(crate) fn new(rounds: u32, machine: Machine) -> Self {
        Recorder {
            rounds: rounds as usize,
            machine,
            participants: Vec::new(),
            figures: Vec::new(),
            failures: Vec::new(),
            sections: Vec::new(),
            comparisons: Vec::new(),
        }
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// Adds and prints the samples of one metric.
    pub(crate) fn add(
        &mut self,
        suite: &'static str,
        workload: &str,
        contestant: &str,
        metric: &str,
        unit: &'static str,
        samples: Vec<f64>,
    ) {
        let rounds = samples.len();
        let Median { value, low, high } = median_of(samples);
        println!(
            "{suite:<9} {workload:<22} {contestant:<16} {metric:<16} {value:>12.1} {unit:<6} \
             ({low:.1} to {high:.1}, {rounds} rounds)"
        );
        self.record(suite, workload, contestant, metric, unit, Median { value, low, high }, rounds);
    }

    /// Adds a figure without printing it.
    #[expect(clippy::too_many_arguments, reason = "a record has that many columns")]
    pub(crate) fn record(
        &mut self,
        suite: &'static str,
        workload: &str,
        contestant: &str,
        metric: &str,
        unit: &'static str,
        median: Median,
        rounds: usize,
    ) {
        self.figures.push(Figure {
            suite,
            workload: workload.into(),
            contestant: contestant.into(),
            metric: metric.into(),
            unit,
            median: median.value,
            low: median.low,
            high: median.high,
            rounds,
        });
    }

    /// Notes that a contestant could not be measured; the run goes on.
    pub(crate) fn fail(&mut self, workload: &str, contestant: &str, error: &Error) {
        let message = error.to_string();
        eprintln!("FAILED    {workload:<22} {contestant:<16} {message}");
        let (workload, contestant) = (workload.into(), contestant.into());
        self.failures.push(Failure { workload, contestant, message });
    }

    /// Notes with which options a contestant takes part.
    pub(crate) fn introduce(&mut self, contestant: &str, options: String) {
        if self.participants.iter().any(|known| known.contestant == contestant) {
            return;
        }
        eprintln!("{contestant}: {options}");
        self.participants.push(Participant { contestant: contestant.into(), options });
    }

    pub(crate) fn write_json(&self, path: &Path) -> Result<()> {
        let json = Json {
            header: Header { machine: &self.machine, contestants: &self.participants },
            records: &self.figures,
            failures: &self.failures,
        };
        let json = serde_json::to_vec_pretty(&json).map_err(|error| unwritable(path, error))?;
        std::fs::write(path, json).map_err(|error| unwritable(path, error))
    }
}

/// The error of a report that cannot be written.
pub(crate) fn unwritable(
    path: &Path,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::new(ErrorKind::InvalidUsage, "the figures cannot be written")
        .object(path.display().to_string())
        .source(error)
}

/// Milliseconds as a figure.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The result of some work, and how long it took by the wall clock.
pub(crate) fn timed<R>(work: impl FnOnce() -> Result<R>) -> Result<(R, Duration)> {
    let begun = Instant::now();
    let result = work()?;
    Ok((result, begun.elapsed()))
}

/// Samples by metric, in the order of their first appearance.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<(&'static str, &'static str, Vec<f64>)>);

impl Samples {
    pub(crate) fn add(&mut self, metric: &'static str, unit: &'static str, sample: f64) {
        match self.0.iter_mut().find(|(known, ..)| *known == metric) {
            Some((.., samples)) => samples.push(sample),
            None => self.0.push((metric, unit, vec![sample])),
        }
    }

    /// The sum of all samples of a metric.
    #[cfg(feature = "rocks")]
    pub(crate) fn sum(&self, metric: &str) -> f64 {
        let found = self.0.iter().find(|(known, ..)| *known == metric);
        found.map_or(0.0, |(.., samples)| samples.iter().sum())
    }

    pub(crate) fn record(
        self,
        recorder: &mut Recorder,
        suite: &'static str,
        workload: &str,
        contestant: &str,
    ) {
        for (metric, unit, samples) in self.0 {
            recorder.add(suite, workload, contestant, metric, unit, samples);
        }
    }
}
