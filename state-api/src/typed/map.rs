//! An ordered map per key and namespace.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use super::access::{Scope, Slot, StateAccess, lookup};
use super::expiring::{Extent, Lifetime};
use super::expiry::Expiry;
use super::map_entries::{MapEntries, settle};
use super::namespaced::Bind;
use crate::key::check_part_len;
use crate::ttl::write_stamp;
use crate::{
    Address, Codec, KeyedBackend, MapRange, Millis, Native, Order, Ordered, Page, Result, ScanStep,
    StateFuture,
};

/// An ordered map per key and namespace. It disappears with its last entry.
///
/// Iteration follows the encoded order of the map keys on every backend; with the default
/// [`Ordered`] codec that is the order of the keys themselves. An iteration sees the map as of the
/// call that began it, whatever is changed meanwhile.
///
/// ```
/// # use weir_backend_heap::HeapBackendFactory;
/// # use weir_state_api::KeyedStore;
/// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
/// let stock = store.map::<i64, String>("stock")?;
/// store.set_key(&"shop".to_string())?;
/// stock.put(&mut store, &2, &"two".into())?;
/// stock.put(&mut store, &-1, &"minus one".into())?;
/// assert_eq!(stock.get(&mut store, &2).wait()?.as_deref(), Some("two"));
/// let keys: Vec<i64> =
///     stock.entries(&mut store).wait()?.map(|entry| entry.map(|(key, _)| key)).collect::<Result<_, _>>()?;
/// assert_eq!(keys, [-1, 2]);
/// stock.remove(&mut store, &2)?;
/// stock.remove(&mut store, &-1)?;
/// assert!(stock.is_empty(&mut store).wait()?);
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub struct MapState<K, V, KC = Ordered, VC = Native> {
    pub(super) slot: Slot,
    pub(super) key_codec: KC,
    pub(super) value_codec: VC,
    entry: PhantomData<fn() -> (K, V)>,
}

impl<K, V, KC, VC> MapState<K, V, KC, VC>
where
    K: Send + 'static,
    V: Send + 'static,
    KC: Codec<K>,
    VC: Codec<V>,
{
    pub(crate) fn new(slot: Slot, key_codec: KC, value_codec: VC) -> Self {
        MapState { slot, key_codec, value_codec, entry: PhantomData }
    }

    /// Encodes `key`, then runs `f` at the entry's address.
    #[inline(always)]
    fn at_entry<A: StateAccess + ?Sized, R>(
        &self,
        at: &mut A,
        key: &K,
        f: impl FnOnce(&mut dyn KeyedBackend, &mut Expiry, &Address<'_>) -> Result<R>,
    ) -> Result<R> {
        at.with(|scope| {
            self.encode_key(scope, key)?;
            let address = Address { map_key: scope.buffer, ..self.slot.address(scope.key()) };
            f(scope.backend, scope.expiry, &address)
        })
    }

    #[inline(always)]
    fn read<A: StateAccess + ?Sized, T: 'static>(
        &self,
        at: &mut A,
        key: &K,
        decode: impl FnOnce(Option<&[u8]>) -> Result<T> + Send + 'static,
    ) -> StateFuture<'static, T> {
        if self.slot.ttl.is_none() {
            let read = |backend: &mut dyn KeyedBackend, _: &mut Expiry, at: &Address<'_>| {
                lookup(backend, at, decode)
            };
            return self.slot.settle(self.at_entry(at, key, read));
        }
        self.slot.settle(self.at_entry(at, key, |backend, expiry, address| {
            self.slot.begin_read(backend, expiry)?.read(
                backend,
                expiry,
                address,
                |life, stored, new| life.read_value(stored, new, decode),
            )
        }))
    }

    /// The value of a map key, or `None`.
    #[inline(always)]
    pub fn get<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
    ) -> StateFuture<'static, Option<V>> {
        let codec = self.value_codec.clone();
        self.read(at, key, move |stored| stored.map(|value| codec.decode(value)).transpose())
    }

    /// Whether the map has the key; the value is not decoded. With a TTL it is a read like
    /// [`get`](MapState::get).
    #[inline(always)]
    pub fn contains<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
    ) -> StateFuture<'static, bool> {
        self.read(at, key, |stored| Ok(stored.is_some()))
    }

    /// Sets the value of a map key.
    ///
    /// # Errors
    /// When key or value cannot be encoded or are too large; the map stays as it was.
    #[inline(always)]
    pub fn put<A: StateAccess + ?Sized>(&self, at: &mut A, key: &K, value: &V) -> Result<()> {
        if self.slot.ttl.is_some() {
            return self.put_for(at, key, value, Lifetime::OfState);
        }
        at.with(|scope| {
            let key_len = self.encode_key(scope, key)?;
            self.value_codec.encode(value, scope.buffer)?;
            let (map_key, value) = scope.buffer.split_at(key_len);
            scope.backend.put(&Address { map_key, ..self.slot.address(scope.key()) }, value)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// As [`put`](MapState::put), with a lifetime of its own in place of the state's; see
    /// [`ValueState::set_with_ttl`](crate::ValueState::set_with_ttl).
    ///
    /// # Errors
    /// As for [`put`](MapState::put); [`InvalidUsage`](crate::ErrorKind::InvalidUsage) when the
    /// state has no TTL.
    pub fn put_with_ttl<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
        value: &V,
        lifetime: Duration,
    ) -> Result<()> {
        self.put_for(at, key, value, Lifetime::of(lifetime))
    }

    /// As [`put`](MapState::put), until an instant; see
    /// [`ValueState::set_expiring_at`](crate::ValueState::set_expiring_at).
    ///
    /// # Errors
    /// As for [`put_with_ttl`](MapState::put_with_ttl).
    pub fn put_expiring_at<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
        value: &V,
        instant: Millis,
    ) -> Result<()> {
        self.put_for(at, key, value, Lifetime::Until(instant))
    }

    fn put_for<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
        value: &V,
        lifetime: Lifetime,
    ) -> Result<()> {
        at.with(|scope| self.put_in(scope, key, value, lifetime))
            .map_err(|error| self.slot.blame(error))
    }

    /// Sets several entries; none changes nothing.
    ///
    /// # Errors
    /// As for [`put`](MapState::put); entries before the failing one are set.
    pub fn put_all<'e, A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        entries: impl IntoIterator<Item = (&'e K, &'e V)>,
    ) -> Result<()>
    where
        K: 'e,
        V: 'e,
    {
        at.with(|scope| {
            let mut page = Page::new();
            for (key, value) in entries {
                if page.is_full() {
                    scope.backend.put_entries(&self.slot.address(scope.key()), &page)?;
                    page.clear();
                }
                if let Err(error) = self.add_to(scope, &mut page, key, value) {
                    scope.backend.put_entries(&self.slot.address(scope.key()), &page)?;
                    return Err(error);
                }
            }
            if page.is_empty() {
                return Ok(());
            }
            scope.backend.put_entries(&self.slot.address(scope.key()), &page)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// Encodes an entry that is to be set with others.
    fn add_to(&self, scope: &mut Scope<'_>, page: &mut Page, key: &K, value: &V) -> Result<()> {
        let key_len = self.encode_entry(scope, key, value, Lifetime::OfState)?;
        let (map_key, value) = scope.buffer.split_at(key_len);
        if page.is_empty() {
            // For ten or so of this kind at once.
            page.reserve(10 * scope.buffer.len());
        }
        page.push(map_key, value);
        Ok(())
    }

    fn put_in(&self, scope: &mut Scope<'_>, key: &K, value: &V, lifetime: Lifetime) -> Result<()> {
        let key_len = self.encode_entry(scope, key, value, lifetime)?;
        let (map_key, value) = scope.buffer.split_at(key_len);
        scope.backend.put(&Address { map_key, ..self.slot.address(scope.key()) }, value)
    }

    /// Encodes a map key into the buffer; returns its length.
    #[inline(always)]
    fn encode_key(&self, scope: &mut Scope<'_>, key: &K) -> Result<usize> {
        scope.buffer.clear();
        self.key_codec.encode(key, scope.buffer)?;
        check_part_len("map key", scope.buffer)?;
        Ok(scope.buffer.len())
    }

    /// Begins to write an entry: encodes key, stamp and value into the buffer. Returns the length of
    /// the key.
    #[inline(always)]
    fn encode_entry(
        &self,
        scope: &mut Scope<'_>,
        key: &K,
        value: &V,
        lifetime: Lifetime,
    ) -> Result<usize> {
        let key_len = self.encode_key(scope, key)?;
        let entry = Address { map_key: scope.buffer, ..self.slot.address(scope.key()) };
        let stamp = self.slot.begin_value(scope.backend, scope.expiry, &entry, lifetime)?;
        write_stamp(stamp, scope.buffer);
        self.value_codec.encode(value, scope.buffer)?;
        Ok(key_len)
    }

    /// Decodes an entry.
    #[inline(always)]
    pub(super) fn decode(&self, map_key: &[u8], value: &[u8]) -> Result<(K, V)> {
        Ok((self.key_codec.decode(map_key)?, self.value_codec.decode(value)?))
    }

    /// Removes a map key; a key that is not there is no error.
    ///
    /// # Errors
    /// When the key cannot be encoded.
    #[inline(always)]
    pub fn remove<A: StateAccess + ?Sized>(&self, at: &mut A, key: &K) -> Result<()> {
        self.at_entry(at, key, |backend, expiry, address| {
            self.slot.begin_write(backend, expiry, address, Extent::Address)?;
            backend.delete(address)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn clear<A: StateAccess + ?Sized>(&self, at: &mut A) -> Result<()> {
        at.with(|scope| {
            let address = self.slot.address(scope.key());
            self.slot.begin_write(scope.backend, scope.expiry, &address, Extent::Map)?;
            scope.backend.delete_range(&address, MapRange::ALL)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// Removes all entries of a range of map keys (in encoded order). Reads nothing; a range whose
    /// ends are crossed is empty.
    ///
    /// # Errors
    /// When an end cannot be encoded.
    pub fn remove_range<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        let (from, to) = self.encode_bounds(&range).map_err(|error| self.slot.blame(error))?;
        let range = MapRange { from: as_slice(&from), to: as_slice(&to) };
        self.remove_encoded(at, range)
    }

    pub(super) fn remove_encoded<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        range: MapRange<'_>,
    ) -> Result<()> {
        at.with(|scope| {
            let address = self.slot.address(scope.key());
            self.slot.begin_write(scope.backend, scope.expiry, &address, Extent::Map)?;
            scope.backend.delete_range(&address, range)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// Whether the map has no entry; decodes nothing, refreshes nothing, and stops at the first
    /// entry.
    #[inline(always)]
    pub fn is_empty<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, bool> {
        // With a TTL what is there may have expired.
        if self.slot.ttl.is_none() {
            let any = at.with(|scope| scope.backend.has_map_keys(&self.slot.address(scope.key())));
            match any {
                Ok(Some(any)) => return StateFuture::ready(Ok(!any)),
                Ok(None) => {}
                Err(error) => return StateFuture::ready(Err(self.slot.blame(error))),
            }
        }
        match self.scan(at, MapRange::ALL, Order::Ascending, Purpose::Emptiness).try_ready() {
            Ok(Ok(entries)) => entries.into_is_empty(),
            Ok(Err(error)) => StateFuture::ready(Err(error)),
            Err(pending) => {
                StateFuture::pending(async move { pending.await?.into_is_empty().await })
            }
        }
    }

    /// All entries in ascending order of the encoded map keys, as of now.
    #[inline(always)]
    pub fn entries<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
    ) -> StateFuture<'static, MapEntries<K, V, KC, VC>> {
        self.scan(at, MapRange::ALL, Order::Ascending, Purpose::Entries)
    }

    /// The entries of a range of map keys (in encoded order), as of now.
    ///
    /// ```
    /// # use weir_backend_heap::HeapBackendFactory;
    /// # use weir_state_api::Order;
    /// # let mut store = weir_state_api::KeyedStore::<String>::open_in_memory(
    /// #     &HeapBackendFactory::default())?;
    /// let log = store.map::<i64, u8>("log")?;
    /// store.set_key(&"k".to_string())?;
    /// for time in [-5, 0, 7] {
    ///     log.put(&mut store, &time, &1)?;
    /// }
    /// let mut recent = log.range(&mut store, -1.., Order::Descending).wait()?;
    /// assert_eq!(recent.next_entry().wait()?, Some((7, 1)));
    /// assert_eq!(recent.next_entry().wait()?, Some((0, 1)));
    /// assert_eq!(recent.next_entry().wait()?, None);
    /// # Ok::<(), weir_state_api::Error>(())
    /// ```
    pub fn range<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        range: impl RangeBounds<K>,
        order: Order,
    ) -> StateFuture<'static, MapEntries<K, V, KC, VC>> {
        match self.encode_bounds(&range) {
            Ok((from, to)) => {
                let range = MapRange { from: as_slice(&from), to: as_slice(&to) };
                self.range_encoded(at, range, order)
            }
            Err(error) => StateFuture::ready(Err(self.slot.blame(error))),
        }
    }

    pub(super) fn range_encoded<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        range: MapRange<'_>,
        order: Order,
    ) -> StateFuture<'static, MapEntries<K, V, KC, VC>> {
        self.scan(at, range, order, Purpose::Entries)
    }

    /// The first entry in this order.
    pub(super) fn end<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        order: Order,
    ) -> StateFuture<'static, Option<(K, V)>> {
        match self.scan(at, MapRange::ALL, order, Purpose::End).try_ready() {
            Ok(Ok(entries)) => entries.into_first(),
            Ok(Err(error)) => StateFuture::ready(Err(error)),
            Err(pending) => StateFuture::pending(async move { pending.await?.into_first().await }),
        }
    }

    fn encode_bounds(&self, range: &impl RangeBounds<K>) -> Result<(OwnedBound, OwnedBound)> {
        let encode = |bound: Bound<&K>| -> Result<OwnedBound> {
            let encoded = |key: &K| {
                let mut bytes = Vec::new();
                self.key_codec.encode(key, &mut bytes)?;
                check_part_len("map key", &bytes)?;
                Ok(bytes)
            };
            Ok(match bound {
                Bound::Included(key) => Bound::Included(encoded(key)?),
                Bound::Excluded(key) => Bound::Excluded(encoded(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        Ok((encode(range.start_bound())?, encode(range.end_bound())?))
    }

    #[inline(always)]
    fn scan<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        range: MapRange<'_>,
        order: Order,
        purpose: Purpose,
    ) -> StateFuture<'static, MapEntries<K, V, KC, VC>> {
        let mut page = match purpose {
            Purpose::Entries => Page::new(),
            Purpose::End | Purpose::Emptiness => Page::with_limit(1),
        };
        let begun = at.with(|scope| {
            let address = self.slot.address(scope.key());
            let life = self.slot.begin(scope.backend, scope.expiry)?;
            let step = scope.backend.scan(&address, range, order, &mut page)?;
            let refresher = match purpose {
                Purpose::Entries | Purpose::End => {
                    life.and_then(|life| life.refresher(scope.expiry, &address))
                }
                Purpose::Emptiness => None,
            };
            Ok((step, life, refresher))
        });
        let (step, life, refresher) = match begun {
            Ok(begun) => begun,
            Err(error) => return StateFuture::ready(Err(self.slot.blame(error))),
        };
        let state = self.clone();
        let entries = move |page, rest| MapEntries { state, page, next: 0, rest, life, refresher };
        match step {
            ScanStep::Last => StateFuture::ready(Ok(entries(page, None))),
            ScanStep::More(rest) => StateFuture::ready(Ok(entries(page, Some(rest)))),
            ScanStep::Pending(future) => {
                let slot = self.slot.clone();
                StateFuture::pending(async move {
                    let settled = async { settle(future.await?).await }.await;
                    let (page, rest) = settled.map_err(|error| slot.blame(error))?;
                    Ok(entries(page, rest))
                })
            }
        }
    }
}

/// An end of a range of encoded map keys.
type OwnedBound = Bound<Vec<u8>>;

fn as_slice(bound: &OwnedBound) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// What a scan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Its entries: they are read.
    Entries,
    /// The first one.
    End,
    /// Whether there is one.
    Emptiness,
}

impl<K, V, KC, VC> Bind for MapState<K, V, KC, VC>
where
    K: Send + 'static,
    V: Send + 'static,
    KC: Codec<K>,
    VC: Codec<V>,
{
    fn bind(&self, namespace: &[u8]) -> Self {
        MapState::new(
            self.slot.in_namespace(namespace),
            self.key_codec.clone(),
            self.value_codec.clone(),
        )
    }
}

impl<K, V, KC: Clone, VC: Clone> Clone for MapState<K, V, KC, VC> {
    fn clone(&self) -> Self {
        MapState {
            slot: self.slot.clone(),
            key_codec: self.key_codec.clone(),
            value_codec: self.value_codec.clone(),
            entry: PhantomData,
        }
    }
}

impl<K, V, KC, VC> fmt::Debug for MapState<K, V, KC, VC> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapState({:?})", self.slot)
    }
}
