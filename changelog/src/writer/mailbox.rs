//! What the writer's thread is told, in order.
//!
//! A message can be posted, which wakes the thread, or left, which does not: systems like to wake a thread
//! on the processor of whoever wakes it, and would let a task wait there until its changes are compressed.
//! So the synchronous part of a checkpoint leaves its messages, and its asynchronous part wakes the thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Message;

/// The way to the thread, for any number of others.
#[derive(Debug)]
pub(super) struct Mailbox {
    letters: Mutex<Letters>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Letters {
    messages: VecDeque<Message>,
    /// The thread waits to be woken.
    asleep: bool,
    /// The thread has ended: nobody reads them any more.
    closed: bool,
}

impl Mailbox {
    /// A mailbox, and the only right to read what is in it.
    pub(super) fn new() -> (Arc<Self>, Reader) {
        let mailbox = Arc::new(Mailbox { letters: Mutex::default(), arrived: Condvar::new() });
        (Arc::clone(&mailbox), Reader(mailbox))
    }

    /// Tells the thread at once. `false` when it has ended: then nothing happens.
    pub(super) fn post(&self, message: Message) -> bool {
        let left = self.leave(message);
        self.wake();
        left
    }

    /// Tells the thread when it is awake, which it is after the next [`wake`](Mailbox::wake) at the latest.
    /// `false` when it has ended.
    pub(super) fn leave(&self, message: Message) -> bool {
        let mut letters = self.lock();
        if letters.closed {
            drop(letters);
            // What ends with a message may have something to say itself.
            drop(message);
            return false;
        }
        letters.messages.push_back(message);
        true
    }

    /// Lets the thread read what was left, if anything is.
    pub(super) fn wake(&self) {
        let mut letters = self.lock();
        let sleeps_over_some = !letters.messages.is_empty() && std::mem::take(&mut letters.asleep);
        drop(letters);
        if sleeps_over_some {
            self.arrived.notify_one();
        }
    }

    /// Whether somebody reads: the thread may have panicked.
    pub(super) fn is_open(&self) -> bool {
        !self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        // It is whole after each call.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that the thread reads; the mailbox closes with it.
#[derive(Debug)]
pub(super) struct Reader(Arc<Mailbox>);

impl Reader {
    /// Moves at most so many messages to `messages`. Without any it waits, until the deadline when there
    /// is one.
    ///
    /// Returns whether it has waited.
    pub(super) fn read(
        &self,
        most: usize,
        deadline: Option<Instant>,
        messages: &mut VecDeque<Message>,
    ) -> bool {
        let mut letters = self.0.lock();
        let mut waited = false;
        while letters.messages.is_empty() {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            (letters.asleep, waited) = (true, true);
            letters = match left {
                None => self.0.arrived.wait(letters).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let woken = self.0.arrived.wait_timeout(letters, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        letters.asleep = false;
        let count = letters.messages.len().min(most);
        messages.extend(letters.messages.drain(..count));
        waited
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut letters = self.0.lock();
        letters.closed = true;
        let unread = std::mem::take(&mut letters.messages);
        drop(letters);
        drop(unread);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::chunk_list::ChunkList;
    use crate::format::LogPosition;

    fn forget(number: u64) -> Message {
        Message::Forget { stream: 0, to: LogPosition(number), unneeded: ChunkList::default() }
    }

    fn numbers(messages: &VecDeque<Message>) -> Vec<u64> {
        let number = |message: &Message| match message {
            Message::Forget { to, .. } => to.0,
            other => panic!("{other:?}"),
        };
        messages.iter().map(number).collect()
    }

    #[test]
    fn what_is_left_comes_before_what_is_posted_later() {
        let (mailbox, reader) = Mailbox::new();
        assert!(mailbox.leave(forget(1)) && mailbox.post(forget(2)) && mailbox.leave(forget(3)));
        let mut messages = VecDeque::new();
        assert!(!reader.read(2, None, &mut messages));
        assert!(!reader.read(2, None, &mut messages));
        assert_eq!(numbers(&messages), [1, 2, 3]);
    }

    #[test]
    fn what_is_left_wakes_nobody() {
        let (mailbox, reader) = Mailbox::new();
        std::thread::scope(|scope| {
            let reads = scope.spawn(move || {
                let mut messages = VecDeque::new();
                assert!(reader.read(9, None, &mut messages), "it has waited");
                numbers(&messages)
            });
            while !mailbox.lock().asleep {
                std::thread::yield_now();
            }
            mailbox.wake();
            assert!(mailbox.lock().asleep, "there is nothing to read");
            mailbox.leave(forget(1));
            assert!(mailbox.lock().asleep && !reads.is_finished());
            mailbox.wake();
            assert_eq!(reads.join().unwrap_or_default(), [1]);
        });
    }

    #[test]
    fn a_wake_is_not_lost_whenever_it_comes() {
        let (mailbox, reader) = Mailbox::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..10_000 {
                    assert!(mailbox.leave(forget(number)));
                    mailbox.wake();
                }
            });
            let mut messages = VecDeque::new();
            while messages.len() < 10_000 {
                reader.read(3, None, &mut messages);
            }
            assert_eq!(numbers(&messages), (0..10_000).collect::<Vec<_>>());
        });
    }

    #[test]
    fn nobody_waits_beyond_the_deadline() {
        let (mailbox, reader) = Mailbox::new();
        let mut messages = VecDeque::new();
        assert!(!reader.read(1, Some(Instant::now()), &mut messages), "it does not wait");
        assert!(reader.read(1, Some(Instant::now() + Duration::from_millis(1)), &mut messages));
        assert!(messages.is_empty());
        mailbox.leave(forget(1));
        reader.read(1, Some(Instant::now()), &mut messages);
        assert_eq!(
            numbers(&messages),
            [1],
            "a deadline that has passed is no reason to read nothing"
        );
    }

    /// A message may hold what tells the mailbox of its end.
    #[test]
    fn a_closed_mailbox_takes_nothing_and_drops_what_is_unread() {
        let (mailbox, reader) = Mailbox::new();
        let (reply, mut answer) = futures_channel::oneshot::channel();
        mailbox.leave(Message::Persist { stream: 0, reply });
        drop(reader);
        assert!(answer.try_recv().is_err(), "it was dropped");
        assert!(!mailbox.is_open() && !mailbox.post(forget(1)) && !mailbox.leave(forget(2)));
        mailbox.wake();
    }
}
