//! A sink into memory, for tests and examples.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use weir_state_api::{CheckpointId, OperatorState, Result};

use super::{Sink, SinkOpening, SinkWriter};
use crate::record::{Data, Record};

/// Collects committed values in memory; clones share them.
///
/// Values are committed with their checkpoint, so a run that recovers within the process yields
/// each once. The prepared values live in the process: this sink does not outlive it.
#[derive(Debug)]
pub struct VecSink<T>(Arc<Mutex<Shared<T>>>);

#[derive(Debug)]
struct Shared<T> {
    prepared: BTreeMap<(CheckpointId, u16), Vec<T>>,
    committed: Vec<T>,
}

impl<T> Default for VecSink<T> {
    fn default() -> Self {
        VecSink(Arc::new(Mutex::new(Shared { prepared: BTreeMap::new(), committed: Vec::new() })))
    }
}

impl<T> Clone for VecSink<T> {
    fn clone(&self) -> Self {
        VecSink(self.0.clone())
    }
}

impl<T> VecSink<T> {
    /// Takes the values committed so far; the order of different subtasks is undefined.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.lock().committed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Data> Sink<T> for VecSink<T> {
    fn open(&self, opening: &SinkOpening) -> Result<Box<dyn SinkWriter<T>>> {
        let mut shared = self.lock();
        let restored = opening.restored;
        let (keep, _) = std::mem::take(&mut shared.prepared)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|((id, _), _)| Some(*id) <= restored);
        shared.prepared = keep;
        if let Some(restored) = restored {
            shared.commit(restored);
        }
        drop(shared);
        Ok(Box::new(Writer { sink: self.clone(), subtask: opening.subtask, open: Vec::new() }))
    }
}

impl<T> Shared<T> {
    fn commit(&mut self, checkpoint: CheckpointId) {
        let later = self.prepared.split_off(&(CheckpointId(checkpoint.0 + 1), 0));
        for (_, values) in std::mem::replace(&mut self.prepared, later) {
            self.committed.extend(values);
        }
    }
}

struct Writer<T> {
    sink: VecSink<T>,
    subtask: u16,
    open: Vec<T>,
}

impl<T: Data> SinkWriter<T> for Writer<T> {
    fn write(&mut self, batch: Vec<Record<T>>) -> Result<()> {
        self.open.extend(batch.into_iter().map(|record| record.value));
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<OperatorState> {
        let values = std::mem::take(&mut self.open);
        // Several streams may write to clones of one sink.
        let mut shared = self.sink.lock();
        shared.prepared.entry((checkpoint, self.subtask)).or_default().extend(values);
        Ok(OperatorState::new())
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        // One subtask's news is enough: complete means complete everywhere.
        self.sink.lock().commit(checkpoint);
        Ok(())
    }
}
