//! Jobs on several workers of one process.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod agreement;
mod counting;
mod edges;
mod exactly_once;
mod faults;
mod panics;
mod parked;
mod processing_time;
mod timers;
