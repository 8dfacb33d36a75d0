//! The typed entry point: one instance of a backend, a current key, and handles to its states.

use std::fmt;
use std::sync::Arc;

use super::access::{Scope, Slot, StateAccess};
use super::folding::{Aggregate, AggregatingState, ReducingState};
use super::key_rules::KeyRules;
use super::keys::Keys;
use super::list::ListState;
use super::map::MapState;
use super::timers::{FiredTimer, TimerState};
use super::value::{self, ValueState};
use super::with_namespace::WithNamespace;
use crate::{
    BackendFactory, BoxError, Codec, CodecId, Environment, Error, ErrorKind, Key, KeyGroup,
    KeyGroupRange, KeyedBackend, Millis, Native, NativeType, NextTimer, Notification, OpenRequest,
    Ordered, OrderedType, Page, Result, SnapshotRequest, SnapshotTask, StateDescriptor,
    StateFuture, StateKind, Statistics, TimerPoll, block_on,
};

/// Keyed state of one operator instance: a backend under typed handles.
///
/// `K` is the type of keys. Set the current key, then access states through their handles; a
/// handle is plain data, so it lives beside the store in the operator.
///
/// ```
/// use weir_backend_heap::HeapBackendFactory;
/// use weir_state_api::{CheckpointId, Codec, Environment, KeyedStore, OpenRequest, Ordered};
/// use weir_state_api::{SnapshotRequest, block_on};
///
/// let environment = Environment::in_memory();
/// let key_codec = Codec::<String>::id(&Ordered);
/// let request = OpenRequest::new(environment.clone(), "counter", key_codec);
///
/// let mut store: KeyedStore<String> =
///     block_on(KeyedStore::open(&HeapBackendFactory::default(), request.clone()))?;
/// let count = store.value::<u64>("count")?;
/// for word in ["to", "be", "or", "not", "to", "be"] {
///     store.set_key(&word.to_string())?;
///     count.update(&mut store, |old| old.unwrap_or(0) + 1).wait()?;
/// }
///
/// // A barrier: pin now, write later, restore elsewhere.
/// let task = store.snapshot(SnapshotRequest::checkpoint(CheckpointId(1), "chk-1"))?;
/// let handle = block_on(task.run())?;
/// let mut restored: KeyedStore<String> = block_on(KeyedStore::open(
///     &HeapBackendFactory::default(),
///     request.restore_from(vec![handle]),
/// ))?;
/// let count = restored.value::<u64>("count")?;
/// restored.set_key(&"be".to_string())?;
/// assert_eq!(count.get(&mut restored).wait()?, Some(2));
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub struct KeyedStore<K, C = Ordered> {
    backend: Box<dyn KeyedBackend>,
    keys: KeyRules<K, C>,
    /// The current key, if `key_is_set`; its buffer is reused.
    key: Key,
    key_is_set: bool,
    buffer: Vec<u8>,
    restored_watermark: Option<Millis>,
}

impl<K: OrderedType + Send + 'static> KeyedStore<K> {
    /// Opens an instance with the default key codec.
    ///
    /// # Errors
    /// Those of [`BackendFactory::open`].
    pub async fn open(factory: &dyn BackendFactory, request: OpenRequest) -> Result<Self> {
        Self::open_with(factory, request, Ordered).await
    }

    /// Opens an empty instance that owns all key groups, in [`Environment::in_memory`]: for
    /// examples and tests.
    ///
    /// # Errors
    /// Those of [`BackendFactory::open`].
    pub fn open_in_memory(factory: &dyn BackendFactory) -> Result<Self> {
        let key_codec = Codec::<K>::id(&Ordered);
        block_on(Self::open(
            factory,
            OpenRequest::new(Environment::in_memory(), "in-memory", key_codec),
        ))
    }
}

impl<K: Send + 'static, C: Codec<K>> KeyedStore<K, C> {
    /// Opens an instance with a key codec of your own.
    ///
    /// # Errors
    /// Those of [`BackendFactory::open`]; [`Incompatible`](ErrorKind::Incompatible) when the request
    /// names another key codec.
    pub async fn open_with(
        factory: &dyn BackendFactory,
        request: OpenRequest,
        codec: C,
    ) -> Result<Self> {
        if request.key_codec != codec.id() {
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!(
                    "the request names key codec {}, the store has {}",
                    request.key_codec,
                    codec.id()
                ),
            ));
        }
        let keys = KeyRules::new(&request, codec);
        let restored_watermark = request.restored_watermark();
        let backend = factory.open(request).await?;
        Ok(KeyedStore {
            backend,
            keys,
            key: Key::default(),
            key_is_set: false,
            buffer: Vec::new(),
            restored_watermark,
        })
    }

    /// Sets the current key; encodes and hashes it once for all accesses that follow.
    ///
    /// # Errors
    /// [`ForeignKey`](ErrorKind::ForeignKey) when the key's group is not this instance's,
    /// [`TooLarge`](ErrorKind::TooLarge) beyond 64 KiB,
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) when the engine assigns key groups
    /// ([`set_encoded_key`](KeyedStore::set_encoded_key) is for it). No key is set then.
    #[inline(always)]
    pub fn set_key(&mut self, key: &K) -> Result<()> {
        self.key_is_set = false;
        self.keys.encode(key, &mut self.key)?;
        self.key_is_set = true;
        Ok(())
    }

    /// Sets the current key from bytes that the engine encoded, with the group it assigned.
    ///
    /// # Errors
    /// As for [`set_key`](KeyedStore::set_key); [`InvalidUsage`](ErrorKind::InvalidUsage) when the
    /// store derives groups itself and this is another one.
    pub fn set_encoded_key(&mut self, bytes: &[u8], group: KeyGroup) -> Result<()> {
        self.key_is_set = false;
        self.keys.take_encoded(bytes, group, &mut self.key)?;
        self.key_is_set = true;
        Ok(())
    }

    /// The current key, decoded.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) when none is set.
    pub fn key(&self) -> Result<K> {
        if !self.key_is_set {
            return Err(no_key());
        }
        self.keys.codec.decode(self.key.as_ref().bytes())
    }

    /// The key groups of this instance.
    pub fn key_groups(&self) -> KeyGroupRange {
        self.keys.key_groups
    }

    /// The watermark of the snapshots this instance was restored from.
    pub fn restored_watermark(&self) -> Option<Millis> {
        self.restored_watermark
    }

    /// The backend below, for byte-level access.
    pub fn backend(&mut self) -> &mut dyn KeyedBackend {
        &mut *self.backend
    }

    /// A value state with the default codec.
    ///
    /// # Errors
    /// For this and all other registrations: [`Incompatible`](ErrorKind::Incompatible) when the name
    /// is taken by another kind or codec, in this instance or in what it was restored from. The
    /// same registration again gives the same state.
    pub fn value<V: NativeType + Send + 'static>(&mut self, name: &str) -> Result<ValueState<V>> {
        self.value_with(name, Native)
    }

    /// A value state with a codec of your choice.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn value_with<V: Send + 'static, VC: Codec<V>>(
        &mut self,
        name: &str,
        codec: VC,
    ) -> Result<ValueState<V, VC>> {
        let slot = self.slot(name, StateKind::Value, unit(), None, codec.id())?;
        Ok(ValueState::new(slot, codec))
    }

    /// A list state with the default codec.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn list<T: NativeType + Send + 'static>(&mut self, name: &str) -> Result<ListState<T>> {
        self.list_with(name, Native)
    }

    /// A list state with a codec of your choice.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn list_with<T: Send + 'static, TC: Codec<T>>(
        &mut self,
        name: &str,
        codec: TC,
    ) -> Result<ListState<T, TC>> {
        let slot = self.slot(name, StateKind::List, unit(), None, codec.id())?;
        Ok(ListState::new(slot, codec))
    }

    /// A map state with the default codecs.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn map<MK: OrderedType + Send + 'static, V: NativeType + Send + 'static>(
        &mut self,
        name: &str,
    ) -> Result<MapState<MK, V>> {
        self.map_with(name, Ordered, Native)
    }

    /// A map state with codecs of your choice.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn map_with<MK, V, KC, VC>(
        &mut self,
        name: &str,
        key_codec: KC,
        value_codec: VC,
    ) -> Result<MapState<MK, V, KC, VC>>
    where
        MK: Send + 'static,
        V: Send + 'static,
        KC: Codec<MK>,
        VC: Codec<V>,
    {
        let slot =
            self.slot(name, StateKind::Map, unit(), Some(key_codec.id()), value_codec.id())?;
        Ok(MapState::new(slot, key_codec, value_codec))
    }

    /// A reducing state with the default codec.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn reducing<V: NativeType + Send + 'static>(
        &mut self,
        name: &str,
        reduce: impl Fn(V, V) -> Result<V, BoxError> + Send + Sync + 'static,
    ) -> Result<ReducingState<V>> {
        self.reducing_with(name, Native, reduce)
    }

    /// A reducing state with a codec of your choice.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn reducing_with<V: Send + 'static, VC: Codec<V>>(
        &mut self,
        name: &str,
        codec: VC,
        reduce: impl Fn(V, V) -> Result<V, BoxError> + Send + Sync + 'static,
    ) -> Result<ReducingState<V, VC>> {
        let slot = self.slot(name, StateKind::Reducing, unit(), None, codec.id())?;
        Ok(ReducingState::new(ValueState::new(slot, codec), Arc::new(reduce)))
    }

    /// An aggregating state with the default codec of the accumulator.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn aggregating<G: Aggregate>(
        &mut self,
        name: &str,
        aggregate: G,
    ) -> Result<AggregatingState<G>>
    where
        G::Accumulator: NativeType,
    {
        self.aggregating_with(name, Native, aggregate)
    }

    /// An aggregating state with a codec of your choice for the accumulator.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn aggregating_with<G: Aggregate, VC: Codec<G::Accumulator>>(
        &mut self,
        name: &str,
        codec: VC,
        aggregate: G,
    ) -> Result<AggregatingState<G, VC>> {
        let slot = self.slot(name, StateKind::Aggregating, unit(), None, codec.id())?;
        Ok(AggregatingState::new(ValueState::new(slot, codec), Arc::new(aggregate)))
    }

    /// A queue of timers with namespaces of type `N`.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn timers<N: OrderedType + 'static>(&mut self, name: &str) -> Result<TimerState<N>> {
        let namespace = Codec::<N>::id(&Ordered);
        let slot = self.slot(name, StateKind::Timers, namespace, None, unit())?;
        Ok(TimerState::new(slot, Ordered))
    }

    /// Registers states that exist once per namespace of type `N`.
    pub fn namespaced<N: OrderedType + 'static>(&mut self) -> WithNamespace<'_, K, C, N> {
        WithNamespace::new(self)
    }

    pub(super) fn slot(
        &mut self,
        name: &str,
        kind: StateKind,
        namespace: CodecId,
        map_key: Option<CodecId>,
        value: CodecId,
    ) -> Result<Slot> {
        let mut descriptor = StateDescriptor::new(name, kind, namespace, value);
        descriptor.map_key = map_key;
        let id = self.backend.register(&descriptor)?;
        Ok(Slot::new(id, name))
    }

    /// Reads one value for each of many keys of this instance, overlapping their I/O; the current
    /// key stays.
    ///
    /// # Errors
    /// As for [`set_key`](KeyedStore::set_key), for the first key that fails.
    pub fn get_many<V: Send + 'static, VC: Codec<V>>(
        &mut self,
        state: &ValueState<V, VC>,
        keys: &[K],
    ) -> StateFuture<'static, Vec<Option<V>>> {
        let encode = |key: &K| {
            let mut owned = Key::default();
            self.keys.encode_any(key, &mut owned)?;
            Ok(owned)
        };
        match keys.iter().map(encode).collect::<Result<Vec<_>>>() {
            Ok(keys) => value::get_many(&mut *self.backend, state, &keys),
            Err(error) => StateFuture::ready(Err(error)),
        }
    }

    /// The distinct keys of the state with this name, with the encoded namespaces they have state
    /// in, as of now; also of a restored state that is not registered yet. An unknown name has no
    /// keys.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) for a timer queue.
    pub fn keys(&mut self, name: &str) -> Result<Keys<K, C>> {
        self.keys_in(name, None)
    }

    /// As [`keys`](KeyedStore::keys), of one encoded namespace (empty: the default one).
    ///
    /// # Errors
    /// As for [`keys`](KeyedStore::keys).
    pub fn keys_in_namespace(&mut self, name: &str, namespace: &[u8]) -> Result<Keys<K, C>> {
        self.keys_in(name, Some(namespace))
    }

    fn keys_in(&mut self, name: &str, namespace: Option<&[u8]>) -> Result<Keys<K, C>> {
        let mut page = Page::new();
        let known = self.backend.states().into_iter().find(|(_, state)| state.name == name);
        let step = match known {
            Some((id, _)) => self.backend.scan_keys(id, namespace, &mut page)?,
            None => crate::ScanStep::Last,
        };
        Ok(Keys::new(self.keys.codec.clone(), page, step))
    }

    /// Calls `f` for each distinct key that has state under this name in the default namespace,
    /// with the key set. `f` may change the state; the keys are those of the call. Afterwards no
    /// key is set.
    ///
    /// # Errors
    /// The first error of `f` ends it; what `f` did before stays.
    pub fn for_each_key(
        &mut self,
        name: &str,
        mut f: impl FnMut(&mut Self, K) -> Result<()>,
    ) -> Result<()> {
        self.key_is_set = false;
        let mut keys = self.keys_in_namespace(name, &[])?;
        let mut each = || {
            while let Some(entry) = keys.next_encoded().wait()? {
                self.set_encoded_key(&entry.key, entry.group)?;
                let key = self.key()?;
                f(self, key)?;
            }
            Ok(())
        };
        let result = each();
        self.key_is_set = false;
        result
    }

    /// Removes the first timer that is due at `now`, makes its key the current one, and returns it.
    pub fn poll_timer<N: Send + 'static, NC: Codec<N>>(
        &mut self,
        timers: &TimerState<N, NC>,
        now: Millis,
    ) -> StateFuture<'_, Option<FiredTimer<N>>> {
        match self.backend.poll_timer(timers.slot.state, now) {
            Ok(TimerPoll::Idle) => StateFuture::ready(Ok(None)),
            Ok(TimerPoll::Due(timer)) => {
                let fired = timers.codec.decode(timer.namespace);
                self.key.refill_from(timer.key);
                self.key_is_set = true;
                StateFuture::ready(
                    fired
                        .map(|namespace| Some(FiredTimer { time: timer.time, namespace }))
                        .map_err(|error| timers.slot.blame(error)),
                )
            }
            Ok(TimerPoll::Pending(future)) => {
                let timers = timers.clone();
                StateFuture::pending(async move {
                    future.await?;
                    self.poll_timer(&timers, now).await
                })
            }
            Err(error) => StateFuture::ready(Err(timers.slot.blame(error))),
        }
    }

    /// When the queue's first timer is due, as far as that is known without I/O.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn next_timer<N, NC: Codec<N>>(&mut self, timers: &TimerState<N, NC>) -> Result<NextTimer> {
        self.backend.next_timer(timers.slot.state)
    }

    /// Pins the state for a snapshot; the returned task writes it.
    ///
    /// # Errors
    /// Those of [`KeyedBackend::snapshot`].
    pub fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        self.backend.snapshot(request)
    }

    /// Passes news about a checkpoint on to the backend.
    ///
    /// # Errors
    /// Those of [`KeyedBackend::notify`].
    pub fn notify(&mut self, notification: Notification) -> Result<()> {
        self.backend.notify(notification)
    }

    /// Counters and sizes of the backend.
    pub fn statistics(&self) -> Statistics {
        self.backend.statistics()
    }
}

impl<K: Send, C: Send> StateAccess for KeyedStore<K, C> {
    #[inline(always)]
    fn with<R>(&mut self, f: impl FnOnce(&mut Scope<'_>) -> Result<R>) -> Result<R> {
        if !self.key_is_set {
            return Err(no_key());
        }
        f(&mut Scope {
            backend: &mut *self.backend,
            key: self.key.as_ref(),
            buffer: &mut self.buffer,
        })
    }
}

impl<K, C> fmt::Debug for KeyedStore<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedStore")
            .field("backend", &self.backend)
            .field("key_groups", &self.keys.key_groups)
            .finish_non_exhaustive()
    }
}

fn unit() -> CodecId {
    Codec::<()>::id(&Ordered)
}

#[cold]
fn no_key() -> Error {
    Error::new(ErrorKind::InvalidUsage, "no key is set")
        .advice("call set_key before accessing keyed state")
}
