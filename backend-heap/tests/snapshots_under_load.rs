//! Snapshots of tables of many segments, written by another thread while the owner goes on: full and
//! incremental ones, overlapping, against a plain map.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;

use common::*;
use weir_state_api::*;

const KEYS: u64 = 40_000;

type Model = BTreeMap<u64, Vec<u8>>;

/// A pseudo-random sequence.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        key_hash(&self.0.to_le_bytes()) % below
    }
}

struct Load {
    backend: Box<dyn KeyedBackend>,
    state: StateId,
    model: Model,
    numbers: Numbers,
}

impl Load {
    fn new(mut backend: Box<dyn KeyedBackend>, model: Model, seed: u64) -> Self {
        let state = backend.register(&descriptor("s", StateKind::List)).unwrap();
        Load { backend, state, model, numbers: Numbers(seed << 32) }
    }

    fn step(&mut self) {
        let number = self.numbers.next(KEYS);
        let key_bytes = number.to_be_bytes();
        let at = at(self.state, &key_bytes, b"");
        let value =
            vec![self.numbers.next(256) as u8; [0, 8, 16, 90][self.numbers.next(4) as usize]];
        match self.numbers.next(8) {
            0 => {
                self.backend.delete(&at).unwrap();
                self.model.remove(&number);
            }
            1 => {
                self.backend.append(&at, &value).unwrap();
                self.model.entry(number).or_default().extend(value);
            }
            2 | 3 => assert_eq!(get(self.backend.as_mut(), &at), self.model.get(&number).cloned()),
            4 => {
                let old = self.model.get(&number).cloned();
                let updated = self.backend.update(&at, &mut |found, output| {
                    assert_eq!(found, old.as_deref());
                    output.extend_from_slice(&value);
                    Ok(Change::Put)
                });
                assert!(matches!(updated.unwrap(), Updated::Done));
                self.model.insert(number, value);
            }
            _ => {
                self.backend.put(&at, &value).unwrap();
                self.model.insert(number, value);
            }
        }
    }

    fn check(&mut self) {
        for number in 0..KEYS {
            let key_bytes = number.to_be_bytes();
            let found = get(self.backend.as_mut(), &at(self.state, &key_bytes, b""));
            assert_eq!(found.as_ref(), self.model.get(&number), "key {number}");
        }
        assert_eq!(self.backend.statistics().entries, self.model.len() as u64);
    }
}

#[test]
fn every_snapshot_holds_what_was_there_at_its_barrier() {
    let environment = Environment::in_memory();
    let mut load = Load::new(open(request(&environment)).unwrap(), Model::new(), 1);
    (0..60_000).for_each(|_| load.step());

    let (to_writer, tasks) = mpsc::channel::<(SnapshotTask, Model)>();
    let (to_owner, written) = mpsc::channel();
    let writer = thread::spawn(move || {
        for (task, model) in tasks {
            to_owner.send((block_on(task.run()).unwrap(), model)).unwrap();
        }
    });
    let mut kept = Vec::new();
    for number in 1..=12 {
        let task = snapshot(load.backend.as_mut(), number);
        to_writer.send((task, load.model.clone())).unwrap();
        // Sometimes the next snapshot begins before this one is written, sometimes long after.
        (0..load.numbers.next(30_000)).for_each(|_| load.step());
        for (handle, model) in written.try_iter() {
            load.backend.notify(Notification::Complete(handle.checkpoint)).unwrap();
            kept.push((handle, model));
        }
    }
    drop(to_writer);
    writer.join().unwrap();
    kept.extend(written.iter());
    load.check();
    assert_eq!(kept.len(), 12);
    assert!(load.backend.statistics().bytes_reused > 0, "some were incremental");

    for (handle, model) in kept {
        let handle = SnapshotHandle::from_bytes(&handle.to_bytes(), "x").unwrap();
        let restored = open(request(&environment).restore_from(vec![handle])).unwrap();
        Load::new(restored, model, 2).check();
    }
}

#[test]
fn a_small_change_makes_a_small_snapshot_also_after_a_restore() {
    let environment = Environment::in_memory();
    let mut load = Load::new(open(request(&environment)).unwrap(), Model::new(), 3);
    for number in 0..KEYS {
        let key_bytes = number.to_be_bytes();
        load.backend.put(&at(load.state, &key_bytes, b""), &[7; 8]).unwrap();
        load.model.insert(number, vec![7; 8]);
    }
    let full = block_on(snapshot(load.backend.as_mut(), 1).run()).unwrap();
    load.backend.notify(Notification::Complete(CheckpointId(1))).unwrap();
    let uploaded = load.backend.statistics().bytes_uploaded;
    assert_eq!(uploaded, full.total_bytes());
    for number in (0..KEYS).step_by(100) {
        let key_bytes = number.to_be_bytes();
        load.backend.put(&at(load.state, &key_bytes, b""), &[8; 8]).unwrap();
        load.model.insert(number, vec![8; 8]);
    }
    let second = block_on(snapshot(load.backend.as_mut(), 2).run()).unwrap();
    let increment = load.backend.statistics().bytes_uploaded - uploaded;
    assert!(increment * 100 <= uploaded * 3, "{increment} of {uploaded} bytes for 1 %");

    // Restored in two parts, each of which builds on what it was restored from.
    let max = MaxParallelism::new(8).unwrap();
    let mut handles = Vec::new();
    for subtask in 0..2 {
        let request = request(&environment).for_subtask(max, 2, subtask).unwrap();
        let mut part = open(request.restore_from(vec![second.clone()])).unwrap();
        let task = snapshot(part.as_mut(), 3);
        let handle = block_on(task.run()).unwrap();
        assert_eq!(part.statistics().bytes_uploaded, 0, "nothing has changed");
        assert_eq!(handle.objects, second.objects);
        handles.push(handle);
    }
    // And one of the parts goes on alone for a while: its share of the old objects is outdated.
    let mut request_0 = request(&environment).for_subtask(max, 2, 0).unwrap();
    request_0 = request_0.restore_from(vec![handles[0].clone()]);
    request_0.mode = RestoreMode::NoClaim;
    let mut part = open(request_0).unwrap();
    let owned = KeyGroupRange::of_subtask(max, 2, 0).unwrap();
    for number in 0..KEYS / 2 {
        let key_bytes = number.to_be_bytes();
        let at = at(load.state, &key_bytes, b"");
        if owned.contains(at.key.group()) {
            part.delete(&at).unwrap();
            load.model.remove(&number);
        }
    }
    handles[0] = block_on(snapshot(part.as_mut(), 4).run()).unwrap();
    assert_ne!(handles[0].objects, second.objects, "stands on its own");

    let mut united = open(request(&environment).restore_from(handles)).unwrap();
    let again = block_on(snapshot(united.as_mut(), 5).run()).unwrap();
    assert_eq!(united.statistics().bytes_uploaded, 0);
    load.backend = open(request(&environment).restore_from(vec![again])).unwrap();
    load.check();
}
