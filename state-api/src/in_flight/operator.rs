//! What a user writes: an asynchronous function over the records of one key.

use super::RecordState;
use crate::Result;

/// An asynchronous function over records, with the state of the record's key.
///
/// One operator serves all records of a task, so it is shared (`&self`): keep state in states, not
/// in fields. Records of one key come one after the other, each after the one before is done.
/// Between records of different keys there is no order, also not of their outputs.
///
/// A record is a value of any type. An engine that has timers makes it an enum of records and fired
/// timers; see [`InFlight::poll_timers`](super::InFlight::poll_timers).
///
/// ```
/// use weir_state_api::{RecordOperator, RecordState, Result, ValueState};
///
/// struct Count(ValueState<u64>);
///
/// impl RecordOperator for Count {
///     type Record = String;
///     type Output = (String, u64);
///
///     async fn process(&self, word: &String, state: &mut RecordState<'_, (String, u64)>) -> Result<()> {
///         let count = self.0.update(state, |old| old.unwrap_or(0) + 1).await?;
///         state.emit((word.clone(), count));
///         Ok(())
///     }
/// }
/// ```
///
/// Two reads of one record overlap when both are begun before one is awaited:
///
/// ```
/// # use weir_state_api::{RecordState, Result, ValueState};
/// # async fn both(
/// #     a: &ValueState<u64>,
/// #     b: &ValueState<u64>,
/// #     state: &mut RecordState<'_, u64>,
/// # ) -> Result<()> {
/// let (first, second) = (a.get(state), b.get(state));
/// let sum = first.await?.unwrap_or(0) + second.await?.unwrap_or(0);
/// state.emit(sum);
/// # Ok(())
/// # }
/// ```
pub trait RecordOperator: Send + Sync + 'static {
    /// What comes in.
    type Record: Send + Sync + 'static;
    /// What goes out.
    type Output: Send + 'static;

    /// Handles one record.
    ///
    /// It may await anything, not only state. It may be dropped at an await, before it has written
    /// any state, and run again from the start later, also in another process: a record's effects
    /// belong into its state and its outputs.
    ///
    /// # Errors
    /// Any error is reported as a [`Failure`](super::Failure) with the record; its outputs are
    /// dropped, what it wrote into state stays.
    fn process(
        &self,
        record: &Self::Record,
        state: &mut RecordState<'_, Self::Output>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Bytes that a record counts in [`InFlightLimits::bytes`](super::InFlightLimits::bytes): the
    /// size of its type unless overridden.
    fn weight(&self, record: &Self::Record) -> usize {
        size_of_val(record)
    }
}
