//! The states of an instance, by their ids.

use crate::{Error, ErrorKind, Result, StateDescriptor, StateId};

/// The states of an instance: what a backend holds of each, numbered as they were registered.
#[derive(Debug)]
pub struct StateTable<S>(Vec<S>);

impl<S> Default for StateTable<S> {
    fn default() -> Self {
        StateTable(Vec::new())
    }
}

impl<S: AsRef<StateDescriptor>> StateTable<S> {
    /// The state with this id.
    ///
    /// # Errors
    /// Those of [`unknown_state`].
    #[inline]
    pub fn get(&self, id: StateId) -> Result<&S> {
        self.0.get(id.index()).ok_or_else(|| unknown_state(id))
    }

    /// The state with this id, to change it.
    ///
    /// # Errors
    /// Those of [`unknown_state`].
    #[inline]
    pub fn get_mut(&mut self, id: StateId) -> Result<&mut S> {
        self.0.get_mut(id.index()).ok_or_else(|| unknown_state(id))
    }

    /// The state with this name.
    pub fn find(&self, name: &str) -> Option<(StateId, &S)> {
        self.iter().find(|(_, state)| state.as_ref().name == name)
    }

    /// The id that the next state gets, whose name is `name`.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) when there are 65,536 states.
    pub fn next_id(&self, name: &str) -> Result<StateId> {
        next_state_id(self.0.len(), name)
    }

    /// Adds a state whose name is new.
    ///
    /// # Errors
    /// Those of [`next_id`](StateTable::next_id).
    pub fn add(&mut self, state: S) -> Result<StateId> {
        let id = self.next_id(&state.as_ref().name)?;
        self.0.push(state);
        Ok(id)
    }

    /// All states.
    pub fn iter(&self) -> impl Iterator<Item = (StateId, &S)> {
        (0..=u16::MAX).map(StateId).zip(&self.0)
    }

    /// All states, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (StateId, &mut S)> {
        (0..=u16::MAX).map(StateId).zip(&mut self.0)
    }
}

/// The error for an id that no state of the instance has.
#[cold]
pub fn unknown_state(id: StateId) -> Error {
    Error::new(ErrorKind::InvalidUsage, format!("no state has the id {}", id.0))
        .advice("use the id that register returned on this instance")
}

/// The id of the state called `name` when there are `states` before it.
///
/// # Errors
/// [`TooLarge`](ErrorKind::TooLarge) when there are 65,536 states.
pub fn next_state_id(states: usize, name: &str) -> Result<StateId> {
    u16::try_from(states).map(StateId).map_err(|_| {
        Error::new(ErrorKind::TooLarge, "an instance has at most 65,536 states")
            .state(name)
            .advice("use namespaces or map keys in place of states")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodecId, StateKind};

    struct Named(StateDescriptor);

    impl AsRef<StateDescriptor> for Named {
        fn as_ref(&self) -> &StateDescriptor {
            &self.0
        }
    }

    fn named(name: &str) -> Named {
        let codec = CodecId::new("u8", 1);
        Named(StateDescriptor::new(name, StateKind::Value, codec.clone(), codec))
    }

    #[test]
    fn states_are_found_by_id_and_name() {
        let mut table = StateTable::default();
        let (a, b) = (table.add(named("a")).unwrap(), table.add(named("b")).unwrap());
        assert_eq!((a, b), (StateId(0), StateId(1)));
        assert_eq!(table.find("b").map(|(id, _)| id), Some(b));
        assert_eq!(table.get(b).unwrap().0.name, "b");
        assert_eq!(table.get(StateId(2)).err().unwrap().kind(), ErrorKind::InvalidUsage);
        assert!(table.find("c").is_none());
    }

    #[test]
    fn there_are_no_more_states_than_ids() {
        assert_eq!(next_state_id(65_535, "x").unwrap(), StateId(u16::MAX));
        assert_eq!(next_state_id(65_536, "x").unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
