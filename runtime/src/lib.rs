//! A minimal barrier-driven stream runtime.
mod checkpoint;
mod config;
mod coordinator;
mod graph;
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
