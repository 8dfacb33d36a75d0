//! Starts, polls and ends records.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::executor::{Batch, InFlight, Phase};
use super::futures::{Ended, poll_caught};
use super::lanes::{Ticket, Waiting};
use super::record_state::{Shared, Traces, interrupted};
use super::wake::{Alarm, Woken};
use super::{Admission, Failure, RecordOperator};
use crate::typed::KeyRules;
use crate::{Codec, Error, Key, Result};

/// How often one call of the engine's looks for records that were woken meanwhile: a record that
/// wakes itself without end must not hold the engine for ever.
const ROUNDS: usize = 128;

/// Which records go on when the executor is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goes {
    All,
    /// Those that have written: a snapshot waits for them, and for no others.
    Writers,
}

impl<O, K, C> InFlight<O, K, C>
where
    O: RecordOperator,
    K: Send + 'static,
    C: Codec<K>,
{
    /// Admits a record whose key `encode` writes; refuses it before when there is no room.
    #[inline]
    pub(super) fn admit(
        &mut self,
        record: O::Record,
        phase: Phase,
        encode: impl FnOnce(&KeyRules<K, C>, &mut Key) -> Result<()>,
    ) -> Result<Admission<O::Record>> {
        let weight = self.operator.weight(&record);
        if self.phase != phase || !self.has_room_for(weight) {
            return Ok(Admission::Full(record));
        }
        let ended = self.enter(record, weight, encode);
        self.check_failures()?;
        Ok(if ended { Admission::Done } else { Admission::InFlight })
    }

    /// Takes a record in; answers whether it has ended already.
    pub(super) fn enter(
        &mut self,
        record: O::Record,
        weight: usize,
        encode: impl FnOnce(&KeyRules<K, C>, &mut Key) -> Result<()>,
    ) -> bool {
        let index = match self.lanes.vacant() {
            Some(index) => index,
            None => {
                self.futures.grow();
                self.lanes.grow(&self.wakes, &self.operator, &self.shared)
            }
        };
        // The key goes straight to its place: copying it once more would wait for its stores.
        let admitted = Arc::make_mut(&mut self.lanes.get_mut(index).admitted);
        let encoded = encode(&self.keys, &mut admitted.key);
        if let Err(error) = encoded {
            let key = admitted.key.clone();
            self.failures.push(Failure { record, key, error, has_written: false });
            return true;
        }
        let ticket = self.count_in(weight);
        let owner = self.lanes.of_key(self.lanes.get(index).admitted.key.as_ref());
        if let Some(owner) = owner {
            self.lanes.get_mut(owner).waiting.push_back(Waiting { record, ticket });
            return false;
        }
        self.lanes.take_vacant();
        self.start(index, record, ticket);
        let ended = self.run(index, Goes::All);
        if ended {
            self.lanes.give_back(index);
        } else {
            self.lanes.enter(index);
            if self.unsent {
                // An engine that waits since its last poll would never send the open batch.
                self.wakes.wake_engine();
            }
        }
        ended
    }

    fn count_in(&mut self, weight: usize) -> Ticket {
        let sequence = self.arrived;
        self.arrived += 1;
        self.records += 1;
        self.bytes = self.bytes.saturating_add(weight);
        Ticket { sequence, epoch: self.epochs.begin(), weight }
    }

    pub(super) fn count_out(&mut self, ticket: Ticket) {
        self.records -= 1;
        self.bytes = self.bytes.saturating_sub(ticket.weight);
        self.epochs.end(ticket.epoch);
        self.ended += 1;
    }

    /// Puts a record into a lane; its key is there.
    fn start(&mut self, index: usize, record: O::Record, ticket: Ticket) {
        let lane = self.lanes.get_mut(index);
        let admitted = Arc::make_mut(&mut lane.admitted);
        admitted.record = Some(record);
        lane.ticket = Some(ticket);
        self.futures.start(index, lane.admitted.clone(), std::mem::take(&mut self.spare_outputs));
    }

    /// Polls the record of a lane, and those behind it once it has ended; answers whether none is
    /// left.
    fn run(&mut self, index: usize, goes: Goes) -> bool {
        loop {
            let alarm = &self.lanes.get(index).alarm;
            alarm.arm();
            let polled = self.futures.poll(index, &mut Context::from_waker(alarm.waker()));
            if self.lanes.get(index).admitted.traces.has_deferred() {
                self.send_reads(self.limits.reads);
            }
            match polled {
                Poll::Pending => return false,
                Poll::Ready(ended) => self.end(index, ended),
            }
            if self.lanes.get(index).waiting.is_empty() {
                return true;
            }
            if goes == Goes::Writers {
                // The next one has not begun, so it is not waited for.
                self.woken.push(Woken::Lane(index));
                return false;
            }
            self.start_next(index);
        }
    }

    /// Starts the record that waits first in a lane.
    fn start_next(&mut self, index: usize) {
        if let Some(Waiting { record, ticket }) = self.lanes.get_mut(index).waiting.pop_front() {
            self.start(index, record, ticket);
        }
    }

    /// Takes a record that has ended out of its lane.
    fn end(&mut self, index: usize, ended: Ended<O::Output>) {
        let Ended { result, mut outputs } = ended;
        let lane = self.lanes.get_mut(index);
        let admitted = Arc::make_mut(&mut lane.admitted);
        let record = admitted.record.take();
        match (result, record) {
            (Ok(()), _) => self.outputs.append(&mut outputs),
            (Err(error), Some(record)) => {
                outputs.clear();
                let (key, has_written) = (admitted.key.clone(), admitted.traces.has_written());
                self.failures.push(Failure { record, key, error, has_written });
            }
            (Err(_), None) => {}
        }
        admitted.traces = Traces::default();
        self.spare_outputs = outputs;
        if let Some(ticket) = lane.ticket.take() {
            self.count_out(ticket);
        }
    }

    /// Sends the open batch of reads if it has at least `least`; answers whether it was sent.
    fn send_reads(&mut self, least: usize) -> bool {
        let sent = match self.store.lock() {
            Ok(mut shared) => {
                let Shared { reads, store } = &mut *shared;
                self.unsent = reads.open_len() > 0;
                if reads.open_len() < least {
                    return false;
                }
                self.unsent = false;
                reads.send(store.backend())
            }
            Err(poisoned) => {
                poisoned.into_inner().reads.fail(&interrupted());
                self.unsent = false;
                return true;
            }
        };
        if let Some(batch) = sent {
            let free = self.batches.iter().position(|batch| batch.sent.is_none());
            let number = free.unwrap_or_else(|| {
                let number = self.batches.len();
                let alarm = Alarm::new(&self.wakes, Woken::Batch(number));
                self.batches.push(Batch { sent: None, alarm });
                number
            });
            self.batches[number].sent = Some(batch);
            self.poll_batch(number);
        }
        true
    }

    fn poll_batch(&mut self, number: usize) {
        let Batch { sent, alarm } = &mut self.batches[number];
        alarm.arm();
        let Some(batch) = sent else { return };
        let mut context = Context::from_waker(alarm.waker());
        if let Poll::Ready(result) = poll_caught(batch.future.as_mut(), &mut context)
            && let Some(batch) = sent.take()
        {
            batch.finish(result);
        }
    }

    /// Polls whatever was woken, until nothing more goes on; then `engine` is told of more.
    pub(super) fn advance(&mut self, engine: &Waker, goes: Goes) {
        for _ in 0..ROUNDS {
            self.wakes.take(engine, &mut self.woken);
            let mut progress = false;
            let mut woken = std::mem::take(&mut self.woken);
            woken.retain(|&what| {
                let held = match what {
                    Woken::Batch(number) => {
                        self.poll_batch(number);
                        false
                    }
                    Woken::Lane(index) => !self.poll_lane(index, goes),
                };
                progress |= !held;
                held
            });
            woken.append(&mut self.woken);
            self.woken = woken;
            let goes_on = progress || (self.unsent && self.send_reads(1));
            if !goes_on {
                return;
            }
        }
        engine.wake_by_ref();
    }

    /// Polls a woken record; `false` when it is not to go on now.
    fn poll_lane(&mut self, index: usize, goes: Goes) -> bool {
        let lane = self.lanes.get(index);
        let begun = lane.ticket.is_some();
        if !begun && lane.waiting.is_empty() {
            // A wake-up for a record that was here before.
            lane.alarm.arm();
            return true;
        }
        if goes == Goes::Writers && !lane.admitted.traces.has_written() {
            return false;
        }
        if !begun {
            self.start_next(index);
        }
        if self.run(index, goes) {
            self.lanes.leave(index);
        }
        true
    }

    /// An error while there is a failure that nobody has taken.
    pub(super) fn check_failures(&self) -> Result<()> {
        match self.failures.first() {
            None => Ok(()),
            Some(failure) => Err(failed(&failure.error)),
        }
    }
}

#[cold]
fn failed(error: &Error) -> Error {
    let mut outer = Error::new(error.kind(), format!("a record in flight failed: {error}"));
    if let Some(state) = error.state_name() {
        outer = outer.state(state);
    }
    outer
}
