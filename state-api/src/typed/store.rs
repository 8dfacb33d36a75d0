//! The typed entry point: one instance of a backend, a current key, and handles to its states.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::access::{Scope, Slot, StateAccess};
use super::expiry::Expiry;
use super::key_rules::KeyRules;
use super::keys::Keys;
use super::timers::{FiredTimer, TimerState};
use super::value::{self, ValueState};
use crate::ttl::MonotoneClock;
use crate::{
    BackendFactory, CleanUp, Clock, Codec, CodecId, Environment, Error, ErrorKind, Key, KeyGroup,
    KeyGroupRange, KeyRef, KeyedBackend, Millis, NextTimer, Notification, OpenRequest, Ordered,
    OrderedType, Page, Result, SnapshotRequest, SnapshotTask, StateDescriptor, StateFuture,
    StateId, StateKind, StateTtl, Statistics, TimerPoll, TimerRef, Ttl, block_on,
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
    expiry: Expiry,
    /// The TTL of each state that was registered here.
    ttls: HashMap<String, Option<StateTtl>>,
    next_to_clean: StateId,
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
        mut request: OpenRequest,
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
        // One for the store and its backend: neither sees as live what the other saw as expired.
        let clock: Arc<dyn Clock> = Arc::new(MonotoneClock::new(request.environment.clock));
        request.environment.clock = clock.clone();
        let expiry = Expiry::new(clock, restored_watermark);
        let backend = factory.open(request).await?;
        Ok(KeyedStore {
            backend,
            keys,
            key: Key::default(),
            key_is_set: false,
            buffer: Vec::new(),
            restored_watermark,
            expiry,
            ttls: HashMap::new(),
            next_to_clean: StateId(0),
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

    /// Registers a state.
    pub(super) fn slot(
        &mut self,
        name: &str,
        kind: StateKind,
        namespace: CodecId,
        map_key: Option<CodecId>,
        value: CodecId,
        ttl: Option<Ttl>,
    ) -> Result<Slot> {
        let mut descriptor = StateDescriptor::new(name, kind, namespace, value);
        descriptor.map_key = map_key;
        descriptor.ttl = ttl.map(|ttl| ttl.checked(name)).transpose()?;
        match self.ttls.get(name) {
            // The handles that are there would misread what another TTL makes of the values.
            Some(registered) if *registered != descriptor.ttl => {
                return Err(other_ttl(name, *registered, descriptor.ttl));
            }
            _ => {}
        }
        let id = self.backend.register(&descriptor)?;
        self.ttls.insert(name.to_string(), descriptor.ttl);
        Ok(Slot::new(id, name, ttl))
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
            Ok(keys) => value::get_many(&mut *self.backend, &mut self.expiry, state, &keys),
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
        self.expiry.write_refreshes(&mut *self.backend)?;
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
    /// One whose namespace does not decode is an error and stays.
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
                let time = timer.time;
                StateFuture::ready(match fired {
                    Ok(namespace) => Ok(Some(FiredTimer { time, namespace })),
                    Err(error) => {
                        let namespace = timer.namespace.to_vec();
                        self.put_timer_back(timers.slot.state, time, &namespace)
                            .and(Err(timers.slot.blame(error)))
                    }
                })
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

    /// The timer that was just polled cannot be delivered: it must not be lost.
    fn put_timer_back(&mut self, queue: StateId, time: Millis, namespace: &[u8]) -> Result<()> {
        let key = self.key.as_ref();
        self.backend.register_timer(&TimerRef { queue, time, key, namespace })
    }

    /// When the queue's first timer is due, as far as that is known without I/O.
    ///
    /// # Errors
    /// Only those of a failed instance.
    pub fn next_timer<N, NC: Codec<N>>(&mut self, timers: &TimerState<N, NC>) -> Result<NextTimer> {
        self.backend.next_timer(timers.slot.state)
    }

    /// Notes the operator's event time, by which states with an event-time TTL expire. It never runs
    /// backwards: an earlier watermark changes nothing. [`Millis::MIN`](i64::MIN) says that none is
    /// known.
    pub fn advance_watermark(&mut self, watermark: Millis) {
        self.expiry.advance_watermark(watermark);
        self.backend.advance_watermark(watermark);
    }

    /// Removes what has expired, physically; visits about `budget` entries of states with a TTL,
    /// beginning where the last call ended. Says whether it has come to the end of all of them.
    ///
    /// Not needed for a state that is accessed: accesses pay for its clean-up, an entry each. Call
    /// it when an instance is idle, or to be rid of a state that nobody reads any more. Backends
    /// that clean up in compactions do nothing here.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use weir_backend_heap::HeapBackendFactory;
    /// # use weir_state_api::*;
    /// let clock = Arc::new(ManualClock::new(0));
    /// let mut environment = Environment::in_memory();
    /// environment.clock = clock.clone();
    /// let request = OpenRequest::new(environment, "op", Codec::<String>::id(&Ordered));
    /// let mut store: KeyedStore<String> =
    ///     block_on(KeyedStore::open(&HeapBackendFactory::default(), request))?;
    /// let token = store.with_ttl(Ttl::new(Duration::from_millis(10))).value::<u64>("token")?;
    /// store.set_key(&"ann".to_string())?;
    /// token.set(&mut store, &7)?;
    /// clock.set(10);
    /// assert_eq!(store.clean_up(1_000)?.removed, 1);
    /// assert_eq!(store.statistics().entries, 0);
    /// # Ok::<(), weir_state_api::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`KeyedBackend::clean_up`].
    pub fn clean_up(&mut self, budget: u64) -> Result<CleanUp> {
        self.expiry.write_refreshes(&mut *self.backend)?;
        let states: Vec<_> = self
            .backend
            .states()
            .into_iter()
            .filter_map(|(id, state)| state.ttl.map(|_| id))
            .collect();
        let mut done = CleanUp::NOTHING_TO_DO;
        // From the state at which the last call ended, once around.
        let begin = states.partition_point(|id| *id < self.next_to_clean);
        for &id in states[begin..].iter().chain(&states[..begin]) {
            if done.visited >= budget && done.visited > 0 {
                (done.finished, self.next_to_clean) = (false, id);
                return Ok(done);
            }
            let step = self.backend.clean_up(id, budget - done.visited)?;
            done.visited += step.visited;
            done.removed += step.removed;
            if !step.finished {
                (done.finished, self.next_to_clean) = (false, id);
                return Ok(done);
            }
        }
        Ok(done)
    }

    /// Pins the state for a snapshot; the returned task writes it.
    ///
    /// # Errors
    /// Those of [`KeyedBackend::snapshot`].
    pub fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        self.expiry.write_refreshes(&mut *self.backend)?;
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

impl<K, C> KeyedStore<K, C> {
    /// What accesses for another key than the current one work on.
    #[inline]
    pub(crate) fn scope_of<'a>(&'a mut self, key: KeyRef<'a>) -> Scope<'a> {
        Scope::new(&mut *self.backend, key, &mut self.buffer, &mut self.expiry)
    }

    pub(crate) fn key_rules(&self) -> &KeyRules<K, C> {
        &self.keys
    }
}

impl<K: Send, C: Send> StateAccess for KeyedStore<K, C> {
    #[inline(always)]
    fn with<R>(&mut self, f: impl FnOnce(&mut Scope<'_>) -> Result<R>) -> Result<R> {
        if !self.key_is_set {
            return Err(no_key());
        }
        f(&mut Scope::new(
            &mut *self.backend,
            self.key.as_ref(),
            &mut self.buffer,
            &mut self.expiry,
        ))
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

#[cold]
fn no_key() -> Error {
    Error::new(ErrorKind::InvalidUsage, "no key is set")
        .advice("call set_key before accessing keyed state")
}

#[cold]
fn other_ttl(name: &str, registered: Option<StateTtl>, requested: Option<StateTtl>) -> Error {
    let text = |ttl: Option<StateTtl>| {
        ttl.map_or_else(|| "no TTL".to_string(), |ttl| format!("a TTL of {ttl}"))
    };
    Error::new(
        ErrorKind::Incompatible,
        format!(
            "the state is registered with {}, but {} is requested",
            text(registered),
            text(requested)
        ),
    )
    .state(name)
    .advice("change a TTL when the state is first registered after a restore")
}
