//! All instances of an operator with one state, and the model beside them.

use std::time::Duration;

use weir_state_api::{
    CheckpointId, Millis, Notification, Result, SnapshotHandle, SnapshotKind, SnapshotTask,
    TimeDomain, TimerState,
};

use super::Cell;
use super::axes::TtlMode;
use super::model::{LIFETIME, Model, Place};
use crate::cases::ttl_probe::{AHEAD, Probe, set_time};
use crate::harness::{At, Harness, Store};

const STATE: &str = "s";

#[derive(Debug)]
enum State {
    Keyed(Probe),
    Timers(TimerState<u8>),
}

struct Instance {
    store: Store,
    state: State,
}

pub(super) struct Job<'h, 'f> {
    h: &'h Harness<'f>,
    ttl: TtlMode,
    instances: Vec<Instance>,
    pub(super) model: Model,
    now: Millis,
}

/// When the timer that stands for a digit is due.
fn due(digit: u64) -> Millis {
    digit.cast_signed() * 100
}

impl<'h, 'f> Job<'h, 'f> {
    /// Instances restored from `handles`, which must hold what `model` does at that time.
    pub(super) fn open(
        h: &'h Harness<'f>,
        cell: &Cell,
        parallelism: u16,
        handles: &[SnapshotHandle],
        model: Model,
        now: Millis,
    ) -> Result<Self> {
        if cell.ttl.domain() == TimeDomain::Processing {
            h.clock().set(now);
        }
        let stores = h.open_all(parallelism, handles)?.into_iter();
        let instances = stores.map(|mut store| {
            let state = match cell.kind.probe() {
                Some(kind) => State::Keyed(Probe::named(STATE, kind, &mut store, cell.ttl.ttl())?),
                None => State::Timers(store.timers(STATE)?),
            };
            Ok(Instance { store, state })
        });
        let instances = instances.collect::<Result<_>>()?;
        let mut job = Job { h, ttl: cell.ttl, instances, model, now };
        job.set_time(now);
        Ok(job)
    }

    pub(super) fn set_time(&mut self, now: Millis) {
        self.now = now;
        for instance in &mut self.instances {
            set_time(self.h, &mut instance.store, self.ttl.domain(), now);
        }
    }

    /// The owner of a place, with the key set.
    fn at(&mut self, place: Place) -> &mut Instance {
        let key = place.key();
        let owner = self.instances.iter_mut().position(|instance| instance.store.at(&key).is_ok());
        let owner = owner.unwrap_or_else(|| panic!("no instance accepts {key:?}"));
        &mut self.instances[owner]
    }

    pub(super) fn write(&mut self, place: Place, digit: u64) -> Result<()> {
        let (now, per_write) = (self.now, self.ttl == TtlMode::PerWrite);
        let Instance { store, state } = self.at(place);
        match state {
            State::Keyed(probe) => {
                let probe = probe.bind(&[place.namespace]);
                match (per_write, place.namespace) {
                    (false, _) => probe.write(store, digit)?,
                    (true, 0) => {
                        let lifetime = Duration::from_millis(LIFETIME.unsigned_abs());
                        probe.write_with_ttl(store, digit, lifetime)?;
                    }
                    (true, _) => probe.write_expiring_at(store, digit, now + LIFETIME)?,
                }
            }
            State::Timers(timers) => timers.register(store, due(digit), &place.namespace)?,
        }
        self.model.write(place, digit, now);
        Ok(())
    }

    /// Prolongs the life of a place: by a read where reads do that, else by writing a digit.
    pub(super) fn touch(&mut self, place: Place, digit: u64) -> Result<()> {
        if self.ttl != TtlMode::Refreshed {
            return self.write(place, digit);
        }
        let difference = self.read(place)?;
        assert_eq!(difference, None, "before the snapshot");
        Ok(())
    }

    pub(super) fn clear(&mut self, place: Place) -> Result<()> {
        let Instance { store, state } = self.at(place);
        match state {
            State::Keyed(probe) => probe.bind(&[place.namespace]).clear(store)?,
            State::Timers(timers) => {
                for digit in 1..10 {
                    timers.delete(store, due(digit), &place.namespace)?;
                }
            }
        }
        self.model.clear(place);
        Ok(())
    }

    /// Begins a snapshot of all instances.
    pub(super) fn begin_snapshot(
        &mut self,
        kind: SnapshotKind,
        earlier: Option<CheckpointId>,
    ) -> Result<(CheckpointId, Vec<SnapshotTask>)> {
        let mut request = self.h.next_checkpoint();
        request.kind = kind;
        request.shared_directory = format!("shared-{}/", request.checkpoint);
        request.reuse_from = earlier;
        request.watermark = Some(match self.ttl.domain() {
            TimeDomain::Event => self.now,
            TimeDomain::Processing => self.now + AHEAD,
        });
        let instances = self.instances.iter_mut();
        let tasks = instances.map(|instance| instance.store.snapshot(request.clone()));
        Ok((request.checkpoint, tasks.collect::<Result<_>>()?))
    }

    pub(super) fn notify(&mut self, news: Notification) -> Result<()> {
        self.instances.iter_mut().try_for_each(|instance| instance.store.notify(news))
    }

    /// In event time, the time of the snapshot is part of what is restored.
    pub(super) fn check_restored_watermark(&self, expected: Millis) {
        if self.ttl.domain() == TimeDomain::Event {
            for instance in &self.instances {
                let found = instance.store.restored_watermark();
                assert_eq!(found, Some(expected), "the restored watermark");
            }
        }
    }

    /// Reads everything and holds it against the model.
    pub(super) fn check(&mut self, when: &str) -> Result<()> {
        if self.instances.iter().any(|instance| matches!(instance.state, State::Timers(_))) {
            return self.check_timers(when);
        }
        let listed = self.listed()?;
        let expected = self.model.live_places(self.now);
        let expected: Vec<_> =
            expected.iter().map(|place| (place.key(), vec![place.namespace])).collect();
        assert_same(&listed, expected, &format!("{when}: the listed keys"));
        let mut differences = Vec::new();
        for place in Place::first(super::cell::ALL_KEYS) {
            differences.extend(self.read(place)?);
        }
        let (count, shown) = (differences.len(), differences.iter().take(3));
        let shown = shown.map(String::as_str).collect::<Vec<_>>().join("; ");
        assert!(count == 0, "{when}: {count} places differ, among them: {shown}");
        Ok(())
    }

    /// How the content of a place differs, if it does.
    fn read(&mut self, place: Place) -> Result<Option<String>> {
        let Instance { store, state } = self.at(place);
        let State::Keyed(probe) = state else { return Ok(None) };
        let found = probe.bind(&[place.namespace]).read(store)?;
        let expected = self.model.read(place, self.now);
        let at = || format!("{:?}, namespace {}", place.key(), place.namespace);
        Ok((found != expected).then(|| format!("{}: found {found:?}, expected {expected:?}", at())))
    }

    /// What all instances list: twice, when two of them hold it.
    fn listed(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut listed = Vec::new();
        for instance in &mut self.instances {
            for entry in instance.store.keys(STATE)? {
                listed.push(entry?);
            }
        }
        Ok(listed)
    }

    /// Timers are read by coming due, some before others; that leaves none.
    fn check_timers(&mut self, when: &str) -> Result<()> {
        let mut fired = Vec::new();
        for Instance { store, state } in &mut self.instances {
            let State::Timers(timers) = state else { continue };
            let mut last = Millis::MIN;
            for until in [due(2), Millis::MAX] {
                while let Some(timer) = store.poll_timer(timers, until).wait()? {
                    assert!(
                        last <= timer.time && timer.time <= until,
                        "{when}: a timer of {} came due after one of {last} at {until}",
                        timer.time
                    );
                    last = timer.time;
                    fired.push((timer.time, store.key()?, timer.namespace));
                }
            }
        }
        let expected = self.model.drain().into_iter();
        let expected = expected.map(|(digit, at)| (due(digit), at.key(), at.namespace)).collect();
        assert_same(&fired, expected, &format!("{when}: the timers"));
        Ok(())
    }
}

/// Holds two collections against each other, whatever their order.
fn assert_same<T: Ord + Clone + std::fmt::Debug>(found: &[T], mut expected: Vec<T>, what: &str) {
    let mut found = found.to_vec();
    found.sort();
    expected.sort();
    if found == expected {
        return;
    }
    let twice = found.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| &pair[0]);
    let extra = found.iter().find(|entry| !expected.contains(entry));
    let lost = expected.iter().find(|entry| !found.contains(entry));
    panic!(
        "{what} differ: found {}, expected {}; found twice: {twice:?}, not expected: {extra:?}, \
         not found: {lost:?}",
        found.len(),
        expected.len()
    );
}
