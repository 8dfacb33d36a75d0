//! Futures that are usually ready.
//!
//! State in memory answers at once; only a read that must go to remote storage takes time.
//! [`StateFuture`] is therefore an enum: the ready case carries the result inline and allocates
//! nothing, the pending case boxes a real future.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::{Error, ErrorKind, Result, Spawner};

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of a state access: ready now, or pending on I/O.
///
/// `.await` works everywhere. A synchronous engine calls [`wait`](StateFuture::wait), which costs
/// nothing when the result is ready (always, on backends whose
/// [`Capabilities::never_pends`](crate::Capabilities::never_pends) is set).
///
/// ```
/// use weir_state_api::StateFuture;
///
/// let ready: StateFuture<'_, u64> = StateFuture::ready(Ok(7));
/// assert!(ready.is_ready());
/// assert_eq!(ready.wait()?, 7);
/// # Ok::<(), weir_state_api::Error>(())
/// ```
#[must_use = "a state access does nothing until it is awaited or waited for"]
pub struct StateFuture<'a, T>(Inner<'a, T>);

enum Inner<'a, T> {
    Ready(Result<T>),
    Taken,
    Pending(BoxFuture<'a, Result<T>>),
}

impl<'a, T> StateFuture<'a, T> {
    /// A result that is there already.
    #[inline(always)]
    pub fn ready(result: Result<T>) -> Self {
        StateFuture(Inner::Ready(result))
    }

    /// A result that needs I/O.
    pub fn pending(future: impl Future<Output = Result<T>> + Send + 'a) -> Self {
        StateFuture(Inner::Pending(Box::pin(future)))
    }

    /// Whether the result is there without waiting.
    pub fn is_ready(&self) -> bool {
        matches!(self.0, Inner::Ready(_))
    }

    /// The result if it is there, otherwise the future itself.
    ///
    /// # Errors
    /// The outer `Err` gives the future back: it is still pending.
    #[inline(always)]
    pub fn try_ready(self) -> Result<Result<T>, Self> {
        match self.0 {
            Inner::Ready(result) => Ok(result),
            inner => Err(StateFuture(inner)),
        }
    }

    /// Blocks the calling thread until the result is there.
    ///
    /// Free when ready. Otherwise the thread parks, so an executor elsewhere must drive the I/O:
    /// never call it on a worker thread of the executor that performs the backend's I/O.
    ///
    /// # Errors
    /// Those of the access itself.
    #[inline(always)]
    pub fn wait(self) -> Result<T> {
        match self.0 {
            Inner::Ready(result) => result,
            Inner::Pending(future) => block_on(future),
            Inner::Taken => Err(taken()),
        }
    }

    /// Calls `wake` with the result: at once when it is ready, otherwise from the spawner; exactly
    /// once, with an error also when the work panics or the spawner drops it.
    ///
    /// For engines that neither await nor block: hand in a closure that re-activates the operator.
    pub fn on_ready(self, spawner: &dyn Spawner, wake: impl FnOnce(Result<T>) + Send + 'static)
    where
        T: Send + 'static,
        'a: 'static,
    {
        match self.0 {
            Inner::Ready(result) => wake(result),
            Inner::Pending(future) => {
                crate::spawned::spawn_with_reply(spawner, future, wake);
            }
            Inner::Taken => wake(Err(taken())),
        }
    }

    /// Applies `f` to a successful result. Ready stays ready.
    #[inline(always)]
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Result<U> + Send + 'a) -> StateFuture<'a, U>
    where
        T: Send + 'a,
        U: 'a,
    {
        StateFuture(match self.0 {
            Inner::Ready(result) => Inner::Ready(result.and_then(f)),
            Inner::Pending(future) => Inner::Pending(Box::pin(async move { f(future.await?) })),
            Inner::Taken => Inner::Taken,
        })
    }
}

impl<T> Unpin for StateFuture<'_, T> {}

impl<T> Future for StateFuture<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Inner::Pending(future) = &mut self.0 {
            let result = std::task::ready!(future.as_mut().poll(context));
            self.0 = Inner::Taken;
            return Poll::Ready(result);
        }
        match std::mem::replace(&mut self.0, Inner::Taken) {
            Inner::Ready(result) => Poll::Ready(result),
            Inner::Taken | Inner::Pending(_) => Poll::Ready(Err(taken())),
        }
    }
}

impl<T> std::fmt::Debug for StateFuture<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Inner::Ready(_) => "StateFuture::Ready",
            Inner::Taken => "StateFuture::Taken",
            Inner::Pending(_) => "StateFuture::Pending",
        })
    }
}

#[cold]
fn taken() -> Error {
    Error::new(ErrorKind::InvalidUsage, "the result of a state access was already taken")
}

/// Runs a future on the calling thread, parking it while the future waits.
///
/// The bridge for synchronous engines and tests; see [`StateFuture::wait`] for where not to call
/// it.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

/// A waker that calls a function: for an engine that neither awaits nor blocks, but is told when to
/// poll again. Any thread may call it.
///
/// ```
/// use std::sync::mpsc::channel;
/// use weir_state_api::waker_fn;
///
/// let (activate, activations) = channel();
/// let waker = waker_fn(move || drop(activate.send("operator 7")));
/// waker.wake();
/// assert_eq!(activations.recv(), Ok("operator 7"));
/// ```
pub fn waker_fn(wake: impl Fn() + Send + Sync + 'static) -> Waker {
    struct Call<F>(F);
    impl<F: Fn() + Send + Sync + 'static> Wake for Call<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
        fn wake_by_ref(self: &Arc<Self>) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(Call(wake)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pending on the first poll, ready on the second.
    fn late<T: Send + Unpin + 'static>(value: T) -> StateFuture<'static, T> {
        let mut value = Some(value);
        let mut polled = false;
        StateFuture::pending(std::future::poll_fn(move |context| {
            if std::mem::replace(&mut polled, true) {
                Poll::Ready(Ok(value.take().expect("polled once")))
            } else {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }))
    }

    #[test]
    fn pending_results_can_be_waited_for_and_mapped() {
        assert!(!late(1).is_ready());
        assert_eq!(late(1).wait().unwrap(), 1);
        assert_eq!(late(1).and_then(|n| Ok(n + 1)).wait().unwrap(), 2);
        assert_eq!(block_on(late(3)).unwrap(), 3);
    }

    #[test]
    fn ready_stays_ready_through_and_then() {
        let mapped = StateFuture::ready(Ok(1)).and_then(|n| Ok(n + 1));
        assert!(mapped.is_ready());
        assert_eq!(mapped.try_ready().unwrap().unwrap(), 2);
    }

    #[test]
    fn polling_again_is_an_error_and_no_panic() {
        let mut future = StateFuture::ready(Ok(1));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(Pin::new(&mut future).poll(&mut context), Poll::Ready(Ok(1))));
        assert!(matches!(Pin::new(&mut future).poll(&mut context), Poll::Ready(Err(_))));
    }
}
