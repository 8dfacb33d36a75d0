//! One value per key and namespace.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::access::{PendingRead, Slot, StateAccess};
use super::expiring::{Extent, Life, Lifetime};
use super::expiry::Expiry;
use super::namespaced::Bind;
use super::refresh::Refresher;
use crate::ttl::{Stamp, cut_short, write_stamp};
use crate::{
    BoxError, Change, Codec, Error, ErrorKind, KeyedBackend, Millis, Native, PendingValues, Result,
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

impl<V: Send + 'static, C: Codec<V>> ValueState<V, C> {
    pub(crate) fn new(slot: Slot, codec: C) -> Self {
        ValueState { slot, codec, value: PhantomData }
    }

    /// The value, or `None` when there is none.
    #[inline(always)]
    pub fn get<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, Option<V>> {
        let codec = self.codec.clone();
        let decode = move |stored: Option<&[u8]>| stored.map(|v| codec.decode(v)).transpose();
        if self.slot.ttl.is_none() {
            return self.slot.read(at, decode);
        }
        self.slot.read_expiring(at, move |life, stored, new| life.read_value(stored, new, decode))
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// When the value cannot be encoded or is too large; the old value stays.
    #[inline(always)]
    pub fn set<A: StateAccess + ?Sized>(&self, at: &mut A, value: &V) -> Result<()> {
        if self.slot.ttl.is_some() {
            return self.set_for(at, value, Lifetime::OfState);
        }
        at.with(|scope| {
            scope.buffer.clear();
            self.codec.encode(value, scope.buffer)?;
            scope.backend.put(&self.slot.address(scope.key()), scope.buffer)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// As [`set`](ValueState::set), with a lifetime of its own in place of the state's: counted
    /// from now in the state's time domain, in whole milliseconds, and not prolonged by reads. The
    /// next `set` or update gives the value the state's lifetime again.
    ///
    /// # Errors
    /// As for [`set`](ValueState::set); [`InvalidUsage`](ErrorKind::InvalidUsage) when the state has
    /// no TTL.
    pub fn set_with_ttl<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        value: &V,
        lifetime: Duration,
    ) -> Result<()> {
        self.set_for(at, value, Lifetime::of(lifetime))
    }

    /// As [`set_with_ttl`](ValueState::set_with_ttl), until an instant: the value is gone when the
    /// time of the state's domain reaches it. From [`NEVER`](crate::ttl::NEVER) on it stays for
    /// ever.
    ///
    /// # Errors
    /// As for [`set_with_ttl`](ValueState::set_with_ttl).
    pub fn set_expiring_at<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        value: &V,
        instant: Millis,
    ) -> Result<()> {
        self.set_for(at, value, Lifetime::Until(instant))
    }

    fn set_for<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        value: &V,
        lifetime: Lifetime,
    ) -> Result<()> {
        at.with(|scope| {
            let address = self.slot.address(scope.key());
            let stamp = self.slot.begin_value(scope.backend, scope.expiry, &address, lifetime)?;
            scope.buffer.clear();
            write_stamp(stamp, scope.buffer);
            self.codec.encode(value, scope.buffer)?;
            scope.backend.put(&address, scope.buffer)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// Removes the value; nothing there is no error.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn clear<A: StateAccess + ?Sized>(&self, at: &mut A) -> Result<()> {
        self.slot.delete(at)
    }

    /// Reads, changes and writes the value in one access; returns the new value.
    #[inline(always)]
    pub fn update<'a, A: StateAccess + ?Sized>(
        &'a self,
        at: &'a mut A,
        f: impl FnOnce(Option<V>) -> V + Send + 'a,
    ) -> StateFuture<'a, V> {
        self.modify(
            at,
            move |old| Ok(Some(f(old))),
            |modified| {
                modified.new.ok_or_else(|| {
                    Error::new(ErrorKind::InvalidUsage, "an update always returns a value")
                })
            },
        )
    }

    /// As [`update`](ValueState::update), for a function that may fail (the value stays as it was)
    /// or return `None` to remove the value.
    #[inline]
    pub fn try_update<'a, A: StateAccess + ?Sized>(
        &'a self,
        at: &'a mut A,
        f: impl FnOnce(Option<V>) -> Result<Option<V>, BoxError> + Send + 'a,
    ) -> StateFuture<'a, Option<V>> {
        self.modify(
            at,
            move |old| f(old).map_err(|error| Error::user_function("update", error)),
            |modified| Ok(modified.new),
        )
    }

    /// Reads, changes and writes the value; `end` makes the answer of what has become of it. One
    /// future for all of it, so that a read that pends allocates once.
    #[inline(always)]
    pub(crate) fn modify<'a, A: StateAccess + ?Sized, U>(
        &'a self,
        at: &'a mut A,
        f: impl FnOnce(Option<V>) -> Result<Option<V>> + Send + 'a,
        end: impl FnOnce(Modified<V>) -> Result<U> + Send + 'a,
    ) -> StateFuture<'a, U> {
        if self.slot.ttl.is_none() {
            return self.modify_as(None, at, f, end);
        }
        let life = at.with(|scope| {
            let address = self.slot.address(scope.key());
            self.slot.begin_write(scope.backend, scope.expiry, &address, Extent::Address)
        });
        match life {
            Ok(life) => self.modify_as(life, at, f, end),
            Err(error) => StateFuture::ready(Err(self.slot.blame(error))),
        }
    }

    #[inline(always)]
    fn modify_as<'a, A: StateAccess + ?Sized, U>(
        &'a self,
        life: Option<Life>,
        at: &'a mut A,
        f: impl FnOnce(Option<V>) -> Result<Option<V>> + Send + 'a,
        end: impl FnOnce(Modified<V>) -> Result<U> + Send + 'a,
    ) -> StateFuture<'a, U> {
        let mut f = Some(f);
        let mut new = None;
        let mut was_absent = false;
        let updated = at.with(|scope| {
            let address = self.slot.address(scope.key());
            scope.backend.update(&address, &mut |stored, output| {
                let old = self.decode_live(life.as_ref(), stored)?;
                let f = f.take().ok_or_else(run_twice)?;
                was_absent = old.is_none();
                new = f(old)?;
                match &new {
                    Some(value) => {
                        if let Some(life) = &life {
                            output.extend_from_slice(&life.stamp(Lifetime::OfState).to_bytes());
                        }
                        self.codec.encode(value, output)?;
                        Ok(Change::Put)
                    }
                    None => Ok(Change::Delete),
                }
            })
        });
        match updated {
            Ok(Updated::Done) => StateFuture::ready(end(Modified { new, was_absent })),
            Ok(Updated::Pending(future)) => self.modify_later(life, at, future, f, end),
            Err(error) => StateFuture::ready(Err(self.slot.blame(error))),
        }
    }

    /// The stored value, unless it has expired.
    #[inline(always)]
    fn decode_live(&self, life: Option<&Life>, stored: Option<&[u8]>) -> Result<Option<V>> {
        let live = match (life, stored) {
            (Some(life), Some(stored)) => life.live(stored)?,
            (_, stored) => stored,
        };
        live.map(|value| self.codec.decode(value)).transpose()
    }

    fn modify_later<'a, A: StateAccess + ?Sized, U>(
        &'a self,
        life: Option<Life>,
        at: &'a mut A,
        future: PendingRead,
        f: Option<impl FnOnce(Option<V>) -> Result<Option<V>> + Send + 'a>,
        end: impl FnOnce(Modified<V>) -> Result<U> + Send + 'a,
    ) -> StateFuture<'a, U> {
        StateFuture::pending(async move {
            let old =
                future.await.and_then(|stored| self.decode_live(life.as_ref(), stored.as_deref()));
            let old = old.map_err(|error| self.slot.blame(error))?;
            let f = f.ok_or_else(run_twice)?;
            let was_absent = old.is_none();
            let new = f(old).map_err(|error| self.slot.blame(error))?;
            match &new {
                Some(value) => self.set(at, value)?,
                None => self.clear(at)?,
            }
            end(Modified { new, was_absent })
        })
    }

    /// The value and its stamp, unless it has expired; refreshes nothing.
    fn get_stamped<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
    ) -> StateFuture<'static, Option<(V, Option<Stamp>)>> {
        if self.slot.ttl.is_none() {
            return self.get(at).and_then(|value| Ok(value.map(|value| (value, None))));
        }
        let codec = self.codec.clone();
        self.slot.read_expiring(at, move |life, stored, _| {
            let Some(stored) = stored else { return Ok((None, Change::Keep)) };
            let (stamp, value) = Stamp::split(stored).ok_or_else(cut_short)?;
            if life.is_expired(stamp) {
                return Ok((None, Change::Keep));
            }
            Ok((Some((codec.decode(value)?, Some(stamp))), Change::Keep))
        })
    }

    /// Moves the values of `sources` and of this namespace into this namespace, combined by
    /// `merge` in the order given. Absent and expired ones do not count; none at all stays absent;
    /// this namespace may be among the sources and counts once. The result expires with that of
    /// them that would have expired last.
    pub(crate) async fn merge_from<A: StateAccess + ?Sized>(
        self,
        at: &mut A,
        sources: Vec<Self>,
        merge: impl Fn(V, V) -> Result<V> + Send,
    ) -> Result<()> {
        let mut merged = self.get_stamped(at).await?;
        let mut moved = false;
        let mut emptied = Vec::with_capacity(sources.len());
        for source in sources {
            if source.slot.namespace() == self.slot.namespace() {
                continue;
            }
            let Some((value, stamp)) = source.get_stamped(at).await? else {
                // What has expired may still be there, and be shown.
                emptied.extend(self.slot.ttl.map(|_| source));
                continue;
            };
            emptied.push(source);
            moved = true;
            merged = Some(match merged {
                Some((so_far, other)) => {
                    let merged = merge(so_far, value).map_err(|error| self.slot.blame(error))?;
                    (merged, self.later(at, other, stamp)?)
                }
                None => (value, stamp),
            });
        }
        // Nothing is written before every user function has succeeded.
        if let (Some((value, stamp)), true) = (&merged, moved) {
            self.set_for(at, value, stamp.map_or(Lifetime::OfState, Lifetime::Kept))?;
        }
        for source in emptied {
            source.clear(at)?;
        }
        Ok(())
    }

    fn later<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        a: Option<Stamp>,
        b: Option<Stamp>,
    ) -> Result<Option<Stamp>> {
        let (Some(ttl), Some(a), Some(b)) = (self.slot.ttl, a, b) else { return Ok(None) };
        at.with(|scope| Ok(Some(ttl.state_ttl().later(a, b, &scope.expiry.time()))))
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
    expiry: &mut Expiry,
    state: &ValueState<V, C>,
    keys: &[crate::Key],
) -> StateFuture<'static, Vec<Option<V>>> {
    let begun = begin_many(backend, expiry, state, keys);
    match begun {
        Err(error) => StateFuture::ready(Err(state.slot.blame(error))),
        Ok((values, None)) => StateFuture::ready(Ok(values)),
        Ok((mut values, Some(Pending { reads, life, refreshers }))) => {
            let state = state.clone();
            StateFuture::pending(async move {
                let blame = |error| state.slot.blame(error);
                for (index, stored) in reads.await.map_err(blame)? {
                    let (value, change, new) =
                        inspect(&state, life, stored.as_deref()).map_err(blame)?;
                    values[index] = value;
                    if let (Some(refresher), Change::Put) = (refreshers.get(index), change) {
                        refresher.refresh(&[], new);
                    }
                }
                Ok(values)
            })
        }
    }
}

/// The pending part of a batched read.
struct Pending {
    reads: PendingValues,
    life: Option<Life>,
    /// One for each key, if reads refresh.
    refreshers: Vec<Refresher>,
}

fn begin_many<V: Send + 'static, C: Codec<V>>(
    backend: &mut dyn KeyedBackend,
    expiry: &mut Expiry,
    state: &ValueState<V, C>,
    keys: &[crate::Key],
) -> Result<(Vec<Option<V>>, Option<Pending>)> {
    let life = state.slot.begin(backend, expiry)?;
    let addresses: Vec<_> = keys.iter().map(|key| state.slot.address(key.as_ref())).collect();
    let mut packed = crate::Values::new();
    let reads = backend.multi_get(&addresses, &mut packed)?;
    let mut values = Vec::with_capacity(packed.len());
    for (index, address) in addresses.iter().enumerate() {
        let (value, change, new) = inspect(state, life, packed.get(index))?;
        values.push(value);
        match change {
            Change::Keep => {}
            Change::Put => backend.put(address, &new)?,
            Change::Delete => backend.delete(address)?,
        }
    }
    let pending = reads.map(|reads| {
        let refresher = |at| life.and_then(|life| life.refresher(expiry, at));
        Pending { reads, life, refreshers: addresses.iter().filter_map(refresher).collect() }
    });
    Ok((values, pending))
}

/// What a read returns, and what becomes of the stored bytes.
fn inspect<V: Send + 'static, C: Codec<V>>(
    state: &ValueState<V, C>,
    life: Option<Life>,
    stored: Option<&[u8]>,
) -> Result<(Option<V>, Change, Vec<u8>)> {
    let mut new = Vec::new();
    let decode = |stored: Option<&[u8]>| stored.map(|v| state.codec.decode(v)).transpose();
    let (value, change) = match life {
        Some(life) => life.read_value(stored, &mut new, decode)?,
        None => (decode(stored)?, Change::Keep),
    };
    Ok((value, change, new))
}
