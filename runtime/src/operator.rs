//! Keyed operators: what a user writes.

use weir_state_api::{
    Clock, Error, KeyedStore, Millis, OrderedType, Result, Scope, StateAccess, TimerState,
};

use crate::output::Output;
use crate::record::{Data, Record};

/// A function over the records of one key, with state and timers.
///
/// The runtime sets the key before each call; state handles are opened in the constructor given to
/// [`KeyedStream::process`](crate::KeyedStream::process) and kept in the operator. State accesses
/// take the [`Context`].
///
/// ```
/// use weir_runtime::{Context, KeyedOperator};
/// use weir_state_api::{Millis, Result, ValueState};
///
/// struct Count(ValueState<u64>);
///
/// impl KeyedOperator for Count {
///     type Key = String;
///     type In = String;
///     type Out = (String, u64);
///     type Timer = ();
///
///     fn process(&mut self, word: String, context: &mut Context<'_, Self>) -> Result<()> {
///         let count = self.0.update(context, |old| old.unwrap_or(0) + 1).wait()?;
///         context.emit((word, count))
///     }
/// }
/// ```
pub trait KeyedOperator: Send + Sized + 'static {
    /// The type of keys.
    type Key: Send + 'static;
    /// What comes in.
    type In: Data;
    /// What goes out.
    type Out: Data;
    /// What a timer carries besides its time and key, for example a window; `()` for nothing.
    type Timer: Send + 'static;

    /// Handles one record. The current key is the record's.
    ///
    /// # Errors
    /// Any error fails the task, and the job recovers from the latest checkpoint.
    fn process(&mut self, value: Self::In, context: &mut Context<'_, Self>) -> Result<()>;

    /// Handles an event-time timer that came due. The current key is the timer's.
    ///
    /// # Errors
    /// As for [`process`](KeyedOperator::process).
    fn on_timer(
        &mut self,
        time: Millis,
        timer: Self::Timer,
        context: &mut Context<'_, Self>,
    ) -> Result<()> {
        let _ = (time, timer, context);
        Ok(())
    }

    /// Handles a processing-time timer that came due. The current key is the timer's;
    /// [`Context::time`] is the earliest event time that is not late.
    ///
    /// # Errors
    /// As for [`process`](KeyedOperator::process).
    fn on_processing_timer(
        &mut self,
        time: Millis,
        timer: Self::Timer,
        context: &mut Context<'_, Self>,
    ) -> Result<()> {
        let _ = (time, timer, context);
        Ok(())
    }
}

/// What an operator may do while it handles a record or a timer.
pub struct Context<'a, O: KeyedOperator> {
    pub(crate) store: &'a mut KeyedStore<O::Key>,
    pub(crate) timers: &'a TimerState<O::Timer>,
    pub(crate) processing_timers: &'a TimerState<O::Timer>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) output: &'a mut dyn Output<O::Out>,
    pub(crate) time: Millis,
    pub(crate) watermark: Millis,
    pub(crate) late: &'a mut u64,
}

impl<O: KeyedOperator> Context<'_, O>
where
    O::Key: OrderedType,
    O::Timer: OrderedType,
{
    /// The current key, decoded.
    ///
    /// # Errors
    /// When the stored bytes of a timer's key are corrupt.
    pub fn key(&self) -> Result<O::Key> {
        self.store.key()
    }

    /// The event time of the record or timer at hand.
    pub fn time(&self) -> Millis {
        self.time
    }

    /// The event time that has passed: no record with a smaller or equal time follows, except late
    /// ones.
    pub fn watermark(&self) -> Millis {
        self.watermark
    }

    /// Whether a window or deadline that ends at `time` has passed already.
    pub fn is_late(&self, time: Millis) -> bool {
        time <= self.watermark
    }

    /// Counts the record at hand as late and dropped, for the job's report.
    pub fn count_late(&mut self) {
        *self.late += 1;
    }

    /// Emits a value with the event time at hand.
    ///
    /// # Errors
    /// When the task was cancelled; pass it on.
    pub fn emit(&mut self, value: O::Out) -> Result<()> {
        let time = self.time;
        self.emit_at(time, value)
    }

    /// Emits a value with an event time of its own, which must not be below the watermark.
    ///
    /// # Errors
    /// When the task was cancelled; pass it on.
    pub fn emit_at(&mut self, time: Millis, value: O::Out) -> Result<()> {
        self.output.record(Record { time, value })
    }

    /// Registers an event-time timer for the current key: [`KeyedOperator::on_timer`] is called once
    /// the watermark reaches `time`. Registering it twice is one timer.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn register_timer(&mut self, time: Millis, timer: &O::Timer) -> Result<()> {
        self.timers.register(self.store, time, timer)
    }

    /// Deletes an event-time timer of the current key; an unknown one is no error.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn delete_timer(&mut self, time: Millis, timer: &O::Timer) -> Result<()> {
        self.timers.delete(self.store, time, timer)
    }

    /// The processing time, by the job's clock.
    pub fn processing_time(&self) -> Millis {
        self.clock.now()
    }

    /// Registers a processing-time timer for the current key:
    /// [`KeyedOperator::on_processing_timer`] is called once the job's clock shows `time`, or up to
    /// 100 ms later when the clock has jumped. Timers come in the order of their times, also those
    /// that came due while the job was down: they are called right after the restore. What is not due
    /// when all input has ended is not called any more.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn register_processing_timer(&mut self, time: Millis, timer: &O::Timer) -> Result<()> {
        self.processing_timers.register(self.store, time, timer)
    }

    /// Deletes a processing-time timer of the current key; an unknown one is no error.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn delete_processing_timer(&mut self, time: Millis, timer: &O::Timer) -> Result<()> {
        self.processing_timers.delete(self.store, time, timer)
    }
}

impl<O: KeyedOperator> StateAccess for Context<'_, O> {
    #[inline]
    fn with<R>(&mut self, f: impl FnOnce(&mut Scope<'_>) -> Result<R, Error>) -> Result<R, Error> {
        self.store.with(f)
    }
}

impl<O: KeyedOperator> std::fmt::Debug for Context<'_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("time", &self.time)
            .field("watermark", &self.watermark)
            .finish_non_exhaustive()
    }
}
