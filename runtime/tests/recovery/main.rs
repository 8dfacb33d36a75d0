//! Failures inside a running job: it recovers, and its output is as if nothing had happened.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod coordination;
mod counting;
mod ends;
mod faults;
mod ownership;
mod restarts;
mod restore_checks;
mod timers;
mod windows;
