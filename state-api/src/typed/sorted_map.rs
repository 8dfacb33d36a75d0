//! A map per key and namespace whose order is part of its contract.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use super::access::StateAccess;
use super::map::MapState;
use super::map_entries::MapEntries;
use super::namespaced::Bind;
use crate::stored_key::successor;
use crate::{
    Codec, MapRange, Millis, Native, Order, Ordered, OrderedPrefix, OrderedType, Result,
    StateFuture,
};

/// A map per key and namespace, sorted by map key: first and last entry, ranges, prefixes, in both
/// directions, and removal of ranges.
///
/// Integers, floats and strings sort as in Rust, tuples part by part; see [`Ordered`]. It
/// disappears with its last entry. An iteration sees the map as of the call that began it.
///
/// A leaderboard, a join's buffer by time, an event log that is cut off at the watermark:
///
/// ```
/// # use weir_backend_heap::HeapBackendFactory;
/// # use weir_state_api::{KeyedStore, Order};
/// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
/// let log = store.sorted_map::<(i64, u32), String>("log")?;
/// store.set_key(&"sensor".to_string())?;
/// for (time, text) in [(5, "five"), (-3, "before"), (9, "nine")] {
///     log.put(&mut store, &(time, 0), &text.into())?;
/// }
/// assert_eq!(log.first(&mut store).wait()?, Some(((-3, 0), "before".into())));
/// assert_eq!(log.last(&mut store).wait()?, Some(((9, 0), "nine".into())));
///
/// let mut latest = log.range(&mut store, .., Order::Descending).wait()?;
/// assert_eq!(latest.next_entry().wait()?.map(|(key, _)| key), Some((9, 0)));
///
/// assert_eq!(log.prefix(&mut store, &(5,), Order::Ascending).wait()?.count(), 1);
/// log.remove_range(&mut store, ..(6, 0))?;
/// assert_eq!(log.entries(&mut store).wait()?.count(), 1);
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub struct SortedMapState<K, V, VC = Native> {
    map: MapState<K, V, Ordered, VC>,
}

impl<K, V, VC> SortedMapState<K, V, VC>
where
    K: OrderedType + Send + 'static,
    V: Send + 'static,
    VC: Codec<V>,
{
    pub(crate) fn new(map: MapState<K, V, Ordered, VC>) -> Self {
        SortedMapState { map }
    }

    /// The value under a map key; see [`MapState::get`].
    pub fn get<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
    ) -> StateFuture<'static, Option<V>> {
        self.map.get(at, key)
    }

    /// Whether there is a value under a map key; decodes nothing.
    pub fn contains<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
    ) -> StateFuture<'static, bool> {
        self.map.contains(at, key)
    }

    /// Stores a value under a map key.
    ///
    /// # Errors
    /// Those of [`MapState::put`].
    pub fn put<A: StateAccess + ?Sized>(&self, at: &mut A, key: &K, value: &V) -> Result<()> {
        self.map.put(at, key, value)
    }

    /// As [`put`](SortedMapState::put), with a lifetime of its own.
    ///
    /// # Errors
    /// Those of [`MapState::put_with_ttl`].
    pub fn put_with_ttl<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
        value: &V,
        ttl: Duration,
    ) -> Result<()> {
        self.map.put_with_ttl(at, key, value, ttl)
    }

    /// As [`put`](SortedMapState::put), with an instant at which the entry expires.
    ///
    /// # Errors
    /// Those of [`MapState::put_expiring_at`].
    pub fn put_expiring_at<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
        value: &V,
        instant: Millis,
    ) -> Result<()> {
        self.map.put_expiring_at(at, key, value, instant)
    }

    /// Stores several entries.
    ///
    /// # Errors
    /// Those of [`MapState::put_all`].
    pub fn put_all<'e, A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        entries: impl IntoIterator<Item = (&'e K, &'e V)>,
    ) -> Result<()>
    where
        K: 'e,
        V: 'e,
    {
        self.map.put_all(at, entries)
    }

    /// Removes an entry; nothing there is no error.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn remove<A: StateAccess + ?Sized>(&self, at: &mut A, key: &K) -> Result<()> {
        self.map.remove(at, key)
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn clear<A: StateAccess + ?Sized>(&self, at: &mut A) -> Result<()> {
        self.map.clear(at)
    }

    /// Removes all entries of a range. Reads nothing; a range whose ends are crossed is empty.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) for an end beyond 64 KiB.
    pub fn remove_range<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        range: impl RangeBounds<K>,
    ) -> Result<()> {
        self.map.remove_range(at, range)
    }

    /// Removes all entries whose map keys begin like this. Reads nothing.
    ///
    /// # Errors
    /// Those of [`remove_range`](SortedMapState::remove_range).
    pub fn remove_prefix<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        prefix: &impl OrderedPrefix<K>,
    ) -> Result<()> {
        let (from, to) = bounds(prefix);
        self.map.remove_encoded(at, as_range(&from, &to))
    }

    /// Whether there is no entry; see [`MapState::is_empty`].
    pub fn is_empty<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, bool> {
        self.map.is_empty(at)
    }

    /// The entry with the smallest map key. Reads one entry, and those before it that have expired.
    pub fn first<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
    ) -> StateFuture<'static, Option<(K, V)>> {
        self.map.end(at, Order::Ascending)
    }

    /// The entry with the greatest map key. Reads one entry, and those after it that have expired.
    pub fn last<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
    ) -> StateFuture<'static, Option<(K, V)>> {
        self.map.end(at, Order::Descending)
    }

    /// All entries, the smallest map key first.
    pub fn entries<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
    ) -> StateFuture<'static, MapEntries<K, V, Ordered, VC>> {
        self.map.entries(at)
    }

    /// The entries of a range, in either direction.
    pub fn range<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        range: impl RangeBounds<K>,
        order: Order,
    ) -> StateFuture<'static, MapEntries<K, V, Ordered, VC>> {
        self.map.range(at, range, order)
    }

    /// The entries whose map keys begin like this, in either direction: strings by their first
    /// characters, tuples by their first parts.
    ///
    /// ```
    /// # use weir_backend_heap::HeapBackendFactory;
    /// # use weir_state_api::{KeyedStore, Order};
    /// let mut store = KeyedStore::<u64>::open_in_memory(&HeapBackendFactory::default())?;
    /// let names = store.sorted_map::<String, u8>("names")?;
    /// store.set_key(&1)?;
    /// for name in ["weir", "weird", "wet", "we"] {
    ///     names.put(&mut store, &name.to_string(), &0)?;
    /// }
    /// let found = names.prefix(&mut store, &"wei", Order::Descending).wait()?;
    /// let found: Vec<String> = found.map(|entry| entry.map(|(name, _)| name)).collect::<Result<_, _>>()?;
    /// assert_eq!(found, ["weird", "weir"]);
    /// # Ok::<(), weir_state_api::Error>(())
    /// ```
    pub fn prefix<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        prefix: &impl OrderedPrefix<K>,
        order: Order,
    ) -> StateFuture<'static, MapEntries<K, V, Ordered, VC>> {
        let (from, to) = bounds(prefix);
        self.map.range_encoded(at, as_range(&from, &to), order)
    }
}

/// The first map key that begins with a prefix, and the first one after them; `None`: there is none.
fn bounds<K: OrderedType>(prefix: &impl OrderedPrefix<K>) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut from = Vec::new();
    prefix.write_prefix(&mut from);
    let mut to = from.clone();
    let to = successor(&mut to).then_some(to);
    (from, to)
}

fn as_range<'b>(from: &'b [u8], to: &'b Option<Vec<u8>>) -> MapRange<'b> {
    let to = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(to.as_slice()));
    MapRange { from: Bound::Included(from), to }
}

impl<K, V, VC> Bind for SortedMapState<K, V, VC>
where
    K: OrderedType + Send + 'static,
    V: Send + 'static,
    VC: Codec<V>,
{
    fn bind(&self, namespace: &[u8]) -> Self {
        SortedMapState { map: self.map.bind(namespace) }
    }
}

impl<K, V, VC: Clone> Clone for SortedMapState<K, V, VC> {
    fn clone(&self) -> Self {
        SortedMapState { map: self.map.clone() }
    }
}

impl<K, V, VC> fmt::Debug for SortedMapState<K, V, VC> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sorted{:?}", self.map)
    }
}
