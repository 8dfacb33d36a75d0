//! The same operations on states whose values expire.
//!
//! The lifetime is 1,000,000 ms; set-up writes from time 1,000 on until 1,000,000, in the order of
//! the keys. Then the clock stands at 1,000,000, where all values live, or where a third of them has
//! expired. Asking the clock costs what asking the system's clock costs.

use std::time::Duration;

use hashbrown::HashMap;
use weir_state_api::{ListState, MapState, Millis, Result, Ttl, ValueState};

use super::contestant::Weir;
use super::family::{BASELINE_GROUPS, Family};
use super::inputs::{Inputs, number};
use super::list::{self, Lists};
use super::map::{self, Maps};
use super::operation::Table;
use super::value::{self, Values};

const LIFETIME: Millis = 1_000_000;
const FIRST_WRITE: Millis = 1_000;
/// All values live.
const ALL_LIVE: Millis = 1_000_000;
/// Those that were written in the first third have expired.
const THIRD_EXPIRED: Millis = 1_334_000;

const NO_TTL: &str = ", no TTL";

fn ttl() -> Ttl {
    Ttl::new(Duration::from_millis(LIFETIME.unsigned_abs()))
}

/// Something whose clock is moved.
trait Timed {
    fn set_time(&mut self, now: Millis);
    fn advance_time(&mut self, millis: Millis);
}

impl<H> Timed for Weir<H> {
    fn set_time(&mut self, now: Millis) {
        self.instance.clock.set(now);
    }

    fn advance_time(&mut self, millis: Millis) {
        self.instance.clock.advance(millis);
    }
}

/// Values with the time they were written at, never removed.
#[derive(Default)]
struct Stamped {
    now: Millis,
    values: HashMap<i64, (Millis, i64)>,
}

impl Timed for Stamped {
    fn set_time(&mut self, now: Millis) {
        self.now = now;
    }

    fn advance_time(&mut self, millis: Millis) {
        self.now += millis;
    }
}

impl Values for Stamped {
    #[inline(always)]
    fn get(&mut self, key: i64) -> Result<Option<i64>> {
        let found = self.values.get(&key);
        Ok(found.and_then(|&(written, value)| (written + LIFETIME > self.now).then_some(value)))
    }

    #[inline(always)]
    fn set(&mut self, key: i64, value: i64) -> Result<()> {
        self.values.insert(key, (self.now, value));
        Ok(())
    }

    #[inline(always)]
    fn increment(&mut self, key: i64) -> Result<i64> {
        let (written, value) = self.values.entry(key).or_insert((self.now, 0));
        let live = *written + LIFETIME > self.now;
        *value = if live { value.wrapping_add(1) } else { 1 };
        *written = self.now;
        Ok(*value)
    }
}

/// Runs `write` for each key at its time, then moves the clock to where it stands.
fn fill_over_time<S: Timed>(
    subject: &mut S,
    inputs: &Inputs,
    stands_at: Millis,
    write: impl Fn(&mut S, i64) -> Result<()>,
) -> Result<()> {
    let keys = inputs.keys() as i64;
    for key in 0..keys {
        subject.set_time(FIRST_WRITE + key * (ALL_LIVE - FIRST_WRITE) / keys);
        write(subject, key)?;
    }
    subject.set_time(stands_at);
    Ok(())
}

fn fill_values<S: Values + Timed>(
    values: &mut S,
    inputs: &Inputs,
    stands_at: Millis,
) -> Result<()> {
    fill_over_time(values, inputs, stands_at, |values, key| values.set(key, number(key as u64)))
}

fn values<S: Values + Timed + 'static>() -> Table<S> {
    let mut table = value::table::<S>().renamed(&[
        ("valueGet", "ttlValueGet"),
        ("valueUpdate", "ttlValueUpdate"),
        ("valueReadModifyWrite", "ttlValueReadModifyWrite"),
        ("valueAdd", "ttlValueAdd"),
    ]);
    table.fill = |values, inputs| fill_values(values, inputs, ALL_LIVE);
    table
}

/// The clock moves on before each round: a read at a new time is a write.
fn refreshed_values<S: Values + Timed + 'static>() -> Table<S> {
    let mut table = value::table::<S>().renamed(&[("valueGet", "ttlReadValueGet")]);
    table.fill = |values, inputs| fill_values(values, inputs, ALL_LIVE);
    for operation in &mut table.operations {
        operation.before_round = Some(|values, _| {
            values.advance_time(1);
            Ok(())
        });
        operation.writes = true;
    }
    table
}

/// What has expired may be removed when it is met.
fn expired_values<S: Values + Timed + 'static>() -> Table<S> {
    let mut table = value::table::<S>().renamed(&[("valueGet", "ttlThirdValueGet")]);
    table.fill = |values, inputs| fill_values(values, inputs, THIRD_EXPIRED);
    for operation in &mut table.operations {
        operation.writes = true;
    }
    table
}

fn lists<S: Lists + Timed + 'static>() -> Table<S> {
    let mut table = list::table::<S>()
        .renamed(&[("listGetAndIterate", "ttlListGetAndIterate"), ("listAppend", "ttlListAppend")]);
    table.fill = |lists, inputs| {
        fill_over_time(lists, inputs, ALL_LIVE, |lists, key| lists.add(key, number(key as u64)))
    };
    table
}

fn maps<S: Maps + Timed + 'static>() -> Table<S> {
    let mut table = map::table::<S>().renamed(&[
        ("mapGet", "ttlMapGet"),
        ("mapIterator", "ttlMapIterator"),
        ("mapUpdate", "ttlMapUpdate"),
    ]);
    table.fill = |maps, inputs| {
        fill_over_time(maps, inputs, ALL_LIVE, |maps, key| {
            inputs.map_entries(key).try_for_each(|(map_key, value)| maps.put(key, map_key, value))
        })
    };
    table
}

/// Values that live.
pub(crate) fn value_family(family: Family<'_>) -> Family<'_> {
    family
        .weir::<ValueState<i64>>(BASELINE_GROUPS, values, |store| {
            store.with_ttl(ttl()).value("kvState")
        })
        .weir_named(NO_TTL, BASELINE_GROUPS, values::<Weir<ValueState<i64>>>, |store| {
            store.value("kvState")
        })
        .raw("hashbrown with stamps", values, Stamped::default)
        .flink(BASELINE_GROUPS)
}

/// Values that a read refreshes.
pub(crate) fn refreshed_value_family(family: Family<'_>) -> Family<'_> {
    family
        .weir::<ValueState<i64>>(BASELINE_GROUPS, refreshed_values, |store| {
            store.with_ttl(ttl().refresh_on_read()).value("kvState")
        })
        .flink(BASELINE_GROUPS)
}

/// Values of which a third has expired.
pub(crate) fn expired_value_family(family: Family<'_>) -> Family<'_> {
    family
        .weir::<ValueState<i64>>(BASELINE_GROUPS, expired_values, |store| {
            store.with_ttl(ttl()).value("kvState")
        })
        .raw("hashbrown with stamps", expired_values, Stamped::default)
        .flink(BASELINE_GROUPS)
}

/// Lists whose elements live.
pub(crate) fn list_family(family: Family<'_>) -> Family<'_> {
    family
        .weir::<ListState<i64>>(BASELINE_GROUPS, lists, |store| {
            store.with_ttl(ttl()).list("listState")
        })
        .weir_named(NO_TTL, BASELINE_GROUPS, lists::<Weir<ListState<i64>>>, |store| {
            store.list("listState")
        })
        .flink(BASELINE_GROUPS)
}

/// Maps whose entries live.
pub(crate) fn map_family(family: Family<'_>) -> Family<'_> {
    family
        .weir::<MapState<i64, f64>>(BASELINE_GROUPS, maps, |store| {
            store.with_ttl(ttl()).map("mapState")
        })
        .weir_named(NO_TTL, BASELINE_GROUPS, maps::<Weir<MapState<i64, f64>>>, |store| {
            store.map("mapState")
        })
        .flink(BASELINE_GROUPS)
}
