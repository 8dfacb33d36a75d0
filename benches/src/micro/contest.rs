//! The contest: rounds interleaved between contestants, so that drift of the machine hits all;
//! answers compared; medians and paired ratios.

use weir_state_api::{Error, ErrorKind, Result};

use super::Settings;
use super::contestant::{Contestant, Round};
use super::family::{Family, Row};
use crate::clock::Elapsed;
use crate::interrupt;
use crate::measure::Recorder;
use crate::statistics::median_of;

pub(crate) const SUITE: &str = "micro";
/// Processor time of the calling thread; what the tables show.
pub(crate) const THREAD: &str = "thread CPU";

/// Reads one metric, in nanoseconds.
type Read = fn(&Elapsed) -> f64;

/// The metrics of a round.
const METRICS: [(&str, Read); 3] = [
    (THREAD, |elapsed| elapsed.thread.as_nanos() as f64),
    ("wall", |elapsed| elapsed.wall.as_nanos() as f64),
    ("process CPU", |elapsed| elapsed.process.as_nanos() as f64),
];

/// Runs families against each other.
pub(crate) struct Contest<'a> {
    recorder: &'a mut Recorder,
    settings: &'a Settings,
}

/// A contestant that is still in the running, with its rounds so far.
struct Entrant<'a> {
    contestant: &'a mut dyn Contestant,
    rounds: Vec<Elapsed>,
}

impl<'a> Contest<'a> {
    pub(crate) fn new(recorder: &'a mut Recorder, settings: &'a Settings) -> Self {
        Contest { recorder, settings }
    }

    pub(crate) fn run(mut self, mut families: Vec<Family<'_>>) {
        let wanted =
            |row: &Row| self.settings.only.as_ref().is_none_or(|only| row.name.contains(only));
        for family in &mut families {
            family.rows.retain(wanted);
        }
        families.retain(|family| !family.rows.is_empty());
        let rows: usize = families.iter().map(|family| family.rows.len()).sum();
        let rounds = self.settings.warm_up + self.recorder.rounds();
        self.recorder.expect(rows * rounds);
        println!("ns of thread CPU per operation; in brackets how many times as fast the first is");
        for family in &mut families {
            self.family(family);
        }
        self.recorder.finished();
    }

    fn family(&mut self, family: &mut Family<'_>) {
        self.recorder.say(&format!("-- {}", family.title));
        family.contestants.retain(|contestant| match contestant.options() {
            Ok(options) => {
                self.recorder.introduce(contestant.name(), options);
                true
            }
            Err(error) => {
                self.recorder.fail(family.title, contestant.name(), &error);
                false
            }
        });
        let workloads = family.rows.iter().map(|row| row.name.into()).collect();
        self.recorder.open_section(family.title, workloads);
        for &row in &family.rows {
            if interrupt::requested() {
                break;
            }
            let mut entrants: Vec<_> = (family.contestants.iter_mut())
                .filter(|contestant| contestant.knows(row.name))
                .map(|contestant| Entrant { contestant: &mut **contestant, rounds: Vec::new() })
                .collect();
            self.row(row, &mut entrants);
        }
    }

    fn row(&mut self, row: Row, entrants: &mut Vec<Entrant<'_>>) {
        self.recorder.now(row.name);
        self.keep_if(row, entrants, |entrant| entrant.contestant.begin(row.name));
        let warm_up = self.settings.warm_up;
        for round in 0..warm_up + self.recorder.rounds() {
            if interrupt::requested() {
                break;
            }
            let mut agreed = Agreed::default();
            self.keep_if(row, entrants, |entrant| {
                let Round { elapsed, answer } = entrant.contestant.round(round)?;
                if round >= warm_up {
                    entrant.rounds.push(elapsed);
                }
                agreed.check("answers", entrant.contestant.name(), answer)
            });
            self.recorder.step();
        }
        let complete = entrants.first().is_some_and(|first| !first.rounds.is_empty());
        if row.writes && complete && !interrupt::requested() {
            let mut agreed = Agreed::default();
            self.keep_if(row, entrants, |entrant| {
                let digest = entrant.contestant.digest()?;
                agreed.check("state", entrant.contestant.name(), digest)
            });
        }
        for entrant in entrants.iter_mut() {
            entrant.contestant.end();
        }
        if complete {
            self.record(row, entrants);
        }
    }

    /// Drops the entrants for whom `step` fails, and notes why.
    fn keep_if(
        &mut self,
        row: Row,
        entrants: &mut Vec<Entrant<'_>>,
        mut step: impl FnMut(&mut Entrant<'_>) -> Result<()>,
    ) {
        entrants.retain_mut(|entrant| match step(entrant) {
            Ok(()) => true,
            // An interrupt reaches the peers' processes too.
            Err(_) if interrupt::requested() => false,
            Err(error) => {
                let name = entrant.contestant.name();
                self.recorder.fail(row.name, name, &error);
                entrant.contestant.end();
                false
            }
        });
    }

    fn record(&mut self, row: Row, entrants: &[Entrant<'_>]) {
        let mut line = format!("{:<29}", row.name);
        for (index, entrant) in entrants.iter().enumerate() {
            let name = entrant.contestant.name();
            for (metric, read) in METRICS {
                let per_operation =
                    entrant.rounds.iter().map(|round| read(round) / row.counted as f64).collect();
                let median = median_of(per_operation);
                let rounds = entrant.rounds.len();
                self.recorder.record(SUITE, row.name, name, metric, "ns/op", median, rounds);
                if metric == THREAD {
                    line += &format!(" {name} {:.1}", median.value);
                }
            }
            if let Some(ratio) = self.ratios(row, &entrants[0], entrant, index) {
                line += &format!(" ({ratio:.2})");
            }
            line += if index + 1 < entrants.len() { " |" } else { "" };
        }
        for weir in entrants.iter().skip(1).filter(|entrant| is_backend(entrant)) {
            for (index, other) in entrants.iter().enumerate().filter(|(_, other)| !is_weir(other)) {
                self.ratios(row, weir, other, index);
            }
        }
        self.recorder.say(&line);
    }

    /// Records how many times as fast `one` is as `other`; the figure by thread CPU.
    fn ratios(
        &mut self,
        row: Row,
        one: &Entrant<'_>,
        other: &Entrant<'_>,
        index: usize,
    ) -> Option<f64> {
        if index == 0 {
            return None;
        }
        let (name, other_name) = (one.contestant.name(), other.contestant.name());
        let mut by_thread = None;
        for (metric, read) in METRICS {
            let costs = |entrant: &Entrant<'_>| entrant.rounds.iter().map(read).collect::<Vec<_>>();
            let (its, others) = ((name, &*costs(one)), (other_name, &*costs(other)));
            let ratio = self.recorder.compare(SUITE, row.name, metric, its, others);
            if metric == THREAD {
                by_thread = Some(ratio);
            }
        }
        by_thread
    }
}

/// Whether this is one of Weir's backends as it is by default, no variant of one.
fn is_backend(entrant: &Entrant<'_>) -> bool {
    is_weir(entrant) && !entrant.contestant.name().contains(',')
}

fn is_weir(entrant: &Entrant<'_>) -> bool {
    entrant.contestant.name().starts_with("weir")
}

/// The checksum that all contestants must come to.
#[derive(Default)]
struct Agreed(Option<(String, u64)>);

impl Agreed {
    fn check(&mut self, what: &str, name: &str, checksum: u64) -> Result<()> {
        let (first, agreed) = self.0.get_or_insert_with(|| (name.into(), checksum));
        if *agreed == checksum {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "other {what} than {first}: checksum {checksum:016x} in place of {agreed:016x}"
            ),
        ))
    }
}
