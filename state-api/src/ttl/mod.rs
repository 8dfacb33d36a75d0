//! Time to live: when a value expires, and what becomes of it.
//!
//! Every value of a state with a TTL begins with a [`Stamp`] of eight bytes, as the backend sees
//! it: the value of a point state, each element of a list, each value of a map. The typed layer
//! writes and strips stamps and decides what a read may see. A backend stores such values like any
//! others; it uses this module to clean up ([`sweep`]), to list keys ([`is_live`]), and when a
//! state comes back with another TTL ([`convert`]).
//!
//! All of them, and every read, ask one function whether a stamp has expired:
//! [`StateTtl::is_expired`].
//!
//! | file | concept |
//! |---|---|
//! | `config.rs` | [`Ttl`], what a user asks for; [`StateTtl`], what is stored of it |
//! | `stamp.rs` | [`Stamp`] and the predicate |
//! | `clock.rs` | [`TtlTime`], the time that the predicate is asked for; [`TtlClock`], who knows it |
//! | `elements.rs` | the framed elements of lists |
//! | `sweep.rs` | stored bytes without what has expired |
//! | `convert.rs` | stored bytes under another TTL |
//! | `expiry.rs` | when stored bytes are over |

mod clock;
mod config;
mod convert;
mod elements;
mod expiry;
mod stamp;
mod sweep;

pub(crate) use clock::MonotoneClock;
pub use clock::{EventTime, TtlClock, TtlTime};
pub use config::{StateTtl, TimeDomain, Ttl};
pub use convert::convert;
pub(crate) use elements::{Elements, cut_short, write_element};
pub use expiry::expiry;
pub(crate) use stamp::write_stamp;
pub use stamp::{NEVER, STAMP_LEN, Stamp};
pub use sweep::{Verdict, is_live, sweep};
