//! Workload W2: the access patterns of real operators, on Weir's typed state and, written by hand, on
//! ordered key-value stores.
//!
//! | file | content |
//! |---|---|
//! | `events.rs` | what arrives: keys, skewed or not, and times |
//! | `operator.rs` | what a pattern is; opening one |
//! | `counter.rs` … `profile.rs` | the patterns, each on Weir and on an ordered store |
//! | `ordered.rs` | the ordered stores |
//! | `process.rs` | one contestant in a process of its own: fills, runs rounds, keeps a pace |
//! | `contest.rs` | rounds, interleaved; answers compared; figures |

mod contest;
mod counter;
mod deduplicate;
mod events;
mod join;
mod operator;
mod ordered;
pub(crate) mod process;
mod profile;
mod session;
mod sliding;
mod top;
mod window;

pub(crate) use contest::{Settings, run};
