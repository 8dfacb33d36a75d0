//! Accesses to states with a TTL: what a read may see, what it leaves, which stamp a write gets.

use super::access::{Read, Slot, StateAccess};
use super::expiry::Expiry;
use super::refresh::Refresher;
use crate::ttl::{Elements, Stamp, TtlTime, cut_short, write_element};
use crate::{
    Address, Change, Codec, Error, ErrorKind, KeyedBackend, Lookup, Millis, Result, StateFuture,
    StateTtl, Ttl,
};

/// The TTL of a state at the time of an access.
///
/// Made field by field and passed by reference, never copied as a whole right after it was made: a
/// copy loads several fields at once, and such a load waits until the stores of all of them have
/// reached the cache. No two accesses overlap then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    state_ttl: StateTtl,
    refreshes_on_read: bool,
    shows_expired: bool,
    pub(super) time: TtlTime,
}

/// How long a written value lives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lifetime {
    /// As its state says.
    OfState,
    /// So many milliseconds from now.
    For(Millis),
    /// Until this instant.
    Until(Millis),
    /// What a value that is moved had.
    Kept(Stamp),
}

impl Lifetime {
    /// A lifetime of a value's own.
    pub(super) fn of(lifetime: std::time::Duration) -> Self {
        Lifetime::For(Millis::try_from(lifetime.as_millis()).unwrap_or(Millis::MAX))
    }
}

impl Life {
    #[inline(always)]
    fn new(ttl: &Ttl, time: TtlTime) -> Self {
        let StateTtl { lifetime, domain } = ttl.state_ttl();
        Life {
            state_ttl: StateTtl::new(lifetime, domain),
            refreshes_on_read: ttl.refreshes_on_read(),
            shows_expired: ttl.shows_expired(),
            time,
        }
    }

    #[inline(always)]
    pub(super) fn state_ttl(&self) -> &StateTtl {
        &self.state_ttl
    }

    #[inline(always)]
    pub(super) fn is_expired(&self, stamp: Stamp) -> bool {
        self.state_ttl().is_expired(stamp, &self.time)
    }

    /// The value behind the stamp, if it has not expired.
    #[inline(always)]
    pub(super) fn live<'v>(&self, stored: &'v [u8]) -> Result<Option<&'v [u8]>> {
        let (stamp, value) = Stamp::split(stored).ok_or_else(cut_short)?;
        Ok((!self.is_expired(stamp)).then_some(value))
    }

    /// Whether a read returns a value with this stamp.
    #[inline(always)]
    pub(super) fn shows(&self, stamp: Stamp) -> bool {
        self.shows_expired || !self.is_expired(stamp)
    }

    /// The stamp after a read, if it is another one.
    #[inline(always)]
    pub(super) fn refreshed(&self, stamp: Stamp) -> Option<Stamp> {
        let counts = matches!(stamp, Stamp::Written(_) | Stamp::BeforeFirst);
        if !self.refreshes_on_read || !counts || self.is_expired(stamp) {
            return None;
        }
        Some(self.state_ttl().stamp_now(&self.time)).filter(|now| *now != stamp)
    }

    /// The stamp of what is written.
    #[inline(always)]
    pub(super) fn stamp(&self, lifetime: Lifetime) -> Stamp {
        match lifetime {
            Lifetime::OfState => self.state_ttl().stamp_now(&self.time),
            Lifetime::For(millis) => self.state_ttl().stamp_with_lifetime(millis, &self.time),
            Lifetime::Until(at) => Stamp::Until(at),
            Lifetime::Kept(stamp) => stamp,
        }
    }

    /// Reads a stamped value: what `decode` makes of it, and what becomes of the stored bytes.
    #[inline(always)]
    pub(super) fn read_value<T>(
        &self,
        stored: Option<&[u8]>,
        new: &mut Vec<u8>,
        decode: impl FnOnce(Option<&[u8]>) -> Result<T>,
    ) -> Result<(T, Change)> {
        let Some(stored) = stored else { return Ok((decode(None)?, Change::Keep)) };
        let (stamp, value) = Stamp::split(stored).ok_or_else(cut_short)?;
        if !self.shows(stamp) {
            return Ok((decode(None)?, Change::Delete));
        }
        let decoded = decode(Some(value))?;
        let Some(refreshed) = self.refreshed(stamp) else { return Ok((decoded, Change::Keep)) };
        new.extend_from_slice(&refreshed.to_bytes());
        new.extend_from_slice(value);
        Ok((decoded, Change::Put))
    }

    /// Reads a stamped list: its elements, and what becomes of the stored bytes.
    pub(super) fn read_list<T>(
        &self,
        stored: Option<&[u8]>,
        new: &mut Vec<u8>,
        codec: &impl Codec<T>,
    ) -> Result<(Vec<T>, Change)> {
        let stored_elements = Elements::new(stored.unwrap_or_default());
        let mut elements = Vec::with_capacity(stored_elements.guess_len());
        let mut changes = false;
        for element in stored_elements {
            let element = element?;
            let (stamp, value) = Stamp::split(element).ok_or_else(cut_short)?;
            if !self.shows(stamp) {
                changes = true;
                continue;
            }
            elements.push(codec.decode(value)?);
            changes |= self.refreshed(stamp).is_some();
        }
        if !changes {
            return Ok((elements, Change::Keep));
        }
        if elements.is_empty() {
            return Ok((elements, Change::Delete));
        }
        for element in Elements::new(stored.unwrap_or_default()) {
            let (stamp, value) = Stamp::split(element?).ok_or_else(cut_short)?;
            if self.shows(stamp) {
                let stamp = self.refreshed(stamp).unwrap_or(stamp);
                write_element(new, Some(stamp), |out| {
                    out.extend_from_slice(value);
                    Ok(())
                })?;
            }
        }
        Ok((elements, Change::Put))
    }
}

impl Life {
    /// Begins a read at an address: `inspect` makes of the stored bytes what the read returns and
    /// what becomes of them.
    ///
    /// A pending read refreshes when it has come. It removes nothing: clean-up will, and a backend
    /// on remote storage is not made to write for a value that nobody sees.
    #[inline(always)]
    #[expect(
        clippy::type_complexity,
        reason = "what decodes later is a closure, which has no name"
    )]
    pub(super) fn read<T, I>(
        self,
        backend: &mut dyn KeyedBackend,
        expiry: &mut Expiry,
        address: &Address<'_>,
        inspect: I,
    ) -> Result<Read<T, impl FnOnce(Option<&[u8]>) -> Result<T> + Send + use<T, I>>>
    where
        I: FnOnce(&Life, Option<&[u8]>, &mut Vec<u8>) -> Result<(T, Change)> + Send + 'static,
    {
        let mut new = Vec::new();
        let (value, change) = match backend.get(address)? {
            Lookup::Absent => inspect(&self, None, &mut new)?,
            Lookup::Found(stored) => inspect(&self, Some(stored), &mut new)?,
            Lookup::Pending(future) => {
                let refresher = self.refresher(expiry, address);
                let map_key = address.map_key.to_vec();
                return Ok(Read::Later(future, move |stored: Option<&[u8]>| {
                    let (value, change) = inspect(&self, stored, &mut new)?;
                    if let (Some(refresher), Change::Put) = (refresher, change) {
                        refresher.refresh(&map_key, new);
                    }
                    Ok(value)
                }));
            }
        };
        match change {
            Change::Keep => {}
            Change::Put => backend.put(address, &new)?,
            Change::Delete => backend.delete(address)?,
        }
        Ok(Read::Now(value))
    }

    /// For a read that ends later, if reads refresh.
    pub(super) fn refresher(&self, expiry: &Expiry, at: &Address<'_>) -> Option<Refresher> {
        self.refreshes_on_read.then(|| expiry.refreshes.begin(at))
    }
}

/// What a write replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// What is stored at the address.
    Address,
    /// All entries of the map.
    Map,
}

impl Slot {
    /// Begins an access, if the state has a TTL.
    #[inline(always)]
    pub(super) fn begin(
        &self,
        backend: &mut dyn KeyedBackend,
        expiry: &mut Expiry,
    ) -> Result<Option<Life>> {
        let Some(ttl) = &self.ttl else { return Ok(None) };
        Ok(Some(Life::new(ttl, expiry.begin(backend, self.state)?)))
    }

    /// Begins a read of a state that has a TTL.
    #[inline(always)]
    pub(super) fn begin_read(
        &self,
        backend: &mut dyn KeyedBackend,
        expiry: &mut Expiry,
    ) -> Result<Life> {
        self.begin(backend, expiry)?
            .ok_or_else(|| self.blame(Error::new(ErrorKind::InvalidUsage, "the state has no TTL")))
    }

    /// Begins a write, if the state has a TTL.
    #[inline(always)]
    pub(super) fn begin_write(
        &self,
        backend: &mut dyn KeyedBackend,
        expiry: &mut Expiry,
        at: &Address<'_>,
        extent: Extent,
    ) -> Result<Option<Life>> {
        let life = self.begin(backend, expiry)?;
        if life.as_ref().is_some_and(|life| life.refreshes_on_read) {
            let map_key = (extent == Extent::Address).then_some(at.map_key);
            expiry.refreshes.overwritten(at, map_key);
        }
        Ok(life)
    }

    /// Begins to write a value: its stamp, if the state has a TTL.
    #[inline(always)]
    pub(super) fn begin_value(
        &self,
        backend: &mut dyn KeyedBackend,
        expiry: &mut Expiry,
        at: &Address<'_>,
        lifetime: Lifetime,
    ) -> Result<Option<Stamp>> {
        let life = self.begin_write(backend, expiry, at, Extent::Address)?;
        match (&life, lifetime) {
            (Some(life), lifetime) => Ok(Some(life.stamp(lifetime))),
            (None, Lifetime::OfState) => Ok(None),
            (None, _) => Err(Error::new(
                ErrorKind::InvalidUsage,
                "the state has no TTL, so its values cannot expire",
            )
            .advice("register it with KeyedStore::with_ttl")),
        }
    }

    /// Removes what is stored at the point.
    pub(super) fn delete<A: StateAccess + ?Sized>(&self, at: &mut A) -> Result<()> {
        at.with(|scope| {
            let address = self.address(scope.key());
            self.begin_write(scope.backend, scope.expiry, &address, Extent::Address)?;
            scope.backend.delete(&address)
        })
        .map_err(|error| self.blame(error))
    }

    /// Reads a point state with a TTL.
    #[inline(always)]
    pub(super) fn read_expiring<A, T, I>(&self, at: &mut A, inspect: I) -> StateFuture<'static, T>
    where
        A: StateAccess + ?Sized,
        T: 'static,
        I: FnOnce(&Life, Option<&[u8]>, &mut Vec<u8>) -> Result<(T, Change)> + Send + 'static,
    {
        self.settle(at.with(|scope| {
            let address = self.address(scope.key());
            let life = self.begin_read(scope.backend, scope.expiry)?;
            life.read(scope.backend, scope.expiry, &address, inspect)
        }))
    }
}
