//! Event-time windows: who assigns them, who aggregates over them.

mod assign;
mod operator;

pub use assign::{SessionWindows, SlidingWindows, TimeWindow, TumblingWindows, WindowAssigner};
pub use operator::{WindowOperator, WindowResult};
