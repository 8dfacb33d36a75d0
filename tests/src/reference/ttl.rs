//! Expiry: judging every value of a state, one by one.

use weir_state_api::ttl::{Stamp, TtlTime, Verdict, convert, is_live, sweep};
use weir_state_api::{CleanUp, StateDescriptor, StateKind, StateTtl};

use super::tables::{Content, Place, Table, Tables};
use super::{Defect, Options};

/// Where the clean-up of a state goes on: behind this place and map key.
pub(super) type Cursor = Option<(Place, Vec<u8>)>;

/// Carries a verdict out.
fn carry_out(value: &mut Vec<u8>, verdict: Verdict) -> bool {
    match verdict {
        Verdict::Keep => true,
        Verdict::Drop => false,
        Verdict::Replace(new) => {
            *value = new;
            true
        }
    }
}

impl Table {
    /// Gives the state another TTL.
    pub(super) fn convert(&mut self, to: Option<StateTtl>, time: TtlTime, options: Options) {
        let (kind, from) = (self.descriptor.kind, self.descriptor.ttl);
        self.descriptor.ttl = to;
        self.content.convert(kind, from, to, time, options);
    }

    /// A step of clean-up.
    pub(super) fn clean_up(&mut self, time: TtlTime, budget: u64, options: Options) -> CleanUp {
        let from_the_beginning = self.cursor.is_none();
        let done = self.clean_to_end(time, budget, options);
        if !done.finished || from_the_beginning || done.visited >= budget {
            return done;
        }
        let more = self.clean_to_end(time, budget - done.visited, options);
        CleanUp::new(done.visited + more.visited, done.removed + more.removed, true)
    }

    fn clean_to_end(&mut self, mut time: TtlTime, budget: u64, options: Options) -> CleanUp {
        let (kind, Some(ttl)) = (self.descriptor.kind, self.descriptor.ttl) else {
            return CleanUp::NOTHING_TO_DO;
        };
        if options.has(Defect::CleanUpIsEarly) {
            time.processing += 1;
        }
        let budget = if options.has(Defect::CleanUpIgnoresItsBudget) { u64::MAX } else { budget };
        let mut addresses = self.content.addresses();
        if let Some(cursor) = &self.cursor {
            addresses.retain(|address| address > cursor);
        }
        let finished = addresses.len() as u64 <= budget;
        addresses.truncate(usize::try_from(budget).unwrap_or(usize::MAX));
        let mut removed = 0;
        for (place, map_key) in &addresses {
            let Some(stored) = self.content.get(place, map_key) else { continue };
            let verdict = sweep(kind, &ttl, stored, &time);
            let spared = match verdict {
                Verdict::Drop => options.has(Defect::CleanUpRemovesNothing),
                _ => options.has(Defect::CleanUpSparesMixedLists) && kind == StateKind::List,
            };
            if !spared {
                removed += u64::from(verdict == Verdict::Drop);
                self.content.carry_out(place, map_key, verdict);
            }
        }
        if !options.has(Defect::CleanUpLeavesEmptyMaps) {
            self.content.drop_empty_maps();
        }
        self.cursor = if finished { None } else { addresses.last().cloned() };
        CleanUp::new(addresses.len() as u64, removed, finished)
    }

    /// Whether a place holds anything that has not expired.
    pub(super) fn is_live(&self, place: &Place, time: &TtlTime) -> bool {
        let Some(ttl) = &self.descriptor.ttl else { return true };
        let live = |stored: &[u8]| is_live(self.descriptor.kind, ttl, stored, time);
        match &self.content {
            Content::Point(values) => values.get(place).is_some_and(|stored| live(stored)),
            // There are no empty maps, unless a defect leaves them.
            Content::Ordered(maps) => maps
                .get(place)
                .is_some_and(|map| map.is_empty() || map.values().any(|stored| live(stored))),
            Content::Queue(_) => true,
        }
    }
}

impl Tables {
    /// Removes everything that has expired.
    pub(super) fn sweep(&mut self, time: TtlTime, options: Options) {
        for table in &mut self.0 {
            table.cursor = None;
            table.clean_up(time, u64::MAX, options);
        }
    }
}

impl Content {
    /// Gives the values another TTL.
    pub(super) fn convert(
        &mut self,
        kind: StateKind,
        mut from: Option<StateTtl>,
        to: Option<StateTtl>,
        time: TtlTime,
        options: Options,
    ) {
        let revives = match (from, to) {
            (Some(_), Some(_)) => options.has(Defect::LongerLifetimesRevive),
            _ => options.has(Defect::SwitchingOffRevives),
        };
        if let (Some(from), true) = (&mut from, revives) {
            from.lifetime = i64::MAX;
        }
        let mut now = time;
        if from.is_none() && options.has(Defect::SwitchingOnExpires) {
            now = TtlTime::new(0);
        }
        self.judge(|stored| convert(kind, from.as_ref(), to.as_ref(), stored, &now));
    }

    /// Makes all values count from now: a defect.
    pub(super) fn refresh(&mut self, state: &StateDescriptor, time: TtlTime) {
        let Some(ttl) = state.ttl.filter(|_| state.kind != StateKind::List) else { return };
        self.judge(|stored| match Stamp::split(stored) {
            Some((Stamp::Written(_), value)) => {
                Verdict::Replace([&ttl.stamp_now(&time).to_bytes()[..], value].concat())
            }
            _ => Verdict::Keep,
        });
    }

    fn judge(&mut self, judge: impl Fn(&[u8]) -> Verdict) {
        match self {
            Content::Point(values) => values.retain(|_, value| carry_out(value, judge(value))),
            Content::Ordered(maps) => {
                let each = |map: &mut super::tables::Entries| {
                    map.retain(|_, value| carry_out(value, judge(value)));
                };
                maps.values_mut().for_each(each);
            }
            Content::Queue(_) => {}
        }
        self.drop_empty_maps();
    }

    fn drop_empty_maps(&mut self) {
        if let Content::Ordered(maps) = self {
            maps.retain(|_, map| !map.is_empty());
        }
    }

    fn addresses(&self) -> Vec<(Place, Vec<u8>)> {
        match self {
            Content::Point(values) => values.keys().map(|at| (at.clone(), Vec::new())).collect(),
            Content::Ordered(maps) => maps
                .iter()
                .flat_map(|(at, map)| map.keys().map(move |key| (at.clone(), key.clone())))
                .collect(),
            Content::Queue(_) => Vec::new(),
        }
    }

    fn get(&self, place: &Place, map_key: &[u8]) -> Option<&Vec<u8>> {
        match self {
            Content::Point(values) => values.get(place),
            Content::Ordered(maps) => maps.get(place)?.get(map_key),
            Content::Queue(_) => None,
        }
    }

    fn carry_out(&mut self, place: &Place, map_key: &[u8], verdict: Verdict) {
        match (self, verdict) {
            (Content::Point(values), Verdict::Drop) => drop(values.remove(place)),
            (Content::Point(values), Verdict::Replace(new)) => {
                values.insert(place.clone(), new);
            }
            (Content::Ordered(maps), Verdict::Drop) => {
                maps.entry(place.clone()).or_default().remove(map_key);
            }
            (Content::Ordered(maps), Verdict::Replace(new)) => {
                maps.entry(place.clone()).or_default().insert(map_key.to_vec(), new);
            }
            _ => {}
        }
    }
}
