//! A tumbling window: values are appended; when the window ends, they are read and cleared.
//!
//! The windows of different keys end at different times, so that their ends do not all come at once.

use weir_state_api::{ListState, Millis, Result, TimerState};

use super::events::{Event, number_in, payload};
use super::operator::{Operator, Shape, account, key_bytes, last_part};
use crate::backends::Instance;
use crate::peers::ordered::Ordered;

/// When the window of a key that has an event now ends. A key has four events in a window on average.
fn end_of(key: i64, now: Millis, keys: u64) -> Millis {
    let length = 4 * keys as Millis;
    let offset = key * 4;
    (now + offset).div_euclid(length) * length + length - offset
}

/// What a window's content comes to, in any order.
fn fold(sum: u64, value: &[u8]) -> u64 {
    sum.wrapping_add(number_in(value) | 1)
}

pub(crate) struct OnWeir {
    instance: Instance,
    values: ListState<Vec<u8>>,
    ends: TimerState<()>,
    shape: Shape,
    value: Vec<u8>,
}

impl OnWeir {
    pub(crate) fn open(mut instance: Instance, shape: Shape) -> Result<Self> {
        let values = instance.store.list("values")?;
        let ends = instance.store.timers("ends")?;
        Ok(OnWeir { instance, values, ends, shape, value: Vec::new() })
    }
}

impl Operator for OnWeir {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let store = &mut self.instance.store;
        let mut answer = 0;
        while store.poll_timer(&self.ends, event.number).wait()?.is_some() {
            let values = self.values.get(store).wait()?;
            answer = values.iter().fold(answer, |sum, value| fold(sum, value));
            self.values.clear(store)?;
        }
        store.set_key(&event.key)?;
        payload(event.random, self.shape.value_bytes, &mut self.value);
        self.values.add(store, &self.value)?;
        let end = end_of(event.key, event.number, self.shape.keys);
        self.ends.register(store, end, &())?;
        Ok(answer)
    }

    fn own_account(&self) -> Option<u64> {
        account(&self.instance)
    }
}

pub(crate) struct ByHand {
    store: Box<dyn Ordered>,
    shape: Shape,
    value: Vec<u8>,
}

impl ByHand {
    pub(crate) fn new(store: Box<dyn Ordered>, shape: Shape) -> Self {
        ByHand { store, shape, value: Vec::new() }
    }
}

impl Operator for ByHand {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let mut answer = 0;
        let due = (key_bytes(b't', i64::MIN, &[]), key_bytes(b't', event.number + 1, &[]));
        while let Some(timer) = self.store.first(&due.0, &due.1)? {
            let key = last_part(&timer);
            let bounds = (key_bytes(b'w', key, &[i64::MIN]), key_bytes(b'w', key, &[i64::MAX]));
            let mut elements = Vec::new();
            self.store.scan(&bounds.0, &bounds.1, &mut |element, value| {
                answer = fold(answer, value);
                elements.push(element.to_vec());
            })?;
            elements.iter().try_for_each(|element| self.store.delete(element))?;
            self.store.delete(&timer)?;
        }
        payload(event.random, self.shape.value_bytes, &mut self.value);
        self.store.put(&key_bytes(b'w', event.key, &[event.number]), &self.value)?;
        let end = end_of(event.key, event.number, self.shape.keys);
        self.store.put(&key_bytes(b't', end, &[event.key]), &[])?;
        Ok(answer)
    }
}
