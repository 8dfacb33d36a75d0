//! Bounded channels into a task: one queue per sender, one wake-up for all.
//!
//! A task reads from all its channels but must be able to stop reading from some of them while a
//! barrier is aligned. So every sender has its own bounded queue, and the receiver picks among
//! those it has not blocked. A lock is taken per batch, not per record.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_state_api::{CheckpointId, Error, ErrorKind, Result};

use crate::record::{Barrier, Element};

/// News from the coordinator to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// Start this checkpoint (sources only).
    Trigger(Barrier),
    /// The checkpoint is complete everywhere.
    Complete(CheckpointId),
    /// The checkpoint will never complete.
    Abort(CheckpointId),
    /// The checkpoint is no longer retained.
    Subsumed(CheckpointId),
    /// All input is read and committed: end (sources only).
    Finish,
}

/// What a task receives.
#[derive(Debug)]
pub(crate) enum Received<T> {
    Control(Control),
    Element { channel: usize, element: Element<T> },
}

#[derive(Debug)]
struct State<T> {
    queues: Vec<VecDeque<Element<T>>>,
    control: VecDeque<Control>,
    /// Where the next search begins, so that no channel starves.
    next: usize,
    cancelled: bool,
}

/// The receiving end of all channels of one task.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    state: Mutex<State<T>>,
    capacity: usize,
    received: Condvar,
    taken: Condvar,
}

impl<T> Inbox<T> {
    /// An inbox with this many channels of `capacity` batches each.
    pub(crate) fn new(channels: usize, capacity: usize) -> Arc<Self> {
        Arc::new(Inbox {
            state: Mutex::new(State {
                queues: (0..channels).map(|_| VecDeque::with_capacity(capacity)).collect(),
                control: VecDeque::new(),
                next: 0,
                cancelled: false,
            }),
            capacity,
            received: Condvar::new(),
            taken: Condvar::new(),
        })
    }

    pub(crate) fn channels(&self) -> usize {
        self.lock().queues.len()
    }

    /// Sends into a channel; waits while it is full.
    pub(crate) fn send(&self, channel: usize, element: Element<T>) -> Result<()> {
        let mut state = self.lock();
        loop {
            if state.cancelled {
                return Err(cancelled());
            }
            // Signals are few and must not wait behind a full queue's batches twice: they may
            // exceed the capacity, which only batches fill.
            let batch = matches!(element, Element::Batch(_));
            if !batch || state.queues[channel].len() < self.capacity {
                break;
            }
            state = self.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queues[channel].push_back(element);
        drop(state);
        self.received.notify_one();
        Ok(())
    }

    /// The next control message or element of a channel that is not blocked; waits for one.
    pub(crate) fn receive(&self, blocked: &[bool]) -> Result<Received<T>> {
        loop {
            if let Some(received) = self.receive_within(blocked, None)? {
                return Ok(received);
            }
        }
    }

    /// The same, but `None` when nothing has come after `patience`.
    pub(crate) fn receive_within(
        &self,
        blocked: &[bool],
        patience: Option<Duration>,
    ) -> Result<Option<Received<T>>> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut state = self.lock();
        loop {
            if state.cancelled {
                return Err(cancelled());
            }
            if let Some(control) = state.control.pop_front() {
                return Ok(Some(Received::Control(control)));
            }
            let channels = state.queues.len();
            for offset in 0..channels {
                let channel = (state.next + offset) % channels;
                if blocked.get(channel).copied().unwrap_or(false) {
                    continue;
                }
                if let Some(element) = state.queues[channel].pop_front() {
                    state.next = (channel + 1) % channels;
                    let was_full = state.queues[channel].len() + 1 >= self.capacity;
                    drop(state);
                    if was_full {
                        self.taken.notify_all();
                    }
                    return Ok(Some(Received::Element { channel, element }));
                }
            }
            let Some(deadline) = deadline else {
                state = self.received.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            (state, _) =
                self.received.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next control message, if there is one.
    pub(crate) fn try_control(&self) -> Result<Option<Control>> {
        let mut state = self.lock();
        if state.cancelled { Err(cancelled()) } else { Ok(state.control.pop_front()) }
    }

    /// Waits up to `timeout` for a control message.
    pub(crate) fn wait_control(&self, timeout: Duration) -> Result<Option<Control>> {
        let state = self.lock();
        let (mut state, _) = self
            .received
            .wait_timeout_while(state, timeout, |state| {
                !state.cancelled && state.control.is_empty()
            })
            .unwrap_or_else(PoisonError::into_inner);
        if state.cancelled { Err(cancelled()) } else { Ok(state.control.pop_front()) }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panicking holder leaves queues whole: each operation is one push or pop.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the coordinator needs of an inbox, whatever flows through it.
pub(crate) trait Mailbox: Send + Sync {
    /// Puts a control message in front of all elements.
    fn post(&self, control: Control);
    /// Makes every current and future call of the task and of its senders fail.
    fn cancel(&self);
}

impl<T: Send> Mailbox for Inbox<T> {
    fn post(&self, control: Control) {
        self.lock().control.push_back(control);
        self.received.notify_all();
    }

    fn cancel(&self) {
        let mut state = self.lock();
        state.cancelled = true;
        state.queues.iter_mut().for_each(VecDeque::clear);
        drop(state);
        self.received.notify_all();
        self.taken.notify_all();
    }
}

/// The error of a task that was told to stop.
pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Closed, "the task was cancelled")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, Signal};

    fn batch(value: u32) -> Element<u32> {
        Element::Batch(vec![Record { time: 0, value }])
    }

    fn value(received: Received<u32>) -> (usize, u32) {
        match received {
            Received::Element { channel, element: Element::Batch(batch) } => {
                (channel, batch[0].value)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn blocked_channels_are_left_alone_and_no_channel_starves() {
        let inbox = Inbox::new(2, 4);
        for i in 0..3 {
            inbox.send(0, batch(i)).unwrap();
            inbox.send(1, batch(10 + i)).unwrap();
        }
        let open = [false, false];
        assert_eq!(value(inbox.receive(&open).unwrap()), (0, 0));
        assert_eq!(value(inbox.receive(&open).unwrap()), (1, 10));
        assert_eq!(value(inbox.receive(&[true, false]).unwrap()), (1, 11));
        assert_eq!(value(inbox.receive(&[true, false]).unwrap()), (1, 12));
        assert_eq!(value(inbox.receive(&open).unwrap()), (0, 1));
    }

    #[test]
    fn control_goes_first_and_signals_pass_a_full_queue() {
        let inbox = Inbox::new(1, 1);
        inbox.send(0, batch(1)).unwrap();
        inbox.send(0, Element::Signal(Signal::Watermark(5))).unwrap();
        inbox.post(Control::Finish);
        assert!(matches!(inbox.receive(&[]).unwrap(), Received::Control(Control::Finish)));
        assert_eq!(value(inbox.receive(&[]).unwrap()), (0, 1));
    }

    #[test]
    fn a_full_channel_holds_its_sender_until_it_is_read() {
        let inbox = Inbox::new(1, 1);
        inbox.send(0, batch(1)).unwrap();
        let sender = {
            let inbox = inbox.clone();
            std::thread::spawn(move || inbox.send(0, batch(2)))
        };
        assert_eq!(value(inbox.receive(&[]).unwrap()), (0, 1));
        assert_eq!(value(inbox.receive(&[]).unwrap()), (0, 2));
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn patience_ends_without_anything_to_receive() {
        let inbox = Inbox::<u8>::new(1, 1);
        assert!(inbox.receive_within(&[], Some(Duration::ZERO)).unwrap().is_none());
        inbox.send(0, Element::Signal(Signal::End)).unwrap();
        assert!(inbox.receive_within(&[true], Some(Duration::ZERO)).unwrap().is_none());
        assert!(inbox.receive_within(&[], Some(Duration::ZERO)).unwrap().is_some());
    }

    #[test]
    fn cancelling_wakes_both_sides() {
        let inbox = Inbox::new(1, 1);
        inbox.send(0, batch(1)).unwrap();
        let sender = {
            let inbox = inbox.clone();
            std::thread::spawn(move || inbox.send(0, batch(2)))
        };
        inbox.cancel();
        assert_eq!(sender.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(inbox.receive(&[]).unwrap_err().kind(), ErrorKind::Closed);
    }
}
