//! Snapshots that share objects: what they may build on, whatever news is lost.

use std::collections::BTreeSet;

use weir_state_api::{
    CheckpointId, Notification, ObjectRegistry, Origin, RestoreMode, Result, SnapshotHandle,
    SnapshotRequest, block_on,
};

use super::{Case, fill, group};
use crate::harness::{At, Contents, Harness, LIVE, Store, assert_same};

pub(super) const CASES: &[Case] = group!["sharing":
    unchanged_state_is_shared_with_a_complete_checkpoint => "SN-7; SN-16" if "incremental_snapshots",
    objects_lie_where_their_kind_belongs => "SN-19",
    nothing_is_built_on_before_its_completion_is_known => "SN-16",
    nothing_is_built_on_that_is_known_to_be_gone => "SN-16",
    a_request_overrules_news_that_was_lost => "SN-16",
    an_abort_harms_no_complete_checkpoint => "SN-15; SN-17",
    a_claimed_restore_is_built_on => "SN-16" if "incremental_snapshots",
    without_a_claim_nothing_is_built_on => "SN-18",
    a_savepoint_shares_nothing => "SN-8",
    no_loss_of_news_makes_a_kept_checkpoint_lack_objects => "SN-15 to SN-22",
];

/// The next checkpoint, with a folder for what it may share.
fn request(h: &Harness<'_>) -> SnapshotRequest {
    let mut request = h.next_checkpoint();
    request.shared_directory = format!("shared-{}/", request.checkpoint);
    request
}

fn snapshot(store: &mut Store, request: SnapshotRequest) -> Result<SnapshotHandle> {
    block_on(store.snapshot(request)?.run())
}

/// Changes one key.
fn touch(store: &mut Store, number: u32) -> Result<()> {
    let value = store.value::<u32>("touched")?;
    value.set(store.at("one")?, &number)
}

fn filled(h: &Harness<'_>) -> Result<Store> {
    let mut store = [h.open()?];
    fill::write(&mut store, 0)?;
    let [store] = store;
    Ok(store)
}

fn paths(handle: &SnapshotHandle) -> BTreeSet<&str> {
    handle.objects.iter().map(|object| object.path.as_str()).collect()
}

/// Deletes what `gone` names and none of `kept` does, as a collector may.
fn collect(h: &Harness<'_>, gone: &SnapshotHandle, kept: &[&SnapshotHandle]) {
    h.collect([gone], kept.iter().copied());
}

fn assert_restores(h: &Harness<'_>, handle: &SnapshotHandle, expected: &Contents) -> Result<()> {
    let mut restored = h.restore(std::slice::from_ref(handle))?;
    assert_same(&Contents::take(&mut restored)?, expected);
    Ok(())
}

/// After one key has changed, most of the bytes are those of the checkpoint before.
fn unchanged_state_is_shared_with_a_complete_checkpoint(h: &Harness<'_>) -> Result<()> {
    let mut store = filled(h)?;
    let first = snapshot(&mut store, request(h))?;
    store.notify(Notification::Complete(first.checkpoint))?;
    touch(&mut store, 1)?;
    let second = snapshot(&mut store, request(h))?;
    let shared = paths(&first);
    let new = second.objects.iter().filter(|object| !shared.contains(object.path.as_str()));
    let new: u64 = new.map(|object| object.length).sum();
    let total = second.total_bytes();
    assert!(new * 4 < total, "{new} of {total} bytes are new");
    store.notify(Notification::Complete(second.checkpoint))?;
    store.notify(Notification::Subsumed(first.checkpoint))?;
    collect(h, &first, &[&second]);
    let expected = Contents::take(&mut store)?;
    assert_restores(h, &second, &expected)
}

/// What later handles may name is marked and lies below the shared directory; the rest is below the
/// checkpoint's own, and no second handle names it.
fn objects_lie_where_their_kind_belongs(h: &Harness<'_>) -> Result<()> {
    let mut store = filled(h)?;
    let mut own = BTreeSet::new();
    for number in 0..3 {
        touch(&mut store, number)?;
        let request = request(h);
        let (directory, shared) = (request.directory.clone(), request.shared_directory.clone());
        let handle = snapshot(&mut store, request)?;
        store.notify(Notification::Complete(handle.checkpoint))?;
        for object in &handle.objects {
            if object.shared {
                // Those of earlier checkpoints, and what the instance makes between snapshots.
                let earlier = object.path.starts_with("shared-") || object.path.starts_with(LIVE);
                assert!(
                    earlier || object.path.starts_with(&shared),
                    "{} is misplaced",
                    object.path
                );
            } else {
                assert!(object.path.starts_with(&directory), "{} is misplaced", object.path);
                assert!(own.insert(object.path.clone()), "{} is named twice", object.path);
            }
        }
    }
    Ok(())
}

/// Without any news, and after an abort, a snapshot stands without the one before.
fn nothing_is_built_on_before_its_completion_is_known(h: &Harness<'_>) -> Result<()> {
    for aborted in [false, true] {
        let mut store = filled(h)?;
        let first = snapshot(&mut store, request(h))?;
        store.notify(Notification::Complete(first.checkpoint))?;
        fill::write(std::slice::from_mut(&mut store), 1)?;
        let second = snapshot(&mut store, request(h))?;
        if aborted {
            store.notify(Notification::Aborted(second.checkpoint))?;
        }
        let third = snapshot(&mut store, request(h))?;
        h.collect_aborted(&second, &[&first]);
        assert_restores(h, &third, &fill::contents(h, &[0, 1])?)?;
    }
    Ok(())
}

/// News of a later completion is lost, that of the end of an earlier checkpoint is not.
fn nothing_is_built_on_that_is_known_to_be_gone(h: &Harness<'_>) -> Result<()> {
    let mut store = filled(h)?;
    let first = snapshot(&mut store, request(h))?;
    store.notify(Notification::Complete(first.checkpoint))?;
    store.notify(Notification::Subsumed(first.checkpoint))?;
    store.notify(Notification::Complete(first.checkpoint))?;
    collect(h, &first, &[]);
    let second = snapshot(&mut store, request(h))?;
    assert_restores(h, &second, &fill::contents(h, &[0])?)
}

/// That the first is complete is heard only after the second has begun, and that the second is complete
/// and the first gone is never heard: the request still tells.
fn a_request_overrules_news_that_was_lost(h: &Harness<'_>) -> Result<()> {
    let mut store = filled(h)?;
    let first = snapshot(&mut store, request(h))?;
    let second = snapshot(&mut store, request(h))?;
    store.notify(Notification::Complete(first.checkpoint))?;
    collect(h, &first, &[&second]);
    let mut third = request(h);
    third.reuse_from = Some(second.checkpoint);
    let third = snapshot(&mut store, third)?;
    assert_restores(h, &third, &fill::contents(h, &[0])?)
}

/// An aborted snapshot that shares objects takes none of them along.
fn an_abort_harms_no_complete_checkpoint(h: &Harness<'_>) -> Result<()> {
    let mut store = filled(h)?;
    let first = snapshot(&mut store, request(h))?;
    store.notify(Notification::Complete(first.checkpoint))?;
    touch(&mut store, 1)?;
    let second = snapshot(&mut store, request(h))?;
    store.notify(Notification::Aborted(second.checkpoint))?;
    assert_restores(h, &first, &fill::contents(h, &[0])?)
}

fn restored(h: &Harness<'_>, handle: &SnapshotHandle, mode: RestoreMode) -> Result<Store> {
    let mut request = h.request::<String>().restore_from(vec![handle.clone()]);
    request.mode = mode;
    h.open_request(request)
}

/// The first snapshot after a claimed restore shares with what was restored.
fn a_claimed_restore_is_built_on(h: &Harness<'_>) -> Result<()> {
    let mut store = filled(h)?;
    let first = snapshot(&mut store, request(h))?;
    let mut store = restored(h, &first, RestoreMode::Claim)?;
    touch(&mut store, 1)?;
    let mut second = request(h);
    second.reuse_from = Some(first.checkpoint);
    let second = snapshot(&mut store, second)?;
    assert!(!paths(&first).is_disjoint(&paths(&second)), "everything was uploaded again");
    collect(h, &first, &[&second]);
    assert_restores(h, &second, &Contents::take(&mut store)?)
}

/// Whatever news comes, nothing of the restored checkpoint is named again.
fn without_a_claim_nothing_is_built_on(h: &Harness<'_>) -> Result<()> {
    let mut store = filled(h)?;
    let first = snapshot(&mut store, request(h))?;
    let mut store = restored(h, &first, RestoreMode::NoClaim)?;
    store.notify(Notification::Complete(first.checkpoint))?;
    for number in 0..2 {
        touch(&mut store, number)?;
        let handle = snapshot(&mut store, request(h))?;
        store.notify(Notification::Complete(handle.checkpoint))?;
        let shared: Vec<_> = paths(&handle).intersection(&paths(&first)).copied().collect();
        assert!(shared.is_empty(), "{shared:?} are not the job's own");
    }
    assert_restores(h, &first, &fill::contents(h, &[0])?)
}

/// A savepoint names only what was made for it, and nothing builds on it.
fn a_savepoint_shares_nothing(h: &Harness<'_>) -> Result<()> {
    let mut store = filled(h)?;
    let first = snapshot(&mut store, request(h))?;
    store.notify(Notification::Complete(first.checkpoint))?;
    let mut savepoint = request(h);
    savepoint.kind = weir_state_api::SnapshotKind::NativeSavepoint;
    let savepoint = snapshot(&mut store, savepoint)?;
    assert!(paths(&first).is_disjoint(&paths(&savepoint)));
    store.notify(Notification::Complete(savepoint.checkpoint))?;
    let third = snapshot(&mut store, request(h))?;
    assert!(paths(&third).is_disjoint(&paths(&savepoint)));
    collect(h, &savepoint, &[]);
    assert_restores(h, &third, &fill::contents(h, &[0])?)
}

/// A coordinator of one instance, whose news gets lost and whose collector follows the registry.
struct Coordinator<'h> {
    h: &'h Harness<'h>,
    registry: ObjectRegistry,
    /// Checkpoints that are kept, oldest first, with what they hold.
    kept: Vec<(SnapshotHandle, Contents)>,
    /// News under way.
    news: Vec<Notification>,
    random: u64,
}

impl Coordinator<'_> {
    fn random(&mut self, below: u64) -> u64 {
        // Constants of a linear congruential generator; the high bits are good enough here.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    /// Some of the news arrives, in any order, some of it again later, and some is lost.
    fn deliver(&mut self, store: &mut Store) -> Result<()> {
        for _ in 0..self.news.len() {
            let index = self.random(self.news.len() as u64) as usize;
            match self.random(4) {
                0 => drop(self.news.remove(index)),
                1 => store.notify(self.news[index])?,
                2 => store.notify(self.news.remove(index))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// One checkpoint, complete or aborted after it was written.
    fn checkpoint(&mut self, store: &mut Store) -> Result<()> {
        let mut request = request(self.h);
        let id = request.checkpoint;
        request.reuse_from = Some(self.registry.begin(id));
        let task = store.snapshot(request)?;
        let expected = Contents::take(store)?;
        let handle = block_on(task.run())?;
        let admitted = self.registry.admit(id, &handle.objects, origin);
        admitted.unwrap_or_else(|error| panic!("{error}"));
        if self.random(3) == 0 {
            self.registry.abort(id);
            self.news.push(Notification::Aborted(id));
            return Ok(());
        }
        self.registry.complete(id, &handle.objects);
        self.kept.push((handle, expected));
        self.news.push(Notification::Complete(id));
        if self.kept.len() > 2 {
            let (oldest, _) = self.kept.remove(0);
            self.registry.subsume(oldest.checkpoint);
            self.news.push(Notification::Subsumed(oldest.checkpoint));
        }
        Ok(())
    }

    fn collect(&mut self) {
        for id in self.registry.due_records() {
            self.registry.record_deleted(id, 0);
        }
        for (path, length) in self.registry.due_objects(origin) {
            match block_on(self.h.bare_store().delete(&path)) {
                Ok(()) => self.registry.objects_deleted([(path.as_str(), length)]),
                Err(error) => panic!("the bare store does not fail: {error}"),
            }
        }
    }
}

/// Who made an object of these cases; what an instance makes between snapshots lies elsewhere.
fn origin(path: &str) -> Origin {
    let number = |prefix| path.strip_prefix(prefix)?.split_once('/')?.0.parse().ok();
    let own = number("chk-").map(|number| Origin::Snapshot(CheckpointId(number)));
    let shared = number("shared-").map(|number| Origin::Shared(CheckpointId(number)));
    own.or(shared).unwrap_or(Origin::Live)
}

/// Random checkpoints, aborts, lost and repeated news, restarts from any kept checkpoint and a
/// collector in between: every kept checkpoint restores.
fn no_loss_of_news_makes_a_kept_checkpoint_lack_objects(h: &Harness<'_>) -> Result<()> {
    for seed in 0..8 {
        let registry = ObjectRegistry::new(CheckpointId(1));
        let (kept, news) = (Vec::new(), Vec::new());
        let mut job = Coordinator { h, registry, kept, news, random: seed };
        let mut store = filled(h)?;
        for number in 0..12 {
            match job.random(4) {
                0 => fill::write(std::slice::from_mut(&mut store), number)?,
                1 => touch(&mut store, number)?,
                _ => {}
            }
            job.checkpoint(&mut store)?;
            job.collect();
            job.deliver(&mut store)?;
            if job.random(4) == 0 && !job.kept.is_empty() {
                // As after a crash: later checkpoints are still kept, but the job's past is this one.
                let index = job.random(job.kept.len() as u64) as usize;
                store = restored(h, &job.kept[index].0.clone(), RestoreMode::Claim)?;
            }
        }
        for (handle, expected) in &job.kept {
            assert_restores(h, handle, expected)?;
        }
    }
    Ok(())
}
