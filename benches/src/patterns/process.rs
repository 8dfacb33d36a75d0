//! One contestant in a process of its own: fills its state, runs rounds as fast as it can, keeps a pace.

use std::io::{BufRead, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use weir_state_api::{Error, ErrorKind, Result};

use super::amplification::bytes_on_disk;
use super::events::{Events, Skew};
use super::operator::{Operator, Pattern, Shape};
use crate::backends::{Backend, Budget, local_folder};
use crate::clock::{Elapsed, Stopwatch};
use crate::peers::ordered::Store;
use crate::peers::process::Contender;
use crate::resident::resident_bytes;

/// Whose state it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Holder {
    Weir(Backend),
    Store(Store),
}

impl Holder {
    fn has_cache(self) -> bool {
        match self {
            Holder::Weir(backend) => backend.has_cache(),
            Holder::Store(store) => store.has_cache(),
        }
    }
}

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Who {
    pub(crate) holder: Holder,
    /// The cache in percent of the state, if it is chosen.
    cache_percent: Option<u32>,
}

impl Who {
    /// The holder as often as there are sizes of the cache; once if it has none, or none is chosen.
    pub(crate) fn with_caches(holder: Holder, percents: &[u32]) -> Vec<Who> {
        if percents.is_empty() || !holder.has_cache() {
            return vec![Who { holder, cache_percent: None }];
        }
        percents.iter().map(|&percent| Who { holder, cache_percent: Some(percent) }).collect()
    }

    fn budget(self, shape: Shape) -> Budget {
        self.cache_percent.map_or_else(Budget::default, |percent| {
            Budget::with_cache(shape.state_bytes() * u64::from(percent) / 100)
        })
    }

    /// Its options, for the report.
    pub(crate) fn options(self, shape: Shape) -> Result<String> {
        match self.holder {
            Holder::Weir(backend) => backend.options_within(self.budget(shape)),
            Holder::Store(store) => Ok(store.options(self.budget(shape))),
        }
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.holder {
            Holder::Weir(backend) => backend.fmt(f)?,
            Holder::Store(store) => store.fmt(f)?,
        }
        self.cache_percent.map_or(Ok(()), |percent| write!(f, ", cache {percent} %"))
    }
}

/// Flink's and Weir's default.
const KEY_GROUPS: u16 = 128;

/// What a process is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task {
    who: Who,
    pattern: Pattern,
    skew: Skew,
    shape: Shape,
}

/// What a round as fast as possible took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) elapsed: Elapsed,
    /// Bytes that the process read and wrote through system calls.
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) answer: u64,
}

/// Latencies at a pace, in nanoseconds from when an event was due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latencies {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
    pub(crate) answer: u64,
}

/// The process as its parent sees it.
#[derive(Debug)]
pub(crate) struct Process {
    contender: Contender,
    /// Where all of its files are.
    folder: TempDir,
}

impl Process {
    /// Starts it; returns when its state is filled.
    pub(crate) fn start(who: Who, pattern: Pattern, skew: Skew, shape: Shape) -> Result<Self> {
        let task = Task { who, pattern, skew, shape };
        let failed = |message: &'static str| {
            move |error: Box<dyn std::error::Error + Send + Sync>| {
                Error::new(ErrorKind::Unavailable, message).source(error)
            }
        };
        let program =
            std::env::current_exe().map_err(|error| failed("no own path")(error.into()))?;
        let task = serde_json::to_string(&task).map_err(|error| failed("no task")(error.into()))?;
        let folder = local_folder()?;
        let mut command = Command::new(program);
        command.args(["--pattern-probe", &task]).env("TMPDIR", folder.path());
        let contender = Contender::start("the process", &mut command)?;
        Ok(Process { contender, folder })
    }

    /// Handles so many events as fast as it can.
    pub(crate) fn round(&mut self, events: u64) -> Result<Round> {
        let [wall, thread, process, read, written, answer] =
            self.contender.ask(&format!("round {events}"))?;
        let [wall, thread, process] = [wall, thread, process].map(Duration::from_nanos);
        Ok(Round { elapsed: Elapsed { wall, thread, process }, read, written, answer })
    }

    /// Handles so many events, one each so many nanoseconds.
    pub(crate) fn paced(&mut self, events: u64, interval: u64) -> Result<Latencies> {
        let [p50, p99, p999, max, answer] =
            self.contender.ask(&format!("paced {events} {interval}"))?;
        Ok(Latencies { p50, p99, p999, max, answer })
    }

    /// Bytes by its own account (0 if it keeps none), and by which its resident set has grown.
    pub(crate) fn memory(&mut self) -> Result<[u64; 2]> {
        self.contender.ask("memory")
    }

    /// Bytes of its files on the disk.
    pub(crate) fn on_disk(&self) -> u64 {
        bytes_on_disk(self.folder.path())
    }
}

/// The process as it sees itself: does what its standard input says until that ends.
pub(crate) fn serve(task: &str) -> Result<()> {
    let unfit =
        |error| Error::new(ErrorKind::InvalidUsage, "this is no task of a pattern").source(error);
    let task: Task = serde_json::from_str(task).map_err(unfit)?;
    let mut server = Server::new(&task);
    let lines = std::io::stdin().lock().lines();
    for line in lines.map_while(std::result::Result::ok) {
        let answer = match server.as_mut().map(|server| server.answer(&line)) {
            Ok(Ok(numbers)) => {
                numbers.iter().fold("ok".to_string(), |text, n| format!("{text} {n}"))
            }
            Ok(Err(error)) => format!("error {}", one_line(&error)),
            Err(error) => format!("error {}", one_line(error)),
        };
        let mut stdout = std::io::stdout().lock();
        // A parent that does not listen any more does not want an answer.
        if writeln!(stdout, "{answer}").and_then(|()| stdout.flush()).is_err() {
            break;
        }
    }
    Ok(())
}

fn one_line(error: &Error) -> String {
    error.to_string().replace('\n', " ")
}

struct Server {
    operator: Box<dyn Operator>,
    events: Events,
    resident: u64,
    keys: u64,
    is_filled: bool,
}

impl Server {
    fn new(task: &Task) -> Result<Self> {
        let resident = resident_bytes().unwrap_or(0);
        let operator = task.open()?;
        let (keys, events) = (task.shape.keys, Events::new(task.shape.keys, task.skew));
        Ok(Server { operator, events, resident, keys, is_filled: false })
    }

    fn answer(&mut self, line: &str) -> Result<Vec<u64>> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: usize| words.get(word).and_then(|word| word.parse::<u64>().ok());
        match (words.first().copied(), number(1), number(2)) {
            (Some("ready"), ..) => {
                if !self.is_filled {
                    self.handle(self.keys)?;
                    self.is_filled = true;
                }
                Ok(Vec::new())
            }
            (Some("round"), Some(events), _) => self.round(events),
            (Some("paced"), Some(events), Some(interval)) => self.paced(events, interval),
            (Some("memory"), ..) => {
                let grown = resident_bytes().unwrap_or(0).saturating_sub(self.resident);
                Ok(vec![self.operator.own_account().unwrap_or(0), grown])
            }
            _ => Err(Error::new(ErrorKind::InvalidUsage, format!("no such command: {line}"))),
        }
    }

    fn handle(&mut self, events: u64) -> Result<u64> {
        let mut sum = 0u64;
        for event in self.events.by_ref().take(events as usize) {
            sum = sum.wrapping_mul(31).wrapping_add(self.operator.handle(&event)?);
        }
        Ok(sum)
    }

    fn round(&mut self, events: u64) -> Result<Vec<u64>> {
        let [read, written] = transferred();
        let watch = Stopwatch::start();
        let answer = self.handle(events)?;
        let Elapsed { wall, thread, process } = watch.stop();
        let [read_after, written_after] = transferred();
        let nanos = |time: Duration| time.as_nanos() as u64;
        let transferred = [read_after.saturating_sub(read), written_after.saturating_sub(written)];
        Ok([[nanos(wall), nanos(thread), nanos(process)].as_slice(), &transferred, &[answer]]
            .concat())
    }

    /// Each event has a time at which it is due, whatever the ones before took; its latency counts
    /// from then. So a stall is seen by all events that it delays (no coordinated omission).
    fn paced(&mut self, events: u64, interval: u64) -> Result<Vec<u64>> {
        // Up to an hour; what is longer counts as one.
        let bounds = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3);
        let mut latencies = bounds.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "no histogram of latencies").source(error)
        })?;
        let (mut sum, begun) = (0u64, Instant::now());
        let mut due = begun;
        for event in self.events.by_ref().take(events as usize) {
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            sum = sum.wrapping_mul(31).wrapping_add(self.operator.handle(&event)?);
            latencies.saturating_record(due.elapsed().as_nanos() as u64);
            due += Duration::from_nanos(interval);
        }
        let at = |quantile| latencies.value_at_quantile(quantile);
        Ok(vec![at(0.5), at(0.99), at(0.999), latencies.max(), sum])
    }
}

impl Task {
    fn open(&self) -> Result<Box<dyn Operator>> {
        let budget = self.who.budget(self.shape);
        match self.who.holder {
            Holder::Weir(backend) => {
                self.pattern.on_weir(backend.open_within(KEY_GROUPS, budget)?, self.shape)
            }
            Holder::Store(store) => Ok(self.pattern.by_hand(store.open(budget)?, self.shape)),
        }
    }
}

/// Bytes that this process has read and written through system calls; Linux only.
fn transferred() -> [u64; 2] {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    ["rchar:", "wchar:"].map(|field| {
        let line = io.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: Holder = Holder::Weir(Backend::Heap);
    const BTREE: Holder = Holder::Store(Store::BTreeMap);

    fn server(holder: Holder) -> Result<Server> {
        let shape = Shape { keys: 100, value_bytes: 16 };
        let who = Who { holder, cache_percent: None };
        Server::new(&Task { who, pattern: Pattern::Counter, skew: Skew::Uniform, shape })
    }

    #[test]
    fn contestants_answer_the_same_in_rounds_and_at_a_pace() {
        let answers = |holder| {
            let mut server = server(holder).unwrap();
            server.answer("ready").unwrap();
            let round = server.answer("round 500").unwrap()[5];
            let paced = server.answer("paced 500 1000").unwrap();
            assert!(paced[0] > 10, "an event takes some nanoseconds: {paced:?}");
            assert!(paced[0] <= paced[1] && paced[1] <= paced[2] && paced[2] <= paced[3]);
            (round, paced[4])
        };
        assert_eq!(answers(HEAP), answers(BTREE));
        assert_ne!(answers(HEAP).0, answers(HEAP).1);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(serve("dance").is_err());
        assert!(server(BTREE).unwrap().answer("dance").is_err());
    }

    #[test]
    fn who_has_a_cache_takes_part_once_for_each_size() {
        let forst = Who::with_caches(Holder::Weir(Backend::Forst), &[100, 0]);
        let names: Vec<String> = forst.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["weir forst, cache 100 %", "weir forst, cache 0 %"]);
        assert_eq!(Who::with_caches(HEAP, &[100, 0])[0].to_string(), "weir heap");
        let shape = Shape { keys: 1_000, value_bytes: 92 };
        assert_eq!((forst[0].budget(shape).cache, forst[1].budget(shape).cache), (100_000, 0));
        let small = |percent| {
            let who = Who { holder: Holder::Weir(Backend::Forst), cache_percent: Some(percent) };
            let task = Task { who, pattern: Pattern::Counter, skew: Skew::Zipf, shape };
            let mut server = Server::new(&task).unwrap();
            server.answer("ready").unwrap();
            server.answer("round 500").unwrap()[5]
        };
        assert_eq!(small(100), small(0), "the answers do not depend on it");
    }
}
