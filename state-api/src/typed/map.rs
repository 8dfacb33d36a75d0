//! An ordered map per key and namespace.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use super::access::{Scope, Slot, StateAccess, lookup};
use super::expiring::{Extent, Life, Lifetime};
use super::expiry::Expiry;
use super::namespaced::Bind;
use super::refresh::Refresher;
use crate::key::check_part_len;
use crate::ttl::{Stamp, cut_short};
use crate::{
    Address, BoxFuture, Change, Codec, KeyedBackend, MapRange, Millis, Native, Order, Ordered,
    Page, Result, Scan, ScanStep, StateFuture,
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

    /// Encodes `key`, then runs `f` at the entry's address.
    fn at_entry<A: StateAccess + ?Sized, R>(
        &self,
        at: &mut A,
        key: &K,
        f: impl FnOnce(&mut dyn KeyedBackend, &mut Expiry, &Address<'_>) -> Result<R>,
    ) -> Result<R> {
        at.with(|scope| {
            scope.buffer.clear();
            self.key_codec.encode(key, scope.buffer)?;
            check_part_len("map key", scope.buffer)?;
            let address = Address { map_key: scope.buffer, ..self.slot.address(scope.key) };
            f(scope.backend, scope.expiry, &address)
        })
    }

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
    pub fn put<A: StateAccess + ?Sized>(&self, at: &mut A, key: &K, value: &V) -> Result<()> {
        self.put_for(at, key, value, Lifetime::OfState)
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
            entries
                .into_iter()
                .try_for_each(|(key, value)| self.put_in(scope, key, value, Lifetime::OfState))
        })
        .map_err(|error| self.slot.blame(error))
    }

    fn put_in(&self, scope: &mut Scope<'_>, key: &K, value: &V, lifetime: Lifetime) -> Result<()> {
        scope.buffer.clear();
        self.key_codec.encode(key, scope.buffer)?;
        check_part_len("map key", scope.buffer)?;
        let key_len = scope.buffer.len();
        let entry = Address { map_key: scope.buffer, ..self.slot.address(scope.key) };
        let stamp = self.slot.begin_value(scope.backend, scope.expiry, &entry, lifetime)?;
        scope.buffer.extend(stamp.into_iter().flat_map(Stamp::to_bytes));
        self.value_codec.encode(value, scope.buffer)?;
        let (map_key, value) = scope.buffer.split_at(key_len);
        scope.backend.put(&Address { map_key, ..self.slot.address(scope.key) }, value)
    }

    /// Removes a map key; a key that is not there is no error.
    ///
    /// # Errors
    /// When the key cannot be encoded.
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
            let address = self.slot.address(scope.key);
            self.slot.begin_write(scope.backend, scope.expiry, &address, Extent::Map)?;
            scope.backend.delete_range(&address, MapRange::ALL)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// Whether the map has no entry; decodes nothing, refreshes nothing, and stops at the first
    /// entry.
    pub fn is_empty<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, bool> {
        match self.scan(at, MapRange::ALL, Order::Ascending, Purpose::Emptiness).try_ready() {
            Ok(Ok(entries)) => entries.into_is_empty(),
            Ok(Err(error)) => StateFuture::ready(Err(error)),
            Err(pending) => {
                StateFuture::pending(async move { pending.await?.into_is_empty().await })
            }
        }
    }

    /// All entries in ascending order of the encoded map keys, as of now.
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
                self.scan(at, range, order, Purpose::Entries)
            }
            (Err(error), _) | (_, Err(error)) => StateFuture::ready(Err(self.slot.blame(error))),
        }
    }

    fn scan<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        range: MapRange<'_>,
        order: Order,
        purpose: Purpose,
    ) -> StateFuture<'static, MapEntries<K, V, KC, VC>> {
        let mut page = Page::new();
        let begun = at.with(|scope| {
            let address = self.slot.address(scope.key);
            let life = self.slot.begin(scope.backend, scope.expiry)?;
            let step = scope.backend.scan(&address, range, order, &mut page)?;
            let refresher = match purpose {
                Purpose::Entries => life.and_then(|life| life.refresher(scope.expiry, &address)),
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

/// What a scan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Its entries: they are read.
    Entries,
    /// Whether there is one.
    Emptiness,
}

/// Awaits a scan until it has a page.
async fn settle((mut page, mut step): (Page, ScanStep)) -> Result<ReadPage> {
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
///
/// Of a state with a TTL it yields what had not expired at the call that began it. Where reads
/// refresh, each entry it yields is refreshed at the next access to such a state of the instance,
/// and takes memory until then.
pub struct MapEntries<K, V, KC = Ordered, VC = Native> {
    state: MapState<K, V, KC, VC>,
    page: Page,
    next: usize,
    rest: Option<Box<dyn Scan>>,
    life: Option<Life>,
    refresher: Option<Refresher>,
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
        loop {
            while self.next < self.page.len() {
                let entry = self.decode(self.next).map_err(|error| self.state.slot.blame(error));
                self.next += 1;
                if let Some(entry) = entry.transpose() {
                    return StateFuture::ready(entry.map(Some));
                }
            }
            match self.next_page() {
                Ok(NextPage::Read) => {}
                Ok(NextPage::None) => return StateFuture::ready(Ok(None)),
                Ok(NextPage::Pending(future)) => {
                    return StateFuture::pending(async move {
                        self.take_page(future.await)?;
                        self.next_entry().await
                    });
                }
                Err(error) => return StateFuture::ready(Err(error)),
            }
        }
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

    /// Whether no entry is left.
    fn into_is_empty(mut self) -> StateFuture<'static, bool> {
        loop {
            for index in 0..self.page.len() {
                match self.shows(index) {
                    Ok(true) => return StateFuture::ready(Ok(false)),
                    Ok(false) => {}
                    Err(error) => return StateFuture::ready(Err(self.state.slot.blame(error))),
                }
            }
            match self.next_page() {
                Ok(NextPage::Read) => {}
                Ok(NextPage::None) => return StateFuture::ready(Ok(true)),
                Ok(NextPage::Pending(future)) => {
                    return StateFuture::pending(async move {
                        self.take_page(future.await)?;
                        self.into_is_empty().await
                    });
                }
                Err(error) => return StateFuture::ready(Err(error)),
            }
        }
    }

    fn next_page(&mut self) -> Result<NextPage> {
        let Some(rest) = self.rest.take() else { return Ok(NextPage::None) };
        self.page.clear();
        self.next = 0;
        match rest.next(&mut self.page) {
            Ok(ScanStep::Last) => {}
            Ok(ScanStep::More(rest)) => self.rest = Some(rest),
            Ok(ScanStep::Pending(future)) => {
                return Ok(NextPage::Pending(Box::pin(async move { settle(future.await?).await })));
            }
            Err(error) => return Err(self.state.slot.blame(error)),
        }
        Ok(NextPage::Read)
    }

    fn take_page(&mut self, page: Result<ReadPage>) -> Result<()> {
        (self.page, self.rest) = page.map_err(|error| self.state.slot.blame(error))?;
        Ok(())
    }

    /// Whether a read returns entry `index` of the page.
    fn shows(&self, index: usize) -> Result<bool> {
        let (Some(life), Some((_, stored))) = (&self.life, self.page.get(index)) else {
            return Ok(true);
        };
        let (stamp, _) = Stamp::split(stored).ok_or_else(cut_short)?;
        Ok(life.shows(stamp))
    }

    /// Entry `index` of the page, unless it has expired.
    fn decode(&self, index: usize) -> Result<Option<(K, V)>> {
        let Some((map_key, stored)) = self.page.get(index) else { return Ok(None) };
        let decode = |stored: Option<&[u8]>| {
            let value = stored.map(|value| self.state.value_codec.decode(value)).transpose()?;
            value.map(|value| Ok((self.state.key_codec.decode(map_key)?, value))).transpose()
        };
        let Some(life) = &self.life else { return decode(Some(stored)) };
        let mut new = Vec::new();
        let (entry, change) = life.read_value(Some(stored), &mut new, decode)?;
        if let (Some(refresher), Change::Put) = (&self.refresher, change) {
            refresher.refresh(map_key, new);
        }
        Ok(entry)
    }
}

/// A page, and what follows it.
type ReadPage = (Page, Option<Box<dyn Scan>>);

/// The outcome of asking a scan for its next page.
enum NextPage {
    Read,
    None,
    Pending(BoxFuture<'static, Result<ReadPage>>),
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
