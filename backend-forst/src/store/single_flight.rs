//! One piece of work for all that want its result at the same time.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use weir_state_api::{Error, ErrorKind, Result};

type Outcome<V> = Result<V, Arc<Error>>;

/// Work in progress, by what it is for.
///
/// The first to ask for a piece of work gets the [`Lead`] of it and must do it; whoever asks before it is
/// done shares the result. Results are not kept: the leader puts them where the next one looks first (a
/// cache), before it ends its lead, and looks there once more when it has taken it.
#[derive(Debug)]
pub(crate) struct Flights<K, V>(Arc<Mutex<InFlight<K, V>>>);

type InFlight<K, V> = HashMap<K, Wait<V>>;

/// Pieces of work that were asked for together: a single allocation, for reads ask for many at a time.
#[derive(Debug)]
struct Flight<V>(Mutex<Progress<V>>);

#[derive(Debug)]
struct Progress<V> {
    pieces: Vec<Piece<V>>,
    /// Those who wait, and for which of them.
    waiting: Vec<(u32, Waker)>,
}

#[derive(Debug)]
enum Piece<V> {
    Running,
    Done(Outcome<V>),
    /// It ended without a result.
    Lost,
}

/// The result of somebody's work.
#[derive(Debug)]
pub(crate) struct Wait<V> {
    flight: Arc<Flight<V>>,
    piece: u32,
}

/// The duty to do some pieces of work. What is dropped without a result fails all who wait.
#[derive(Debug)]
pub(crate) struct Lead<K: Copy + Eq + Hash, V> {
    flights: Arc<Mutex<InFlight<K, V>>>,
    flight: Arc<Flight<V>>,
    /// What is to be done yet, in the order in which it was asked for.
    open: Vec<(K, u32)>,
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Flights(Arc::default())
    }
}

impl<K: Copy + Eq + Hash, V> Flights<K, V> {
    /// Asks for the work on these keys, each of them once: the result of each, and the duty to do what
    /// nobody does already.
    pub(crate) fn ask_all(&self, keys: &[K]) -> (Vec<Wait<V>>, Lead<K, V>) {
        let pieces = keys.iter().map(|_| Piece::Running).collect();
        let progress = Progress { pieces, waiting: Vec::new() };
        let flight = Arc::new(Flight(Mutex::new(progress)));
        let (mut waits, mut open) = (Vec::with_capacity(keys.len()), Vec::new());
        let mut in_flight = lock(&self.0);
        for (piece, key) in (0..).zip(keys) {
            let own = || {
                open.push((*key, piece));
                Wait { flight: Arc::clone(&flight), piece }
            };
            waits.push(in_flight.entry(*key).or_insert_with(own).clone());
        }
        drop(in_flight);
        (waits, Lead { flights: Arc::clone(&self.0), flight, open })
    }

    /// Asks for the work on a key: its result, and the duty to do it unless somebody does.
    pub(crate) fn ask(&self, key: K) -> (Wait<V>, Option<Lead<K, V>>) {
        let (mut waits, lead) = self.ask_all(&[key]);
        let wait = waits.pop().expect("each key has a result");
        (wait, (!lead.open.is_empty()).then_some(lead))
    }

    /// How much work is in progress.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

impl<K: Copy + Eq + Hash, V> Lead<K, V> {
    /// What is to be done.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = K> {
        self.open.iter().map(|(key, _)| *key)
    }

    /// The duty to do the first pieces.
    pub(crate) fn split(&mut self, pieces: usize) -> Self {
        let open = self.open.drain(..pieces).collect();
        Lead { flights: Arc::clone(&self.flights), flight: Arc::clone(&self.flight), open }
    }

    /// Ends what there is a result of already.
    pub(crate) fn end_known(&mut self, mut known: impl FnMut(K) -> Option<V>) {
        let mut ended = Vec::new();
        self.open.retain(|(key, piece)| match known(*key) {
            Some(value) => {
                ended.push((*key, *piece, Piece::Done(Ok(value))));
                false
            }
            None => true,
        });
        if !ended.is_empty() {
            self.end(ended);
        }
    }

    /// Ends all of the work, with a result for each piece, and tells all who wait: who waits for many is
    /// woken when all are there.
    pub(crate) fn done(mut self, results: impl IntoIterator<Item = Outcome<V>>) {
        let open = std::mem::take(&mut self.open).into_iter();
        let mut results = results.into_iter();
        let piece = |result: Option<Outcome<V>>| result.map_or(Piece::Lost, Piece::Done);
        self.end(open.map(|(key, number)| (key, number, piece(results.next()))).collect());
    }

    fn end(&self, ended: Vec<(K, u32, Piece<V>)>) {
        // Out of the table first: who asks from now on finds the result where it is kept.
        let mut in_flight = lock(&self.flights);
        for (key, _, _) in &ended {
            in_flight.remove(key);
        }
        drop(in_flight);
        let mut progress = lock(&self.flight.0);
        let Progress { pieces, waiting } = &mut *progress;
        for (_, number, end) in ended {
            if let Some(piece) = pieces.get_mut(number as usize) {
                *piece = end;
            }
        }
        let running = |number: u32| matches!(pieces.get(number as usize), Some(Piece::Running));
        let woken: Vec<_> = waiting.extract_if(.., |(number, _)| !running(*number)).collect();
        drop(progress);
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl<K: Copy + Eq + Hash, V> Drop for Lead<K, V> {
    fn drop(&mut self) {
        if !self.open.is_empty() {
            let open = std::mem::take(&mut self.open).into_iter();
            self.end(open.map(|(key, piece)| (key, piece, Piece::Lost)).collect());
        }
    }
}

impl<V> Clone for Wait<V> {
    fn clone(&self) -> Self {
        Wait { flight: Arc::clone(&self.flight), piece: self.piece }
    }
}

impl<V: Clone> Wait<V> {
    /// The result.
    ///
    /// # Errors
    /// That of the work, for each who waits; [`Closed`](ErrorKind::Closed) when it ended without one.
    pub(crate) async fn result(self) -> Result<V> {
        poll_fn(|context| {
            let Progress { pieces, waiting } = &mut *lock(&self.flight.0);
            match pieces.get(self.piece as usize) {
                Some(Piece::Running) => {
                    let known = |(number, waker): &(u32, Waker)| {
                        *number == self.piece && waker.will_wake(context.waker())
                    };
                    if !waiting.iter().any(known) {
                        waiting.push((self.piece, context.waker().clone()));
                    }
                    Poll::Pending
                }
                Some(Piece::Done(Ok(value))) => Poll::Ready(Ok(value.clone())),
                Some(Piece::Done(Err(error))) => {
                    Poll::Ready(Err(error.again("a table was not read")))
                }
                Some(Piece::Lost) | None => Poll::Ready(Err(Error::new(
                    ErrorKind::Closed,
                    "the background work panicked or was dropped before it ended",
                ))),
            }
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_state_api::block_on;

    fn lead(flights: &Flights<u8, u32>, key: u8) -> (Wait<u32>, Lead<u8, u32>) {
        let (wait, lead) = flights.ask(key);
        (wait, lead.expect("nobody leads already"))
    }

    fn wait(flights: &Flights<u8, u32>, key: u8) -> Wait<u32> {
        let (wait, lead) = flights.ask(key);
        assert!(lead.is_none(), "nobody leads");
        wait
    }

    #[test]
    fn all_who_ask_meanwhile_share_one_result() {
        let flights = Flights::default();
        let (own, leader) = lead(&flights, 1);
        let (second, third) = (wait(&flights, 1), wait(&flights, 1));
        let other = lead(&flights, 2);
        assert_eq!((leader.keys().collect::<Vec<_>>(), flights.len()), (vec![1], 2));
        leader.done([Ok(7)]);
        for waiting in [own, second, third] {
            assert_eq!(block_on(waiting.result()).unwrap(), 7);
        }
        // Done is done: the next one leads again.
        drop(lead(&flights, 1));
        drop(other);
        assert_eq!(flights.len(), 0);
    }

    #[test]
    fn many_are_asked_for_together_and_done_in_parts() {
        let flights = Flights::default();
        let (_, elsewhere) = lead(&flights, 3);
        let (waits, mut leader) = flights.ask_all(&[1, 2, 3, 4, 5]);
        assert_eq!(leader.keys().collect::<Vec<_>>(), [1, 2, 4, 5]);
        leader.end_known(|key| (key == 2).then_some(20));
        let first = leader.split(2);
        assert_eq!((first.keys().len(), leader.keys().len()), (2, 1));

        // Each has its result as soon as it is there.
        let context = &mut std::task::Context::from_waker(Waker::noop());
        let mut pending: Vec<_> = waits.into_iter().map(|wait| Box::pin(wait.result())).collect();
        let mut ready = |expected: [Option<u32>; 5]| {
            for (future, expected) in pending.iter_mut().zip(expected) {
                if let Some(expected) = expected {
                    let Poll::Ready(Ok(value)) = future.as_mut().poll(context) else {
                        panic!("{expected} is there")
                    };
                    assert_eq!(value, expected);
                }
            }
        };
        ready([None, Some(20), None, None, None]);
        first.done([Ok(10), Ok(40)]);
        ready([Some(10), None, None, Some(40), None]);
        elsewhere.done([Ok(30)]);
        leader.done([Ok(50)]);
        ready([None, None, Some(30), None, Some(50)]);
        assert_eq!(flights.len(), 0);
    }

    #[test]
    fn an_error_reaches_each_with_kind_and_object() {
        let flights = Flights::default();
        let (own, leader) = lead(&flights, 1);
        let waiting = [own, wait(&flights, 1)];
        let error = Error::new(ErrorKind::NotFound, "the store failed to read").object("a/b");
        leader.done([Err(Arc::new(error))]);
        for waiting in waiting {
            let error = block_on(waiting.result()).unwrap_err();
            assert_eq!((error.kind(), error.object_path()), (ErrorKind::NotFound, Some("a/b")));
            assert!(error.to_string().contains("the store failed to read"), "{error}");
        }
    }

    #[test]
    fn work_that_ends_without_a_result_fails_who_waits_and_can_be_begun_again() {
        let flights = Flights::default();
        let (_, leader) = lead(&flights, 1);
        let waiting = wait(&flights, 1);
        drop(leader);
        assert_eq!(block_on(waiting.result()).unwrap_err().kind(), ErrorKind::Closed);
        drop(lead(&flights, 1));
    }
}
