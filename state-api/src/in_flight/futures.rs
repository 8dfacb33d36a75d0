//! The records' futures, in memory that is used again.
//!
//! Each lane has one pinned box that lives as long as the executor. A future is made inside it,
//! polled there, and dropped there: a record allocates nothing, whether it pends or not.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::RecordOperator;
use super::lanes::Admitted;
use super::record_state::RecordState;
use crate::{Error, ErrorKind, Result};

/// What a record's future yields.
pub(super) struct Ended<Out> {
    pub(super) result: Result<()>,
    pub(super) outputs: Vec<Out>,
}

/// The futures of all lanes. Behind a trait object, because the type of an operator's future has no
/// name.
pub(super) trait Futures<O: RecordOperator>: Send {
    /// Adds a lane.
    fn grow(&mut self);

    /// Puts the future of an admitted record into a lane.
    fn start(&mut self, lane: usize, admitted: Arc<Admitted<O>>, outputs: Vec<O::Output>);

    /// Polls the future of a lane; drops it when it has ended. A panic is an error.
    fn poll(&mut self, lane: usize, context: &mut Context<'_>) -> Poll<Ended<O::Output>>;

    /// Drops the future of a lane.
    fn cancel(&mut self, lane: usize);
}

pub(super) fn futures<O: RecordOperator>() -> Box<dyn Futures<O>> {
    Box::new(Recycled { run: run::<O>, lanes: Vec::new() })
}

async fn run<O: RecordOperator>(
    admitted: Arc<Admitted<O>>,
    outputs: Vec<O::Output>,
) -> Ended<O::Output> {
    let mut state =
        RecordState::new(&*admitted.shared, admitted.key.as_ref(), &admitted.traces, outputs);
    let result = match &admitted.record {
        Some(record) => admitted.operator.process(record, &mut state).await,
        None => Err(Error::new(ErrorKind::InvalidUsage, "a lane was started without a record")),
    };
    Ended { result, outputs: state.into_outputs() }
}

struct Recycled<Run, Fut> {
    run: Run,
    lanes: Vec<Pin<Box<Option<Fut>>>>,
}

impl<O, Run, Fut> Futures<O> for Recycled<Run, Fut>
where
    O: RecordOperator,
    Run: Fn(Arc<Admitted<O>>, Vec<O::Output>) -> Fut + Send,
    Fut: Future<Output = Ended<O::Output>> + Send,
{
    fn grow(&mut self) {
        self.lanes.push(Box::pin(None));
    }

    fn start(&mut self, lane: usize, admitted: Arc<Admitted<O>>, outputs: Vec<O::Output>) {
        self.lanes[lane].as_mut().set(Some((self.run)(admitted, outputs)));
    }

    fn poll(&mut self, lane: usize, context: &mut Context<'_>) -> Poll<Ended<O::Output>> {
        let mut place = self.lanes[lane].as_mut();
        let Some(future) = place.as_mut().as_pin_mut() else { return Poll::Pending };
        let ended = match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(polled) => ready!(polled),
            Err(panic) => Ended { result: Err(panicked(&*panic)), outputs: Vec::new() },
        };
        place.set(None);
        Poll::Ready(ended)
    }

    fn cancel(&mut self, lane: usize) {
        self.lanes[lane].as_mut().set(None);
    }
}

/// Polls a future of the backend's; a panic is an error.
pub(super) fn poll_caught<T>(
    future: Pin<&mut (impl Future<Output = Result<T>> + ?Sized)>,
    context: &mut Context<'_>,
) -> Poll<Result<T>> {
    match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
        Ok(polled) => polled,
        Err(panic) => Poll::Ready(Err(panicked(&*panic))),
    }
}

#[cold]
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Error::new(ErrorKind::UserFunction, format!("it panicked: {message}"))
}
