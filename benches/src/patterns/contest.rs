//! Rounds of all contestants in turn, answers compared; then the same pace for all of them.

use clap::ValueEnum;
use weir_state_api::{Error, ErrorKind, Result};

use super::amplification::Asked;
use super::events::Skew;
use super::operator::{Pattern, Shape};
use super::process::{Holder, Latencies, Process, Round, Who};
use crate::backends::Backend;
use crate::interrupt;
use crate::measure::Recorder;
use crate::micro::Peer;
use crate::peers::ordered::Store;
use crate::statistics::median_of;

const SUITE: &str = "patterns";
/// Decides who is better.
const TIME: &str = "thread CPU";

/// Who takes part, and how much there is to do.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) backends: Vec<Backend>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) keys: u64,
    pub(crate) value_bytes: Vec<usize>,
    /// Caches of those that have one, in percent of the state; their own budget if there are none.
    pub(crate) cache_percents: Vec<u32>,
    /// Events in a round.
    pub(crate) events: u64,
    /// Rounds before the measured ones.
    pub(crate) warm_up: usize,
    /// Only patterns whose name contains this.
    pub(crate) only: Option<String>,
}

/// One contestant in a workload, with what it did so far.
struct Entrant {
    who: Who,
    process: Process,
    rounds: Vec<Round>,
    paces: Vec<Latencies>,
}

/// Measures all patterns with keys of both kinds.
pub(crate) fn run(recorder: &mut Recorder, settings: &Settings) -> Result<()> {
    let weir = settings.backends.iter().map(|backend| Holder::Weir(*backend));
    let stores = Store::value_variants().iter().filter(|store| store.is_asked(&settings.peers));
    let everybody: Vec<Who> = (weir.chain(stores.map(|store| Holder::Store(*store))))
        .flat_map(|holder| Who::with_caches(holder, &settings.cache_percents))
        .collect();
    let shape = |value_bytes| Shape { keys: settings.keys, value_bytes };
    for who in &everybody {
        // With a cache in percent, its size is that for the first length of values.
        match who.options(shape(settings.value_bytes.first().copied().unwrap_or_default())) {
            Ok(options) => recorder.introduce(&who.to_string(), options),
            Err(error) => recorder.fail(SUITE, &who.to_string(), &error),
        }
    }
    let wanted = |pattern: &&Pattern| {
        settings.only.as_ref().is_none_or(|only| pattern.to_string().contains(only.as_str()))
    };
    let patterns: Vec<Pattern> = Pattern::value_variants().iter().filter(wanted).copied().collect();
    recorder.expect(patterns.len() * 2 * settings.value_bytes.len());
    for &value_bytes in &settings.value_bytes {
        for (skew, keys) in [(Skew::Zipf, "Zipf"), (Skew::Uniform, "uniform")] {
            for &pattern in &patterns {
                if interrupt::requested() {
                    return Ok(());
                }
                let workload = format!("{pattern}, {keys}, {value_bytes} B");
                recorder.now(&workload);
                let contest = Contest { recorder, settings, workload: &workload };
                contest.run(&everybody, pattern, skew, shape(value_bytes));
                recorder.step();
            }
        }
    }
    recorder.finished();
    Ok(())
}

/// One workload.
struct Contest<'a> {
    recorder: &'a mut Recorder,
    settings: &'a Settings,
    workload: &'a str,
}

impl Contest<'_> {
    fn run(mut self, everybody: &[Who], pattern: Pattern, skew: Skew, shape: Shape) {
        let mut entrants = Vec::new();
        for &who in everybody {
            match Process::start(who, pattern, skew, shape) {
                Ok(process) => {
                    let (rounds, paces) = (Vec::new(), Vec::new());
                    entrants.push(Entrant { who, process, rounds, paces });
                }
                Err(error) => self.recorder.fail(self.workload, &who.to_string(), &error),
            }
        }
        let events = self.settings.events;
        for round in 0..self.settings.warm_up + self.recorder.rounds() {
            let is_measured = round >= self.settings.warm_up;
            self.turn(&mut entrants, |entrant| {
                let done = entrant.process.round(events)?;
                if is_measured {
                    entrant.rounds.push(done);
                }
                Ok(done.answer)
            });
        }
        let cost = |entrant: &Entrant| {
            let walls = entrant.rounds.iter().map(|r| r.elapsed.wall.as_nanos() as f64);
            median_of(walls.collect()).value / events as f64
        };
        entrants.retain(|entrant| !entrant.rounds.is_empty());
        // Half of what the slowest can do: all of them keep up, and all have the same work.
        let Some(slowest) = entrants.iter().map(cost).max_by(f64::total_cmp) else { return };
        let interval = (2.0 * slowest).ceil() as u64;
        let paced = (events / 2).max(1);
        for _ in 0..self.recorder.rounds() {
            self.turn(&mut entrants, |entrant| {
                let latencies = entrant.process.paced(paced, interval)?;
                entrant.paces.push(latencies);
                Ok(latencies.answer)
            });
        }
        let asked = match Asked::count(pattern, skew, shape) {
            Ok(asked) => asked,
            Err(error) => return self.recorder.fail(self.workload, "bytes asked for", &error),
        };
        self.record(&mut entrants, 1e6 / interval as f64, asked);
    }

    /// Lets each one do its part; drops those who fail or answer otherwise than the first.
    fn turn(
        &mut self,
        entrants: &mut Vec<Entrant>,
        mut part: impl FnMut(&mut Entrant) -> Result<u64>,
    ) {
        if interrupt::requested() {
            return;
        }
        let mut agreed: Option<(String, u64)> = None;
        entrants.retain_mut(|entrant| {
            let checked = part(entrant).and_then(|answer| {
                let name = entrant.who.to_string();
                let (first, expected) = agreed.get_or_insert((name, answer));
                if answer == *expected {
                    return Ok(());
                }
                let message = format!("other answers than {first}");
                Err(Error::new(ErrorKind::Corrupt, message))
            });
            match checked {
                Ok(()) => true,
                // An interrupt reaches these processes too.
                Err(_) if interrupt::requested() => false,
                Err(error) => {
                    self.recorder.fail(self.workload, &entrant.who.to_string(), &error);
                    false
                }
            }
        });
    }

    fn record(&mut self, entrants: &mut [Entrant], pace: f64, asked: Asked) {
        let (workload, events) = (self.workload, self.settings.events as f64);
        let mut costs: Vec<(String, Vec<f64>)> = Vec::new();
        for entrant in entrants {
            let name = entrant.who.to_string();
            let mut add = |metric: &str, unit: &'static str, samples: Vec<f64>| {
                if !samples.is_empty() {
                    self.recorder.add(SUITE, workload, &name, metric, unit, samples);
                }
            };
            let rounds =
                |read: fn(&Round) -> f64| entrant.rounds.iter().map(read).collect::<Vec<_>>();
            let each =
                |samples: Vec<f64>| samples.into_iter().map(|sample| sample / events).collect();
            let thread = rounds(|round| round.elapsed.thread.as_nanos() as f64);
            costs.push((name.clone(), thread.clone()));
            add(TIME, "ns/op", each(thread));
            let walls = rounds(|round| round.elapsed.wall.as_secs_f64());
            add("throughput", "k/s", walls.into_iter().map(|wall| events / wall / 1e3).collect());
            add("process CPU", "ns/op", each(rounds(|r| r.elapsed.process.as_nanos() as f64)));
            add("read", "B/op", each(rounds(|round| round.read as f64)));
            add("written", "B/op", each(rounds(|round| round.written as f64)));
            // Of those in memory nothing is read or written.
            let over = |samples: Vec<f64>, asked: f64| -> Vec<f64> {
                let bytes = asked * events;
                if bytes > 0.0 && samples.iter().any(|all| *all > 0.0) {
                    samples.into_iter().map(|all| all / bytes).collect()
                } else {
                    Vec::new()
                }
            };
            let (read, written) = (rounds(|r| r.read as f64), rounds(|r| r.written as f64));
            add("read amplification", "x", over(read, asked.read));
            add("write amplification", "x", over(written, asked.written));
            let on_disk = entrant.process.on_disk() as f64;
            // Nothing is left where everything has expired.
            if on_disk > 0.0 {
                add("files", "MB", vec![on_disk / 1e6]);
                add("space amplification", "x", vec![on_disk / asked.live]);
            }
            let paces = |read: fn(&Latencies) -> u64| {
                entrant.paces.iter().map(|paced| read(paced) as f64 / 1e3).collect::<Vec<_>>()
            };
            add("p50 at the pace", "us", paces(|latencies| latencies.p50));
            add("p99 at the pace", "us", paces(|latencies| latencies.p99));
            add("p99.9 at the pace", "us", paces(|latencies| latencies.p999));
            add("longest at the pace", "us", paces(|latencies| latencies.max));
            add("pace", "k/s", vec![pace]);
            if let Ok([own, resident]) = entrant.process.memory() {
                add(
                    "memory, own account",
                    "MB",
                    (own > 0).then_some(own as f64 / 1e6).into_iter().collect(),
                );
                add("memory, resident", "MB", vec![resident as f64 / 1e6]);
            }
        }
        let weir = |name: &str| name.starts_with("weir");
        for (name, its) in costs.iter().filter(|(name, _)| weir(name)) {
            for (other, others) in costs.iter().filter(|(other, _)| other != name) {
                self.recorder.compare(SUITE, workload, TIME, (name, its), (other, others));
            }
        }
    }
}
