//! Timers at random times, one for each key: register, delete, fire.

use std::collections::BTreeSet;

use weir_state_api::{Millis, Result, TimerState};

use super::contestant::Weir;
use super::family::{DEFAULT_GROUPS, Family};
use super::inputs::Inputs;
use super::operation::{ABSENT, Table, mix, operation};

/// An ordered set of times with keys.
trait Timers {
    fn register(&mut self, time: Millis, key: i64) -> Result<()>;
    fn delete(&mut self, time: Millis, key: i64) -> Result<()>;
    /// Removes the first timer.
    fn fire(&mut self) -> Result<Option<(Millis, i64)>>;
}

impl Timers for BTreeSet<(Millis, i64)> {
    fn register(&mut self, time: Millis, key: i64) -> Result<()> {
        self.insert((time, key));
        Ok(())
    }

    fn delete(&mut self, time: Millis, key: i64) -> Result<()> {
        self.remove(&(time, key));
        Ok(())
    }

    fn fire(&mut self) -> Result<Option<(Millis, i64)>> {
        Ok(self.pop_first())
    }
}

impl Timers for Weir<TimerState<()>> {
    fn register(&mut self, time: Millis, key: i64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.register(&mut self.instance.store, time, &())
    }

    fn delete(&mut self, time: Millis, key: i64) -> Result<()> {
        self.instance.store.set_key(&key)?;
        self.state.delete(&mut self.instance.store, time, &())
    }

    fn fire(&mut self) -> Result<Option<(Millis, i64)>> {
        let store = &mut self.instance.store;
        let Some(timer) = store.poll_timer(&self.state, Millis::MAX).wait()? else {
            return Ok(None);
        };
        Ok(Some((timer.time, store.key()?)))
    }
}

fn fire(timers: &mut impl Timers) -> Result<u64> {
    let (time, key) = timers.fire()?.unwrap_or((ABSENT, ABSENT));
    Ok(mix(time as u64, key as u64))
}

/// No timer is left.
fn drain(timers: &mut impl Timers) -> Result<()> {
    while timers.fire()?.is_some() {}
    Ok(())
}

/// There is one timer for each key.
fn fill(timers: &mut impl Timers, inputs: &Inputs) -> Result<()> {
    drain(timers)?;
    inputs.values.iter().zip(0..).try_for_each(|(&time, key)| timers.register(time, key))
}

fn table<S: Timers + 'static>() -> Table<S> {
    Table {
        fill: |_, _| Ok(()),
        digest: |timers, _| {
            let mut sum = 0;
            while let Some((time, key)) = timers.fire()? {
                sum = mix(sum, mix(time as u64, key as u64));
            }
            Ok(sum)
        },
        calls: |inputs| inputs.values.len(),
        operations: vec![
            operation("timerRegister", |timers: &mut S, pass, i| {
                timers.register(pass.inputs.values[i], i as i64).map(|()| 0)
            })
            .before_round(|timers, _| drain(timers)),
            operation("timerDelete", |timers: &mut S, pass, i| {
                let key = pass.inputs.timers_to_delete[i];
                timers.delete(pass.inputs.values[key as usize], key).map(|()| 0)
            })
            .before_round(|timers, inputs| fill(timers, inputs)),
            operation("timerFire", |timers: &mut S, _, _| fire(timers))
                .before_round(|timers, inputs| fill(timers, inputs)),
        ],
    }
}

/// The family with its contestants.
pub(crate) fn family(family: Family<'_>) -> Family<'_> {
    family
        .weir(DEFAULT_GROUPS, table, |store| store.timers("timers"))
        .raw("BTreeSet", table, BTreeSet::new)
        .flink(DEFAULT_GROUPS)
}
