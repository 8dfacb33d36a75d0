//! Keyed state, timers and checkpoints for timely dataflow, with any Weir backend.
//!
//! [Timely dataflow](timely) runs a dataflow on many workers, in many processes, on many machines. It
//! keeps no state and recovers nothing: when a process dies, all die. With this crate
//!
//! - an operator has keyed state and timers of `weir-state-api`, on whichever backend is chosen at run
//!   time ([`Stateful::stateful`]); the frontier drives the timers; reads from remote storage park their
//!   records and never block the worker;
//! - checkpoints are taken while the stream flows: [sources](Job::source) note their offsets,
//!   operators pin their state when the frontier passes the epoch, sinks
//!   [commit in two phases](TransactionalSink);
//! - after any process was lost, all are started again and go on from the latest complete checkpoint,
//!   at the same or another number of workers.
//!
//! ```
//! use std::sync::Arc;
//!
//! use weir_backend_heap::HeapBackendFactory;
//! use weir_engine_timely::{
//!     Job, JobSettings, Keyed, KeyedContext, KeyedLogic, ReadState, Split, Stateful,
//! };
//! use weir_state_api::{Environment, Result, ValueState};
//!
//! struct Count(ValueState<u64>);
//!
//! impl KeyedLogic for Count {
//!     type Key = String;
//!     type Record = String;
//!     type Out = (String, u64);
//!     type Timer = ();
//!
//!     async fn process(&self, word: &String, context: &mut impl KeyedContext<Self>) -> Result<()> {
//!         let count = self.0.update(context, |old| old.unwrap_or(0) + 1).await?;
//!         context.emit((word.clone(), count));
//!         Ok(())
//!     }
//! }
//!
//! /// A few words; a file would seek to the offset.
//! struct Words(u64);
//!
//! impl Split for Words {
//!     type Record = String;
//!
//!     fn read(&mut self, records: &mut Vec<String>, limit: usize) -> Result<ReadState> {
//!         let words = ["to", "be", "or", "not", "to", "be"];
//!         let rest = words[self.0 as usize..].iter().take(limit);
//!         records.extend(rest.map(|word| word.to_string()));
//!         self.0 = words.len() as u64;
//!         Ok(ReadState::Ended)
//!     }
//!
//!     fn offset(&self) -> u64 {
//!         self.0
//!     }
//! }
//!
//! // In real life: a folder or a bucket that all processes share.
//! let settings = JobSettings::new("word-count", Environment::in_memory());
//! let guards = timely::execute(timely::Config::process(2), move |worker| {
//!     let job = Job::join(worker, settings.clone())?;
//!     job.dataflow(worker, |scope| {
//!         let backend = Arc::new(HeapBackendFactory::default());
//!         let words = job.source(scope, "words", 1, |_split, offset| Ok(Words(offset)));
//!         words.stateful(
//!             &job,
//!             Keyed::new("count", backend),
//!             |word| word,
//!             |store| Ok(Count(store.value("count")?)),
//!         );
//!     })?;
//!     job.run(worker)
//! })?;
//! for report in guards.join() {
//!     assert!(report??.completed > 0);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it maps
//!
//! | Weir | timely |
//! |---|---|
//! | barrier *n* | the frontier has no time of epoch *n* or before ([`EpochTime`]) |
//! | watermark | the smallest event time of the frontier |
//! | processing time | the environment's clock; `Activator::activate_after` |
//! | alignment | records of the next epoch wait until this one is closed |
//! | subtask of a key group | `Exchange` with the worker's index |
//! | synchronous and asynchronous part | on the worker; on the environment's spawner, whose answer activates the operator |
//! | coordinator, errors | a small dataflow beside the data's |
//!
//! # Where to find what
//!
//! | file | content |
//! |---|---|
//! | `time.rs` | epochs and event time in one timestamp |
//! | `settings.rs`, `job.rs` | [`Job`]: joined, built, run |
//! | `agreement.rs` | how workers agree before they begin |
//! | `alarm.rs`, `panics.rs` | operators that are scheduled after a while; user code that panics |
//! | `stateful/` | the keyed operator |
//! | `source.rs`, `sink.rs` | offsets; commits in two phases |
//! | `control/` | reports, news, the coordinator |
//! | `checkpoint/` | what lies in the store, who owns it, what is deleted |
//!
//! # Limits
//!
//! - Recovery is a new start of all processes, by whatever supervises them.
//! - Timers of processing time fire by the clock of the worker that owns the key: let the machines
//!   keep theirs in step.
//! - The state of a backend that reads remotely must be reached by the spawner's threads, not by the
//!   worker: give [`Environment`](weir_state_api::Environment) a spawner that has its own.
//! - Loops (feedback edges) must not carry records over the end of an epoch: what is in a loop is in no
//!   checkpoint.

#![deny(missing_docs)]

mod agreement;
mod alarm;
mod checkpoint;
mod control;
mod job;
mod panics;
mod settings;
mod sink;
mod source;
mod stateful;
mod time;

#[doc = include_str!("../../../docs/plugging-in.md")]
#[cfg(doctest)]
struct Guide;

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;

pub use checkpoint::{CheckpointStore, JobCheckpoint, TaskPart, TaskSnapshot};
pub use job::{Job, JobReport};
pub use settings::JobSettings;
pub use sink::{SinkTo, TransactionalSink};
pub use source::{ReadState, Split};
pub use stateful::{Keyed, KeyedContext, KeyedLogic, KeyedTimer, Stateful};
pub use time::{EpochAdvance, EpochTime};
