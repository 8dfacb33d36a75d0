//! What an instance holds of a state.

use weir_state_api::{StateDescriptor, StateShape, StateTable};

use crate::clean_up::Cursor;
use crate::timers::TimerQueue;

/// A state: what it is, and its timers in memory if it is a queue.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) descriptor: StateDescriptor,
    pub(crate) shape: StateShape,
    pub(crate) timers: TimerQueue,
    /// Where the next step of a clean-up begins.
    pub(crate) cursor: Cursor,
}

impl AsRef<StateDescriptor> for State {
    fn as_ref(&self) -> &StateDescriptor {
        &self.descriptor
    }
}

/// All states by their ids.
pub(crate) type States = StateTable<State>;
