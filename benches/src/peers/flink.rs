//! Apache Flink's state backends: a JVM for each operation, asked round by round.
//!
//! The harness in `benches/peers/flink` speaks a line protocol on its standard input and output, so
//! that its rounds interleave with everybody else's.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use clap::ValueEnum;
use tempfile::TempDir;
use weir_state_api::{Error, ErrorKind, Result};

use crate::clock::Elapsed;
use crate::huge_pages;
use crate::micro::contestant::{Contestant, Round};
use crate::micro::memory::Memory;
use crate::peers::cache_folder;
use crate::peers::process::Contender;

/// A state backend of Flink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlinkBackend {
    /// `HashMapStateBackend`: objects on the Java heap.
    Heap,
    /// `EmbeddedRocksDBStateBackend`.
    Rocksdb,
    /// The same with 512 MiB of memory for block cache and write buffers together.
    RocksdbManaged,
    /// `ForStStateBackend`, synchronous state.
    Forst,
    /// `ChangelogStateBackend` around the first.
    HeapChangelog,
    /// `ChangelogStateBackend` around the second.
    RocksdbChangelog,
    /// `ChangelogStateBackend` around the third.
    ForstChangelog,
}

impl FlinkBackend {
    fn argument(self) -> &'static str {
        match self {
            FlinkBackend::Heap => "heap",
            FlinkBackend::Rocksdb => "rocksdb",
            FlinkBackend::RocksdbManaged => "rocksdb-managed",
            FlinkBackend::Forst => "forst",
            FlinkBackend::HeapChangelog => "heap-changelog",
            FlinkBackend::RocksdbChangelog => "rocksdb-changelog",
            FlinkBackend::ForstChangelog => "forst-changelog",
        }
    }

    fn settings(self) -> &'static str {
        match self {
            FlinkBackend::HeapChangelog
            | FlinkBackend::RocksdbChangelog
            | FlinkBackend::ForstChangelog => {
                "ChangelogStateBackend, filesystem storage on the local disk, no periodic \
                 materialization; below it as without changelog"
            }
            FlinkBackend::Heap => "HashMapStateBackend with its defaults",
            FlinkBackend::Rocksdb => {
                "EmbeddedRocksDBStateBackend, incremental, state.backend.rocksdb.memory.managed=false \
                 (as flink-benchmarks has it), timers in RocksDB"
            }
            FlinkBackend::RocksdbManaged => {
                "EmbeddedRocksDBStateBackend, incremental, \
                 state.backend.rocksdb.memory.fixed-per-slot=512mb, timers in RocksDB"
            }
            FlinkBackend::Forst => {
                "ForStStateBackend, synchronous, local primary directory, \
                 state.backend.forst.memory.managed=false, timers in ForSt"
            }
        }
    }
}

impl fmt::Display for FlinkBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flink {}", self.argument())
    }
}

/// G1 is what Flink's `taskmanager.sh` asks for, 6 GiB what flink-benchmarks gives.
const JVM_OPTIONS: [&str; 6] = [
    "-Xmx6g",
    "-XX:+UseG1GC",
    "-XX:-UsePerfData",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
];

/// With huge pages if the run asks for them.
fn jvm_options() -> Vec<&'static str> {
    let huge_pages = huge_pages::are_asked_for().then_some(huge_pages::JVM_OPTION);
    JVM_OPTIONS.into_iter().chain(huge_pages).collect()
}

/// What the harness can do.
const OPERATIONS: [&str; 39] = [
    "valueGet",
    "valueUpdate",
    "valueReadModifyWrite",
    "valueAdd",
    "listGet",
    "listGetAndIterate",
    "listUpdate",
    "listAdd",
    "listAppend",
    "listAddAll",
    "mapGet",
    "mapContains",
    "mapIsEmpty",
    "mapKeys",
    "mapValues",
    "mapEntries",
    "mapIterator",
    "mapUpdate",
    "mapPutAll",
    "mapAdd",
    "mapRemove",
    "reducingGet",
    "reducingAdd",
    "aggregatingGet",
    "aggregatingAdd",
    "timerRegister",
    "timerDelete",
    "timerFire",
    "ttlValueGet",
    "ttlValueUpdate",
    "ttlValueReadModifyWrite",
    "ttlValueAdd",
    "ttlReadValueGet",
    "ttlThirdValueGet",
    "ttlListGetAndIterate",
    "ttlListAppend",
    "ttlMapGet",
    "ttlMapIterator",
    "ttlMapUpdate",
];

/// The jar and the compiled harness.
#[derive(Debug)]
pub(crate) struct FlinkInstall {
    class_path: String,
    version: String,
}

impl FlinkInstall {
    /// Fetches the jar and compiles the harness into `folder`, unless that is done.
    pub(crate) fn prepare(folder: &Path) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/flink/prepare.sh");
        let output = Command::new("bash")
            .arg(&script)
            .arg(folder)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "bash cannot be run").source(error)
            })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text.lines();
        match (output.status.success(), lines.next(), lines.next()) {
            (true, Some(class_path), Some(version)) => {
                Ok(FlinkInstall { class_path: class_path.into(), version: version.into() })
            }
            _ => Err(Error::new(ErrorKind::Unavailable, "Flink could not be prepared")
                .object(folder.display().to_string())
                .advice("what is missing is said above; `--peers raw` runs without Flink")),
        }
    }

    /// Where it is kept by default.
    pub(crate) fn default_folder() -> PathBuf {
        cache_folder().join("flink")
    }
}

/// Which backend, on how much state.
#[derive(Debug, Clone)]
pub(crate) struct FlinkPeer {
    pub(crate) install: Rc<FlinkInstall>,
    pub(crate) backend: FlinkBackend,
    pub(crate) keys: usize,
    pub(crate) key_groups: u16,
}

/// A backend of Flink as a contestant.
pub(crate) struct FlinkProcess {
    peer: FlinkPeer,
    name: String,
    running: Option<Running>,
}

/// What a round of checkpoints took and wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshots {
    /// The synchronous part of the first one.
    pub(crate) pinned: Duration,
    /// All of the first one.
    pub(crate) written: Duration,
    pub(crate) restored: Duration,
    /// The one after a change.
    pub(crate) changed: Duration,
    pub(crate) whole_bytes: u64,
    pub(crate) changed_bytes: u64,
}

/// A JVM and its folder.
struct Running {
    jvm: Contender,
    _directory: TempDir,
}

impl FlinkProcess {
    pub(crate) fn new(peer: FlinkPeer) -> Self {
        let name = peer.backend.to_string();
        FlinkProcess { peer, name, running: None }
    }

    /// Fills a value state and reports what it takes.
    pub(crate) fn memory(mut self) -> Result<Memory> {
        self.start("memory")?;
        let [own_account, resident] = self.ask("memory")?;
        Ok(Memory { own_account: Some(own_account), resident })
    }

    /// Fills a state with values of 100 bytes, and takes and restores a checkpoint of it to warm up.
    pub(crate) fn for_snapshots(mut self) -> Result<Self> {
        self.start("snapshots")?;
        self.snapshots()?;
        Ok(self)
    }

    /// Takes a checkpoint, restores it, and takes one after a change of one percent.
    pub(crate) fn snapshots(&mut self) -> Result<Snapshots> {
        let [pinned, written, restored, changed, whole_bytes, changed_bytes] =
            self.ask("snapshot")?;
        let [pinned, written, restored, changed] =
            [pinned, written, restored, changed].map(Duration::from_nanos);
        Ok(Snapshots { pinned, written, restored, changed, whole_bytes, changed_bytes })
    }

    fn start(&mut self, operation: &str) -> Result<()> {
        let failed =
            |error| Error::new(ErrorKind::Unavailable, "the JVM cannot be started").source(error);
        let prefix = "weir-benches-flink-";
        let directory = tempfile::Builder::new().prefix(prefix).tempdir().map_err(failed)?;
        let mut command = Command::new("java");
        command
            .args(jvm_options())
            .arg(format!("-Dpeer.dir={}", directory.path().display()))
            .arg(format!("-Dpeer.keys={}", self.peer.keys))
            .args(["-cp", &self.peer.install.class_path, "peer.flink.Rounds"])
            .args([self.peer.backend.argument(), operation, &self.peer.key_groups.to_string()])
            .stderr(Stdio::null());
        let jvm = Contender::start("the JVM", &mut command)?;
        self.running = Some(Running { jvm, _directory: directory });
        Ok(())
    }

    fn ask<const N: usize>(&mut self, command: &str) -> Result<[u64; N]> {
        let running = self.running.as_mut().ok_or_else(|| {
            Error::new(ErrorKind::InvalidUsage, "no operation of Flink is under way")
        })?;
        running.jvm.ask(command).map_err(|error| error.object(format!("{}: {command}", self.name)))
    }
}

impl Contestant for FlinkProcess {
    fn name(&self) -> &str {
        &self.name
    }

    fn options(&self) -> Result<String> {
        let (version, settings) = (&self.peer.install.version, self.peer.backend.settings());
        Ok(format!("{version}; {settings}; java {}", jvm_options().join(" ")))
    }

    fn knows(&self, operation: &str) -> bool {
        OPERATIONS.contains(&operation)
    }

    fn begin(&mut self, operation: &str) -> Result<()> {
        self.running = None;
        self.start(operation)
    }

    fn round(&mut self, round: usize) -> Result<Round> {
        let [wall, thread, process, answer] = self.ask(&format!("round {round}"))?;
        let [wall, thread, process] = [wall, thread, process].map(Duration::from_nanos);
        Ok(Round { elapsed: Elapsed { wall, thread, process }, answer })
    }

    fn digest(&mut self) -> Result<u64> {
        let [digest] = self.ask("digest")?;
        Ok(digest)
    }

    fn end(&mut self) {
        self.running = None;
    }
}
