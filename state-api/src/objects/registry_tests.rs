use proptest::prelude::*;

use super::*;

fn id(number: u64) -> CheckpointId {
    CheckpointId(number)
}

fn object(path: &str) -> ObjectRef {
    ObjectRef::new(path, 10, 0)
}

/// `chk-3/…`, `shared-3/…`, `live/…`, `former/…`; everything else is foreign.
fn origin(path: &str) -> Origin {
    let (folder, _) = path.split_once('/').unwrap_or((path, ""));
    let number = |prefix| folder.strip_prefix(prefix).and_then(|number| number.parse().ok());
    match (folder, number("chk-"), number("shared-")) {
        (_, Some(number), _) => Origin::Snapshot(id(number)),
        (_, _, Some(number)) => Origin::Shared(id(number)),
        ("live", ..) => Origin::Live,
        ("former", ..) => Origin::Former,
        _ => Origin::Foreign,
    }
}

fn stored(path: &str) -> StoredObject {
    let record_of = match origin(path) {
        Origin::Snapshot(id) if path.ends_with("/record") => Some(id),
        _ => None,
    };
    StoredObject { path: path.into(), length: 10, origin: origin(path), record_of }
}

fn listing(paths: &[&str]) -> Vec<StoredObject> {
    paths.iter().map(|path| stored(path)).collect()
}

fn unreachable(registry: &ObjectRegistry, paths: &[&str]) -> Vec<String> {
    let listing = listing(paths);
    registry.unreachable(&listing).into_iter().map(|object| object.path.clone()).collect()
}

#[test]
fn objects_go_with_the_last_checkpoint_that_names_them() {
    let mut registry = ObjectRegistry::new(id(1));
    for (number, paths) in
        [(1, vec!["chk-1/a", "shared-1/x", "shared-1/y"]), (2, vec!["shared-1/y"])]
    {
        let objects: Vec<_> = paths.into_iter().map(object).collect();
        registry.begin(id(number));
        registry.admit(id(number), &objects, origin).unwrap();
        registry.complete(id(number), &objects);
    }
    assert_eq!(registry.counts().reachable_objects, 3);
    assert!(registry.due_records().is_empty() && registry.due_objects(origin).is_empty());
    registry.subsume(id(1));
    assert!(registry.due_objects(origin).is_empty(), "the record goes first");
    registry.record_deleted(id(1), 7);
    let due = registry.due_objects(origin);
    assert_eq!(due, [("chk-1/a".to_string(), 10), ("shared-1/x".to_string(), 10)]);
    assert_eq!(registry.due_objects(origin), due, "due until reported");
    registry.objects_deleted(due.iter().map(|(path, length)| (path.as_str(), *length)));
    assert!(registry.due_objects(origin).is_empty());
    registry.subsume(id(2));
    registry.record_deleted(id(2), 7);
    registry.record_deleted(id(2), 7);
    assert_eq!(registry.due_objects(origin), [("shared-1/y".to_string(), 10)]);
    let counts = registry.counts();
    assert_eq!((counts.deleted_objects, counts.deleted_bytes), (4, 34));
    assert_eq!((counts.reachable_objects, counts.reachable_bytes), (0, 0));
}

#[test]
fn what_a_running_checkpoint_may_build_on_stays_until_it_has_ended() {
    let mut registry = ObjectRegistry::new(id(1));
    registry.complete(id(1), &[object("shared-1/x")]);
    assert_eq!(registry.begin(id(2)), id(1));
    assert_eq!(registry.begin(id(3)), id(1));
    registry.complete(id(3), &[object("shared-3/y")]);
    registry.subsume(id(1));
    assert!(registry.due_records().is_empty(), "checkpoint 2 may name x");
    registry.admit(id(2), &[object("shared-1/x")], origin).unwrap();
    assert_eq!(registry.begin(id(4)), id(3));
    registry.abort(id(2));
    assert_eq!(registry.due_records(), [id(1)]);
}

#[test]
fn a_checkpoint_kept_for_ever_is_neither_deleted_nor_built_on() {
    let mut registry = ObjectRegistry::new(id(5));
    registry.keep(id(3), &[object("chk-3/a"), object("shared-3/x")]);
    assert_eq!(registry.begin(id(5)), id(5));
    registry.complete(id(5), &[]);
    registry.subsume(id(3));
    assert_eq!(registry.begin(id(6)), id(5));
    registry.abort(id(6));
    assert!(registry.due_records().is_empty());
    let paths = ["chk-3/a", "chk-3/record", "shared-3/x", "shared-3/y"];
    assert!(registry.stale_records(&listing(&paths)).is_empty());
    assert_eq!(unreachable(&registry, &paths), ["shared-3/y"]);
}

#[test]
fn a_checkpoint_that_names_what_does_not_stay_is_refused() {
    let mut registry = ObjectRegistry::new(id(1));
    registry.complete(id(1), &[object("shared-1/x"), object("chk-1/a")]);
    registry.protect(&[object("elsewhere/o")]);
    let refused = |path: &str| registry.admit(id(3), &[object(path)], origin).unwrap_err();
    assert!(refused("shared-2/aborted").to_string().contains("not kept"));
    assert!(refused("chk-1/a").to_string().contains("alone"));
    assert!(refused("former/x").to_string().contains("no checkpoint"));
    assert_eq!(refused("nowhere/x").object_path(), Some("nowhere/x"));
    let good = ["shared-1/x", "shared-3/new", "chk-3/new", "chk-3/new", "live/z", "elsewhere/o"];
    assert_eq!(registry.admit(id(3), &good.map(object), origin).unwrap(), 30);
}

#[test]
fn a_listing_yields_what_nothing_reaches() {
    let mut registry = ObjectRegistry::new(id(5));
    registry.adopt(id(3), &[object("chk-3/a"), object("shared-1/x"), object("former/x")]);
    registry.protect(&[object("chk-2/protected")]);
    registry.begin(id(5));
    let paths = [
        "chk-2/aborted",
        "chk-2/protected",
        "chk-3/a",
        "chk-3/record",
        "chk-3/unnamed",
        "chk-5/being-written",
        "chk-9/of-a-newer-run",
        "former/x",
        "former/y",
        "live/unnamed",
        "shared-1/x",
        "shared-1/y",
        "shared-5/being-written",
        "somebody-elses/file",
    ];
    let garbage = ["chk-2/aborted", "chk-3/unnamed", "former/y", "shared-1/y"];
    assert_eq!(unreachable(&registry, &paths), garbage);
}

#[test]
fn records_that_nobody_knows_go_before_what_they_may_name() {
    let registry = ObjectRegistry::new(id(5));
    let paths = ["chk-4/record", "chk-4/a", "shared-2/x", "chk-3/a", "chk-7/record"];
    let listing = listing(&paths);
    assert_eq!(registry.stale_records(&listing), [id(4)]);
    assert_eq!(unreachable(&registry, &paths), ["chk-3/a"], "the record of 4 is still there");
    assert_eq!(unreachable(&registry, &paths[1..]), ["chk-4/a", "shared-2/x", "chk-3/a"]);
}

#[test]
fn an_unreadable_checkpoint_protects_what_it_may_name() {
    let mut registry = ObjectRegistry::new(id(9));
    registry.adopt_unreadable(id(4));
    registry.adopt(id(5), &[object("shared-3/x"), object("shared-5/y")]);
    registry.adopt(id(6), &[]);
    let paths =
        ["chk-4/record", "chk-4/a", "chk-3/a", "shared-4/x", "shared-6/x", "former/x", "live/x"];
    assert!(registry.stale_records(&listing(&paths)).is_empty());
    assert_eq!(unreachable(&registry, &paths), ["chk-3/a", "shared-6/x"]);
    registry.subsume(id(5));
    registry.record_deleted(id(5), 0);
    assert_eq!(registry.due_objects(origin), [("shared-5/y".to_string(), 10)]);
}

/// One step of a job whose store fails now and then.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Two may run at a time. It builds on one of the complete checkpoints that it may.
    Begin(u8),
    /// Writes the objects of a running one, some of them shared with its base.
    Complete(prop::sample::Index, u8),
    Abort(prop::sample::Index),
    /// Deletes what is due; the `n`th deletion fails.
    Release(Option<u8>),
    /// Lists and deletes; the `n`th deletion fails.
    Sweep(Option<u8>),
    /// The process dies; the next run reads the records.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fails = || prop::option::weighted(0.3, 0_u8..6);
    let step = prop_oneof![
        4 => any::<u8>().prop_map(Step::Begin),
        4 => (any::<prop::sample::Index>(), any::<u8>())
            .prop_map(|(which, seed)| Step::Complete(which, seed)),
        1 => any::<prop::sample::Index>().prop_map(Step::Abort),
        2 => fails().prop_map(Step::Release),
        1 => fails().prop_map(Step::Sweep),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

/// A store, a coordinator with one instance, and the objects that each checkpoint should have.
struct World {
    store: BTreeSet<String>,
    registry: ObjectRegistry,
    complete: BTreeMap<CheckpointId, Vec<ObjectRef>>,
    /// With what each builds on, chosen when it began.
    running: Vec<(CheckpointId, Vec<ObjectRef>)>,
    retained: usize,
    next: u64,
}

impl World {
    fn new(retained: usize) -> Self {
        World {
            store: BTreeSet::new(),
            registry: ObjectRegistry::new(id(1)),
            complete: BTreeMap::new(),
            running: Vec::new(),
            retained,
            next: 1,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Begin(seed) if self.running.len() < 2 => {
                let reuse_from = self.registry.begin(id(self.next));
                let bases: Vec<_> = self.complete.range(reuse_from..).collect();
                let base = bases.get(usize::from(seed) % bases.len().max(1));
                let base = base.map_or_else(Vec::new, |(_, objects)| (*objects).clone());
                self.running.push((id(self.next), base));
                self.next += 1;
            }
            Step::Complete(which, seed) if !self.running.is_empty() => {
                let (id, base) = self.running.remove(which.index(self.running.len()));
                let objects = self.write(id, &base, seed);
                self.registry.admit(id, &objects, origin).unwrap();
                self.registry.complete(id, &objects);
                self.store.insert(format!("chk-{id}/record"));
                self.complete.insert(id, objects);
                let kept = self.complete.len().saturating_sub(self.retained);
                let old: Vec<_> = self.complete.keys().take(kept).copied().collect();
                old.into_iter().for_each(|id| self.registry.subsume(id));
            }
            Step::Abort(which) if !self.running.is_empty() => {
                let (id, base) = self.running.remove(which.index(self.running.len()));
                self.write(id, &base, 0);
                self.registry.abort(id);
            }
            Step::Release(fails_at) => self.release(fails_at),
            Step::Sweep(fails_at) => self.sweep(fails_at),
            Step::Restart => self.restart(),
            Step::Begin(_) | Step::Complete(..) | Step::Abort(_) => {}
        }
    }

    /// The objects of one checkpoint: own ones, and some of its base.
    fn write(&mut self, id: CheckpointId, base: &[ObjectRef], seed: u8) -> Vec<ObjectRef> {
        let mut objects: Vec<_> = base
            .iter()
            .filter(|object| object.shared)
            .enumerate()
            .filter(|(index, _)| seed >> (index % 8) & 1 == 1)
            .map(|(_, object)| object.clone())
            .collect();
        objects.push(object(&format!("chk-{id}/own")));
        objects.push(object(&format!("shared-{id}/new")).shared());
        let made = objects[objects.len() - 2..].iter();
        self.store.extend(made.map(|object| object.path.clone()));
        objects
    }

    fn delete(&mut self, path: &str, fails_at: &mut Option<u8>) -> bool {
        match fails_at {
            Some(0) => {
                *fails_at = None;
                return false;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.store.remove(path);
        true
    }

    fn release(&mut self, mut fails_at: Option<u8>) {
        for id in self.registry.due_records() {
            if self.delete(&format!("chk-{id}/record"), &mut fails_at) {
                self.registry.record_deleted(id, 0);
                self.complete.remove(&id);
            }
        }
        for (path, length) in self.registry.due_objects(origin) {
            if self.delete(&path, &mut fails_at) {
                self.registry.objects_deleted([(path.as_str(), length)]);
            }
        }
    }

    fn listing(&self) -> Vec<StoredObject> {
        self.store.iter().map(|path| stored(path)).collect()
    }

    fn sweep(&mut self, mut fails_at: Option<u8>) {
        for id in self.registry.stale_records(&self.listing()) {
            if self.delete(&format!("chk-{id}/record"), &mut fails_at) {
                self.complete.remove(&id);
            }
        }
        let listing = self.listing();
        for object in self.registry.unreachable(&listing) {
            self.delete(&object.path, &mut fails_at);
        }
    }

    fn restart(&mut self) {
        // What was being written stays behind half-way.
        for (id, base) in std::mem::take(&mut self.running) {
            self.write(id, &base, 0);
        }
        self.registry = ObjectRegistry::new(id(self.next));
        for (&id, objects) in &self.complete {
            self.registry.adopt(id, objects);
        }
    }

    /// Nothing is missing.
    fn check(&self) {
        for (id, objects) in &self.complete {
            for object in objects {
                assert!(self.store.contains(&object.path), "checkpoint {id} lacks {}", object.path);
            }
        }
    }

    /// After a collection without failures nothing is left over either.
    fn check_collected(&mut self) {
        self.running.drain(..).for_each(|(id, _)| self.registry.abort(id));
        let surplus = self.complete.len().saturating_sub(self.retained);
        let old: Vec<_> = self.complete.keys().take(surplus).copied().collect();
        old.into_iter().for_each(|id| self.registry.subsume(id));
        self.release(None);
        self.sweep(None);
        self.check();
        let expected: BTreeSet<String> = self
            .complete
            .iter()
            .flat_map(|(id, objects)| {
                let record = format!("chk-{id}/record");
                objects.iter().map(|object| object.path.clone()).chain([record])
            })
            .collect();
        assert_eq!(self.store, expected);
        assert!(self.complete.len() <= self.retained);
        let records = self.complete.len() as u64;
        assert_eq!(self.registry.counts().reachable_objects, expected.len() as u64 - records);
    }
}

proptest! {
    #[test]
    fn nothing_needed_is_ever_deleted_and_nothing_else_stays(
        steps in steps(),
        retained in 1_usize..4,
    ) {
        let mut world = World::new(retained);
        for step in steps {
            world.step(step);
            world.check();
        }
        world.check_collected();
    }
}
