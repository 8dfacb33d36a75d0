//! What an instance holds of a state.

use weir_state_api::{StateDescriptor, StateShape, StateTable};

use super::timers::TimerQueue;

/// A state: what it is, and its first timers if it is a queue.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) descriptor: StateDescriptor,
    pub(crate) shape: StateShape,
    pub(crate) timers: TimerQueue,
}

impl AsRef<StateDescriptor> for State {
    fn as_ref(&self) -> &StateDescriptor {
        &self.descriptor
    }
}

/// All states by their ids.
pub(crate) type States = StateTable<State>;
