//! The ten best of each key, in order.

use weir_state_api::{MapState, Result};

use super::events::{Event, payload};
use super::operator::{Operator, Shape, account, key_bytes, last_part};
use crate::backends::Instance;
use crate::peers::ordered::Ordered;

const BEST: usize = 10;

/// No two events have the same score.
fn score(event: &Event) -> i64 {
    ((event.random % 1_000_000) << 40) as i64 + event.number
}

fn rank(sum: u64, score: i64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(score.cast_unsigned())
}

pub(crate) struct OnWeir {
    instance: Instance,
    best: MapState<i64, Vec<u8>>,
    len: usize,
    value: Vec<u8>,
}

impl OnWeir {
    pub(crate) fn open(mut instance: Instance, shape: Shape) -> Result<Self> {
        let best = instance.store.map("best")?;
        Ok(OnWeir { instance, best, len: shape.value_bytes, value: Vec::new() })
    }
}

impl Operator for OnWeir {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let store = &mut self.instance.store;
        store.set_key(&event.key)?;
        payload(event.random, self.len, &mut self.value);
        self.best.put(store, &score(event), &self.value)?;
        let mut scores = Vec::with_capacity(BEST + 1);
        for entry in self.best.entries(store).wait()? {
            scores.push(entry?.0);
        }
        if scores.len() > BEST {
            self.best.remove(store, &scores.remove(0))?;
        }
        Ok(scores.into_iter().fold(0, rank))
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
        let at = |score: i64| key_bytes(b'b', event.key, &[score]);
        payload(event.random, self.len, &mut self.value);
        self.store.put(&at(score(event)), &self.value)?;
        let mut scores = Vec::with_capacity(BEST + 1);
        self.store.scan(&at(i64::MIN), &at(i64::MAX), &mut |key, _| scores.push(last_part(key)))?;
        if scores.len() > BEST {
            self.store.delete(&at(scores.remove(0)))?;
        }
        Ok(scores.into_iter().fold(0, rank))
    }
}
