//! A join of two streams by time: each event is kept on its side, and meets those of the other side
//! that came shortly before it.

use std::time::Duration;

use weir_state_api::{MapState, Millis, Order, Result, Ttl};

use super::events::{Event, number_in, payload};
use super::operator::{Operator, Shape, account, key_bytes, remove_between};
use crate::backends::Instance;
use crate::peers::ordered::Ordered;

/// How far apart two events may be that meet.
const RANGE: Millis = 1_000;
/// How long an event is kept.
const KEPT: Millis = 2 * RANGE;

fn is_left(event: &Event) -> bool {
    event.random & 1 == 0
}

fn meet(sum: u64, value: &[u8]) -> u64 {
    sum.wrapping_mul(31).wrapping_add(number_in(value))
}

pub(crate) struct OnWeir {
    instance: Instance,
    left: MapState<Millis, Vec<u8>>,
    right: MapState<Millis, Vec<u8>>,
    len: usize,
    value: Vec<u8>,
}

impl OnWeir {
    pub(crate) fn open(mut instance: Instance, shape: Shape) -> Result<Self> {
        let ttl = Ttl::new(Duration::from_millis(KEPT.unsigned_abs()));
        let left = instance.store.with_ttl(ttl).map("left")?;
        let right = instance.store.with_ttl(ttl).map("right")?;
        Ok(OnWeir { instance, left, right, len: shape.value_bytes, value: Vec::new() })
    }
}

impl Operator for OnWeir {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        self.instance.clock.set(event.number);
        let store = &mut self.instance.store;
        store.set_key(&event.key)?;
        let (own, other) =
            if is_left(event) { (&self.left, &self.right) } else { (&self.right, &self.left) };
        payload(event.random, self.len, &mut self.value);
        own.put(store, &event.number, &self.value)?;
        let range = event.number - RANGE..event.number;
        let mut entries = other.range(store, range, Order::Ascending).wait()?;
        entries.try_fold(1, |sum, entry| Ok(meet(sum, &entry?.1)))
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
        let (own, other) = if is_left(event) { (b'l', b'r') } else { (b'r', b'l') };
        let at = |side: u8, time: Millis| key_bytes(side, event.key, &[time]);
        remove_between(&mut *self.store, &at(own, i64::MIN), &at(own, event.number - KEPT))?;
        payload(event.random, self.len, &mut self.value);
        self.store.put(&at(own, event.number), &self.value)?;
        let mut sum = 1;
        let (from, to) = (at(other, event.number - RANGE), at(other, event.number));
        self.store.scan(&from, &to, &mut |_, value| sum = meet(sum, value))?;
        Ok(sum)
    }
}
