//! Failures inside a running job: it recovers, and its output is as if nothing had happened.

mod counting;
mod faults;
mod restore_checks;
mod restarts;
mod windows;
