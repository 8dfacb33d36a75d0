//! How a typed handle reaches the backend and the current key.

use std::fmt;
use std::sync::Arc;

use super::expiry::Expiry;
use super::state_name::StateName;
use crate::{
    Address, BoxFuture, Error, KeyGroup, KeyRef, KeyedBackend, Lookup, Result, StateFuture,
    StateId, Ttl,
};

/// What a state access works on: the backend and the key it is for.
///
/// The parts of the key lie apart. As one they would be copied as one, by loads of several parts at
/// once; and such a load, a moment after the parts were stored, waits until all of them have reached
/// the cache, so that no two accesses overlap.
#[derive(Debug)]
#[repr(C)]
#[non_exhaustive]
pub struct Scope<'a> {
    /// The backend.
    pub backend: &'a mut dyn KeyedBackend,
    key_bytes: &'a [u8],
    /// A buffer for encoding, reused from access to access; its content is undefined.
    pub buffer: &'a mut Vec<u8>,
    key_hash: u64,
    /// What states with a TTL need besides.
    pub expiry: &'a mut Expiry,
    key_group: KeyGroup,
}

impl<'a> Scope<'a> {
    /// A scope from its parts.
    #[inline(always)]
    pub fn new(
        backend: &'a mut dyn KeyedBackend,
        key: KeyRef<'a>,
        buffer: &'a mut Vec<u8>,
        expiry: &'a mut Expiry,
    ) -> Self {
        let (key_bytes, key_hash, key_group) = (key.bytes(), key.hash(), key.group());
        Scope { backend, key_bytes, buffer, key_hash, expiry, key_group }
    }

    /// The current key.
    #[inline(always)]
    pub fn key(&self) -> KeyRef<'a> {
        KeyRef::from_parts(self.key_bytes, self.key_hash, self.key_group)
    }
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
    name: StateName,
    /// Looked at first by every access: with one, values begin with a stamp.
    pub(super) ttl: Option<Ttl>,
    namespace: Namespace,
}

impl Slot {
    pub(crate) fn new(state: StateId, name: &str, ttl: Option<Ttl>) -> Self {
        Slot { state, name: StateName::new(name), ttl, namespace: Namespace::default() }
    }

    pub(crate) fn in_namespace(&self, namespace: &[u8]) -> Self {
        Slot { namespace: Namespace::new(namespace), ..self.clone() }
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

    /// Reads what is stored and decodes it: at once, or when it has come.
    #[inline(always)]
    pub(crate) fn read<A, T, D>(&self, at: &mut A, decode: D) -> StateFuture<'static, T>
    where
        A: StateAccess + ?Sized,
        T: 'static,
        D: FnOnce(Option<&[u8]>) -> Result<T> + Send + 'static,
    {
        self.settle(at.with(|scope| {
            let address = self.address(scope.key());
            lookup(scope.backend, &address, decode)
        }))
    }

    /// The future for a read that has begun; its errors name the state.
    #[inline(always)]
    pub(super) fn settle<T, D>(&self, begun: Result<Read<T, D>>) -> StateFuture<'static, T>
    where
        T: 'static,
        D: FnOnce(Option<&[u8]>) -> Result<T> + Send + 'static,
    {
        match begun {
            Ok(Read::Now(value)) => StateFuture::ready(Ok(value)),
            Ok(Read::Later(future, decode)) => self.decode_later(future, decode),
            Err(error) => StateFuture::ready(Err(self.blame(error))),
        }
    }

    fn decode_later<T: 'static>(
        &self,
        future: PendingRead,
        decode: impl FnOnce(Option<&[u8]>) -> Result<T> + Send + 'static,
    ) -> StateFuture<'static, T> {
        let slot = self.clone();
        StateFuture::pending(async move {
            let decoded = future.await.and_then(|bytes| decode(bytes.as_deref()));
            decoded.map_err(|error| slot.blame(error))
        })
    }

    /// Names the state in an error that arose in its name.
    #[cold]
    pub(crate) fn blame(&self, error: Error) -> Error {
        if error.state_name().is_some() { error } else { error.state(self.name.as_str()) }
    }
}

pub(super) type PendingRead = BoxFuture<'static, Result<Option<bytes::Bytes>>>;

/// A read that has begun: decoded, or bytes to come and what decodes them.
pub(super) enum Read<T, D> {
    Now(T),
    Later(PendingRead, D),
}

/// Begins a read.
#[inline(always)]
pub(super) fn lookup<T, D>(
    backend: &mut dyn KeyedBackend,
    address: &Address<'_>,
    decode: D,
) -> Result<Read<T, D>>
where
    D: FnOnce(Option<&[u8]>) -> Result<T>,
{
    match backend.get(address)? {
        Lookup::Absent => decode(None).map(Read::Now),
        Lookup::Found(bytes) => decode(Some(bytes)).map(Read::Now),
        Lookup::Pending(future) => Ok(Read::Later(future, decode)),
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
