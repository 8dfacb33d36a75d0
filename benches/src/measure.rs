//! The method: rounds interleaved between contestants, medians, ratios within the run.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_state_api::{Error, ErrorKind, Result};

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    pub(crate) suite: &'static str,
    pub(crate) workload: String,
    pub(crate) contestant: String,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) rounds: usize,
}

/// One contestant of a comparison: does the work once, returns a checksum of its answers.
pub(crate) struct Contestant<'a> {
    pub(crate) name: &'a str,
    pub(crate) round: Box<dyn FnMut() -> Result<u64> + 'a>,
}

/// Collects and prints figures.
#[derive(Debug)]
pub(crate) struct Recorder {
    rounds: usize,
    figures: Vec<Figure>,
}

impl Recorder {
    pub(crate) fn new(rounds: u32) -> Self {
        Recorder { rounds: rounds as usize, figures: Vec::new() }
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// Times all contestants in turn, round by round, so that drift of the machine hits all. The
    /// first contestant is the baseline of the ratios. Answers must agree.
    pub(crate) fn compare(
        &mut self,
        suite: &'static str,
        workload: &str,
        operations: u64,
        mut contestants: Vec<Contestant<'_>>,
    ) -> Result<()> {
        let mut times = vec![Vec::new(); contestants.len()];
        for round in 0..=self.rounds {
            let mut expected = None;
            for (contestant, times) in contestants.iter_mut().zip(&mut times) {
                let begun = Instant::now();
                let answer = (contestant.round)()?;
                let elapsed = begun.elapsed();
                // The first round warms up.
                if round > 0 {
                    times.push(elapsed);
                }
                if *expected.get_or_insert(answer) != answer {
                    return Err(Error::new(
                        ErrorKind::Corrupt,
                        format!("{} gives another answer in {workload}", contestant.name),
                    ));
                }
            }
        }
        let mut baseline = None;
        for (contestant, times) in contestants.iter().zip(times) {
            let per_operation: Vec<f64> =
                times.iter().map(|time| time.as_nanos() as f64 / operations as f64).collect();
            let figure = self.add(suite, workload, contestant.name, "time", "ns/op", per_operation);
            let ratio = figure / *baseline.get_or_insert(figure);
            println!("{:>62}", format!("{ratio:.2} times {}", contestants[0].name));
        }
        Ok(())
    }

    /// Adds the samples of one metric; returns their median.
    pub(crate) fn add(
        &mut self,
        suite: &'static str,
        workload: &str,
        contestant: &str,
        metric: &'static str,
        unit: &'static str,
        mut samples: Vec<f64>,
    ) -> f64 {
        samples.sort_by(f64::total_cmp);
        let median = samples[samples.len() / 2];
        let figure = Figure {
            suite,
            workload: workload.into(),
            contestant: contestant.into(),
            metric,
            unit,
            median,
            low: samples[0],
            high: samples[samples.len() - 1],
            rounds: samples.len(),
        };
        println!(
            "{suite:<9} {workload:<22} {contestant:<16} {metric:<16} {:>12.1} {unit:<6} \
             ({:.1} to {:.1}, {} rounds)",
            figure.median, figure.low, figure.high, figure.rounds
        );
        self.figures.push(figure);
        median
    }

    pub(crate) fn write_json(&self, path: &Path) -> Result<()> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::InvalidUsage, "the figures cannot be written")
                .object(path.display().to_string())
                .source(error)
        };
        let json =
            serde_json::to_vec_pretty(&self.figures).map_err(|error| failed(error.into()))?;
        std::fs::write(path, json).map_err(|error| failed(error.into()))
    }
}

/// Milliseconds as a figure.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
