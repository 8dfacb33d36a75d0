//! Every call is a plain map operation.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use weir_state_api::{
    Address, Capabilities, Change, CleanUp, Error, ErrorKind, KeyRef, KeyedBackend, Lookup,
    MapRange, Millis, NextTimer, Notification, Order, Page, PendingValues, Result, ScanStep,
    SnapshotRequest, SnapshotTask, StateDescriptor, StateId, Statistics, TimerPoll, TimerRef,
    UpdateFn, Updated, Values,
};

use super::instance::{ReferenceBackend, in_range};
use super::scan::{Rest, later};
use super::tables::{Content, Place, Table, TimerEntry, wrong_shape};
use super::{Defect, snapshot};

impl KeyedBackend for ReferenceBackend {
    fn capabilities(&self) -> Capabilities {
        self.options.capabilities()
    }

    fn register(&mut self, descriptor: &StateDescriptor) -> Result<StateId> {
        let known = self.tables.0.iter().position(|table| table.descriptor.name == descriptor.name);
        let index = match known {
            Some(index) => {
                if !self.has(Defect::AnyRegistrationFits) {
                    self.tables.0[index].descriptor.check_compatible(descriptor)?;
                }
                index
            }
            None => {
                self.tables.0.push(Table::new(descriptor.clone()));
                self.tables.0.len() - 1
            }
        };
        let (time, options) = (self.clock.time(), self.options);
        let table = &mut self.tables.0[index];
        if table.descriptor.ttl != descriptor.ttl {
            if options.has(Defect::ChangesOfTtlConvertNothing) {
                table.descriptor.ttl = descriptor.ttl;
            } else {
                table.convert(descriptor.ttl, time, options);
            }
        }
        table.registered = true;
        self.changed();
        Ok(StateId(u16::try_from(index).expect("tests register few states")))
    }

    fn states(&self) -> Vec<(StateId, StateDescriptor)> {
        (0..)
            .zip(&self.tables.0)
            .map(|(id, table)| (StateId(id), table.descriptor.clone()))
            .collect()
    }

    fn get(&mut self, at: &Address<'_>) -> Result<Lookup<'_>> {
        if self.options.pends {
            let value = self.stored(at)?.map(|value| value.to_vec().into());
            return Ok(Lookup::Pending(Box::pin(async move {
                later().await;
                Ok(value)
            })));
        }
        Ok(self.stored(at)?.map_or(Lookup::Absent, Lookup::Found))
    }

    fn get_into(&mut self, at: &Address<'_>, buffer: &mut [u8]) -> Result<Option<usize>> {
        let cuts = self.has(Defect::GetIntoCuts);
        let Some(value) = self.stored(at)? else { return Ok(None) };
        let length = value.len();
        if length <= buffer.len() || cuts {
            let copied = length.min(buffer.len());
            buffer[..copied].copy_from_slice(&value[..copied]);
        }
        Ok(Some(length))
    }

    fn multi_get(
        &mut self,
        addresses: &[Address<'_>],
        values: &mut Values,
    ) -> Result<Option<PendingValues>> {
        values.reset(addresses.len());
        let mut seen = Vec::new();
        let mut pending = Vec::new();
        for (index, at) in addresses.iter().enumerate() {
            let place = self.place(at)?;
            if self.has(Defect::MultiGetSkipsDuplicates) && seen.contains(&place) {
                continue;
            }
            seen.push(place);
            match self.stored(at)? {
                Some(value) if self.options.pends => {
                    pending.push((index, Some(value.to_vec().into())));
                }
                Some(value) => values.set(index, value),
                None => {}
            }
        }
        let later: PendingValues = Box::pin(async move {
            later().await;
            Ok(pending)
        });
        Ok(self.options.pends.then_some(later))
    }

    fn put(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        if value.is_empty() && self.has(Defect::EmptyValuesAreAbsent) {
            return self.delete(at);
        }
        at.check_lengths()?;
        let place = self.place(at)?;
        self.check_len(value.len())?;
        match self.tables.content_mut(at.state)? {
            Content::Point(values) => {
                values.insert(place, value.to_vec());
            }
            Content::Ordered(maps) => {
                maps.entry(place).or_default().insert(at.map_key.to_vec(), value.to_vec());
            }
            Content::Queue(_) => return Err(wrong_shape(at.state, "a timer queue")),
        }
        self.changed();
        Ok(())
    }

    fn delete(&mut self, at: &Address<'_>) -> Result<()> {
        let place = self.place(at)?;
        let stay = self.has(Defect::EmptyMapsStay);
        match self.tables.content_mut(at.state)? {
            Content::Point(values) => {
                values.remove(&place);
            }
            Content::Ordered(maps) => {
                if let Some(map) = maps.get_mut(&place) {
                    map.remove(at.map_key);
                    if map.is_empty() && !stay {
                        maps.remove(&place);
                    }
                }
            }
            Content::Queue(_) => return Err(wrong_shape(at.state, "a timer queue")),
        }
        self.changed();
        Ok(())
    }

    fn append(&mut self, at: &Address<'_>, value: &[u8]) -> Result<()> {
        let old = self.stored(at)?.unwrap_or_default();
        let whole = if self.has(Defect::ListsGrowAtTheFront) {
            [value, old].concat()
        } else {
            [old, value].concat()
        };
        self.put(at, &whole)
    }

    fn update(&mut self, at: &Address<'_>, f: &mut UpdateFn<'_>) -> Result<Updated> {
        at.check_lengths()?;
        if let Lookup::Pending(future) = self.get(at)? {
            return Ok(Updated::Pending(future));
        }
        let mut output = Vec::new();
        match f(self.stored(at)?, &mut output) {
            Ok(Change::Keep) => {}
            Ok(Change::Put) => self.put(at, &output)?,
            Ok(Change::Delete) => self.delete(at)?,
            Err(error) => {
                if self.has(Defect::FailedUpdatesClear) {
                    self.delete(at)?;
                }
                return Err(error);
            }
        }
        Ok(Updated::Done)
    }

    fn scan(
        &mut self,
        at: &Address<'_>,
        range: MapRange<'_>,
        order: Order,
        page: &mut Page,
    ) -> Result<ScanStep> {
        let place = self.place(at)?;
        let Content::Ordered(maps) = &self.tables.get(at.state)?.content else {
            return Err(wrong_shape(at.state, "no map"));
        };
        let inside = |key: &[u8]| in_range(key, range, self.has(Defect::RangeEndsAreIncluded));
        let mut entries: std::collections::VecDeque<_> = maps
            .get(&place)
            .into_iter()
            .flatten()
            .filter(|(key, _)| inside(key))
            .map(|(key, value)| (None, key.clone(), value.clone()))
            .collect();
        if order == Order::Descending && !self.has(Defect::DescendingIsIgnored) {
            entries.make_contiguous().reverse();
        }
        let live =
            self.has(Defect::ScansSeeLaterRemovals).then(|| (self.live.clone(), at.state, place));
        self.watch();
        Ok(Rest { entries, options: self.options, live }.start(page))
    }

    fn delete_range(&mut self, at: &Address<'_>, range: MapRange<'_>) -> Result<()> {
        let place = self.place(at)?;
        let stay = self.has(Defect::EmptyMapsStay);
        let longer = self.has(Defect::ClearingHitsLongerKeys);
        let Content::Ordered(maps) = self.tables.content_mut(at.state)? else {
            return Err(wrong_shape(at.state, "no map"));
        };
        for (other, map) in maps.iter_mut() {
            if *other == place || longer && other.1.starts_with(&place.1) && other.2 == place.2 {
                map.retain(|key, _| !in_range(key, range, false));
            }
        }
        maps.retain(|_, map| stay || !map.is_empty());
        self.changed();
        Ok(())
    }

    fn scan_keys(
        &mut self,
        state: StateId,
        namespace: Option<&[u8]>,
        page: &mut Page,
    ) -> Result<ScanStep> {
        let namespace = namespace.filter(|_| !self.has(Defect::KeysOfAllNamespaces));
        let (time, all) = (self.clock.time(), self.has(Defect::ExpiredKeysAreListed));
        let table = self.tables.get(state)?;
        let places: Vec<&Place> = match &table.content {
            Content::Point(values) => values.keys().collect(),
            Content::Ordered(maps) if self.has(Defect::KeysAreListedPerEntry) => {
                maps.iter().flat_map(|(place, map)| std::iter::repeat_n(place, map.len())).collect()
            }
            Content::Ordered(maps) => maps.keys().collect(),
            Content::Queue(_) => return Err(wrong_shape(state, "a timer queue")),
        };
        let entries = places
            .into_iter()
            .filter(|place| namespace.is_none_or(|namespace| place.2 == namespace))
            .filter(|place| all || table.is_live(place, &time))
            .map(|(group, key, namespace)| (Some(*group), key.clone(), namespace.clone()))
            .collect();
        Ok(Rest { entries, options: self.options, live: None }.start(page))
    }

    fn register_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        timer.check_lengths()?;
        let entry = self.timer(timer)?;
        let repeat = self.has(Defect::TimersRepeat);
        let count = self.tables.timers(timer.queue)?.entry(entry).or_default();
        *count = if repeat { *count + 1 } else { 1 };
        self.changed();
        Ok(())
    }

    fn delete_timer(&mut self, timer: &TimerRef<'_>) -> Result<()> {
        let entry = self.timer(timer)?;
        self.tables.timers(timer.queue)?.remove(&entry);
        self.changed();
        Ok(())
    }

    fn poll_timer(&mut self, queue: StateId, now: Millis) -> Result<TimerPoll<'_>> {
        if self.options.pends && !std::mem::replace(&mut self.poll_ready, true) {
            self.tables.timers(queue)?;
            return Ok(TimerPoll::Pending(Box::pin(async {
                later().await;
                Ok(())
            })));
        }
        self.poll_ready = false;
        let options = self.options;
        let timers = self.tables.timers(queue)?;
        let due = |timer: &&TimerEntry| {
            timer.0 < now || timer.0 == now && !options.has(Defect::TimersAreLate)
        };
        let first = if options.has(Defect::TimersByKeyGroup) {
            timers.keys().filter(due).min_by_key(|timer| (timer.3, timer.0))
        } else if options.has(Defect::TimesAreUnsigned) {
            timers.keys().filter(due).min_by_key(|timer| (timer.0 as u64, &timer.1, &timer.2))
        } else {
            timers.keys().next().filter(due)
        };
        let Some(first) = first.cloned() else { return Ok(TimerPoll::Idle) };
        if let Some(count) = timers.get_mut(&first) {
            *count -= 1;
            if *count == 0 {
                timers.remove(&first);
            }
        }
        self.changed();
        let (time, key, namespace, group) = self.polled.insert(first);
        let key = KeyRef::with_group(key, *group)?;
        Ok(TimerPoll::Due(TimerRef { queue, time: *time, key, namespace }))
    }

    fn next_timer(&mut self, queue: StateId) -> Result<NextTimer> {
        let first = self.tables.timers(queue)?.keys().next();
        Ok(first.map_or(NextTimer::Empty, |timer| NextTimer::At(timer.0)))
    }

    fn advance_watermark(&mut self, watermark: Millis) {
        if !self.has(Defect::WatermarksAreNotNoted) {
            self.clock.advance_watermark(watermark);
        }
    }

    fn clean_up(&mut self, state: StateId, budget: u64) -> Result<CleanUp> {
        let (time, options) = (self.clock.time(), self.options);
        Ok(self.tables.get_mut(state)?.clean_up(time, budget, options))
    }

    fn snapshot(&mut self, request: SnapshotRequest) -> Result<SnapshotTask> {
        let (now, clock) = (self.clock.time(), self.open.environment.clock.clone());
        let (tables, live) = (self.tables.clone(), self.live.clone());
        self.watch();
        let (open, options, failed) = (self.open.clone(), self.options, self.failed.clone());
        let (sharing, base) = (self.sharing.clone(), self.sharing.base(&request));
        Ok(SnapshotTask::new(async move {
            let tables = if options.has(Defect::SnapshotsAreNotIsolated) {
                live.lock().unwrap_or_else(PoisonError::into_inner).clone()
            } else {
                tables
            };
            let mut tables = tables;
            let mut time = now;
            if options.has(Defect::SnapshotsSweepLate) {
                time.processing = clock.now();
            }
            tables.sweep(time, options);
            let snapshot = snapshot::Writer { request, open, options, sharing: &sharing };
            let written = snapshot.write(tables, &base).await;
            if written.is_err() && options.has(Defect::UploadFailuresAreFatal) {
                failed.store(true, Ordering::SeqCst);
            }
            written
        }))
    }

    fn notify(&mut self, notification: Notification) -> Result<()> {
        let (Notification::Complete(id) | Notification::Aborted(id) | Notification::Subsumed(id)) =
            notification
        else {
            return Ok(());
        };
        if self.has(Defect::UnknownCheckpointsFail) && id.0 > 1_000 {
            return Err(Error::new(ErrorKind::NotFound, format!("checkpoint {id} is unknown")));
        }
        self.sharing.notify(notification, &self.open);
        if self.has(Defect::CompletionDropsTimers) {
            for table in &mut self.tables.0 {
                if let Content::Queue(timers) = &mut table.content {
                    timers.retain(|timer, _| timer.0 > 0);
                }
            }
        }
        Ok(())
    }

    fn physical_entries(&self, state: StateId) -> Result<u64> {
        Ok(self.tables.get(state)?.entries())
    }

    fn statistics(&self) -> Statistics {
        let mut statistics = Statistics::default();
        statistics.entries = self.tables.0.iter().map(Table::entries).sum();
        statistics.bytes_uploaded = self.sharing.bytes_uploaded();
        statistics
    }
}
