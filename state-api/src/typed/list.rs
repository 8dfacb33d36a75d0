//! A list of elements per key and namespace.

use std::fmt;
use std::marker::PhantomData;

use super::access::{Slot, StateAccess};
use super::namespaced::Bind;
use crate::codec::{read_length, write_length};
use crate::{BoxFuture, Codec, Error, ErrorKind, Lookup, Native, Result, StateFuture};

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

enum Read<T> {
    Now(Vec<T>),
    Later(BoxFuture<'static, Result<Option<bytes::Bytes>>>),
}

impl<T: Send + 'static, C: Codec<T>> ListState<T, C> {
    pub(crate) fn new(slot: Slot, codec: C) -> Self {
        ListState { slot, codec, element: PhantomData }
    }

    /// All elements in the order they were added; empty when there is no list.
    pub fn get<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, Vec<T>> {
        let read = at.with(|scope| match scope.backend.get(&self.slot.address(scope.key))? {
            Lookup::Absent => Ok(Read::Now(Vec::new())),
            Lookup::Found(bytes) => self.decode(bytes).map(Read::Now),
            Lookup::Pending(future) => Ok(Read::Later(future)),
        });
        match read {
            Ok(Read::Now(elements)) => StateFuture::ready(Ok(elements)),
            Ok(Read::Later(future)) => {
                let state = self.clone();
                StateFuture::pending(async move {
                    match future.await {
                        Ok(Some(bytes)) => state.decode(&bytes),
                        Ok(None) => Ok(Vec::new()),
                        Err(error) => Err(error),
                    }
                    .map_err(|error| state.slot.blame(error))
                })
            }
            Err(error) => StateFuture::ready(Err(self.slot.blame(error))),
        }
    }

    /// Whether there is no element.
    pub fn is_empty<A: StateAccess + ?Sized>(&self, at: &mut A) -> StateFuture<'static, bool> {
        let read = at.with(|scope| match scope.backend.get(&self.slot.address(scope.key))? {
            Lookup::Absent => Ok(Ok(true)),
            Lookup::Found(_) => Ok(Ok(false)),
            Lookup::Pending(future) => Ok(Err(future)),
        });
        match read {
            Ok(Ok(empty)) => StateFuture::ready(Ok(empty)),
            Ok(Err(future)) => StateFuture::pending(async move { Ok(future.await?.is_none()) }),
            Err(error) => StateFuture::ready(Err(self.slot.blame(error))),
        }
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
        if elements.is_empty() {
            return Ok(());
        }
        at.with(|scope| {
            self.encode(elements, scope.buffer)?;
            scope.backend.append(&self.slot.address(scope.key), scope.buffer)
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
            self.encode(elements, scope.buffer)?;
            scope.backend.put(&self.slot.address(scope.key), scope.buffer)
        })
        .map_err(|error| self.slot.blame(error))
    }

    /// Removes the list; nothing there is no error.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn clear<A: StateAccess + ?Sized>(&self, at: &mut A) -> Result<()> {
        at.with(|scope| scope.backend.delete(&self.slot.address(scope.key)))
            .map_err(|error| self.slot.blame(error))
    }

    fn encode(&self, elements: &[T], out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        for element in elements {
            // Encode behind a guess of one length byte; move only when the guess was wrong.
            let start = out.len();
            out.push(0);
            self.codec.encode(element, out)?;
            let length = out.len() - start - 1;
            if length < 0x80 {
                out[start] = length as u8;
            } else {
                let mut prefix = Vec::with_capacity(10);
                write_length(length, &mut prefix);
                out.splice(start..=start, prefix);
            }
        }
        Ok(())
    }

    fn decode(&self, mut bytes: &[u8]) -> Result<Vec<T>> {
        let mut elements = Vec::new();
        while !bytes.is_empty() {
            let element = read_length(&mut bytes)
                .and_then(|length| bytes.split_off(..length))
                .ok_or_else(|| {
                    Error::new(ErrorKind::Corrupt, "a stored list element is cut short")
                        .advice("restore an older checkpoint")
                })?;
            elements.push(self.codec.decode(element)?);
        }
        Ok(elements)
    }

    /// Appends the lists of `sources` to this namespace's list, in the order given; the sources
    /// vanish. Stored bytes move as they are, without decoding.
    pub(crate) async fn merge_from<A: StateAccess + ?Sized>(
        self,
        at: &mut A,
        sources: Vec<Self>,
    ) -> Result<()> {
        for source in sources {
            if source.slot.namespace() == self.slot.namespace() {
                continue;
            }
            let read =
                at.with(|scope| match scope.backend.get(&source.slot.address(scope.key))? {
                    Lookup::Absent => Ok(Ok(None)),
                    Lookup::Found(bytes) => Ok(Ok(Some(bytes::Bytes::copy_from_slice(bytes)))),
                    Lookup::Pending(future) => Ok(Err(future)),
                });
            let bytes = match read.map_err(|error| self.slot.blame(error))? {
                Ok(bytes) => bytes,
                Err(future) => future.await.map_err(|error| self.slot.blame(error))?,
            };
            if let Some(bytes) = bytes {
                at.with(|scope| {
                    scope.backend.append(&self.slot.address(scope.key), &bytes)?;
                    scope.backend.delete(&source.slot.address(scope.key))
                })
                .map_err(|error| self.slot.blame(error))?;
            }
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
