//! A minimal barrier-driven stream runtime: it exercises Weir's state backends end to end.
//!
//! One process, a thread per subtask, bounded channels that carry batches of records and between
//! them, in order, watermarks and barriers. A coordinator triggers checkpoints at the sources;
//! operators align the barriers, pin their state and go on; once every part is written the
//! checkpoint is completed by one conditional write, and sinks publish what they prepared. After a
//! failure, of a task or of the process, the job goes on at the latest complete checkpoint, at any
//! parallelism.
//!
//! It is *not* a cluster: scaling past one machine is the job of engines that Weir plugs into.
//!
//! # A whole job
//!
//! A replayable source, a session window, files that are published exactly once, checkpoints in a
//! local folder:
//!
//! ```
//! use std::time::Duration;
//! use weir_runtime::*;
//! use weir_state_api::{Aggregate, BoxError, Millis, Result};
//!
//! /// Clicks of users. A split is read from any offset on: that is what makes it replayable.
//! struct Clicks;
//!
//! impl Source for Clicks {
//!     type Out = (String, u64);
//!     fn splits(&self) -> u32 {
//!         2
//!     }
//!     fn open(&self, split: u32, offset: u64) -> Result<Box<dyn SplitReader<Self::Out>>> {
//!         Ok(Box::new(ClickReader { split, next: offset }))
//!     }
//! }
//!
//! struct ClickReader {
//!     split: u32,
//!     next: u64,
//! }
//!
//! impl SplitReader<(String, u64)> for ClickReader {
//!     fn read(
//!         &mut self,
//!         limit: usize,
//!         records: &mut Vec<Record<(String, u64)>>,
//!     ) -> Result<ReadStatus> {
//!         for _ in 0..limit {
//!             if self.next == 1_000 {
//!                 return Ok(ReadStatus::End);
//!             }
//!             let user = format!("user-{}", self.next % 7 + u64::from(self.split));
//!             records.push(Record { time: self.next as Millis * 10, value: (user, 1) });
//!             self.next += 1;
//!         }
//!         Ok(ReadStatus::More)
//!     }
//!     fn watermark(&self) -> Millis {
//!         self.next as Millis * 10 - 1
//!     }
//! }
//!
//! #[derive(Clone)]
//! struct Count;
//!
//! impl Aggregate for Count {
//!     type Input = (String, u64);
//!     type Accumulator = u64;
//!     type Output = u64;
//!     fn create(&self) -> u64 {
//!         0
//!     }
//!     fn add(&self, count: &mut u64, (_, clicks): (String, u64)) -> Result<(), BoxError> {
//!         *count += clicks;
//!         Ok(())
//!     }
//!     fn merge(&self, a: u64, b: u64) -> Result<u64, BoxError> {
//!         Ok(a + b)
//!     }
//!     fn output(&self, count: &u64) -> u64 {
//!         *count
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().map_err(|error| {
//! #     weir_state_api::Error::new(weir_state_api::ErrorKind::Unavailable, error.to_string())
//! # })?;
//! # let (checkpoints, output) = (folder.path().join("checkpoints"), folder.path().join("output"));
//! let graph = JobGraph::new("clicks");
//! graph
//!     .source("clicks", Clicks)?
//!     .key_by(|(user, _): &(String, u64)| user.clone())
//!     .window("sessions", SessionWindows::with_gap(Duration::from_secs(1))?, Count)?
//!     .sink(
//!         "files",
//!         FileSink::new(&output, |session: &WindowResult<String, u64>, line: &mut Vec<u8>| {
//!             let (user, start, clicks) = (&session.key, session.window.start, session.value);
//!             line.extend_from_slice(format!("{user},{start},{clicks}").as_bytes());
//!         }),
//!     )?;
//!
//! let config = JobConfig {
//!     parallelism: 2,
//!     storage: Storage::open(&checkpoints.to_string_lossy())?,
//!     // The beginning when there is no checkpoint yet: the same program starts and restarts it.
//!     restore: RestoreFrom::Latest,
//!     ..JobConfig::default()
//! };
//! let report = run(&graph, config)?;
//! assert_eq!(report.records_read, 2_000);
//! assert_eq!(FileSink::<String>::published(&output)?.len(), 8);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to find what
//!
//! | file | content |
//! |---|---|
//! | `graph.rs`, `operator.rs`, `source.rs`, `sink/`, `window/` | what users write |
//! | `config.rs`, `job.rs`, `report.rs`, `storage.rs` | running a job |
//! | `coordinator.rs`, `history.rs`, `checkpoint/` | checkpoints: protocol, metadata, epochs, layout, collection |
//! | `task/` | the threads: sources, keyed operators, sinks; alignment and watermarks |
//! | `inbox.rs`, `output.rs`, `record.rs` | channels and what they carry |
//!
//! # Features
//!
//! - `s3`: checkpoints in S3 or a compatible store. Brings an HTTP client and TLS.

mod checkpoint;
mod config;
mod coordinator;
mod graph;
mod history;
mod inbox;
mod job;
mod operator;
mod output;
mod record;
mod report;
mod sink;
mod source;
mod storage;
mod task;
mod vec_source;
mod window;

pub use checkpoint::{CheckpointStore, Epoch, JobCheckpoint, TaskSnapshot};
pub use config::{CheckpointConfig, JobConfig, RestartStrategy, RestoreFrom};
pub use graph::{JobGraph, KeyedStream, Stream, Union};
pub use job::run;
pub use operator::{Context, KeyedOperator};
pub use record::{Data, MAX_TIME, MIN_TIME, Record};
pub use report::{CheckpointStats, JobReport, Progress};
pub use sink::{FileSink, Sink, SinkOpening, SinkWriter, VecSink};
pub use source::{ReadStatus, Source, SplitReader};
pub use storage::Storage;
pub use vec_source::VecSource;
pub use window::{
    SessionWindows, SlidingWindows, TimeWindow, TumblingWindows, WindowAssigner, WindowOperator,
    WindowResult,
};

#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
struct Readme;
