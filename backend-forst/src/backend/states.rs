//! The states of an instance.

use weir_state_api::{Error, ErrorKind, Result, StateDescriptor, StateId, StateShape};

use super::timers::TimerQueue;

/// A state: what it is, and its first timers if it is a queue.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) descriptor: StateDescriptor,
    pub(crate) shape: StateShape,
    pub(crate) timers: TimerQueue,
}

impl State {
    /// Checks that a call suits the state's shape.
    #[inline]
    pub(crate) fn expect(&self, fits: bool, call: &str) -> Result<()> {
        if fits { Ok(()) } else { Err(self.misused(call)) }
    }

    #[cold]
    fn misused(&self, call: &str) -> Error {
        Error::new(
            ErrorKind::InvalidUsage,
            format!("{call} does not work on a state of kind {}", self.descriptor.kind),
        )
        .state(&self.descriptor.name)
        .advice("use the calls for its kind")
    }
}

/// All states by their ids.
#[derive(Debug, Default)]
pub(crate) struct States(Vec<State>);

impl States {
    #[inline]
    pub(crate) fn get(&self, id: StateId) -> Result<&State> {
        self.0.get(id.index()).ok_or_else(|| unknown(id))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: StateId) -> Result<&mut State> {
        self.0.get_mut(id.index()).ok_or_else(|| unknown(id))
    }

    pub(crate) fn find(&self, name: &str) -> Option<(StateId, &State)> {
        self.iter().find(|(_, state)| state.descriptor.name == name)
    }

    /// The id that the next state gets.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) when there are 65,536 of them.
    pub(crate) fn next_id(&self) -> Result<StateId> {
        u16::try_from(self.0.len()).map(StateId).map_err(|_| {
            Error::new(ErrorKind::TooLarge, "an instance has at most 65,536 states")
                .advice("use namespaces or map keys in place of states")
        })
    }

    /// Adds a state, whose id is [`next_id`](States::next_id).
    pub(crate) fn add(&mut self, state: State) {
        self.0.push(state);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (StateId, &State)> {
        (0..=u16::MAX).map(StateId).zip(&self.0)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (StateId, &mut State)> {
        (0..=u16::MAX).map(StateId).zip(&mut self.0)
    }
}

#[cold]
fn unknown(id: StateId) -> Error {
    Error::new(ErrorKind::InvalidUsage, format!("no state has the id {}", id.0))
        .advice("use the id that register returned on this instance")
}
