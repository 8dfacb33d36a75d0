//! A list of elements per key and namespace.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::access::{Slot, StateAccess};
use super::expiring::{Extent, Lifetime};
use super::namespaced::Bind;
use crate::ttl::{Elements, Stamp, Verdict, cut_short, sweep, write_element};
use crate::{Change, Codec, Millis, Native, Result, StateFuture, StateKind};

/// A list of elements per key and namespace: order and duplicates kept, appended to without
/// reading.
///
/// An empty list is an absent list. Elements may be any bytes, also none: they are stored behind
/// their length (LEB128), never delimited.
///
/// ```
/// # use weir_backend_heap::HeapBackendFactory;
/// # use weir_state_api::KeyedStore;
/// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
/// let seen = store.list::<String>("seen")?;
/// store.set_key(&"ann".to_string())?;
/// seen.add(&mut store, &"b".to_string())?;
/// seen.add_all(&mut store, &["a".to_string(), "b".to_string()])?;
/// assert_eq!(seen.get(&mut store).wait()?, ["b", "a", "b"]);
/// seen.set(&mut store, &[])?;
/// assert!(seen.get(&mut store).wait()?.is_empty());
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub struct ListState<T, C = Native> {
    slot: Slot,
    codec: C,
    element: PhantomData<fn() -> T>,
}

impl<T: Send + 'static, C: Codec<T>> ListState<T, C> {
    pub(crate) fn new(slot: Slot, codec: C) -> Self {
        ListState { slot, codec, element: PhantomData }
    }

    /// All elements in the order they were added; empty when there is no list.
    #[inline(always)]
    pub fn get<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, Vec<T>> {
        let codec = self.codec.clone();
        if self.slot.ttl.is_none() {
            return self.slot.read(at, move |stored| {
                let stored = Elements::new(stored.unwrap_or_default());
                let mut elements = Vec::with_capacity(stored.guess_len());
                for element in stored {
                    elements.push(codec.decode(element?)?);
                }
                Ok(elements)
            });
        }
        self.slot.read_expiring(at, move |life, stored, new| life.read_list(stored, new, &codec))
    }

    /// Whether there is no element; decodes nothing and refreshes nothing.
    pub fn is_empty<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, bool> {
        if self.slot.ttl.is_none() {
            return self.slot.read(at, |stored| Ok(stored.is_none()));
        }
        self.slot.read_expiring(at, |life, stored, _| {
            for element in Elements::new(stored.unwrap_or_default()) {
                let (stamp, _) = Stamp::split(element?).ok_or_else(cut_short)?;
                if life.shows(stamp) {
                    return Ok((false, Change::Keep));
                }
            }
            Ok((true, stored.map_or(Change::Keep, |_| Change::Delete)))
        })
    }

    /// Appends one element.
    ///
    /// # Errors
    /// When the element cannot be encoded or the list would become too large; the list stays as it
    /// was.
    #[inline]
    pub fn add<A: StateAccess + ?Sized>(&self, at: &mut A, element: &T) -> Result<()> {
        self.add_all(at, std::slice::from_ref(element))
    }

    /// Appends all elements, in order; none changes nothing.
    ///
    /// # Errors
    /// As for [`add`](ListState::add); either all are appended or none.
    pub fn add_all<A: StateAccess + ?Sized>(&self, at: &mut A, elements: &[T]) -> Result<()> {
        self.add_for(at, elements, Lifetime::OfState)
    }

    /// As [`add`](ListState::add), with a lifetime of its own in place of the state's; see
    /// [`ValueState::set_with_ttl`](crate::ValueState::set_with_ttl).
    ///
    /// # Errors
    /// As for [`add`](ListState::add); [`InvalidUsage`](crate::ErrorKind::InvalidUsage) when the
    /// state has no TTL.
    pub fn add_with_ttl<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        element: &T,
        lifetime: Duration,
    ) -> Result<()> {
        self.add_for(at, std::slice::from_ref(element), Lifetime::of(lifetime))
    }

    /// As [`add`](ListState::add), until an instant; see
    /// [`ValueState::set_expiring_at`](crate::ValueState::set_expiring_at).
    ///
    /// # Errors
    /// As for [`add_with_ttl`](ListState::add_with_ttl).
    pub fn add_expiring_at<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        element: &T,
        instant: Millis,
    ) -> Result<()> {
        self.add_for(at, std::slice::from_ref(element), Lifetime::Until(instant))
    }

    fn add_for<A: StateAccess + ?Sized>(
        &self,
        at: &mut A,
        elements: &[T],
        lifetime: Lifetime,
    ) -> Result<()> {
        if elements.is_empty() {
            return Ok(());
        }
        at.with(|scope| {
            let address = self.slot.address(scope.key());
            let stamp = self.slot.begin_value(scope.backend, scope.expiry, &address, lifetime)?;
            self.encode(elements, stamp, scope.buffer)?;
            scope.backend.append(&address, scope.buffer)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// Replaces the list; no elements clear it.
    ///
    /// # Errors
    /// As for [`add`](ListState::add).
    pub fn set<A: StateAccess + ?Sized>(&self, at: &mut A, elements: &[T]) -> Result<()> {
        if elements.is_empty() {
            return self.clear(at);
        }
        at.with(|scope| {
            let (address, lifetime) = (self.slot.address(scope.key()), Lifetime::OfState);
            let stamp = self.slot.begin_value(scope.backend, scope.expiry, &address, lifetime)?;
            self.encode(elements, stamp, scope.buffer)?;
            scope.backend.put(&address, scope.buffer)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// Removes the list; nothing there is no error.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn clear<A: StateAccess + ?Sized>(&self, at: &mut A) -> Result<()> {
        self.slot.delete(at)
    }

    fn encode(&self, elements: &[T], stamp: Option<Stamp>, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        elements.iter().try_for_each(|element| {
            write_element(out, stamp, |out| self.codec.encode(element, out))
        })
    }

    /// Appends the lists of `sources` to this namespace's list, in the order given; the sources
    /// vanish. Stored bytes move as they are, without decoding, each element with its stamp;
    /// expired ones stay behind.
    pub(crate) async fn merge_from<A: StateAccess + ?Sized>(
        self,
        at: &mut A,
        sources: Vec<Self>,
    ) -> Result<()> {
        for source in sources {
            if source.slot.namespace() == self.slot.namespace() {
                continue;
            }
            let stored = source.slot.read(at, |stored| Ok(stored.map(<[u8]>::to_vec))).await?;
            let Some(stored) = stored else { continue };
            at.with(|scope| {
                let address = self.slot.address(scope.key());
                let (backend, expiry) = (&mut *scope.backend, &mut *scope.expiry);
                let life = self.slot.begin_write(backend, expiry, &address, Extent::Address)?;
                let swept = life.map_or(Verdict::Keep, |life| {
                    sweep(StateKind::List, life.state_ttl(), &stored, &life.time)
                });
                match &swept {
                    Verdict::Keep => backend.append(&address, &stored),
                    Verdict::Replace(live) => backend.append(&address, live),
                    Verdict::Drop => Ok(()),
                }
            })
            .map_err(|error| self.slot.blame(error))?;
            source.clear(at)?;
        }
        Ok(())
    }
}

impl<T: Send + 'static, C: Codec<T>> Bind for ListState<T, C> {
    fn bind(&self, namespace: &[u8]) -> Self {
        ListState::new(self.slot.in_namespace(namespace), self.codec.clone())
    }
}

impl<T, C: Clone> Clone for ListState<T, C> {
    fn clone(&self) -> Self {
        ListState { slot: self.slot.clone(), codec: self.codec.clone(), element: PhantomData }
    }
}

impl<T, C> fmt::Debug for ListState<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListState({:?})", self.slot)
    }
}
