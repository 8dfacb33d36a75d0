//! Jobs on several workers of one process.

mod agreement;
mod counting;
mod exactly_once;
mod faults;
mod parked;
mod timers;
