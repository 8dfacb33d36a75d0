//! The command line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};
use weir_state_api::{Error, ErrorKind};

use crate::backends::Backend;
use crate::micro::Peer;
use crate::peers::flink::FlinkBackend;
use crate::store::ServerKind;
use crate::store_model::StoreModel;

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Single state accesses (workload W1), against raw collections and peers.
    Micro,
    /// The access patterns of real operators, with latencies (W2).
    Patterns,
    /// Many records in flight, against one after the other.
    InFlight,
    /// The synchronous part of a snapshot, and the whole of it.
    Snapshot,
    /// Checkpoints of a large state: full, after one percent of updates, beside a writer (W3).
    Checkpoint,
    /// From checkpoints to the first read, at the same and at another parallelism (W4).
    Restore,
    /// What a changelog gives and takes, around each backend.
    Changelog,
    /// What compactions of RocksDB and in object storage write (W2).
    #[cfg(feature = "rocks")]
    Compaction,
    /// What the layout of the RocksDB backend rests on.
    #[cfg(feature = "rocks")]
    Layout,
    /// State that is far away, with many records in flight, against RocksDB on the local disk (W2).
    #[cfg(feature = "rocks")]
    Far,
    /// State in object storage against SlateDB.
    #[cfg(feature = "slatedb")]
    Slatedb,
    /// The auction benchmark through the runtime (W5).
    Nexmark,
    /// Records through the runtime.
    Runtime,
    /// All of those above.
    All,
    /// Counts the instructions of the hot paths and compares them with the committed file.
    Guard,
    /// Measures nothing: makes a report of the figures of former runs (`--from`).
    Report,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// A smoke test: seconds, figures of no value.
    Quick,
    /// The published sizes.
    Default,
    /// Four times as many keys.
    Large,
}

/// A name out of a list; one that is not in the list does not stop the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked<T> {
    Known(T),
    Unknown(String),
}

impl<T: ValueEnum> FromStr for Asked<T> {
    type Err = std::convert::Infallible;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(T::from_str(name, true).map_or_else(|_| Asked::Unknown(name.into()), Asked::Known))
    }
}

impl<T: ValueEnum> fmt::Display for Asked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asked::Known(value) => {
                let value = value.to_possible_value();
                f.write_str(value.as_ref().map_or("", |value| value.get_name()))
            }
            Asked::Unknown(name) => f.write_str(name),
        }
    }
}

/// Those that are known, in order; `unknown` is told of the others.
pub(crate) fn known<T: ValueEnum>(
    asked: &[Asked<T>],
    what: &str,
    mut unknown: impl FnMut(&str, Error),
) -> Vec<T> {
    let mut known = Vec::new();
    for one in asked {
        match one {
            Asked::Known(value) => known.push(value.clone()),
            Asked::Unknown(name) => {
                let names = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
                let names: Vec<String> = names.map(|value| value.get_name().into()).collect();
                let message = format!("there is no such {what} in this build");
                let advice = format!("there are {}", names.join(", "));
                unknown(name, Error::new(ErrorKind::Unsupported, message).advice(advice));
            }
        }
    }
    known
}

/// Compares Weir's backends with each other, with raw limits and with peers, on this machine.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Options {
    /// What to measure: micro, patterns, in-flight, snapshot, checkpoint, restore, changelog, compaction,
    /// layout and far (with the feature `rocks`), slatedb (with the feature `slatedb`), nexmark, runtime, or all;
    /// `guard` counts the instructions of the hot paths; `report` makes a report of former runs.
    #[arg(default_value = "all")]
    pub(crate) suites: Vec<Asked<Suite>>,
    /// Weir's backends that take part: heap, rocks, forst. In `micro` the others are compared with the
    /// first.
    #[arg(long, value_delimiter = ',', default_value = "heap")]
    pub(crate) backends: Vec<Asked<Backend>>,
    /// What else takes part in `micro`: raw, fjall, redb, rocksdb (with the feature `rocks`), flink (its heap
    /// backend also in `snapshot`); slatedb (with the feature `slatedb`) runs the suite of that name too.
    /// Flink needs a JDK 17 and fetches 330 MB with pip once.
    #[arg(long, value_delimiter = ',', default_value = "raw")]
    pub(crate) peers: Vec<Asked<Peer>>,
    /// Which of Flink's state backends take part, if Flink does.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "heap")]
    pub(crate) flink_backends: Vec<FlinkBackend>,
    /// Where Flink's jar is kept [default: weir-benches/flink in the user's cache folder].
    #[arg(long)]
    pub(crate) flink_folder: Option<PathBuf>,
    /// How much of it.
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) size: Size,
    /// Megabytes of values in `checkpoint` and `restore`, in place of 10, 1,000 or 10,000 by size; a
    /// tenth of them in `compaction` and `slatedb`. In `changelog`, the largest state.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) state_mb: Option<u64>,
    /// What the store of `checkpoint` (default: folder) and `restore` (default: object-store) is like.
    #[arg(long, value_enum)]
    pub(crate) store: Option<StoreModel>,
    /// A real S3 server below `checkpoint` and `restore`, in place of a local folder: started on this
    /// machine, and as slow as it is unless --store makes it slower. Needs the feature `s3`.
    #[arg(long, value_enum)]
    pub(crate) s3_server: Option<ServerKind>,
    /// Rounds per contestant, interleaved; the median counts.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Keys in `micro` and `patterns`, in place of 5,000, 500,000 or 2,000,000, and of 2,000, 1,000,000 or
    /// 10,000,000, by size.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: Option<u64>,
    /// Lengths of values in `patterns`.
    #[arg(long, value_delimiter = ',', default_value = "100")]
    pub(crate) value_bytes: Vec<usize>,
    /// Caches of those who have one (rocks, forst, fjall, redb) in `patterns`, in percent of the state:
    /// 100,25,10,0 measures each of them four times. Without it all have 512 MiB of memory, half of it
    /// for writes; with it, 16 MiB for writes.
    #[arg(long, value_delimiter = ',')]
    pub(crate) cache: Vec<u32>,
    /// Only operations of `micro`, patterns of `patterns` and `compaction`, or parts of `changelog`
    /// (durations, cost, replay, objects) and of `restore` (recovery, 2→3, 1→2, 4→1; the same parallelism
    /// always) whose name contains this.
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Memory in huge pages, for Weir, the raw collections and Flink's heap alike (glibc's `malloc` and
    /// the JVM ask the kernel for them).
    #[arg(long)]
    pub(crate) huge_pages: bool,
    /// Figures of former runs that join the report: files that --json has written.
    #[arg(long, value_delimiter = ',')]
    pub(crate) from: Vec<PathBuf>,
    /// Writes header and records as JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// Writes the report as one HTML page.
    #[arg(long)]
    pub(crate) html: Option<PathBuf>,
    /// Writes the report as Markdown.
    #[arg(long, visible_alias = "md")]
    pub(crate) markdown: Option<PathBuf>,
    /// `guard` writes the file that is committed, in place of comparing with it.
    #[arg(long)]
    pub(crate) write: bool,
    /// Runs one operation; how `guard` calls this program.
    #[arg(long, hide = true)]
    pub(crate) guard_probe: Option<String>,
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) guard_rounds: usize,
    /// Runs one contestant of `patterns`; how it calls itself.
    #[arg(long, hide = true)]
    pub(crate) pattern_probe: Option<String>,
    /// Measures the memory of one contestant; how `micro` calls itself.
    #[arg(long, hide = true)]
    pub(crate) memory_probe: Option<String>,
    #[arg(long, hide = true, default_value_t = 1)]
    pub(crate) memory_entries: usize,
}

impl Options {
    /// How large the states of `checkpoint` and `restore` are.
    pub(crate) fn state_bytes(&self) -> u64 {
        let by_size = match self.size {
            Size::Quick => 10,
            Size::Default => 1_000,
            Size::Large => 10_000,
        };
        self.state_mb.unwrap_or(by_size) * 1_000_000
    }

    /// What decides the figures, for the report.
    pub(crate) fn described(&self) -> BTreeMap<String, String> {
        let size = self.size.to_possible_value();
        let mut all = vec![
            ("suites", names(&self.suites)),
            ("backends", names(&self.backends)),
            ("peers", names(&self.peers)),
            ("size", size.as_ref().map_or("", |size| size.get_name()).into()),
            ("rounds", self.rounds.to_string()),
            ("state-mb", (self.state_bytes() / 1_000_000).to_string()),
        ];
        let store = self.store.and_then(|store| store.to_possible_value());
        all.extend(store.map(|store| ("store", store.get_name().to_string())));
        let server = self.s3_server.and_then(|server| server.to_possible_value());
        all.extend(server.map(|server| ("s3-server", server.get_name().to_string())));
        let lengths: Vec<String> = self.value_bytes.iter().map(ToString::to_string).collect();
        all.push(("value-bytes", lengths.join(",")));
        let caches: Vec<String> = self.cache.iter().map(ToString::to_string).collect();
        all.extend((!caches.is_empty()).then(|| ("cache", caches.join(","))));
        all.extend(self.keys.map(|keys| ("keys", keys.to_string())));
        all.extend(self.only.clone().map(|only| ("only", only)));
        all.into_iter().map(|(name, value)| (name.into(), value)).collect()
    }
}

fn names<T: ValueEnum>(asked: &[Asked<T>]) -> String {
    asked.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Options {
        let words = std::iter::once("weir-benches").chain(line.split_whitespace());
        Options::try_parse_from(words).unwrap()
    }

    #[test]
    fn unknown_names_are_told_and_the_others_stay() {
        let options = parse("micro nosuch --backends nothing,heap --peers raw,nobody");
        let mut told = Vec::new();
        let suites = known(&options.suites, "suite", |name, _| told.push(name.to_string()));
        let backends = known(&options.backends, "backend", |name, error| {
            assert!(error.to_string().contains("heap"), "{error}");
            told.push(name.to_string());
        });
        let peers = known(&options.peers, "peer", |name, _| told.push(name.to_string()));
        assert_eq!(
            (suites, backends, peers),
            (vec![Suite::Micro], vec![Backend::Heap], vec![Peer::Raw])
        );
        assert_eq!(told, ["nosuch", "nothing", "nobody"]);
    }

    #[test]
    fn the_header_names_what_decides_the_figures() {
        let described = parse("restore --size quick --backends heap").described();
        assert_eq!(described["suites"], "restore");
        assert_eq!(described["state-mb"], "10");
        assert_eq!(described["size"], "quick");
    }
}
