//! The interface that backends implement and engines call: bytes in, bytes out, object-safe.
//!
//! Keys, namespaces, map keys and values are opaque here. Everything typed (state kinds, codecs,
//! user functions) is built on top of this trait once and works on every backend;
//! `docs/decisions/0001` argues each method for five kinds of implementers and callers.

mod capabilities;
mod point;
mod scan;
mod statistics;
mod timer;

use std::fmt;

use bytes::Bytes;

pub use capabilities::Capabilities;
pub use point::{Address, Change, DeferredValues, Lookup, PendingValues, UpdateFn, Updated};
pub use scan::{MapRange, Order, Scan, ScanStep};
pub use statistics::{CleanUp, Statistics};
pub use timer::{NextTimer, TimerPoll, TimerRef};

use crate::{
    BoxFuture, CheckpointId, Error, ErrorKind, KeyGroupRange, KeyRef, Millis, OpenRequest, Page,
    Result, SnapshotHandle, SnapshotRequest, SnapshotTask, StateDescriptor, StateId, Values,
};

/// News about a checkpoint. Every notification is a hint: it may be lost, late, repeated or out of
/// order, and "complete n" implies nothing about the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notification {
    /// The checkpoint is complete everywhere; later snapshots may build on its objects.
    Complete(CheckpointId),
    /// The checkpoint will never complete; later snapshots must not build on it.
    Aborted(CheckpointId),
    /// The checkpoint is no longer retained; nothing may build on objects only it holds.
    Subsumed(CheckpointId),
}

/// One instance of a backend: the state of one operator for a range of key groups.
///
/// Owned by one task: calls come from one thread at a time, hence `&mut self`. Dropping it closes
/// it; running snapshots go on. Calls for a key group outside the instance's range fail with
/// [`ForeignKey`](ErrorKind::ForeignKey); an unknown [`StateId`] fails with
/// [`InvalidUsage`](ErrorKind::InvalidUsage). Any other failure leaves the state as it was.
pub trait KeyedBackend: Send + fmt::Debug {
    /// What this instance can do.
    fn capabilities(&self) -> Capabilities;

    /// Registers a state, or finds the one with that name.
    ///
    /// When the state is there with another [`ttl`](StateDescriptor::ttl), its values are converted
    /// to the requested one, now or when they are next read or compacted, as
    /// [`ttl::convert`](crate::ttl::convert) does with the time of this call. The state has the
    /// requested TTL from then on. A restored state that is not registered keeps its own.
    ///
    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible) when the name is taken by another kind or codec.
    fn register(&mut self, descriptor: &StateDescriptor) -> Result<StateId>;

    /// All states: registered, or restored and not yet registered.
    fn states(&self) -> Vec<(StateId, StateDescriptor)>;

    /// Reads one byte string. Lends it without copying when it is in memory.
    ///
    /// # Errors
    /// See the trait; and those of remote reads.
    fn get(&mut self, at: &Address<'_>) -> Result<Lookup<'_>>;

    /// Reads one byte string, but starts no I/O for it: `None` when the answer is not in memory. The
    /// read is noted then, with how far it has come, and begins together with all others that are
    /// noted when the caller [sends them](KeyedBackend::send_deferred), so that their I/O is merged.
    /// It sees the state as of this call, whatever is written before it is sent.
    ///
    /// A backend that can merge reads overrides both. This default is [`get`](KeyedBackend::get):
    /// every read starts its own I/O at once.
    ///
    /// # Errors
    /// Those of [`get`](KeyedBackend::get).
    fn get_or_defer(&mut self, at: &Address<'_>) -> Result<Option<Lookup<'_>>> {
        self.get(at).map(Some)
    }

    /// Begins the reads that [`get_or_defer`](KeyedBackend::get_or_defer) has noted since the last
    /// call; `None` when there are none. The future yields their values in the order of those calls.
    fn send_deferred(&mut self) -> Option<DeferredValues> {
        None
    }

    /// Copies a value into the caller's buffer; `Some(length)` also when the buffer is too short
    /// (then nothing is copied), `None` when absent. For callers across a language border.
    ///
    /// # Errors
    /// Those of [`get`](KeyedBackend::get). A pending read is waited for.
    fn get_into(&mut self, at: &Address<'_>, buffer: &mut [u8]) -> Result<Option<usize>> {
        let mut copy = |value: &[u8]| {
            if let Some(target) = buffer.get_mut(..value.len()) {
                target.copy_from_slice(value);
            }
            Some(value.len())
        };
        match self.get(at)? {
            Lookup::Absent => Ok(None),
            Lookup::Found(value) => Ok(copy(value)),
            Lookup::Pending(future) => Ok(crate::block_on(future)?.and_then(|value| copy(&value))),
        }
    }

    /// Reads many byte strings at once: answers that are in memory go to `values` now, the returned
    /// future (if any) yields the others as (index, value) pairs. A backend whose reads pend
    /// overrides it to overlap their I/O; this default awaits them one after the other.
    ///
    /// # Errors
    /// Those of [`get`](KeyedBackend::get), for the first address that fails.
    fn multi_get(
        &mut self,
        addresses: &[Address<'_>],
        values: &mut Values,
    ) -> Result<Option<PendingValues>> {
        values.reset(addresses.len());
        let mut pending = Vec::new();
        for (index, at) in addresses.iter().enumerate() {
            match self.get(at)? {
                Lookup::Absent => {}
                Lookup::Found(value) => values.set(index, value),
                Lookup::Pending(future) => pending.push((index, future)),
            }
        }
        Ok((!pending.is_empty()).then(|| join_lookups(pending)))
    }

    /// Stores one byte string, replacing what was there.
    ///
    /// # Errors
    /// See the trait; [`TooLarge`](ErrorKind::TooLarge) beyond
    /// [`max_value_len`](Capabilities::max_value_len).
    fn put(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()>;

    /// Stores several entries of one map, for states of maps: pairs of map key and value, of which a later one replaces
    /// an earlier one with the same map key; `at.map_key` is ignored. This default puts one after the
    /// other; a backend that finds the map once for all overrides it.
    ///
    /// # Errors
    /// Those of [`put`](KeyedBackend::put); entries before the failing one are stored.
    fn put_entries(&mut self, at: &Address<'_>, entries: &Page) -> Result<()> {
        entries.iter().try_for_each(|(map_key, value)| self.put(&Address { map_key, ..*at }, value))
    }

    /// Removes one byte string; nothing there is no error.
    ///
    /// # Errors
    /// See the trait.
    fn delete(&mut self, at: &Address<'_>) -> Result<()>;

    /// Appends to a byte string without reading it; absent counts as empty.
    ///
    /// This is all that lists need: their elements are framed by the caller.
    ///
    /// # Errors
    /// See the trait; [`TooLarge`](ErrorKind::TooLarge) when the whole would exceed
    /// [`max_value_len`](Capabilities::max_value_len). A backend that appends without knowing the
    /// whole reports it at the first call that can know, never by a read that fails.
    fn append(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()>;

    /// Reads, changes and writes one byte string in one access.
    ///
    /// # Errors
    /// Those of [`get`](KeyedBackend::get), [`put`](KeyedBackend::put) and of `f`; the entry is
    /// unchanged then.
    fn update(&mut self, at: &Address<'_>, f: &mut UpdateFn<'_>) -> Result<Updated> {
        let mut output = Vec::new();
        let change = match self.get(at)? {
            Lookup::Absent => f(None, &mut output)?,
            Lookup::Found(value) => f(Some(value), &mut output)?,
            Lookup::Pending(future) => return Ok(Updated::Pending(future)),
        };
        match change {
            Change::Keep => {}
            Change::Put => self.put(at, &output)?,
            Change::Delete => self.delete(at)?,
        }
        Ok(Updated::Done)
    }

    /// Starts a scan over the map keys of (state, key, namespace); `at.map_key` is ignored. The
    /// first entries are appended to `page`.
    ///
    /// # Errors
    /// See the trait; [`InvalidUsage`](ErrorKind::InvalidUsage) for a state that is no map.
    fn scan(
        &mut self,
        at: &Address<'_>,
        range: MapRange<'_>,
        order: Order,
        page: &mut Page,
    ) -> Result<ScanStep>;

    /// Whether a map has any map key, expired ones counted too; `at.map_key` is ignored. `None` when
    /// that is not known without a scan, which is the default.
    ///
    /// For a backend that removes a map with its last map key it is one look-up.
    ///
    /// # Errors
    /// See the trait; [`InvalidUsage`](ErrorKind::InvalidUsage) for a state that is no map.
    fn has_map_keys(&mut self, at: &Address<'_>) -> Result<Option<bool>> {
        let _ = at;
        Ok(None)
    }

    /// Removes all map keys in the range; `at.map_key` is ignored. [`MapRange::ALL`] clears a map.
    ///
    /// # Errors
    /// See the trait; [`InvalidUsage`](ErrorKind::InvalidUsage) for a state that is no map.
    fn delete_range(&mut self, at: &Address<'_>, range: MapRange<'_>) -> Result<()>;

    /// Starts an enumeration of the distinct (key, namespace) pairs of a state, ordered by key
    /// group and otherwise in no defined order; with `namespace` only those of that namespace. Of a
    /// state with a TTL, pairs without a live value at the time of the call
    /// ([`ttl::is_live`](crate::ttl::is_live)) are left out.
    ///
    /// # Errors
    /// See the trait; [`InvalidUsage`](ErrorKind::InvalidUsage) for a timer queue.
    fn scan_keys(
        &mut self,
        state: StateId,
        namespace: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<ScanStep>;

    /// Registers a timer; registering it twice is one timer.
    ///
    /// # Errors
    /// See the trait.
    fn register_timer(&mut self, timer: &TimerRef<'_>) -> Result<()>;

    /// Deletes a timer; an unknown one is no error.
    ///
    /// # Errors
    /// See the trait.
    fn delete_timer(&mut self, timer: &TimerRef<'_>) -> Result<()>;

    /// Removes and returns the first timer that is due at `now` (`time <= now`), in the order time,
    /// key bytes, namespace bytes.
    ///
    /// # Errors
    /// See the trait; and those of remote reads.
    fn poll_timer(&mut self, queue: StateId, now: Millis) -> Result<TimerPoll<'_>>;

    /// When the first timer of the queue is due, as far as it is known without I/O; for arming a
    /// clock.
    ///
    /// # Errors
    /// See the trait.
    fn next_timer(&mut self, queue: StateId) -> Result<NextTimer>;

    /// Tells the instance the operator's event time, after each advance. It never runs backwards.
    ///
    /// A backend that removes expired values by itself keeps a [`TtlClock`](crate::ttl::TtlClock)
    /// and passes it on.
    fn advance_watermark(&mut self, watermark: Millis) {
        let _ = watermark;
    }

    /// A step of removing what has expired ([`ttl::sweep`](crate::ttl::sweep)) from a state: visits
    /// about `budget` entries, beginning where the last step ended, and going on from the beginning
    /// when it reaches the end: with a budget without limit, it visits everything. A key, namespace
    /// or map that holds nothing any more goes too.
    ///
    /// For backends that must be driven; one that cleans up by itself (in compactions) has nothing
    /// to do here, which is the default.
    ///
    /// # Errors
    /// See the trait.
    fn clean_up(&mut self, state: StateId, budget: u64) -> Result<CleanUp> {
        let _ = (state, budget);
        Ok(CleanUp::NOTHING_TO_DO)
    }

    /// The synchronous part of a snapshot: pins the state as it is now. Its cost does not depend on
    /// the size of the state. The returned task does the rest, on any thread.
    ///
    /// Of a state with a TTL it may leave out what has expired at the time of this call, never what
    /// expires later.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed) after a permanent failure of the instance.
    fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask>;

    /// Tells the backend about a checkpoint. See [`Notification`] for how little it may rely on it.
    ///
    /// # Errors
    /// Failures of work that the news triggers; the state itself is not affected.
    fn notify(&mut self, notification: Notification) -> Result<()>;

    /// Physical entries of one state, dead ones included; proof for clean-up.
    ///
    /// # Errors
    /// See the trait.
    fn physical_entries(&self, state: StateId) -> Result<u64>;

    /// Counters and sizes.
    fn statistics(&self) -> Statistics;
}

/// Awaits single reads one after the other; backends with real overlap override `multi_get`.
fn join_lookups(pending: Vec<(usize, BoxFuture<'static, Result<Option<Bytes>>>)>) -> PendingValues {
    Box::pin(async move {
        let mut values = Vec::with_capacity(pending.len());
        for (index, future) in pending {
            values.push((index, future.await?));
        }
        Ok(values)
    })
}

/// Opens instances of a backend; what an engine is configured with.
pub trait BackendFactory: Send + Sync + fmt::Debug {
    /// The backend's name as it stands in snapshot handles, for example `heap`.
    fn name(&self) -> &str;

    /// What its instances can do.
    fn capabilities(&self) -> Capabilities;

    /// Opens an instance for a range of key groups, empty or from snapshots.
    ///
    /// Snapshots are checked up front ([`OpenRequest::check`]): a restore either starts from
    /// complete, matching handles or is refused.
    ///
    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible), [`Corrupt`](ErrorKind::Corrupt) or
    /// [`NotFound`](ErrorKind::NotFound), naming the handle or object;
    /// [`Unavailable`](ErrorKind::Unavailable) when the store does not answer.
    fn open(&self, request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>>;

    /// The same snapshot for some of its key groups only, for who passes handles on: with others, of
    /// the remaining groups, it restores as the whole would. Nothing is read or written, and the
    /// objects stay as they are.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported), which is the default: the caller has to take a snapshot
    /// of a restored instance instead. [`Corrupt`](ErrorKind::Corrupt) when the handle does not decode.
    fn clip(&self, handle: &SnapshotHandle, key_groups: KeyGroupRange) -> Result<SnapshotHandle> {
        let _ = key_groups;
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("the backend {:?} does not cut snapshots", handle.backend),
        )
        .advice("restore the instances and take a new snapshot"))
    }
}

/// The error for a key group outside the instance's range.
#[cold]
pub fn foreign_key(key: KeyRef<'_>, owned: KeyGroupRange) -> Error {
    Error::new(
        ErrorKind::ForeignKey,
        format!("the key belongs to key group {}, this instance owns {owned}", key.group()),
    )
    .advice("route records by subtask_of_group, or open the instance for the right range")
}
