//! A sliding window of five panes: each event adds to its pane and asks for the sum of the window.

use weir_state_api::{MapState, Order, Result};

use super::events::{Event, number_in};
use super::operator::{Operator, Shape, account, key_bytes, remove_between};
use crate::backends::Instance;
use crate::peers::ordered::Ordered;

const PANES: i64 = 5;

/// The pane of an event. A key has one event in a pane on average.
fn pane_of(event: &Event, keys: u64) -> i64 {
    event.number / keys as i64
}

pub(crate) struct OnWeir {
    instance: Instance,
    panes: MapState<i64, u64>,
    keys: u64,
}

impl OnWeir {
    pub(crate) fn open(mut instance: Instance, shape: Shape) -> Result<Self> {
        let panes = instance.store.map("panes")?;
        Ok(OnWeir { instance, panes, keys: shape.keys })
    }
}

impl Operator for OnWeir {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let (store, pane) = (&mut self.instance.store, pane_of(event, self.keys));
        store.set_key(&event.key)?;
        let old = self.panes.get(store, &pane).wait()?;
        if old.is_none() {
            self.panes.remove_range(store, ..=pane - PANES)?;
        }
        self.panes.put(store, &pane, &(old.unwrap_or(0) + event.random % 1_000))?;
        let mut window =
            self.panes.range(store, pane - PANES + 1..=pane, Order::Ascending).wait()?;
        window.try_fold(0, |sum, entry| Ok(sum + entry?.1))
    }

    fn own_account(&self) -> Option<u64> {
        account(&self.instance)
    }
}

pub(crate) struct ByHand {
    store: Box<dyn Ordered>,
    keys: u64,
}

impl ByHand {
    pub(crate) fn new(store: Box<dyn Ordered>, shape: Shape) -> Self {
        ByHand { store, keys: shape.keys }
    }
}

impl Operator for ByHand {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let pane = pane_of(event, self.keys);
        let at = |pane: i64| key_bytes(b'p', event.key, &[pane]);
        let old = self.store.get(&at(pane))?;
        if old.is_none() {
            remove_between(&mut *self.store, &at(i64::MIN), &at(pane - PANES + 1))?;
        }
        let sum = old.map_or(0, |value| number_in(&value)) + event.random % 1_000;
        self.store.put(&at(pane), &sum.to_be_bytes())?;
        let mut total = 0;
        self.store.scan(&at(pane - PANES + 1), &at(pane + 1), &mut |_, value| {
            total += number_in(value);
        })?;
        Ok(total)
    }
}
