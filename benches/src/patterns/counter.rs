//! Read, add one, write: a counter in a value of any length.

use weir_state_api::{Result, ValueState};

use super::events::{Event, number_in, payload};
use super::operator::{Operator, Shape, account, key_bytes};
use crate::backends::Instance;
use crate::peers::ordered::Ordered;

pub(crate) struct OnWeir {
    instance: Instance,
    counts: ValueState<Vec<u8>>,
    len: usize,
}

impl OnWeir {
    pub(crate) fn open(mut instance: Instance, shape: Shape) -> Result<Self> {
        let counts = instance.store.value("counts")?;
        Ok(OnWeir { instance, counts, len: shape.value_bytes })
    }
}

impl Operator for OnWeir {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let store = &mut self.instance.store;
        store.set_key(&event.key)?;
        let len = self.len;
        let add_one = move |old: Option<Vec<u8>>| {
            let mut value = old.unwrap_or_default();
            let count = number_in(&value) + 1;
            payload(count, len, &mut value);
            value
        };
        Ok(number_in(&self.counts.update(store, add_one).wait()?))
    }

    fn own_account(&self) -> Option<u64> {
        account(&self.instance)
    }
}

pub(crate) struct ByHand {
    store: Box<dyn Ordered>,
    len: usize,
    value: Vec<u8>,
}

impl ByHand {
    pub(crate) fn new(store: Box<dyn Ordered>, shape: Shape) -> Self {
        ByHand { store, len: shape.value_bytes, value: Vec::new() }
    }
}

impl Operator for ByHand {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let key = key_bytes(b'c', event.key, &[]);
        let count = self.store.get(&key)?.map_or(0, |value| number_in(&value)) + 1;
        payload(count, self.len, &mut self.value);
        self.store.put(&key, &self.value)?;
        Ok(count)
    }
}
