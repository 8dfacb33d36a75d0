//! Whether a checkpoint is left that keeps what the log goes on from.

use weir_state_api::{CheckpointId, Notification, SnapshotRequest};

/// The checkpoints that name objects of the base and of the log since, as far as any of them may be kept.
///
/// What no complete checkpoint has ever named stays while the instance lives. What one has named may go
/// with the last of them; so when none is left, a later handle must not name it. News of all that may be
/// lost, and a checkpoint that was aborted may have been the only one after those that are gone.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In ascending order, without gaps in memory: the synchronous part of a checkpoint looks at each.
    checkpoints: Vec<CheckpointId>,
    /// One that is not among them any more may have been complete.
    some_gone: bool,
}

/// What is left to build on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Left {
    Usable,
    /// All that is named may be deleted at any time.
    Nothing,
}

impl Kept {
    /// A checkpoint that the instance was restored from, and owns.
    pub(crate) fn restored(checkpoint: Option<CheckpointId>) -> Self {
        Kept { checkpoints: checkpoint.into_iter().collect(), some_gone: false }
    }

    /// A checkpoint is asked for: the request tells the oldest one that is kept.
    pub(crate) fn begin(&mut self, request: &SnapshotRequest) -> Left {
        let before = self.checkpoints.len();
        self.checkpoints.retain(|checkpoint| request.may_build_on(*checkpoint));
        self.some_gone |= self.checkpoints.len() < before;
        let left = self.left();
        if let Err(at) = self.checkpoints.binary_search(&request.checkpoint) {
            self.checkpoints.insert(at, request.checkpoint);
        }
        left
    }

    /// The engine tells what has become of one.
    pub(crate) fn hear(&mut self, news: Notification) -> Left {
        match news {
            Notification::Subsumed(id) => {
                let before = self.checkpoints.len();
                self.checkpoints.retain(|checkpoint| *checkpoint > id);
                self.some_gone |= self.checkpoints.len() < before;
            }
            Notification::Aborted(id) => {
                self.checkpoints.retain(|checkpoint| *checkpoint != id);
            }
            _ => {}
        }
        self.left()
    }

    fn left(&mut self) -> Left {
        if self.some_gone && self.checkpoints.is_empty() {
            self.some_gone = false;
            return Left::Nothing;
        }
        Left::Usable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Notification::{Aborted, Complete, Subsumed};

    fn request(number: u64, reuse_from: Option<u64>) -> SnapshotRequest {
        let mut request = SnapshotRequest::checkpoint(CheckpointId(number), "");
        request.reuse_from = reuse_from.map(CheckpointId);
        request
    }

    /// Checkpoints that begin, and news of them; what is left after the last one.
    fn after(steps: &[Result<(u64, Option<u64>), Notification>]) -> Left {
        let mut kept = Kept::default();
        let mut left = Left::Usable;
        for step in steps {
            left = match *step {
                Ok((number, reuse_from)) => kept.begin(&request(number, reuse_from)),
                Err(news) => kept.hear(news),
            };
        }
        left
    }

    #[test]
    fn something_is_left_while_one_may_be_kept() {
        let id = CheckpointId;
        assert_eq!(after(&[Ok((1, Some(1)))]), Left::Usable);
        assert_eq!(after(&[Ok((1, None)), Err(Complete(id(1))), Ok((2, Some(1)))]), Left::Usable);
        assert_eq!(after(&[Ok((1, None)), Err(Aborted(id(1))), Ok((2, Some(2)))]), Left::Usable);
        assert_eq!(after(&[Ok((1, None)), Ok((2, Some(1))), Err(Subsumed(id(1)))]), Left::Usable);
    }

    #[test]
    fn nothing_is_left_when_the_last_one_is_gone() {
        let id = CheckpointId;
        assert_eq!(after(&[Ok((1, None)), Err(Subsumed(id(1)))]), Left::Nothing);
        assert_eq!(after(&[Ok((1, None)), Ok((2, Some(2)))]), Left::Nothing, "the news was lost");
        let aborted = [Ok((1, None)), Ok((2, None)), Err(Aborted(id(2))), Err(Subsumed(id(1)))];
        assert_eq!(after(&aborted), Left::Nothing);
        let late = [Ok((1, None)), Ok((2, None)), Err(Subsumed(id(1))), Err(Aborted(id(2)))];
        assert_eq!(after(&late), Left::Nothing);
    }
}
