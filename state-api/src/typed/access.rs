//! How a typed handle reaches the backend and the current key.

use std::fmt;
use std::sync::Arc;

use crate::{Address, Error, KeyRef, KeyedBackend, Result, StateId};

/// What a state access works on: the backend and the key it is for.
#[derive(Debug)]
pub struct Scope<'a> {
    /// The backend.
    pub backend: &'a mut dyn KeyedBackend,
    /// The current key.
    pub key: KeyRef<'a>,
    /// A buffer for encoding, reused from access to access; its content is undefined.
    pub buffer: &'a mut Vec<u8>,
}

/// Something that has a backend and a current key.
///
/// [`KeyedStore`](crate::KeyedStore) is one. An engine with many records in flight implements it
/// for the context of a record, which shares the backend with the other records of the task.
pub trait StateAccess: Send {
    /// Runs `f` on the backend and the current key.
    ///
    /// # Errors
    /// [`InvalidUsage`](crate::ErrorKind::InvalidUsage) when no key is set; otherwise what `f`
    /// returns.
    fn with<R>(&mut self, f: impl FnOnce(&mut Scope<'_>) -> Result<R>) -> Result<R>;
}

/// What all typed handles share: which state, which namespace.
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) state: StateId,
    pub(crate) name: Arc<str>,
    namespace: Namespace,
}

impl Slot {
    pub(crate) fn new(state: StateId, name: &str) -> Self {
        Slot { state, name: name.into(), namespace: Namespace::default() }
    }

    pub(crate) fn in_namespace(&self, namespace: &[u8]) -> Self {
        Slot { state: self.state, name: self.name.clone(), namespace: Namespace::new(namespace) }
    }

    #[inline]
    pub(crate) fn address<'a>(&'a self, key: KeyRef<'a>) -> Address<'a> {
        Address { state: self.state, key, namespace: self.namespace(), map_key: &[] }
    }

    #[inline]
    pub(crate) fn namespace(&self) -> &[u8] {
        match &self.namespace {
            Namespace::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Namespace::Boxed(bytes) => bytes,
        }
    }

    /// Names the state in an error that arose in its name.
    #[cold]
    pub(crate) fn blame(&self, error: Error) -> Error {
        if error.state_name().is_some() { error } else { error.state(&*self.name) }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in namespace {:02x?}", self.name, self.namespace())
    }
}

/// An encoded namespace. A window (two `i64`) stays inline: binding a handle allocates nothing.
#[derive(Clone)]
enum Namespace {
    Inline(u8, [u8; 22]),
    Boxed(Arc<[u8]>),
}

impl Namespace {
    fn new(bytes: &[u8]) -> Self {
        let mut inline = [0; 22];
        match inline.get_mut(..bytes.len()) {
            Some(target) => {
                target.copy_from_slice(bytes);
                Namespace::Inline(bytes.len() as u8, inline)
            }
            None => Namespace::Boxed(bytes.into()),
        }
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Namespace::Inline(0, [0; 22])
    }
}
