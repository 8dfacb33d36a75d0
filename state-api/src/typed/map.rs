//! An ordered map per key and namespace.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use super::access::{Slot, StateAccess};
use super::namespaced::Bind;
use crate::key::check_part_len;
use crate::{
    Address, Codec, Lookup, MapRange, Native, Order, Ordered, Page, Result, Scan, ScanStep, Scope,
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
    slot: Slot,
    key_codec: KC,
    value_codec: VC,
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

    /// Encodes `key`, then runs `f` at the entry's address with an empty buffer behind it.
    fn at_entry<A: StateAccess + ?Sized, R>(
        &self,
        at: &mut A,
        key: &K,
        f: impl FnOnce(&mut dyn crate::KeyedBackend, &Address<'_>) -> Result<R>,
    ) -> Result<R> {
        at.with(|scope| {
            scope.buffer.clear();
            self.key_codec.encode(key, scope.buffer)?;
            check_part_len("map key", scope.buffer)?;
            let address = Address { map_key: scope.buffer, ..self.slot.address(scope.key) };
            f(scope.backend, &address)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// The value of a map key, or `None`.
    pub fn get<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
    ) -> StateFuture<'static, Option<V>> {
        let read = self.at_entry(at, key, |backend, address| match backend.get(address)? {
            Lookup::Absent => Ok(Ok(None)),
            Lookup::Found(bytes) => self.value_codec.decode(bytes).map(|value| Ok(Some(value))),
            Lookup::Pending(future) => Ok(Err(future)),
        });
        match read {
            Ok(Ok(value)) => StateFuture::ready(Ok(value)),
            Ok(Err(future)) => {
                let state = self.clone();
                StateFuture::pending(async move {
                    match future.await? {
                        Some(bytes) => state.value_codec.decode(&bytes).map(Some),
                        None => Ok(None),
                    }
                    .map_err(|error| state.slot.blame(error))
                })
            }
            Err(error) => StateFuture::ready(Err(error)),
        }
    }

    /// Whether the map has the key; the value is not decoded.
    pub fn contains<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        key: &K,
    ) -> StateFuture<'static, bool> {
        let read = self.at_entry(at, key, |backend, address| match backend.get(address)? {
            Lookup::Absent => Ok(Ok(false)),
            Lookup::Found(_) => Ok(Ok(true)),
            Lookup::Pending(future) => Ok(Err(future)),
        });
        match read {
            Ok(Ok(found)) => StateFuture::ready(Ok(found)),
            Ok(Err(future)) => StateFuture::pending(async move { Ok(future.await?.is_some()) }),
            Err(error) => StateFuture::ready(Err(error)),
        }
    }

    /// Sets the value of a map key.
    ///
    /// # Errors
    /// When key or value cannot be encoded or are too large; the map stays as it was.
    pub fn put<A: StateAccess + ?Sized>(&self, at: &mut A, key: &K, value: &V) -> Result<()> {
        at.with(|scope| self.put_in(scope, key, value)).map_err(|error| self.slot.blame(error))
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
            entries.into_iter().try_for_each(|(key, value)| self.put_in(scope, key, value))
        })
        .map_err(|error| self.slot.blame(error))
    }

    fn put_in(&self, scope: &mut Scope<'_>, key: &K, value: &V) -> Result<()> {
        scope.buffer.clear();
        self.key_codec.encode(key, scope.buffer)?;
        check_part_len("map key", scope.buffer)?;
        let key_len = scope.buffer.len();
        self.value_codec.encode(value, scope.buffer)?;
        let (map_key, value) = scope.buffer.split_at(key_len);
        scope.backend.put(&Address { map_key, ..self.slot.address(scope.key) }, value)
    }

    /// Removes a map key; a key that is not there is no error.
    ///
    /// # Errors
    /// When the key cannot be encoded.
    pub fn remove<A: StateAccess + ?Sized>(&self, at: &mut A, key: &K) -> Result<()> {
        self.at_entry(at, key, |backend, address| backend.delete(address))
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn clear<A: StateAccess + ?Sized>(&self, at: &mut A) -> Result<()> {
        at.with(|scope| scope.backend.delete_range(&self.slot.address(scope.key), MapRange::ALL))
            .map_err(|error| self.slot.blame(error))
    }

    /// Whether the map has no entry; reads at most one page and decodes nothing.
    pub fn is_empty<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, bool> {
        self.entries(at).and_then(|entries| Ok(entries.page.is_empty()))
    }

    /// All entries in ascending order of the encoded map keys, as of now.
    pub fn entries<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
    ) -> StateFuture<'static, MapEntries<K, V, KC, VC>> {
        self.scan(at, MapRange::ALL, Order::Ascending)
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
        let encode = |bound: Bound<&K>| -> Result<Bound<Vec<u8>>> {
            let encoded = |key: &K| {
                let mut bytes = Vec::new();
                self.key_codec.encode(key, &mut bytes)?;
                Ok(bytes)
            };
            Ok(match bound {
                Bound::Included(key) => Bound::Included(encoded(key)?),
                Bound::Excluded(key) => Bound::Excluded(encoded(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        match (encode(range.start_bound()), encode(range.end_bound())) {
            (Ok(from), Ok(to)) => {
                let range = MapRange {
                    from: from.as_ref().map(Vec::as_slice),
                    to: to.as_ref().map(Vec::as_slice),
                };
                self.scan(at, range, order)
            }
            (Err(error), _) | (_, Err(error)) => StateFuture::ready(Err(self.slot.blame(error))),
        }
    }

    fn scan<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        range: MapRange<'_>,
        order: Order,
    ) -> StateFuture<'static, MapEntries<K, V, KC, VC>> {
        let mut page = Page::new();
        let step = at.with(|scope| {
            scope.backend.scan(&self.slot.address(scope.key), range, order, &mut page)
        });
        let state = self.clone();
        let entries = |page, rest| MapEntries { state, page, next: 0, rest };
        match step {
            Ok(ScanStep::Last) => StateFuture::ready(Ok(entries(page, None))),
            Ok(ScanStep::More(rest)) => StateFuture::ready(Ok(entries(page, Some(rest)))),
            Ok(ScanStep::Pending(future)) => StateFuture::pending(async move {
                let (page, step) = settle(future.await?).await?;
                Ok(entries(page, step))
            }),
            Err(error) => StateFuture::ready(Err(self.slot.blame(error))),
        }
    }
}

/// Awaits a scan until it has a page.
async fn settle((mut page, mut step): (Page, ScanStep)) -> Result<(Page, Option<Box<dyn Scan>>)> {
    loop {
        match step {
            ScanStep::Last => return Ok((page, None)),
            ScanStep::More(rest) => return Ok((page, Some(rest))),
            ScanStep::Pending(future) => (page, step) = future.await?,
        }
    }
}

/// The entries of a map, read page by page.
///
/// Independent of the store: it may be changed, even dropped, while this is read. As an
/// [`Iterator`] it blocks on remote reads; [`next_entry`](MapEntries::next_entry) awaits them.
pub struct MapEntries<K, V, KC = Ordered, VC = Native> {
    state: MapState<K, V, KC, VC>,
    page: Page,
    next: usize,
    rest: Option<Box<dyn Scan>>,
}

impl<K, V, KC, VC> MapEntries<K, V, KC, VC>
where
    K: Send + 'static,
    V: Send + 'static,
    KC: Codec<K>,
    VC: Codec<V>,
{
    /// The next entry, or `None` at the end.
    pub fn next_entry(&mut self) -> StateFuture<'_, Option<(K, V)>> {
        while self.next >= self.page.len() {
            let Some(rest) = self.rest.take() else { return StateFuture::ready(Ok(None)) };
            self.page.clear();
            self.next = 0;
            match rest.next(&mut self.page) {
                Ok(ScanStep::Last) => {}
                Ok(ScanStep::More(rest)) => self.rest = Some(rest),
                Ok(ScanStep::Pending(future)) => {
                    return StateFuture::pending(async move {
                        (self.page, self.rest) = settle(future.await?).await?;
                        self.next_entry().await
                    });
                }
                Err(error) => return StateFuture::ready(Err(self.state.slot.blame(error))),
            }
        }
        let entry = self.decode(self.next);
        self.next += 1;
        StateFuture::ready(entry)
    }

    /// Reads all entries that are left.
    ///
    /// # Errors
    /// Those of reading and decoding.
    pub async fn collect_all(mut self) -> Result<Vec<(K, V)>> {
        let mut all = Vec::new();
        while let Some(entry) = self.next_entry().await? {
            all.push(entry);
        }
        Ok(all)
    }

    fn decode(&self, index: usize) -> Result<Option<(K, V)>> {
        let Some((key, value)) = self.page.get(index) else { return Ok(None) };
        let key = self.state.key_codec.decode(key);
        let value = self.state.value_codec.decode(value);
        match (key, value) {
            (Ok(key), Ok(value)) => Ok(Some((key, value))),
            (Err(error), _) | (_, Err(error)) => Err(self.state.slot.blame(error)),
        }
    }
}

impl<K, V, KC, VC> Iterator for MapEntries<K, V, KC, VC>
where
    K: Send + 'static,
    V: Send + 'static,
    KC: Codec<K>,
    VC: Codec<V>,
{
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().wait().transpose()
    }
}

impl<K, V, KC, VC> fmt::Debug for MapEntries<K, V, KC, VC> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapEntries").field("state", &self.state.slot).finish_non_exhaustive()
    }
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
