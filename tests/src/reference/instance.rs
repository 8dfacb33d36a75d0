//! What an instance consists of, and the checks that all calls share.

use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_state_api::ttl::TtlClock;
use weir_state_api::{
    Address, Error, ErrorKind, KeyRef, MapRange, OpenRequest, Result, TimerRef, foreign_key,
};

use super::sharing::Sharing;
use super::tables::{Content, Place, Tables, TimerEntry, wrong_shape};
use super::{Defect, Options};

pub(super) struct ReferenceBackend {
    pub(super) open: OpenRequest,
    pub(super) tables: Tables,
    pub(super) options: Options,
    /// A copy kept up to date for defects that look at later changes.
    pub(super) live: Arc<Mutex<Tables>>,
    pub(super) failed: Arc<AtomicBool>,
    pub(super) sharing: Arc<Sharing>,
    /// A pending poll has been announced and may answer now.
    pub(super) poll_ready: bool,
    /// The timer that was polled last, to lend it.
    pub(super) polled: Option<TimerEntry>,
    /// Changes since the last snapshot or scan began.
    pub(super) changes: u32,
    pub(super) clock: TtlClock,
}

impl fmt::Debug for ReferenceBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceBackend").field("options", &self.options).finish_non_exhaustive()
    }
}

impl ReferenceBackend {
    pub(super) fn new(
        mut open: OpenRequest,
        tables: Tables,
        options: Options,
        sharing: Sharing,
        clock: TtlClock,
    ) -> Self {
        open.restore.clear();
        let live = Arc::new(Mutex::new(tables.clone()));
        ReferenceBackend {
            open,
            tables,
            options,
            live,
            failed: Arc::default(),
            sharing: Arc::new(sharing),
            poll_ready: false,
            polled: None,
            changes: 0,
            clock,
        }
    }

    pub(super) fn has(&self, defect: Defect) -> bool {
        self.options.has(defect)
    }

    pub(super) fn check_key(&self, key: KeyRef<'_>) -> Result<()> {
        if self.failed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Closed, "an upload has failed"));
        }
        if self.open.key_groups.contains(key.group()) || self.has(Defect::ForeignKeysAreAccepted) {
            return Ok(());
        }
        Err(foreign_key(key, self.open.key_groups))
    }

    pub(super) fn place(&self, at: &Address<'_>) -> Result<Place> {
        self.check_key(at.key)?;
        let (mut key, mut namespace) = (at.key.bytes().to_vec(), at.namespace.to_vec());
        if self.has(Defect::NamespacesAreForgotten) {
            namespace.clear();
        }
        if self.has(Defect::KeyAndNamespaceAreJoined) {
            key.append(&mut namespace);
        }
        Ok((at.key.group(), key, namespace))
    }

    pub(super) fn check_len(&self, length: usize) -> Result<()> {
        if length as u64 > self.options.max_value_len && !self.has(Defect::NoValueLimit) {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("{length} bytes are over the limit of {}", self.options.max_value_len),
            ));
        }
        Ok(())
    }

    /// After every change; costs nothing without a defect, and little with one: a full copy is made
    /// only for someone who may look at it, and not every time.
    pub(super) fn changed(&mut self) {
        let watched =
            self.has(Defect::SnapshotsAreNotIsolated) || self.has(Defect::ScansSeeLaterRemovals);
        self.changes += 1;
        let due = self.changes < 8 || self.changes.is_multiple_of(64);
        if watched && due && Arc::strong_count(&self.live) > 1 {
            *self.live.lock().unwrap_or_else(PoisonError::into_inner) = self.tables.clone();
        }
    }

    /// From here on someone looks at later changes.
    pub(super) fn watch(&mut self) {
        self.changes = 0;
        self.changed();
    }

    pub(super) fn stored(&self, at: &Address<'_>) -> Result<Option<&[u8]>> {
        let place = self.place(at)?;
        let table = match self.tables.get(at.state) {
            Err(_) if self.has(Defect::UnknownStatesAreAbsent) => return Ok(None),
            table => table?,
        };
        let found = match &table.content {
            Content::Point(values) => values.get(&place),
            Content::Ordered(maps) => maps.get(&place).and_then(|map| map.get(at.map_key)),
            Content::Queue(_) => return Err(wrong_shape(at.state, "a timer queue")),
        };
        Ok(found.map(Vec::as_slice))
    }

    pub(super) fn timer(&self, timer: &TimerRef<'_>) -> Result<TimerEntry> {
        self.check_key(timer.key)?;
        let key = timer.key;
        Ok((timer.time, key.bytes().to_vec(), timer.namespace.to_vec(), key.group()))
    }
}

pub(super) fn in_range(key: &[u8], range: MapRange<'_>, ends_included: bool) -> bool {
    let relax = |bound| match bound {
        Bound::Excluded(end) if ends_included => Bound::Included(end),
        bound => bound,
    };
    let from = match relax(range.from) {
        Bound::Included(from) => from <= key,
        Bound::Excluded(from) => from < key,
        Bound::Unbounded => true,
    };
    let to = match relax(range.to) {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    };
    from && to
}
