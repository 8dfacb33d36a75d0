//! States with a namespace, such as one value per window.

use std::fmt;
use std::marker::PhantomData;

use super::access::StateAccess;
use super::folding::{Aggregate, AggregatingState, ReducingState};
use super::list::ListState;
use super::value::ValueState;
use crate::key::check_part_len;
use crate::{BoxError, Codec, Error, Ordered, Result, StateFuture};

/// A handle that can be bound to a namespace.
pub trait Bind: Sized {
    /// The same state in the namespace with these encoded bytes.
    #[must_use]
    fn bind(&self, namespace: &[u8]) -> Self;
}

/// A state that exists once per namespace of type `N`; [`at`](Namespaced::at) picks one.
///
/// ```
/// # use weir_backend_heap::HeapBackendFactory;
/// # use weir_state_api::KeyedStore;
/// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
/// let sums = store.namespaced::<i64>().value::<u64>("sums")?;
/// store.set_key(&"ann".to_string())?;
/// sums.at(&10)?.set(&mut store, &1)?;
/// sums.at(&20)?.set(&mut store, &2)?;
/// sums.merge(&mut store, &30, &[10, 20], |a, b| Ok(a + b)).wait()?;
/// assert_eq!(sums.at(&10)?.get(&mut store).wait()?, None);
/// assert_eq!(sums.at(&30)?.get(&mut store).wait()?, Some(3));
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub struct Namespaced<S, N, NC = Ordered> {
    state: S,
    codec: NC,
    namespace: PhantomData<fn() -> N>,
}

impl<S: Bind, N, NC: Codec<N>> Namespaced<S, N, NC> {
    pub(crate) fn new(state: S, codec: NC) -> Self {
        Namespaced { state, codec, namespace: PhantomData }
    }

    /// The state in one namespace. Cheap: encodes the namespace, allocates nothing for short ones.
    ///
    /// # Errors
    /// When the namespace cannot be encoded.
    pub fn at(&self, namespace: &N) -> Result<S> {
        // Namespaces are short: a stack buffer would save one allocation per call, so keep one per
        // thread instead.
        thread_local! {
            static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        BUFFER.with(|buffer| match buffer.try_borrow_mut() {
            Ok(mut buffer) => self.bind_in(namespace, &mut buffer),
            // A codec that binds a handle while it encodes.
            Err(_) => self.bind_in(namespace, &mut Vec::new()),
        })
    }

    fn bind_in(&self, namespace: &N, buffer: &mut Vec<u8>) -> Result<S> {
        buffer.clear();
        self.codec.encode(namespace, buffer)?;
        check_part_len("namespace", buffer)?;
        Ok(self.state.bind(buffer))
    }

    /// The target, and the sources without repetitions: each counts once.
    fn bind_all(&self, target: &N, sources: &[N]) -> Result<(S, Vec<S>)> {
        let mut seen = std::collections::HashSet::new();
        let mut distinct = Vec::with_capacity(sources.len());
        for source in sources {
            let mut encoded = Vec::new();
            self.codec.encode(source, &mut encoded)?;
            if seen.insert(encoded) {
                distinct.push(self.at(source)?);
            }
        }
        Ok((self.at(target)?, distinct))
    }
}

impl<V: Send + 'static, C: Codec<V>, N, NC: Codec<N>> Namespaced<ValueState<V, C>, N, NC> {
    /// Combines the values of `sources` and `target` with `merge` into `target`; the sources
    /// vanish. `target` may be absent, or among the sources; nothing anywhere stays nothing. When
    /// `merge` fails nothing has changed.
    pub fn merge<'a, A: StateAccess + ?Sized>(
        &self,
        at: &'a mut A,
        target: &N,
        sources: &[N],
        merge: impl Fn(V, V) -> Result<V, BoxError> + Send + 'a,
    ) -> StateFuture<'a, ()> {
        match self.bind_all(target, sources) {
            Ok((target, sources)) => run(never_pends(at), async move {
                target
                    .merge_from(at, sources, move |a, b| {
                        merge(a, b).map_err(|error| Error::user_function("merge", error))
                    })
                    .await
            }),
            Err(error) => StateFuture::ready(Err(error)),
        }
    }
}

macro_rules! merge_by_kind {
    ($what:literal, [$($generics:tt)*], $state:ty) => {
        impl<$($generics)*, N, NC: Codec<N>> Namespaced<$state, N, NC> {
            #[doc = concat!("Merges the ", $what, " of `sources` into `target`; the sources vanish.")]
            /// `target` may be absent, or among the sources (it counts once); nothing anywhere stays
            /// nothing.
            pub fn merge<'a, A: StateAccess + ?Sized>(
                &self,
                at: &'a mut A,
                target: &N,
                sources: &[N],
            ) -> StateFuture<'a, ()> {
                match self.bind_all(target, sources) {
                    Ok((target, sources)) => {
                        run(never_pends(at), async move { target.merge_from(at, sources).await })
                    }
                    Err(error) => StateFuture::ready(Err(error)),
                }
            }
        }
    };
}
merge_by_kind!("lists", [T: Send + 'static, C: Codec<T>], ListState<T, C>);
merge_by_kind!("reduced values", [V: Send + 'static, C: Codec<V>], ReducingState<V, C>);
merge_by_kind!(
    "accumulators",
    [G: Aggregate, C: Codec<G::Accumulator>],
    AggregatingState<G, C>
);

fn never_pends<A: StateAccess + ?Sized>(at: &mut A) -> bool {
    at.with(|scope| Ok(scope.backend.capabilities().never_pends)).unwrap_or(false)
}

/// Runs a merge to its end at once where no read can pend; boxes it otherwise.
fn run<'a>(
    never_pends: bool,
    merge: impl Future<Output = Result<()>> + Send + 'a,
) -> StateFuture<'a, ()> {
    if never_pends {
        StateFuture::ready(crate::block_on(merge))
    } else {
        StateFuture::pending(merge)
    }
}

impl<S: Clone, N, NC: Clone> Clone for Namespaced<S, N, NC> {
    fn clone(&self) -> Self {
        Namespaced { state: self.state.clone(), codec: self.codec.clone(), namespace: PhantomData }
    }
}

impl<S: fmt::Debug, N, NC> fmt::Debug for Namespaced<S, N, NC> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespaced({:?})", self.state)
    }
}
