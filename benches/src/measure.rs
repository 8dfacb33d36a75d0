//! Collects what a run measures.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use weir_state_api::{Error, Result};

use crate::record::{Failure, Figure, Participant, Results, Section, speed_over};
use crate::statistics::{Median, median_of, median_with_confidence};

/// Collects and prints figures.
#[derive(Debug)]
pub(crate) struct Recorder {
    rounds: usize,
    /// Of the suite that runs; hidden where nobody would see it.
    progress: ProgressBar,
    pub(crate) results: Results,
}

impl Recorder {
    pub(crate) fn new(rounds: u32, results: Results) -> Self {
        Recorder { rounds: rounds as usize, progress: ProgressBar::hidden(), results }
    }

    /// So many steps are to come; a bar shows them and the time that is left.
    pub(crate) fn expect(&mut self, steps: usize) {
        let template = "{bar:30} {pos}/{len}, {eta} left, {msg}";
        self.progress = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.progress.set_style(style);
        }
    }

    /// What is being done.
    pub(crate) fn now(&self, what: &str) {
        self.progress.set_message(what.to_string());
    }

    /// One of the steps is done.
    pub(crate) fn step(&self) {
        self.progress.inc(1);
    }

    /// Does one of the steps, a contestant's; whether it succeeded. An error is recorded.
    pub(crate) fn attempt(
        &mut self,
        workload: &str,
        contestant: &str,
        part: impl FnOnce() -> Result<()>,
    ) -> bool {
        self.now(&format!("{workload}, {contestant}"));
        let done = part();
        self.step();
        done.map_err(|error| self.fail(workload, contestant, &error)).is_ok()
    }

    /// There are no more steps.
    pub(crate) fn finished(&mut self) {
        self.progress.finish_and_clear();
        self.progress = ProgressBar::hidden();
    }

    /// Prints a line above the bar.
    pub(crate) fn say(&self, line: &str) {
        self.progress.suspend(|| println!("{line}"));
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
        self.say(&format!(
            "{suite:<9} {workload:<22} {contestant:<16} {metric:<16} {value:>12.1} {unit:<6} \
             ({low:.1} to {high:.1}, {rounds} rounds)"
        ));
        self.record(suite, workload, contestant, metric, unit, Median { value, low, high }, rounds);
    }

    /// Records how many times as fast one contestant is as another, from the times or costs of the
    /// same rounds: drift of the machine hits both. Returns the median.
    pub(crate) fn compare(
        &mut self,
        suite: &'static str,
        workload: &str,
        by: &str,
        (one, its): (&str, &[f64]),
        (other, others): (&str, &[f64]),
    ) -> f64 {
        let ratios: Vec<f64> =
            its.iter().zip(others).map(|(one, other)| other / one.max(f64::MIN_POSITIVE)).collect();
        let (rounds, ratio) = (ratios.len(), median_with_confidence(ratios));
        self.record(suite, workload, one, &speed_over(other, by), "x", ratio, rounds);
        ratio.value
    }

    /// Records the samples of contestants that took turns, and how the first compares with the
    /// others by one metric.
    pub(crate) fn record_turns(
        &mut self,
        suite: &'static str,
        workload: &str,
        by: &str,
        contestants: Vec<(String, Samples)>,
    ) {
        if let Some(((first, its), others)) = contestants.split_first() {
            for (other, others) in others.iter().filter(|(_, samples)| !samples.of(by).is_empty()) {
                self.compare(suite, workload, by, (first, its.of(by)), (other, others.of(by)));
            }
        }
        for (contestant, samples) in contestants {
            samples.record(self, suite, workload, &contestant);
        }
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
        self.results.records.push(Figure {
            suite: suite.into(),
            workload: workload.into(),
            contestant: contestant.into(),
            metric: metric.into(),
            unit: unit.into(),
            median: median.value,
            low: median.low,
            high: median.high,
            rounds,
        });
    }

    /// Notes that a contestant could not be measured; the run goes on.
    pub(crate) fn fail(&mut self, workload: &str, contestant: &str, error: &Error) {
        let message = error.to_string();
        self.progress.suspend(|| eprintln!("FAILED    {workload:<22} {contestant:<16} {message}"));
        let (workload, contestant) = (workload.into(), contestant.into());
        self.results.failures.push(Failure { workload, contestant, message });
    }

    /// Notes with which options a contestant takes part.
    pub(crate) fn introduce(&mut self, contestant: &str, options: String) {
        let line = format!("{contestant}: {options}");
        if self.results.introduce(Participant { contestant: contestant.into(), options }) {
            self.progress.suspend(|| eprintln!("{line}"));
        }
    }

    /// Notes which workloads belong together in reports.
    pub(crate) fn open_section(&mut self, title: &str, workloads: Vec<String>) {
        self.results.open_section(Section { title: title.into(), workloads });
    }
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
pub(crate) struct Samples(Vec<(Cow<'static, str>, &'static str, Vec<f64>)>);

impl Samples {
    pub(crate) fn add(
        &mut self,
        metric: impl Into<Cow<'static, str>>,
        unit: &'static str,
        sample: f64,
    ) {
        let metric = metric.into();
        match self.0.iter_mut().find(|(known, ..)| *known == metric) {
            Some((.., samples)) => samples.push(sample),
            None => self.0.push((metric, unit, vec![sample])),
        }
    }

    /// All samples of a metric.
    pub(crate) fn of(&self, metric: &str) -> &[f64] {
        let found = self.0.iter().find(|(known, ..)| *known == metric);
        found.map_or(&[], |(.., samples)| samples)
    }

    pub(crate) fn record(
        self,
        recorder: &mut Recorder,
        suite: &'static str,
        workload: &str,
        contestant: &str,
    ) {
        for (metric, unit, samples) in self.0 {
            recorder.add(suite, workload, contestant, &metric, unit, samples);
        }
    }
}
