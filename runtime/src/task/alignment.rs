//! Barrier alignment as a pure decision: which channels wait, when the snapshot is taken.

use weir_state_api::CheckpointId;

use crate::record::Barrier;

/// Aligns the barriers of one task's channels.
///
/// 1. At most one checkpoint is being aligned; a newer barrier gives the older one up.
/// 2. A channel is blocked exactly while its barrier of the current checkpoint has arrived and the
///    alignment is not over.
/// 3. A channel that has ended counts as aligned.
/// 4. Barriers of completed, aborted or given-up checkpoints are ignored, also late ones.
#[derive(Debug)]
pub(crate) struct Alignment {
    current: Option<Barrier>,
    blocked: Vec<bool>,
    ended: Vec<bool>,
    /// The newest checkpoint that is over for this task.
    over: Option<CheckpointId>,
}

impl Alignment {
    pub(crate) fn new(channels: usize) -> Self {
        Alignment {
            current: None,
            blocked: vec![false; channels],
            ended: vec![false; channels],
            over: None,
        }
    }

    /// The channels not to read from.
    pub(crate) fn blocked(&self) -> &[bool] {
        &self.blocked
    }

    /// Whether all channels have ended.
    pub(crate) fn all_ended(&self) -> bool {
        self.ended.iter().all(|&ended| ended)
    }

    /// A barrier arrived; returns that of the checkpoint to take now, if alignment is complete.
    pub(crate) fn barrier(&mut self, channel: usize, barrier: Barrier) -> Option<Barrier> {
        let id = barrier.checkpoint;
        let current = self.current.map(|current| current.checkpoint);
        if self.over.is_some_and(|over| id <= over) || current.is_some_and(|current| id < current) {
            return None;
        }
        if current.is_some_and(|current| current < id) {
            self.give_up();
        }
        self.current = Some(barrier);
        self.blocked[channel] = true;
        self.complete_if_aligned()
    }

    /// A channel ended; returns the barrier of the checkpoint to take now, if that completes an
    /// alignment.
    pub(crate) fn end(&mut self, channel: usize) -> Option<Barrier> {
        self.ended[channel] = true;
        self.complete_if_aligned()
    }

    /// The checkpoint was aborted elsewhere.
    pub(crate) fn abort(&mut self, id: CheckpointId) {
        if self.current.is_some_and(|current| current.checkpoint <= id) {
            self.give_up();
        }
        self.over = self.over.max(Some(id));
    }

    fn give_up(&mut self) {
        self.over = self.over.max(self.current.map(|current| current.checkpoint));
        self.current = None;
        self.blocked.fill(false);
    }

    fn complete_if_aligned(&mut self) -> Option<Barrier> {
        let barrier = self.current?;
        let aligned =
            self.blocked.iter().zip(&self.ended).all(|(&barrier, &ended)| barrier || ended);
        if !aligned {
            return None;
        }
        self.give_up();
        Some(barrier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Barrier = barrier(1);
    const TWO: Barrier = barrier(2);

    const fn barrier(number: u64) -> Barrier {
        Barrier { checkpoint: CheckpointId(number), reuse_from: CheckpointId(number) }
    }

    #[test]
    fn channels_wait_until_all_barriers_are_there() {
        let mut alignment = Alignment::new(3);
        assert_eq!(alignment.barrier(1, ONE), None);
        assert_eq!(alignment.blocked(), [false, true, false]);
        assert_eq!(alignment.barrier(0, ONE), None);
        assert_eq!(alignment.barrier(2, ONE), Some(ONE));
        assert_eq!(alignment.blocked(), [false; 3]);
        assert_eq!(alignment.barrier(0, TWO), None, "the next one aligns afresh");
    }

    #[test]
    fn a_newer_barrier_gives_the_older_alignment_up() {
        let mut alignment = Alignment::new(2);
        assert_eq!(alignment.barrier(0, ONE), None);
        assert_eq!(alignment.barrier(1, TWO), None);
        assert_eq!(alignment.blocked(), [false, true], "channel 0 must deliver its barrier 2");
        assert_eq!(alignment.barrier(0, ONE), None, "late");
        assert_eq!(alignment.barrier(0, TWO), Some(TWO));
    }

    #[test]
    fn an_abort_unblocks_and_is_remembered() {
        let mut alignment = Alignment::new(2);
        assert_eq!(alignment.barrier(0, ONE), None);
        alignment.abort(ONE.checkpoint);
        assert_eq!(alignment.blocked(), [false, false]);
        assert_eq!(alignment.barrier(1, ONE), None, "late barrier of an aborted checkpoint");
        assert_eq!(alignment.blocked(), [false, false]);
        alignment.abort(ONE.checkpoint);
        assert_eq!(alignment.barrier(0, TWO), None);
        alignment.abort(ONE.checkpoint);
        assert_eq!(alignment.barrier(1, TWO), Some(TWO), "an older abort changes nothing");
    }

    #[test]
    fn ended_channels_count_as_aligned() {
        let mut alignment = Alignment::new(2);
        assert_eq!(alignment.end(0), None);
        assert_eq!(alignment.barrier(1, ONE), Some(ONE), "ended before the barrier");
        let mut alignment = Alignment::new(2);
        assert_eq!(alignment.barrier(1, ONE), None);
        assert_eq!(alignment.end(0), Some(ONE), "ended during the alignment");
        assert!(!alignment.all_ended());
        assert_eq!(alignment.end(1), None);
        assert!(alignment.all_ended());
    }
}
