//! What an engine calls: submit, poll, take outputs and failures.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use super::epoch::Epochs;
use super::futures::{Futures, futures};
use super::lanes::Lanes;
use super::reads::{Reads, SentBatch};
use super::record_state::{Scopes, Shared, interrupted};
use super::run::Goes;
use super::wake::{Alarm, WakeQueue, Woken};
use super::{Admission, Failure, InFlightLimits, RecordOperator};
use crate::typed::KeyRules;
use crate::{BoxFuture, Codec, Error, ErrorKind, KeyGroup, KeyedStore, Ordered, Result, block_on};

/// Keeps many records of one task in flight over one backend instance, in order per key.
///
/// It owns the [`KeyedStore`] and the operator. The engine owns the loop:
///
/// 1. [`submit`](InFlight::submit) records until none is left or one comes back as
///    [`Full`](Admission::Full);
/// 2. poll ([`poll_room`](InFlight::poll_room), or [`poll_idle`](InFlight::poll_idle) before a
///    watermark): this moves the records, and sends the reads that were gathered;
/// 3. hand on what [`outputs`](InFlight::outputs) yields.
///
/// At a barrier: [`poll_settled`](InFlight::poll_settled), hand on the outputs,
/// [`snapshot`](InFlight::snapshot), and store the [`unfinished`](InFlight::unfinished) records with
/// it. Each `poll_` method has a `wait_` twin for engines that may block.
///
/// | engine | how it polls |
/// |---|---|
/// | asynchronous | `poll_fn(\|context\| in_flight.poll_room(context)).await` |
/// | a thread that blocks | [`wait_room`](InFlight::wait_room) |
/// | activated from outside | a context with a [`waker_fn`](crate::waker_fn) that activates the operator; poll once per activation, and once after the last submission |
///
/// A record whose reads are answered from memory is done when `submit` returns. It then costs a few
/// atomic operations more than the direct calls, and no allocation.
///
/// ```
/// use weir_backend_heap::HeapBackendFactory;
/// use weir_state_api::{
///     Admission, InFlight, InFlightLimits, KeyedStore, RecordOperator, RecordState, Result,
///     ValueState,
/// };
///
/// struct Count(ValueState<u64>);
///
/// impl RecordOperator for Count {
///     type Record = &'static str;
///     type Output = (&'static str, u64);
///
///     async fn process(&self, word: &Self::Record, state: &mut RecordState<'_, Self::Output>) -> Result<()> {
///         let count = self.0.update(state, |old| old.unwrap_or(0) + 1).await?;
///         state.emit((*word, count));
///         Ok(())
///     }
/// }
///
/// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
/// let count = Count(store.value("count")?);
/// let mut in_flight = InFlight::new(store, count, InFlightLimits::default());
/// for word in ["to", "be", "or", "not", "to", "be"] {
///     assert_eq!(in_flight.submit(&word.to_string(), word)?, Admission::Done);
/// }
/// in_flight.wait_idle()?;
/// let outputs: Vec<_> = in_flight.outputs().collect();
/// assert_eq!(outputs.last(), Some(&("be", 2)));
/// # Ok::<(), weir_state_api::Error>(())
/// ```
///
/// # Failures
///
/// A record that fails, or whose operator panics, is put among the failures with its error; its key
/// is free again and all other records go on. From then on every submission and poll answers with
/// an error, until [`take_failures`](InFlight::take_failures) was called: a failure cannot be
/// overlooked. An engine that recovers from checkpoints drops the executor then. A panic *inside*
/// an access to the state leaves the backend in doubt: all accesses fail with
/// [`Closed`](ErrorKind::Closed) from then on.
///
/// Dropping the executor drops all records in flight, at an await.
pub struct InFlight<O: RecordOperator, K, C = Ordered> {
    pub(super) operator: Arc<O>,
    pub(super) store: Arc<Mutex<Shared<KeyedStore<K, C>>>>,
    /// The same, for records.
    pub(super) shared: Arc<Mutex<Shared<dyn Scopes>>>,
    pub(super) keys: KeyRules<K, C>,
    pub(super) limits: InFlightLimits,
    pub(super) lanes: Lanes<O>,
    pub(super) futures: Box<dyn Futures<O>>,
    pub(super) batches: Vec<Batch>,
    /// Whether the open batch of reads has some.
    pub(super) unsent: bool,
    pub(super) wakes: Arc<WakeQueue>,
    /// Taken from the queue and not polled yet: held back while writers go first.
    pub(super) woken: Vec<Woken>,
    pub(super) phase: Phase,
    pub(super) epochs: Epochs,
    /// A read of the head of the timer queue.
    pub(super) timer_head: Option<BoxFuture<'static, Result<()>>>,
    /// The lane and number of the record that the next timer has to wait for.
    pub(super) blocked_timer: Option<(usize, u64)>,
    /// Records in flight, and their weight.
    pub(super) records: usize,
    pub(super) bytes: usize,
    /// Records that arrived, and records that ended, ever.
    pub(super) arrived: u64,
    /// How many had arrived after the last `resubmit`.
    pub(super) resubmitted: u64,
    pub(super) ended: u64,
    pub(super) outputs: Vec<O::Output>,
    /// An empty buffer for the outputs of the next record.
    pub(super) spare_outputs: Vec<O::Output>,
    pub(super) failures: Vec<Failure<O::Record>>,
}

/// A place for a batch of reads on its way.
pub(super) struct Batch {
    pub(super) sent: Option<SentBatch>,
    pub(super) alarm: Alarm,
}

impl<O, K, C> InFlight<O, K, C>
where
    O: RecordOperator,
    K: Send + 'static,
    C: Codec<K>,
{
    /// An executor over a store; the operator has its states registered.
    pub fn new(store: KeyedStore<K, C>, operator: O, limits: InFlightLimits) -> Self {
        let keys = store.key_rules().clone();
        let store = Arc::new(Mutex::new(Shared { reads: Reads::default(), store }));
        let limits = limits.with_records(limits.records).with_reads(limits.reads);
        InFlight {
            operator: Arc::new(operator),
            shared: store.clone(),
            store,
            keys,
            limits,
            lanes: Lanes::new(),
            futures: futures(),
            batches: Vec::new(),
            unsent: false,
            wakes: Arc::default(),
            woken: Vec::new(),
            phase: Phase::Open,
            epochs: Epochs::new(),
            timer_head: None,
            blocked_timer: None,
            records: 0,
            bytes: 0,
            arrived: 0,
            resubmitted: 0,
            ended: 0,
            outputs: Vec::new(),
            spare_outputs: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Submits a record. It runs at once when no other record of its key is in flight.
    ///
    /// # Errors
    /// While there is a failure, this record's or another's; the record is taken nonetheless. A key
    /// that cannot be encoded, is too long or is another instance's makes the record a failure.
    #[inline]
    pub fn submit(&mut self, key: &K, record: O::Record) -> Result<Admission<O::Record>> {
        self.admit(record, Phase::Open, |keys, into| keys.encode(key, into))
    }

    /// Submits a record with a key that the engine encoded, and the group it assigned.
    ///
    /// # Errors
    /// As for [`submit`](InFlight::submit).
    pub fn submit_encoded(
        &mut self,
        key: &[u8],
        group: KeyGroup,
        record: O::Record,
    ) -> Result<Admission<O::Record>> {
        self.admit(record, Phase::Open, |keys, into| keys.take_encoded(key, group, into))
    }

    /// Moves what can move. Ready when a record can be submitted; not while timers fire
    /// ([`poll_timers`](InFlight::poll_timers)), and not after
    /// [`take_unfinished`](InFlight::take_unfinished).
    ///
    /// # Errors
    /// While there is a failure.
    pub fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.advance(context.waker(), Goes::All);
        self.check_failures()?;
        if self.phase == Phase::Open && self.has_room_for(0) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Moves what can move. Ready when nothing is in flight.
    ///
    /// # Errors
    /// While there is a failure.
    pub fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.advance(context.waker(), Goes::All);
        self.check_failures()?;
        if self.records == 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Blocks until a record can be submitted; see [`poll_room`](InFlight::poll_room).
    ///
    /// # Errors
    /// While there is a failure.
    pub fn wait_room(&mut self) -> Result<()> {
        block_on(poll_fn(|context| self.poll_room(context)))
    }

    /// Blocks until nothing is in flight; see [`poll_idle`](InFlight::poll_idle).
    ///
    /// # Errors
    /// While there is a failure.
    pub fn wait_idle(&mut self) -> Result<()> {
        block_on(poll_fn(|context| self.poll_idle(context)))
    }

    /// The outputs of records that are done, in the order they were done: per key that of arrival.
    pub fn outputs(&mut self) -> impl ExactSizeIterator<Item = O::Output> + use<'_, O, K, C> {
        self.outputs.drain(..)
    }

    /// The records that failed since the last call, in the order they failed.
    pub fn take_failures(&mut self) -> Vec<Failure<O::Record>> {
        std::mem::take(&mut self.failures)
    }

    /// Records in flight: running, or waiting behind one of their key.
    pub fn len(&self) -> usize {
        self.records
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The operator.
    pub fn operator(&self) -> &O {
        &self.operator
    }

    /// Runs `f` on the store, for what an engine does between records.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) while a record is in flight: state may be half-way.
    /// Otherwise what `f` returns.
    pub fn with_store<R>(
        &mut self,
        f: impl FnOnce(&mut KeyedStore<K, C>) -> Result<R>,
    ) -> Result<R> {
        if self.records > 0 {
            return Err(Error::new(
                ErrorKind::InvalidUsage,
                format!("{} records are in flight", self.records),
            )
            .advice("poll until the executor is idle"));
        }
        f(&mut self.lock()?.store)
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, Shared<KeyedStore<K, C>>>> {
        self.store.lock().map_err(|_| interrupted())
    }

    /// A record heavier than the limit is admitted when nothing else is in flight.
    #[inline]
    pub(super) fn has_room_for(&self, weight: usize) -> bool {
        let fits = self.bytes.saturating_add(weight) <= self.limits.bytes;
        self.records < self.limits.records && (fits || self.records == 0)
    }
}

/// What may be submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Records.
    Open,
    /// Timers that are due at a watermark.
    Firing,
    /// Unfinished records were taken: those come first.
    Taken,
}

impl<O: RecordOperator, K, C> fmt::Debug for InFlight<O, K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight")
            .field("records", &self.records)
            .field("bytes", &self.bytes)
            .field("phase", &self.phase)
            .field("limits", &self.limits)
            .field("outputs", &self.outputs.len())
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}
