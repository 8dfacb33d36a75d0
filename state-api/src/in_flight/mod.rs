//! Many records of one task in flight over one backend instance.
//!
//! A read that goes to remote storage takes milliseconds. A task that waits for each one handles a
//! thousand records a second; with many records in flight their reads overlap. [`InFlight`] keeps
//! them in order where order matters:
//!
//! - two records of one key never run at the same time, and run in the order of their arrival;
//! - records of different keys overlap freely;
//! - a barrier, a watermark and its timers come after the records before them.
//!
//! An operator is plain `async` Rust ([`RecordOperator`]); all typed handles work unchanged on the
//! [`RecordState`] it gets. A record whose state is in memory is done when
//! [`submit`](InFlight::submit) returns, and allocates nothing.
//!
//! The component knows no engine and no executor: it moves when it is called, and tells through a
//! [`Waker`](std::task::Waker) when to call again. `docs/decisions/0003` has the reasons.
//!
//! | file | concept |
//! |---|---|
//! | `operator.rs` | what a user writes |
//! | `record_state.rs` | the state of a record's key, as its operator sees it |
//! | `own_key.rs` | the backend as a record sees it: its own key only, writes noted, reads gathered |
//! | `reads.rs` | gathers reads that need I/O into `multi_get` |
//! | `executor.rs` | [`InFlight`]: what an engine calls |
//! | `run.rs` | starts, polls and ends records |
//! | `epoch.rs` | barriers, watermarks, timers, snapshots, unfinished records |
//! | `lanes.rs` | who runs, who waits behind whom |
//! | `futures.rs` | the records' futures, in memory that is used again |
//! | `wake.rs` | who asked to be polled again |
//! | `limits.rs`, `outcome.rs` | limits; what becomes of a record |

mod epoch;
mod executor;
mod futures;
mod lanes;
mod limits;
mod operator;
mod outcome;
mod own_key;
mod reads;
mod record_state;
mod run;
mod wake;

pub use epoch::Epoch;
pub use executor::InFlight;
pub use limits::InFlightLimits;
pub use operator::RecordOperator;
pub use outcome::{Admission, Failure, Unfinished, UnfinishedRef};
pub use record_state::RecordState;
