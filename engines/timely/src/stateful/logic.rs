//! What a user writes: asynchronous functions over the records and timers of one key.

use weir_state_api::{Millis, OrderedType, Result, StateAccess};

/// A function over records, with the state of the record's key.
///
/// States are typed handles of `weir-state-api` ([`ValueState`](weir_state_api::ValueState),
/// [`MapState`](weir_state_api::MapState), ...), registered when the operator is built and kept in the
/// logic. One logic serves all records of a worker, so it is shared: keep state in states, not in
/// fields.
///
/// Records of one key come one after the other. When the backend answers from memory, the function
/// runs to its end at once, and the `async` costs nothing. When a read goes to remote storage, the
/// record is parked at its `await`, others go on, and the worker never blocks. Between records of
/// different keys there is no order then, also not of their outputs.
///
/// ```
/// use weir_engine_timely::{KeyedContext, KeyedLogic, KeyedTimer};
/// use weir_state_api::{Result, ValueState};
///
/// /// Counts the clicks of a user until an hour is over.
/// struct Hourly(ValueState<u64>);
///
/// const HOUR: i64 = 3_600_000;
///
/// impl KeyedLogic for Hourly {
///     type Key = String;
///     /// User and time.
///     type Record = (String, i64);
///     type Out = (String, u64);
///     type Timer = ();
///
///     async fn process(
///         &self,
///         (_, time): &(String, i64),
///         context: &mut impl KeyedContext<Self>,
///     ) -> Result<()> {
///         self.0.update(context, |old| old.unwrap_or(0) + 1).await?;
///         context.register_timer((time / HOUR + 1) * HOUR - 1, &())
///     }
///
///     async fn on_timer(
///         &self,
///         timer: &KeyedTimer<String, ()>,
///         context: &mut impl KeyedContext<Self>,
///     ) -> Result<()> {
///         if let Some(clicks) = self.0.get(context).await? {
///             context.emit((timer.key.clone(), clicks));
///         }
///         self.0.clear(context)
///     }
/// }
/// ```
pub trait KeyedLogic: Sized + Send + Sync + 'static {
    /// The type of keys.
    type Key: OrderedType + Send + Sync + 'static;
    /// What comes in.
    type Record: Send + Sync + 'static;
    /// What goes out.
    type Out: Send + 'static;
    /// The namespace of timers: tells apart several timers of a key for the same time. Often `()`.
    type Timer: OrderedType + Send + Sync + 'static;

    /// Handles one record.
    ///
    /// Where reads are in flight it may be dropped at an await, before it has written any state, and
    /// run again from the start: its effects belong into its state and its outputs.
    ///
    /// # Errors
    /// Any error ends the job on all workers.
    fn process(
        &self,
        record: &Self::Record,
        context: &mut impl KeyedContext<Self>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Handles a timer that has come due: the watermark has passed its time.
    ///
    /// # Errors
    /// Any error ends the job on all workers.
    fn on_timer(
        &self,
        timer: &KeyedTimer<Self::Key, Self::Timer>,
        context: &mut impl KeyedContext<Self>,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (timer, context);
        async { Ok(()) }
    }

    /// Handles a timer of processing time that has come due: the job's clock shows its time, or a
    /// later one.
    ///
    /// # Errors
    /// Any error ends the job on all workers.
    fn on_processing_timer(
        &self,
        timer: &KeyedTimer<Self::Key, Self::Timer>,
        context: &mut impl KeyedContext<Self>,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (timer, context);
        async { Ok(()) }
    }
}

/// The state of a key, and the way out. All typed handles work on it.
pub trait KeyedContext<L: KeyedLogic>: StateAccess {
    /// Emits an output.
    fn emit(&mut self, output: L::Out);

    /// Registers a timer of the current key for an event time:
    /// [`on_timer`](KeyedLogic::on_timer) is called when the watermark has passed it. Registering it twice is one timer. One
    /// whose time has passed fires with the next watermark.
    ///
    /// # Errors
    /// When the namespace cannot be encoded; those of the backend.
    fn register_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()>;

    /// Deletes a timer of the current key; an unknown one is no error.
    ///
    /// # Errors
    /// As for [`register_timer`](KeyedContext::register_timer).
    fn delete_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()>;

    /// The processing time, by the clock of the job's environment.
    fn processing_time(&self) -> Millis;

    /// Registers a timer of the current key for a processing time:
    /// [`on_processing_timer`](KeyedLogic::on_processing_timer) is called, between two records, once
    /// the clock shows it; 100 ms later at most when the clock has jumped, and later while the worker is
    /// busy or records wait for reads. Timers come in the order of their times, also those that came due
    /// while the job was down: right after the restore. One that is not due when all input has ended
    /// fires in the next run, if there is one.
    ///
    /// Which records come before it and which behind it differs from run to run. What it does is in the
    /// state and the output of the same checkpoint, as with any record.
    ///
    /// # Errors
    /// As for [`register_timer`](KeyedContext::register_timer).
    fn register_processing_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()>;

    /// Deletes a timer of processing time of the current key; an unknown one is no error.
    ///
    /// # Errors
    /// As for [`register_timer`](KeyedContext::register_timer).
    fn delete_processing_timer(&mut self, time: Millis, namespace: &L::Timer) -> Result<()>;
}

/// A timer that has come due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedTimer<K, N> {
    /// The key it was registered for.
    pub key: K,
    /// The time it was registered for.
    pub time: Millis,
    /// The namespace it was registered for.
    pub namespace: N,
}
