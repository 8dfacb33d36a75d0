//! Deduplication: a key is let through once, until its lifetime is over.

use std::time::Duration;

use weir_state_api::{Millis, Result, Ttl, ValueState};

use super::events::Event;
use super::operator::{Operator, Shape, account, key_bytes};
use crate::backends::Instance;
use crate::peers::ordered::Ordered;

/// Half as many events as there are keys.
fn lifetime(shape: Shape) -> Millis {
    (shape.keys / 2).max(1) as Millis
}

pub(crate) struct OnWeir {
    instance: Instance,
    seen: ValueState<()>,
}

impl OnWeir {
    pub(crate) fn open(mut instance: Instance, shape: Shape) -> Result<Self> {
        let ttl = Ttl::new(Duration::from_millis(lifetime(shape).unsigned_abs()));
        let seen = instance.store.with_ttl(ttl).value("seen")?;
        Ok(OnWeir { instance, seen })
    }
}

impl Operator for OnWeir {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        self.instance.clock.set(event.number);
        let store = &mut self.instance.store;
        store.set_key(&event.key)?;
        if self.seen.get(store).wait()?.is_some() {
            return Ok(0);
        }
        self.seen.set(store, &())?;
        Ok(1)
    }

    fn own_account(&self) -> Option<u64> {
        account(&self.instance)
    }
}

/// Keeps the end of each lifetime as the value; what has ended is overwritten when it comes again.
pub(crate) struct ByHand {
    store: Box<dyn Ordered>,
    lifetime: Millis,
}

impl ByHand {
    pub(crate) fn new(store: Box<dyn Ordered>, shape: Shape) -> Self {
        ByHand { store, lifetime: lifetime(shape) }
    }
}

impl Operator for ByHand {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let key = key_bytes(b'd', event.key, &[]);
        let end = self.store.get(&key)?.and_then(|value| value.first_chunk().copied());
        if end.is_some_and(|end| event.number < i64::from_be_bytes(end)) {
            return Ok(0);
        }
        self.store.put(&key, &(event.number + self.lifetime).to_be_bytes())?;
        Ok(1)
    }
}
