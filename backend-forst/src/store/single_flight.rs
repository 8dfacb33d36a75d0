//! One piece of work for all that want its result at the same time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use weir_state_api::{Error, ErrorKind, Result};

type Outcome<V> = Result<V, Arc<Error>>;

/// Work in progress, by what it is for.
///
/// The first to ask gets a [`Lead`] and must do the work; whoever asks before it is done shares the
/// result. Results are not kept: the leader puts them where the next one looks first (a cache), before
/// it ends its lead, and looks there once more when it has taken it.
#[derive(Debug)]
pub(crate) struct Flights<K, V>(Arc<Mutex<InFlight<K, V>>>);

type InFlight<K, V> = HashMap<K, Arc<Flight<V>>>;

/// One piece of work: a single allocation, for reads ask for many at a time.
#[derive(Debug)]
struct Flight<V>(Mutex<Progress<V>>);

#[derive(Debug)]
enum Progress<V> {
    /// Those who wait.
    Running(Vec<Waker>),
    Done(Outcome<V>),
    /// It ended without a result.
    Lost,
}

impl<V> Flight<V> {
    fn end(&self, end: Progress<V>) {
        let before = std::mem::replace(&mut *lock(&self.0), end);
        if let Progress::Running(waiting) = before {
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

/// What one who asks gets.
#[derive(Debug)]
pub(crate) enum Ticket<K: Eq + Hash, V> {
    /// The duty to do the work.
    Lead(Lead<K, V>),
    /// Somebody does it.
    Wait(Wait<V>),
}

/// The result of somebody's work.
#[derive(Debug)]
pub(crate) struct Wait<V>(Arc<Flight<V>>);

/// The duty to do a piece of work. Dropping it without a result fails all who wait.
#[derive(Debug)]
pub(crate) struct Lead<K: Eq + Hash, V> {
    flights: Arc<Mutex<InFlight<K, V>>>,
    key: K,
    flight: Arc<Flight<V>>,
    done: bool,
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Flights(Arc::default())
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Flights<K, V> {
    /// Asks for the work on `key`.
    pub(crate) fn ask(&self, key: K) -> Ticket<K, V> {
        match lock(&self.0).entry(key.clone()) {
            Entry::Occupied(flight) => Ticket::Wait(Wait(Arc::clone(flight.get()))),
            Entry::Vacant(place) => {
                let flight = Arc::new(Flight(Mutex::new(Progress::Running(Vec::new()))));
                place.insert(Arc::clone(&flight));
                let flights = Arc::clone(&self.0);
                Ticket::Lead(Lead { flights, key, flight, done: false })
            }
        }
    }

    /// How much work is in progress.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

impl<K: Eq + Hash, V: Clone> Lead<K, V> {
    /// What the work is for.
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// The result, for the leader itself.
    pub(crate) fn wait(&self) -> Wait<V> {
        Wait(Arc::clone(&self.flight))
    }

    /// Ends the work and tells all who wait.
    pub(crate) fn done(mut self, result: Outcome<V>) {
        self.done = true;
        // Out of the table first: who asks from now on finds the result where it is kept.
        lock(&self.flights).remove(&self.key);
        self.flight.end(Progress::Done(result));
    }
}

impl<K: Eq + Hash, V> Drop for Lead<K, V> {
    fn drop(&mut self) {
        if !self.done {
            lock(&self.flights).remove(&self.key);
            self.flight.end(Progress::Lost);
        }
    }
}

impl<V: Clone> Wait<V> {
    /// The result.
    ///
    /// # Errors
    /// That of the work, for each who waits; [`Closed`](ErrorKind::Closed) when it ended without one.
    pub(crate) async fn result(self) -> Result<V> {
        poll_fn(|context| match &mut *lock(&self.0.0) {
            Progress::Running(waiting) => {
                if !waiting.iter().any(|known| known.will_wake(context.waker())) {
                    waiting.push(context.waker().clone());
                }
                Poll::Pending
            }
            Progress::Done(Ok(value)) => Poll::Ready(Ok(value.clone())),
            Progress::Done(Err(error)) => Poll::Ready(Err(error.again("a shared read failed"))),
            Progress::Lost => Poll::Ready(Err(Error::new(
                ErrorKind::Closed,
                "the background work panicked or was dropped before it ended",
            ))),
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

    fn lead(flights: &Flights<u8, u32>, key: u8) -> Lead<u8, u32> {
        match flights.ask(key) {
            Ticket::Lead(lead) => lead,
            Ticket::Wait(_) => panic!("somebody leads already"),
        }
    }

    fn wait(flights: &Flights<u8, u32>, key: u8) -> Wait<u32> {
        match flights.ask(key) {
            Ticket::Wait(wait) => wait,
            Ticket::Lead(_) => panic!("nobody leads"),
        }
    }

    #[test]
    fn all_who_ask_meanwhile_share_one_result() {
        let flights = Flights::default();
        let leader = lead(&flights, 1);
        let (own, second, third) = (leader.wait(), wait(&flights, 1), wait(&flights, 1));
        let other = lead(&flights, 2);
        assert_eq!((leader.key(), flights.len()), (&1, 2));
        leader.done(Ok(7));
        for waiting in [own, second, third] {
            assert_eq!(block_on(waiting.result()).unwrap(), 7);
        }
        // Done is done: the next one leads again.
        drop(lead(&flights, 1));
        drop(other);
        assert_eq!(flights.len(), 0);
    }

    #[test]
    fn an_error_reaches_each_with_kind_and_object() {
        let flights = Flights::default();
        let leader = lead(&flights, 1);
        let waiting = [leader.wait(), wait(&flights, 1)];
        let error = Error::new(ErrorKind::NotFound, "the store failed to read").object("a/b");
        leader.done(Err(Arc::new(error)));
        for waiting in waiting {
            let error = block_on(waiting.result()).unwrap_err();
            assert_eq!((error.kind(), error.object_path()), (ErrorKind::NotFound, Some("a/b")));
            assert!(error.to_string().contains("the store failed to read"), "{error}");
        }
    }

    #[test]
    fn work_that_ends_without_a_result_fails_who_waits_and_can_be_begun_again() {
        let flights = Flights::default();
        let leader = lead(&flights, 1);
        let waiting = wait(&flights, 1);
        drop(leader);
        assert_eq!(block_on(waiting.result()).unwrap_err().kind(), ErrorKind::Closed);
        drop(lead(&flights, 1));
    }
}
