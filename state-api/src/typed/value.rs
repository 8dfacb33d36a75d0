//! One value per key and namespace.

use std::fmt;
use std::marker::PhantomData;

use super::access::{Slot, StateAccess};
use super::namespaced::Bind;
use crate::{
    BoxError, BoxFuture, Change, Codec, Error, ErrorKind, KeyedBackend, Lookup, Native, Result,
    StateFuture, Updated,
};

/// One value per key and namespace.
///
/// Absence is `None`, never a default value; zero bytes and `()` are present values. Reads that
/// find the value in memory allocate nothing beyond what decoding `V` needs.
///
/// ```
/// # use weir_backend_heap::HeapBackendFactory;
/// # use weir_state_api::KeyedStore;
/// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
/// let visits = store.value::<u64>("visits")?;
/// store.set_key(&"ann".to_string())?;
/// assert_eq!(visits.get(&mut store).wait()?, None);
/// visits.set(&mut store, &1)?;
/// assert_eq!(visits.update(&mut store, |old| old.unwrap_or(0) + 1).wait()?, 2);
/// visits.clear(&mut store)?;
/// assert_eq!(visits.get(&mut store).wait()?, None);
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub struct ValueState<V, C = Native> {
    pub(crate) slot: Slot,
    pub(crate) codec: C,
    value: PhantomData<fn() -> V>,
}

/// What an update did.
pub(crate) struct Modified<V> {
    pub(crate) new: Option<V>,
    pub(crate) was_absent: bool,
}

/// A read at the byte level: decoded now, or bytes to come.
enum Read<V> {
    Now(Option<V>),
    Later(BoxFuture<'static, Result<Option<bytes::Bytes>>>),
}

impl<V: Send + 'static, C: Codec<V>> ValueState<V, C> {
    pub(crate) fn new(slot: Slot, codec: C) -> Self {
        ValueState { slot, codec, value: PhantomData }
    }

    /// The value, or `None` when there is none.
    #[inline(always)]
    pub fn get<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, Option<V>> {
        let read = at.with(|scope| match scope.backend.get(&self.slot.address(scope.key))? {
            Lookup::Absent => Ok(Read::Now(None)),
            Lookup::Found(bytes) => self.codec.decode(bytes).map(|value| Read::Now(Some(value))),
            Lookup::Pending(future) => Ok(Read::Later(future)),
        });
        match read {
            Ok(Read::Now(value)) => StateFuture::ready(Ok(value)),
            Ok(Read::Later(future)) => self.decode_later(future),
            Err(error) => StateFuture::ready(Err(self.slot.blame(error))),
        }
    }

    fn decode_later(
        &self,
        future: BoxFuture<'static, Result<Option<bytes::Bytes>>>,
    ) -> StateFuture<'static, Option<V>> {
        let state = self.clone();
        StateFuture::pending(async move {
            let decoded = match future.await {
                Ok(Some(bytes)) => state.codec.decode(&bytes).map(Some),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            decoded.map_err(|error| state.slot.blame(error))
        })
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// When the value cannot be encoded or is too large; the old value stays.
    #[inline(always)]
    pub fn set<A: StateAccess + ?Sized>(&self, at: &mut A, value: &V) -> Result<()> {
        at.with(|scope| {
            scope.buffer.clear();
            self.codec.encode(value, scope.buffer)?;
            scope.backend.put(&self.slot.address(scope.key), scope.buffer)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// Removes the value; nothing there is no error.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn clear<A: StateAccess + ?Sized>(&self, at: &mut A) -> Result<()> {
        at.with(|scope| scope.backend.delete(&self.slot.address(scope.key)))
            .map_err(|error| self.slot.blame(error))
    }

    /// Reads, changes and writes the value in one access; returns the new value.
    #[inline(always)]
    pub fn update<'a, A: StateAccess + ?Sized>(
        &'a self,
        at: &'a mut A,
        f: impl FnOnce(Option<V>) -> V + Send + 'a,
    ) -> StateFuture<'a, V> {
        self.modify(at, move |old| Ok(Some(f(old)))).and_then(|modified| {
            modified.new.ok_or_else(|| {
                Error::new(ErrorKind::InvalidUsage, "an update always returns a value")
            })
        })
    }

    /// As [`update`](ValueState::update), for a function that may fail (the value stays as it was)
    /// or return `None` to remove the value.
    #[inline]
    pub fn try_update<'a, A: StateAccess + ?Sized>(
        &'a self,
        at: &'a mut A,
        f: impl FnOnce(Option<V>) -> Result<Option<V>, BoxError> + Send + 'a,
    ) -> StateFuture<'a, Option<V>> {
        self.modify(at, move |old| f(old).map_err(|error| Error::user_function("update", error)))
            .and_then(|modified| Ok(modified.new))
    }

    #[inline(always)]
    pub(crate) fn modify<'a, A: StateAccess + ?Sized>(
        &'a self,
        at: &'a mut A,
        f: impl FnOnce(Option<V>) -> Result<Option<V>> + Send + 'a,
    ) -> StateFuture<'a, Modified<V>> {
        let mut f = Some(f);
        let mut new = None;
        let mut was_absent = false;
        let updated = at.with(|scope| {
            let address = self.slot.address(scope.key);
            scope.backend.update(&address, &mut |old, output| {
                let old = old.map(|bytes| self.codec.decode(bytes)).transpose()?;
                let f = f.take().ok_or_else(run_twice)?;
                was_absent = old.is_none();
                new = f(old)?;
                match &new {
                    Some(value) => {
                        self.codec.encode(value, output)?;
                        Ok(Change::Put)
                    }
                    None => Ok(Change::Delete),
                }
            })
        });
        match updated {
            Ok(Updated::Done) => StateFuture::ready(Ok(Modified { new, was_absent })),
            Ok(Updated::Pending(future)) => self.modify_later(at, future, f),
            Err(error) => StateFuture::ready(Err(self.slot.blame(error))),
        }
    }

    fn modify_later<'a, A: StateAccess + ?Sized>(
        &'a self,
        at: &'a mut A,
        future: BoxFuture<'static, Result<Option<bytes::Bytes>>>,
        f: Option<impl FnOnce(Option<V>) -> Result<Option<V>> + Send + 'a>,
    ) -> StateFuture<'a, Modified<V>> {
        let old = self.decode_later(future);
        StateFuture::pending(async move {
            let old = old.await?;
            let f = f.ok_or_else(run_twice)?;
            let was_absent = old.is_none();
            let new = f(old).map_err(|error| self.slot.blame(error))?;
            match &new {
                Some(value) => self.set(at, value)?,
                None => self.clear(at)?,
            }
            Ok(Modified { new, was_absent })
        })
    }

    /// Moves the values of `sources` and of this namespace into this namespace, combined by
    /// `merge` in the order given. Absent ones do not count; none at all stays absent; this
    /// namespace may be among the sources and counts once.
    pub(crate) async fn merge_from<A: StateAccess + ?Sized>(
        self,
        at: &mut A,
        sources: Vec<Self>,
        merge: impl Fn(V, V) -> Result<V> + Send,
    ) -> Result<()> {
        let mut merged = self.get(at).await?;
        let mut moved = Vec::with_capacity(sources.len());
        for source in sources {
            if source.slot.namespace() == self.slot.namespace() {
                continue;
            }
            if let Some(value) = source.get(at).await? {
                merged = Some(match merged {
                    Some(so_far) => merge(so_far, value).map_err(|error| self.slot.blame(error))?,
                    None => value,
                });
                moved.push(source);
            }
        }
        // Nothing is written before every user function has succeeded.
        if let (Some(value), false) = (&merged, moved.is_empty()) {
            self.set(at, value)?;
        }
        for source in moved {
            source.clear(at)?;
        }
        Ok(())
    }
}

impl<V: Send + 'static, C: Codec<V>> Bind for ValueState<V, C> {
    fn bind(&self, namespace: &[u8]) -> Self {
        ValueState::new(self.slot.in_namespace(namespace), self.codec.clone())
    }
}

impl<V, C: Clone> Clone for ValueState<V, C> {
    fn clone(&self) -> Self {
        ValueState { slot: self.slot.clone(), codec: self.codec.clone(), value: PhantomData }
    }
}

impl<V, C> fmt::Debug for ValueState<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueState({:?})", self.slot)
    }
}

/// The contract of [`KeyedBackend::update`]: at most once.
#[cold]
fn run_twice() -> Error {
    Error::new(ErrorKind::InvalidUsage, "the backend ran an update function twice")
}

/// Reads one value for each of many keys; see [`KeyedStore::get_many`](crate::KeyedStore::get_many).
pub(crate) fn get_many<V: Send + 'static, C: Codec<V>>(
    backend: &mut dyn KeyedBackend,
    state: &ValueState<V, C>,
    keys: &[crate::Key],
) -> StateFuture<'static, Vec<Option<V>>> {
    let addresses: Vec<_> = keys.iter().map(|key| state.slot.address(key.as_ref())).collect();
    let mut packed = crate::Values::new();
    let started = backend.multi_get(&addresses, &mut packed).and_then(|pending| {
        let decoded = (0..packed.len())
            .map(|index| packed.get(index).map(|bytes| state.codec.decode(bytes)).transpose())
            .collect::<Result<Vec<_>>>()?;
        Ok((decoded, pending))
    });
    match started {
        Err(error) => StateFuture::ready(Err(state.slot.blame(error))),
        Ok((values, None)) => StateFuture::ready(Ok(values)),
        Ok((mut values, Some(pending))) => {
            let state = state.clone();
            StateFuture::pending(async move {
                for (index, bytes) in pending.await? {
                    values[index] = bytes
                        .map(|bytes| state.codec.decode(&bytes))
                        .transpose()
                        .map_err(|error| state.slot.blame(error))?;
                }
                Ok(values)
            })
        }
    }
}
