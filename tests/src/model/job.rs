//! The job under test: instances of the backend, its checkpoints, and the model beside them.

use std::collections::BTreeMap;

use weir_state_api::{CheckpointId, Notification, Order, SnapshotHandle, SnapshotTask, block_on};

use super::instance::{Checked, Instance, bind, same, text};
use super::oracle::{Oracle, merge};
use super::program::{KEYS, Step};
use crate::harness::{At, Harness};

/// A snapshot of all instances whose tasks have not run yet.
struct Begun {
    id: CheckpointId,
    tasks: Vec<SnapshotTask>,
    oracle: Oracle,
}

struct Complete {
    id: CheckpointId,
    handles: Vec<SnapshotHandle>,
    oracle: Oracle,
}

pub(super) struct Job<'h, 'f> {
    pub(super) harness: &'h Harness<'f>,
    pub(super) instances: Vec<Instance>,
    pub(super) oracle: Oracle,
    begun: Vec<Begun>,
    complete: Vec<Complete>,
}

/// Runs a program; the error says which step differed and how.
pub(super) fn run(harness: &Harness<'_>, program: &[Step]) -> Checked {
    let mut job = Job {
        harness,
        instances: Vec::new(),
        oracle: Oracle::default(),
        begun: Vec::new(),
        complete: Vec::new(),
    };
    job.open(1, &[]).map_err(|error| error.to_string())?;
    for (number, step) in program.iter().enumerate() {
        job.step(step).map_err(|reason| format!("step {number}, {step:?}: {reason}"))?;
    }
    job.check_all().map_err(|reason| format!("at the end: {reason}"))?;
    job.poll(i64::MAX).map_err(|reason| format!("at the end: {reason}"))
}

impl Job<'_, '_> {
    fn open(&mut self, parallelism: u16, handles: &[SnapshotHandle]) -> weir_state_api::Result<()> {
        self.instances = self
            .harness
            .open_all(parallelism, handles)?
            .into_iter()
            .map(Instance::new)
            .collect::<weir_state_api::Result<_>>()?;
        self.tell_time();
        Ok(())
    }

    /// The instance that owns the key, with the key set.
    pub(super) fn at(
        &mut self,
        key: usize,
    ) -> Result<(&mut Instance, &mut Oracle, String), String> {
        let key = KEYS[key].to_string();
        let mut owners: Vec<_> = self
            .instances
            .iter_mut()
            .filter_map(|instance| instance.store.at(&key).is_ok().then_some(instance))
            .collect();
        if owners.len() != 1 {
            return Err(format!("key {key:?} has {} owners", owners.len()));
        }
        Ok((owners.remove(0), &mut self.oracle, key))
    }

    fn step(&mut self, step: &Step) -> Checked {
        match step {
            Step::Poll { until } => self.poll(*until),
            Step::Keys => self.check_keys(),
            Step::CheckAll => self.check_all(),
            Step::Ageing(step) => self.age(step),
            Step::BeginSnapshot
            | Step::RunSnapshot { .. }
            | Step::Complete { .. }
            | Step::Abort { .. }
            | Step::Subsume { .. }
            | Step::NotifyUnknown { .. }
            | Step::CrashAndRestore { .. } => self.checkpoint(step),
            Step::Put { .. }
            | Step::PutMany { .. }
            | Step::Remove { .. }
            | Step::ClearMap { .. }
            | Step::Scan { .. }
            | Step::ScanAndRemove { .. } => self.map(step),
            _ => self.point(step),
        }
    }

    #[expect(clippy::too_many_lines, reason = "a flat table of steps")]
    fn point(&mut self, step: &Step) -> Checked {
        match *step {
            Step::Set { key, ns, value } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.values, ns)?.set(&mut i.store, &value).map_err(text)?;
                oracle.values.insert((key, ns), value);
            }
            Step::Update { key, ns, by } => {
                let (i, oracle, key) = self.at(key)?;
                let change = move |old: Option<u64>| old.unwrap_or(0).wrapping_add(by);
                let new = bind(&i.values, ns)?.update(&mut i.store, change).wait().map_err(text)?;
                let old = oracle.values.get(&(key.clone(), ns)).copied();
                oracle.values.insert((key, ns), change(old));
                same("the updated value", new, change(old))?;
            }
            Step::FailUpdate { key, ns } => {
                let (i, _, _) = self.at(key)?;
                let value = bind(&i.values, ns)?;
                let failed = value.try_update(&mut i.store, |_| Err("no".into())).wait();
                same("an update that fails", failed.is_err(), true)?;
            }
            Step::ClearValue { key, ns } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.values, ns)?.clear(&mut i.store).map_err(text)?;
                oracle.values.remove(&(key, ns));
            }
            Step::MergeValues { key, into } => {
                let (i, oracle, key) = self.at(key)?;
                let add = u64::wrapping_add;
                let merged =
                    i.values.merge(&mut i.store, &into, &[1 - into], move |a, b| Ok(add(a, b)));
                merged.wait().map_err(text)?;
                merge(&mut oracle.values, &key, into, add);
            }
            Step::Get { key, ns } => {
                let (i, oracle, key) = self.at(key)?;
                let found = bind(&i.values, ns)?.get(&mut i.store).wait().map_err(text)?;
                same("the value", found, oracle.values.get(&(key, ns)).copied())?;
            }
            Step::Append { key, ns, ref elements } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.lists, ns)?.add_all(&mut i.store, elements).map_err(text)?;
                if !elements.is_empty() {
                    oracle.lists.entry((key, ns)).or_default().extend(elements.iter().cloned());
                }
            }
            Step::SetList { key, ns, ref elements } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.lists, ns)?.set(&mut i.store, elements).map_err(text)?;
                oracle.lists.remove(&(key.clone(), ns));
                if !elements.is_empty() {
                    oracle.lists.insert((key, ns), elements.clone());
                }
            }
            Step::MergeLists { key, into } => {
                let (i, oracle, key) = self.at(key)?;
                let merged = i.lists.merge(&mut i.store, &into, &[into, 1 - into]);
                merged.wait().map_err(text)?;
                merge(&mut oracle.lists, &key, into, |a, b| [a, b].concat());
            }
            Step::GetList { key, ns } => {
                let (i, oracle, key) = self.at(key)?;
                let found = bind(&i.lists, ns)?.get(&mut i.store).wait().map_err(text)?;
                same("the list", found, oracle.lists.get(&(key, ns)).cloned().unwrap_or_default())?;
            }
            Step::Reduce { key, ns, by } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.sums, ns)?.add(&mut i.store, by).wait().map_err(text)?;
                *oracle.sums.entry((key, ns)).or_default() += by;
            }
            Step::ClearSum { key, ns } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.sums, ns)?.clear(&mut i.store).map_err(text)?;
                oracle.sums.remove(&(key, ns));
            }
            Step::Fold { key, ns, text: input } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.folds, ns)?.add(&mut i.store, input).wait().map_err(text)?;
                oracle.folds.entry((key, ns)).or_default().push(input);
            }
            Step::MergeFolds { key, into } => {
                let (i, oracle, key) = self.at(key)?;
                let merged = i.folds.merge(&mut i.store, &into, &[1 - into]);
                merged.wait().map_err(text)?;
                merge(&mut oracle.folds, &key, into, |a, b| a + &b);
            }
            Step::Register { key, ns, time } => {
                let (i, oracle, key) = self.at(key)?;
                i.timers.register(&mut i.store, time, &ns).map_err(text)?;
                oracle.timers.insert((time, key, ns));
            }
            Step::DeleteTimer { key, ns, time } => {
                let (i, oracle, key) = self.at(key)?;
                i.timers.delete(&mut i.store, time, &ns).map_err(text)?;
                oracle.timers.remove(&(time, key, ns));
            }
            _ => {}
        }
        Ok(())
    }

    fn map(&mut self, step: &Step) -> Checked {
        match *step {
            Step::Put { key, ns, entry, ref value } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.maps, ns)?.put(&mut i.store, &entry, value).map_err(text)?;
                oracle.maps.entry((key, ns)).or_default().insert(entry, value.clone());
            }
            Step::PutMany { key, ns, from, count } => {
                let (i, oracle, key) = self.at(key)?;
                let entries: Vec<_> =
                    (from..from + count).map(|entry| (entry, vec![entry as u8; 3])).collect();
                let pairs = entries.iter().map(|(entry, value)| (entry, value));
                bind(&i.maps, ns)?.put_all(&mut i.store, pairs).map_err(text)?;
                oracle.maps.entry((key, ns)).or_default().extend(entries);
            }
            Step::Remove { key, ns, entry } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.maps, ns)?.remove(&mut i.store, &entry).map_err(text)?;
                let place = (key, ns);
                if let Some(map) = oracle.maps.get_mut(&place) {
                    map.remove(&entry);
                }
                oracle.tidy(&place);
            }
            Step::ClearMap { key, ns } => {
                let (i, oracle, key) = self.at(key)?;
                bind(&i.maps, ns)?.clear(&mut i.store).map_err(text)?;
                oracle.maps.remove(&(key, ns));
            }
            Step::Scan { key, ns, from, to, descending } => {
                let (i, oracle, key) = self.at(key)?;
                let order = if descending { Order::Descending } else { Order::Ascending };
                let scan = bind(&i.maps, ns)?.range(&mut i.store, from..to, order);
                let found: Vec<(i16, Vec<u8>)> =
                    scan.wait().and_then(Iterator::collect).map_err(text)?;
                let map = oracle.maps.get(&(key, ns)).cloned().unwrap_or_default();
                let mut expected: Vec<_> =
                    map.into_iter().filter(|(entry, _)| (from..to).contains(entry)).collect();
                if descending {
                    expected.reverse();
                }
                same("the range", found, expected)?;
            }
            Step::ScanAndRemove { key, ns, grow, at_once } => {
                self.put_many(key, ns, 0, grow)?;
                self.scan_and_remove(key, ns, at_once)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn put_many(&mut self, key: usize, ns: u8, from: i16, count: i16) -> Checked {
        let (i, oracle, key) = self.at(key)?;
        let map = bind(&i.maps, ns)?;
        for entry in from..from + count {
            map.put(&mut i.store, &entry, &vec![entry as u8]).map_err(text)?;
            let model = oracle.maps.entry((key.clone(), ns)).or_default();
            model.insert(entry, vec![entry as u8]);
        }
        Ok(())
    }

    /// Empties a map while it is scanned, entry by entry or at the first entry.
    fn scan_and_remove(&mut self, key: usize, ns: u8, at_once: bool) -> Checked {
        let (i, oracle, key) = self.at(key)?;
        let map = bind(&i.maps, ns)?;
        let mut found = BTreeMap::new();
        for entry in map.entries(&mut i.store).wait().map_err(text)? {
            let (entry, value) = entry.map_err(text)?;
            if at_once && found.is_empty() {
                map.clear(&mut i.store).map_err(text)?;
            } else if !at_once {
                map.remove(&mut i.store, &entry).map_err(text)?;
            }
            found.insert(entry, value);
        }
        let expected = oracle.maps.remove(&(key, ns)).unwrap_or_default();
        same("the entries removed while scanning", found, expected)
    }

    fn checkpoint(&mut self, step: &Step) -> Checked {
        let known = |which: usize, complete: &[Complete]| {
            (!complete.is_empty()).then(|| which % complete.len())
        };
        match *step {
            Step::BeginSnapshot => {
                let mut request = self.harness.next_checkpoint();
                request.watermark = Some(self.harness.now());
                let tasks = self
                    .instances
                    .iter_mut()
                    .map(|instance| instance.store.snapshot(request.clone()))
                    .collect::<weir_state_api::Result<_>>()
                    .map_err(text)?;
                let oracle = self.oracle.clone();
                self.begun.push(Begun { id: request.checkpoint, tasks, oracle });
            }
            Step::RunSnapshot { which } if !self.begun.is_empty() => {
                let Begun { id, tasks, oracle } = self.begun.remove(which % self.begun.len());
                let handles = tasks
                    .into_iter()
                    .map(|task| block_on(task.run()))
                    .collect::<weir_state_api::Result<_>>()
                    .map_err(text)?;
                self.complete.push(Complete { id, handles, oracle });
            }
            Step::Complete { which } => {
                if let Some(index) = known(which, &self.complete) {
                    self.notify(Notification::Complete(self.complete[index].id))?;
                }
            }
            Step::Abort { which } => {
                if let Some(index) = known(which, &self.complete) {
                    let aborted = self.complete.remove(index);
                    self.notify(Notification::Aborted(aborted.id))?;
                }
            }
            Step::Subsume { which } => {
                if let Some(index) = known(which, &self.complete) {
                    let subsumed = self.complete.remove(index);
                    self.notify(Notification::Subsumed(subsumed.id))?;
                }
            }
            Step::NotifyUnknown { id } => {
                let id = CheckpointId(10_000 + id);
                self.notify(Notification::Complete(id))?;
                self.notify(Notification::Aborted(id))?;
            }
            Step::CrashAndRestore { which, parallelism } => {
                self.begun.clear();
                let (handles, oracle) = match known(which, &self.complete) {
                    Some(index) => {
                        let Complete { handles, oracle, .. } = &self.complete[index];
                        (handles.clone(), oracle.clone())
                    }
                    None => (Vec::new(), Oracle::default()),
                };
                self.oracle = oracle;
                self.open(parallelism, &handles).map_err(text)?;
                self.check_all()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn notify(&mut self, news: Notification) -> Checked {
        self.instances.iter_mut().try_for_each(|instance| instance.store.notify(news)).map_err(text)
    }
}
