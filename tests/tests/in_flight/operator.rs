//! An operator that does what its records say, in flight or on a plain store.

use std::collections::HashSet;
use std::sync::Mutex;
use std::task::Poll;

use weir_state_api::{
    Aggregate, AggregatingState, BoxError, KeyedStore, ListState, MapState, Millis, Namespaced,
    RecordOperator, RecordState, Result, StateAccess, TimerState, ValueState,
};

/// One access, or a few that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Set(u64),
    Add(u64),
    Get,
    /// Begins a read, writes, then looks at what was read.
    ReadWriteLook(u64),
    Clear,
    Append(u64),
    List,
    Put(u8, u64),
    Entry(u8),
    Remove(u8),
    Scan,
    Fold(u64),
    Folded,
    SetWindow(u8, u64),
    MergeWindows,
    Register(Millis),
    Delete(Millis),
    /// Awaits something that is no state.
    Pause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Record { key: u8, ops: Vec<Op> },
    Timer { key: u8, time: Millis },
}

impl Event {
    pub(crate) fn key(&self) -> u8 {
        match self {
            Event::Record { key, .. } | Event::Timer { key, .. } => *key,
        }
    }
}

/// What a record saw.
pub(crate) type Seen = (u8, Vec<u64>);

pub(crate) struct Sum;

impl Aggregate for Sum {
    type Input = u64;
    type Accumulator = u64;
    type Output = u64;

    fn create(&self) -> u64 {
        1
    }

    fn add(&self, sum: &mut u64, input: u64) -> Result<(), BoxError> {
        *sum = sum.wrapping_mul(3).wrapping_add(input);
        Ok(())
    }

    fn merge(&self, a: u64, b: u64) -> Result<u64, BoxError> {
        Ok(a.wrapping_add(b))
    }

    fn output(&self, sum: &u64) -> u64 {
        *sum
    }
}

pub(crate) struct States {
    pub(crate) value: ValueState<u64>,
    pub(crate) list: ListState<u64>,
    pub(crate) map: MapState<u8, u64>,
    pub(crate) sum: AggregatingState<Sum>,
    pub(crate) windows: Namespaced<ValueState<u64>, u8>,
    pub(crate) timers: TimerState,
}

pub(crate) const WINDOWS: [u8; 3] = [0, 1, 2];

impl States {
    pub(crate) fn register(store: &mut KeyedStore<u8>) -> Result<Self> {
        Ok(States {
            value: store.value("value")?,
            list: store.list("list")?,
            map: store.map("map")?,
            sum: store.aggregating("sum", Sum)?,
            windows: store.namespaced::<u8>().value("windows")?,
            timers: store.timers("timers")?,
        })
    }

    pub(crate) async fn handle<A: StateAccess>(
        &self,
        event: &Event,
        at: &mut A,
    ) -> Result<Vec<u64>> {
        let mut seen = Vec::new();
        match event {
            Event::Record { ops, .. } => {
                for op in ops {
                    self.run(op, at, &mut seen).await?;
                }
            }
            Event::Timer { time, .. } => {
                let value = self.value.update(at, |old| old.unwrap_or(0).wrapping_add(1)).await?;
                seen.extend([*time as u64, value]);
                // What a timer does to timers of its key, also to those that are due already.
                match value % 4 {
                    0 => self.timers.register(at, time + 3, &())?,
                    1 => self.timers.delete(at, time + 1, &())?,
                    _ => {}
                }
            }
        }
        Ok(seen)
    }

    async fn run<A: StateAccess>(&self, op: &Op, at: &mut A, seen: &mut Vec<u64>) -> Result<()> {
        match *op {
            Op::Set(value) => self.value.set(at, &value)?,
            Op::Add(by) => {
                let add = move |old: Option<u64>| old.unwrap_or(0).wrapping_mul(5).wrapping_add(by);
                seen.push(self.value.update(at, add).await?);
            }
            Op::Get => seen.extend(self.value.get(at).await?),
            Op::ReadWriteLook(value) => {
                let (read, sum) = (self.value.get(at), self.sum.get(at));
                self.value.set(at, &value)?;
                self.sum.clear(at)?;
                seen.extend(read.await?);
                seen.extend(sum.await?);
            }
            Op::Clear => self.value.clear(at)?,
            Op::Append(value) => self.list.add(at, &value)?,
            Op::List => seen.extend(self.list.get(at).await?),
            Op::Put(key, value) => self.map.put(at, &key, &value)?,
            Op::Entry(key) => seen.extend(self.map.get(at, &key).await?),
            Op::Remove(key) => self.map.remove(at, &key)?,
            Op::Scan => {
                for (key, value) in self.map.entries(at).await?.collect_all().await? {
                    seen.extend([u64::from(key), value]);
                }
            }
            Op::Fold(value) => seen.push(u64::from(self.sum.add(at, value).await?)),
            Op::Folded => seen.extend(self.sum.get(at).await?),
            Op::SetWindow(window, value) => self.windows.at(&window)?.set(at, &value)?,
            Op::MergeWindows => {
                self.windows.merge(at, &2, &[0, 1], |a, b| Ok(a.wrapping_add(b))).await?;
            }
            Op::Register(time) => self.timers.register(at, time, &())?,
            Op::Delete(time) => self.timers.delete(at, time, &())?,
            Op::Pause => pause().await,
        }
        Ok(())
    }
}

/// Pends once.
pub(crate) async fn pause() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The same, as an operator; it finds out when two records of one key run at once.
pub(crate) struct Obedient {
    pub(crate) states: States,
    running: Mutex<HashSet<u8>>,
}

impl Obedient {
    pub(crate) fn new(states: States) -> Self {
        Obedient { states, running: Mutex::default() }
    }
}

struct Running<'a>(&'a Obedient, u8);

impl<'a> Running<'a> {
    fn begin(operator: &'a Obedient, key: u8) -> Self {
        assert!(operator.running.lock().unwrap().insert(key), "two records of key {key} at once");
        Running(operator, key)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.lock().unwrap().remove(&self.1);
    }
}

impl RecordOperator for Obedient {
    type Record = Event;
    type Output = Seen;

    async fn process(&self, event: &Event, state: &mut RecordState<'_, Seen>) -> Result<()> {
        let _running = Running::begin(self, event.key());
        let seen = self.states.handle(event, state).await?;
        state.emit((event.key(), seen));
        Ok(())
    }
}
