//! States that fold added elements with a user function: reducing and aggregating.

use std::fmt;
use std::sync::Arc;

use super::access::StateAccess;
use super::namespaced::Bind;
use super::value::ValueState;
use crate::{BoxError, Codec, Error, Native, Result, StateFuture};

type ReduceFn<V> = dyn Fn(V, V) -> Result<V, BoxError> + Send + Sync;

/// One value per key and namespace, combined with each added element.
///
/// The first element is stored as it is; absent state reads as `None`. When the function fails the
/// state stays as it was.
///
/// ```
/// # use weir_backend_heap::HeapBackendFactory;
/// # use weir_state_api::KeyedStore;
/// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
/// let highest = store.reducing("highest", |a: u32, b| Ok(a.max(b)))?;
/// store.set_key(&"ann".to_string())?;
/// highest.add(&mut store, 3).wait()?;
/// highest.add(&mut store, 2).wait()?;
/// assert_eq!(highest.get(&mut store).wait()?, Some(3));
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub struct ReducingState<V, C = Native> {
    value: ValueState<V, C>,
    reduce: Arc<ReduceFn<V>>,
}

impl<V: Send + 'static, C: Codec<V>> ReducingState<V, C> {
    pub(crate) fn new(value: ValueState<V, C>, reduce: Arc<ReduceFn<V>>) -> Self {
        ReducingState { value, reduce }
    }

    /// The combined value, or `None`.
    #[inline(always)]
    pub fn get<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, Option<V>> {
        self.value.get(at)
    }

    /// Combines the value with `element`; answers whether it is the first one.
    #[inline(always)]
    pub fn add<'a, A: StateAccess + ?Sized>(
        &'a self,
        at: &'a mut A,
        element: V,
    ) -> StateFuture<'a, bool> {
        self.value.modify(
            at,
            move |old| match old {
                Some(old) => combine(&*self.reduce, old, element).map(Some),
                None => Ok(Some(element)),
            },
            |modified| Ok(modified.was_absent),
        )
    }

    /// Removes the value.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn clear<A: StateAccess + ?Sized>(&self, at: &mut A) -> Result<()> {
        self.value.clear(at)
    }

    pub(crate) async fn merge_from<A: StateAccess + ?Sized>(
        self,
        at: &mut A,
        sources: Vec<Self>,
    ) -> Result<()> {
        let reduce = self.reduce;
        let sources = sources.into_iter().map(|source| source.value).collect();
        self.value.merge_from(at, sources, move |a, b| combine(&*reduce, a, b)).await
    }
}

fn combine<V>(reduce: &ReduceFn<V>, a: V, b: V) -> Result<V> {
    reduce(a, b).map_err(|error| Error::user_function("reduce", error))
}

impl<V: Send + 'static, C: Codec<V>> Bind for ReducingState<V, C> {
    fn bind(&self, namespace: &[u8]) -> Self {
        ReducingState { value: self.value.bind(namespace), reduce: self.reduce.clone() }
    }
}

impl<V, C: Clone> Clone for ReducingState<V, C> {
    fn clone(&self) -> Self {
        ReducingState { value: self.value.clone(), reduce: self.reduce.clone() }
    }
}

impl<V, C> fmt::Debug for ReducingState<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReducingState({:?})", self.value)
    }
}

/// A user function that folds inputs into an accumulator.
pub trait Aggregate: Send + Sync + 'static {
    /// What is added.
    type Input: Send;
    /// What is stored.
    type Accumulator: Send + 'static;
    /// What is read.
    type Output;

    /// The accumulator of nothing.
    fn create(&self) -> Self::Accumulator;

    /// Folds one input into the accumulator.
    ///
    /// # Errors
    /// Any error; the state stays as it was.
    fn add(&self, accumulator: &mut Self::Accumulator, input: Self::Input) -> Result<(), BoxError>;

    /// Combines two accumulators, when namespaces are merged.
    ///
    /// # Errors
    /// Any error; the states stay as they were.
    fn merge(
        &self,
        a: Self::Accumulator,
        b: Self::Accumulator,
    ) -> Result<Self::Accumulator, BoxError>;

    /// The result that the accumulator stands for.
    fn output(&self, accumulator: &Self::Accumulator) -> Self::Output;
}

/// One accumulator per key and namespace, fed with each added element.
///
/// Absent state reads as `None`, not as the result of an empty accumulator.
///
/// ```
/// use weir_state_api::{Aggregate, BoxError};
///
/// struct Mean;
/// impl Aggregate for Mean {
///     type Input = i64;
///     type Accumulator = (i64, i64);
///     type Output = f64;
///     fn create(&self) -> (i64, i64) {
///         (0, 0)
///     }
///     fn add(&self, (sum, count): &mut (i64, i64), input: i64) -> Result<(), BoxError> {
///         *sum = sum.checked_add(input).ok_or("the sum overflows")?;
///         *count += 1;
///         Ok(())
///     }
///     fn merge(&self, a: (i64, i64), b: (i64, i64)) -> Result<(i64, i64), BoxError> {
///         Ok((a.0.checked_add(b.0).ok_or("the sum overflows")?, a.1 + b.1))
///     }
///     fn output(&self, &(sum, count): &(i64, i64)) -> f64 {
///         sum as f64 / count as f64
///     }
/// }
///
/// # use weir_backend_heap::HeapBackendFactory;
/// # use weir_state_api::KeyedStore;
/// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
/// let mean = store.aggregating("mean", Mean)?;
/// store.set_key(&"ann".to_string())?;
/// mean.add(&mut store, 1).wait()?;
/// mean.add(&mut store, 2).wait()?;
/// assert_eq!(mean.get(&mut store).wait()?, Some(1.5));
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub struct AggregatingState<G: Aggregate, C = Native> {
    value: ValueState<G::Accumulator, C>,
    aggregate: Arc<G>,
}

impl<G: Aggregate, C: Codec<G::Accumulator>> AggregatingState<G, C> {
    pub(crate) fn new(value: ValueState<G::Accumulator, C>, aggregate: Arc<G>) -> Self {
        AggregatingState { value, aggregate }
    }

    /// The result of what was added, or `None` when nothing was.
    #[inline(always)]
    pub fn get<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
    ) -> StateFuture<'static, Option<G::Output>>
    where
        G::Output: 'static,
    {
        match self.value.get(at).try_ready() {
            Ok(ready) => {
                let output = |stored| self.aggregate.output(&stored);
                StateFuture::ready(ready.map(|stored| stored.map(output)))
            }
            Err(pending) => {
                let aggregate = self.aggregate.clone();
                pending.and_then(move |stored| Ok(stored.map(|stored| aggregate.output(&stored))))
            }
        }
    }

    /// Folds one input in; answers whether it is the first one.
    #[inline(always)]
    pub fn add<'a, A: StateAccess + ?Sized>(
        &'a self,
        at: &'a mut A,
        input: G::Input,
    ) -> StateFuture<'a, bool>
    where
        G::Input: 'a,
    {
        self.value.modify(
            at,
            move |old| {
                let mut accumulator = old.unwrap_or_else(|| self.aggregate.create());
                self.aggregate
                    .add(&mut accumulator, input)
                    .map_err(|error| Error::user_function("aggregate", error))?;
                Ok(Some(accumulator))
            },
            |modified| Ok(modified.was_absent),
        )
    }

    /// Removes the accumulator.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn clear<A: StateAccess + ?Sized>(&self, at: &mut A) -> Result<()> {
        self.value.clear(at)
    }

    pub(crate) async fn merge_from<A: StateAccess + ?Sized>(
        self,
        at: &mut A,
        sources: Vec<Self>,
    ) -> Result<()> {
        let aggregate = self.aggregate;
        let sources = sources.into_iter().map(|source| source.value).collect();
        self.value
            .merge_from(at, sources, move |a, b| {
                aggregate.merge(a, b).map_err(|error| Error::user_function("merge", error))
            })
            .await
    }
}

impl<G: Aggregate, C: Codec<G::Accumulator>> Bind for AggregatingState<G, C> {
    fn bind(&self, namespace: &[u8]) -> Self {
        AggregatingState { value: self.value.bind(namespace), aggregate: self.aggregate.clone() }
    }
}

impl<G: Aggregate, C: Clone> Clone for AggregatingState<G, C> {
    fn clone(&self) -> Self {
        AggregatingState { value: self.value.clone(), aggregate: self.aggregate.clone() }
    }
}

impl<G: Aggregate, C> fmt::Debug for AggregatingState<G, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AggregatingState({:?})", self.value)
    }
}
