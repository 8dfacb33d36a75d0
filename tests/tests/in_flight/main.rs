//! Records in flight: whatever overlaps, the result is that of one record after the other.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod batches;
mod behaviour;
mod checkpoints;
mod expiry;
mod operator;
mod property;
mod world;
