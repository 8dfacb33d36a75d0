//! Background work whose result is awaited.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::{BoxFuture, Error, ErrorKind, Result, Spawner};

/// Spawns `future` and calls `done` with its result: exactly once, also when the future panics or
/// the spawner drops it.
pub(crate) fn spawn_with_reply<T: Send + 'static>(
    spawner: &dyn Spawner,
    future: BoxFuture<'static, Result<T>>,
    done: impl FnOnce(Result<T>) + Send + 'static,
) {
    let mut once = Once(Some(done), PhantomData);
    spawner.spawn(Box::pin(async move { once.send(future.await) }));
}

/// Calls a function once: with a result, or with an error when it is dropped without.
struct Once<T, F: FnOnce(Result<T>)>(Option<F>, PhantomData<fn(T)>);

impl<T, F: FnOnce(Result<T>)> Once<T, F> {
    fn send(&mut self, result: Result<T>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl<T, F: FnOnce(Result<T>)> Drop for Once<T, F> {
    fn drop(&mut self) {
        self.send(Err(Error::new(
            ErrorKind::Closed,
            "the background work panicked or was dropped before it ended",
        )));
    }
}

/// The result of work that a [`Spawner`] runs: a future that waits for it.
///
/// It is polled from anywhere and needs no executor; dropping it does not stop the work. When the
/// work panics, or the spawner drops it, the result is an error of kind
/// [`Closed`](crate::ErrorKind::Closed).
///
/// ```
/// use weir_state_api::{InlineSpawner, Spawned, block_on};
///
/// let sum = Spawned::blocking(&InlineSpawner, || Ok((1..=4).sum::<i32>()));
/// assert_eq!(block_on(sum)?, 10);
/// # Ok::<(), weir_state_api::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the result of the work, errors included, is only seen here"]
pub struct Spawned<T>(Arc<Mutex<Reply<T>>>);

#[derive(Debug)]
enum Reply<T> {
    Waiting(Option<Waker>),
    Here(Result<T>),
    Taken,
}

impl<T: Send + 'static> Spawned<T> {
    /// Starts a future.
    pub fn future(
        spawner: &dyn Spawner,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Self {
        let (spawned, reply) = Self::new();
        spawn_with_reply(spawner, Box::pin(future) as BoxFuture<'static, _>, reply);
        spawned
    }

    /// Starts work that uses the CPU or blocks.
    pub fn blocking(
        spawner: &dyn Spawner,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Self {
        let (spawned, reply) = Self::new();
        let mut once = Once(Some(reply), PhantomData);
        spawner.spawn_blocking(Box::new(move || once.send(work())));
        spawned
    }

    fn new() -> (Self, impl FnOnce(Result<T>) + Send + 'static) {
        let shared = Arc::new(Mutex::new(Reply::Waiting(None)));
        let reply = {
            let shared = Arc::clone(&shared);
            move |result| {
                let mut reply = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let before = std::mem::replace(&mut *reply, Reply::Here(result));
                drop(reply);
                if let Reply::Waiting(Some(waker)) = before {
                    waker.wake();
                }
            }
        };
        (Spawned(shared), reply)
    }
}

impl<T> Future for Spawned<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut reply = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *reply, Reply::Taken) {
            Reply::Here(result) => Poll::Ready(result),
            Reply::Waiting(_) => {
                *reply = Reply::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            Reply::Taken => Poll::Ready(Err(Error::new(
                ErrorKind::InvalidUsage,
                "the result of background work was taken twice",
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InlineSpawner, block_on};
    use std::sync::mpsc::channel;

    /// A spawner that shuts down: it drops what it is given.
    #[derive(Debug)]
    struct Dropping;

    impl Spawner for Dropping {
        fn spawn(&self, future: BoxFuture<'static, ()>) {
            drop(future);
        }

        fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>) {
            drop(work);
        }
    }

    #[test]
    fn the_reply_comes_once_whatever_becomes_of_the_work() {
        let (sender, replies) = channel();
        let reply = |sender: std::sync::mpsc::Sender<_>| move |result| sender.send(result).unwrap();
        spawn_with_reply(&InlineSpawner, Box::pin(async { Ok(1) }), reply(sender.clone()));
        spawn_with_reply(&Dropping, Box::pin(async { Ok(2) }), reply(sender.clone()));
        let panicking: BoxFuture<'static, Result<i32>> =
            Box::pin(async { panic!("as the test wants") });
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            spawn_with_reply(&InlineSpawner, panicking, reply(sender));
        }));
        assert!(panicked.is_err());
        let replies: Vec<_> =
            replies.iter().map(|reply| reply.map_err(|error| error.kind())).collect();
        assert_eq!(replies, [Ok(1), Err(ErrorKind::Closed), Err(ErrorKind::Closed)]);
    }

    #[test]
    fn awaited_work_gives_its_result_whatever_becomes_of_it() {
        fn awaited(spawned: Spawned<i32>) -> std::result::Result<i32, ErrorKind> {
            block_on(spawned).map_err(|error| error.kind())
        }
        assert_eq!(awaited(Spawned::future(&InlineSpawner, async { Ok(1) })), Ok(1));
        assert_eq!(awaited(Spawned::blocking(&InlineSpawner, || Ok(2))), Ok(2));
        let closed = Err(ErrorKind::Closed);
        assert_eq!(awaited(Spawned::future(&Dropping, async { Ok(3) })), closed);
        assert_eq!(awaited(Spawned::blocking(&Dropping, || Ok(4))), closed);
        // From another thread, after it was waited for.
        let (start, started) = channel();
        let (spawned, reply) = Spawned::new();
        let worker = std::thread::spawn(move || {
            started.recv().unwrap();
            reply(Ok(5));
        });
        start.send(()).unwrap();
        assert_eq!(awaited(spawned), Ok(5));
        worker.join().unwrap();
    }
}
