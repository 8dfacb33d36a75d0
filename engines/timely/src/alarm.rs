//! Has an operator scheduled after a while.

use std::time::{Duration, Instant};

use timely::scheduling::Activator;

/// One alarm at a time: activations that set their own would pile up.
#[derive(Debug)]
pub(crate) struct Alarm {
    activator: Activator,
    at: Option<Instant>,
}

impl Alarm {
    pub(crate) fn new(activator: Activator) -> Self {
        Alarm { activator, at: None }
    }

    /// Sets the alarm, unless one goes off earlier.
    pub(crate) fn set(&mut self, patience: Duration) {
        let now = Instant::now();
        if self.at.is_none_or(|at| at <= now || at > now + patience) {
            self.at = Some(now + patience);
            self.activator.activate_after(patience);
        }
    }
}
