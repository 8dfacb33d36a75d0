//! A continuous aggregation into a rich struct: texts, nested lists, numbers.

use serde::{Deserialize, Serialize};
use weir_state_api::{Postcard, Result, ValueState};

use super::events::Event;
use super::operator::{Operator, Shape, account, key_bytes};
use crate::backends::Instance;
use crate::peers::ordered::Ordered;

/// What is known about a user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Profile {
    name: String,
    events: u64,
    spent: u64,
    tags: Vec<String>,
    /// The last five visits, each with what was looked at.
    visits: Vec<Vec<u64>>,
}

impl Profile {
    fn see(&mut self, event: &Event, value_bytes: usize) -> u64 {
        if self.name.is_empty() {
            self.name = format!("user {:0>1$}", event.key, value_bytes);
        }
        self.events += 1;
        self.spent += event.random % 10_000;
        let tag = format!("tag {}", event.random % 6);
        if !self.tags.contains(&tag) {
            self.tags.push(tag);
        }
        if event.random.is_multiple_of(4) || self.visits.is_empty() {
            self.visits.push(Vec::new());
        }
        if self.visits.len() > 5 {
            self.visits.remove(0);
        }
        if let Some(visit) = self.visits.last_mut().filter(|visit| visit.len() < 8) {
            visit.push(event.random % 100_000);
        }
        let seen: u64 = self.visits.iter().flatten().sum();
        self.spent.wrapping_mul(31).wrapping_add(seen) ^ self.tags.len() as u64
    }
}

pub(crate) struct OnWeir {
    instance: Instance,
    profiles: ValueState<Profile, Postcard>,
    value_bytes: usize,
}

impl OnWeir {
    pub(crate) fn open(mut instance: Instance, shape: Shape) -> Result<Self> {
        let profiles = instance.store.value_with("profiles", Postcard::schema("profile", 1))?;
        Ok(OnWeir { instance, profiles, value_bytes: shape.value_bytes })
    }
}

impl Operator for OnWeir {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let store = &mut self.instance.store;
        store.set_key(&event.key)?;
        let mut profile = self.profiles.get(store).wait()?.unwrap_or_default();
        let answer = profile.see(event, self.value_bytes);
        self.profiles.set(store, &profile)?;
        Ok(answer)
    }

    fn own_account(&self) -> Option<u64> {
        account(&self.instance)
    }
}

pub(crate) struct ByHand {
    store: Box<dyn Ordered>,
    value_bytes: usize,
}

impl ByHand {
    pub(crate) fn new(store: Box<dyn Ordered>, shape: Shape) -> Self {
        ByHand { store, value_bytes: shape.value_bytes }
    }
}

impl Operator for ByHand {
    fn handle(&mut self, event: &Event) -> Result<u64> {
        let key = key_bytes(b'u', event.key, &[]);
        let stored = self.store.get(&key)?;
        let decoded = stored.map(|bytes| postcard::from_bytes::<Profile>(&bytes));
        let mut profile = decoded.transpose().map_err(unfit)?.unwrap_or_default();
        let answer = profile.see(event, self.value_bytes);
        self.store.put(&key, &postcard::to_stdvec(&profile).map_err(unfit)?)?;
        Ok(answer)
    }
}

fn unfit(error: postcard::Error) -> weir_state_api::Error {
    let kind = weir_state_api::ErrorKind::Corrupt;
    weir_state_api::Error::new(kind, "a profile cannot be read or written").source(error)
}
