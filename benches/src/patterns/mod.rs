//! Workload W2: the access patterns of real operators, on Weir's typed state and, written by hand, on
//! ordered key-value stores.
//!
//! | file | content |
//! |---|---|
//! | `events.rs` | what arrives: keys, skewed or not, and times |
//! | `operator.rs` | what a pattern is; opening one |
//! | `counter.rs` … `profile.rs` | the patterns, each on Weir and on an ordered store |
//! | `process.rs` | one contestant in a process of its own: fills, runs rounds, keeps a pace |
//! | `amplification.rs` | bytes that an operator asks for, to divide by |
//! | `contest.rs` | rounds, interleaved; answers compared; figures |

mod amplification;
mod contest;
mod counter;
mod deduplicate;
pub(crate) mod events;
mod join;
mod operator;
pub(crate) mod process;
mod profile;
mod session;
mod sliding;
mod top;
mod window;

pub(crate) use contest::{Settings, run};
