//! The writer's thread.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use weir_state_api::{Environment, ObjectRef};

use super::chunk::Stored;
use super::mailbox::{Mailbox, Reader};
use super::object::{LogObject, ObjectUse};
use super::schedule::{Action, Item, Placed, Schedule, Settled, StreamId};
use super::upload::{self, Report};
use super::{Message, StoreId};
use crate::format::batch::{BatchEncoder, BatchHeader};
use crate::local_copies::{CopyUse, LocalCopies};
use crate::metrics::{Counters, count};
use crate::options::ChangelogOptions;

/// How many messages are taken before the schedule is asked again.
const BURST: usize = 64;

/// A store, and the instances that write to it; kept while there are any, or objects of theirs that somebody
/// may need.
#[derive(Debug)]
struct Store {
    /// Of the instance that was opened last: its threads are the likeliest to be there still.
    environment: Environment,
    schedule: Schedule,
    instances: HashMap<StreamId, Instance>,
    /// How many objects somebody needs.
    needed: usize,
}

/// Where an instance's objects go, and who carries its uploads out: another instance's threads may have
/// ended before this one's.
#[derive(Debug)]
struct Instance {
    environment: Environment,
    directory: String,
}

impl Store {
    /// Forgets the instances that have ended and have nothing left to upload.
    fn tidy(&mut self) {
        let Store { schedule, instances, .. } = self;
        schedule.tidy();
        instances.retain(|stream, _| schedule.knows(*stream));
    }
}

pub(super) struct WriterThread {
    options: Arc<ChangelogOptions>,
    counters: Arc<Counters>,
    copies: Option<LocalCopies>,
    encoder: BatchEncoder,
    stores: HashMap<StoreId, Store>,
    /// A number is one store's for ever.
    next_store: StoreId,
    streams: HashMap<StreamId, StoreId>,
    own: Arc<Mailbox>,
    /// Nobody will ask for more.
    ending: bool,
}

impl WriterThread {
    pub(super) fn new(
        options: Arc<ChangelogOptions>,
        counters: Arc<Counters>,
        copies: Option<LocalCopies>,
        own: Arc<Mailbox>,
    ) -> Self {
        WriterThread {
            encoder: BatchEncoder::new(options.compression_level),
            options,
            counters,
            copies,
            stores: HashMap::new(),
            next_store: 0,
            streams: HashMap::new(),
            own,
            ending: false,
        }
    }

    pub(super) fn run(mut self, mailbox: Reader) {
        let mut messages = VecDeque::with_capacity(BURST);
        // After a panic it closes before anybody is told that the writer has ended, as those are whose
        // messages are not taken.
        let mailbox = mailbox;
        loop {
            self.tick();
            if self.ending && self.stores.values().all(|store| store.schedule.is_idle()) {
                return;
            }
            let deadline = self.stores.values().filter_map(|s| s.schedule.next_deadline()).min();
            if mailbox.read(BURST, deadline, &mut messages) {
                // Systems like to wake a thread on the processor of the one that wakes it, which
                // would wait there until all changes are compressed: it is a task, and goes first.
                std::thread::yield_now();
            }
            while let Some(message) = messages.pop_front() {
                self.take(message);
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Open { stream, environment, directory } => {
                self.open(stream, environment, directory);
            }
            Message::Append { stream, log, chunk, changes, held } => {
                let records = u32::try_from(chunk.to.0 - chunk.from.0).unwrap_or(u32::MAX);
                let header = BatchHeader { log, first: chunk.from, records };
                let mut batch = Vec::new();
                self.encoder.encode(header, &changes, &mut batch);
                if let Some(store) = self.store_of(stream) {
                    store.schedule.append(Item { stream, chunk, batch, _held: held });
                }
            }
            Message::Persist { stream, reply } => {
                if let Some(store) = self.store_of(stream) {
                    store.schedule.persist(Instant::now(), stream, reply);
                }
            }
            Message::Press => self.stores.values_mut().for_each(|store| store.schedule.press()),
            Message::Forget { stream, to, unneeded } => {
                if let Some(store) = self.store_of(stream) {
                    store.schedule.forget(stream, to);
                }
                drop(unneeded);
            }
            Message::Close { stream } => {
                if let Some(store) = self.store_of(stream) {
                    store.schedule.close(stream);
                    store.tidy();
                }
                if let Some(store) = self.streams.remove(&stream) {
                    self.forget_if_unused(store);
                }
            }
            Message::Attempted(report) => self.settle(report),
            Message::Unused { store: id, path, named } => {
                self.dispose(id, path, named);
                if let Some(store) = self.stores.get_mut(&id) {
                    store.needed -= 1;
                }
                self.forget_if_unused(id);
            }
            Message::ShutDown => self.ending = true,
        }
    }

    fn open(&mut self, stream: StreamId, environment: Environment, directory: String) {
        let same = |store: &Store| {
            Arc::ptr_eq(store.environment.store.service(), environment.store.service())
        };
        let known = self.stores.iter().find(|(_, store)| same(store)).map(|(&id, _)| id);
        let id = known.unwrap_or_else(|| {
            self.next_store += 1;
            self.next_store
        });
        let (options, counters) = (&self.options, &self.counters);
        let store = self.stores.entry(id).or_insert_with(|| Store {
            environment: environment.clone(),
            schedule: Schedule::new(Arc::clone(options), Arc::clone(counters)),
            instances: HashMap::new(),
            needed: 0,
        });
        store.schedule.open(stream);
        store.environment = environment.clone();
        store.instances.insert(stream, Instance { environment, directory });
        self.streams.insert(stream, id);
    }

    /// A process that restarts its jobs for ever meets stores without end.
    fn forget_if_unused(&mut self, id: StoreId) {
        let unused = |store: &Store| store.schedule.is_idle() && store.needed == 0;
        if self.stores.get(&id).is_some_and(unused) {
            self.stores.remove(&id);
        }
    }

    fn store_of(&mut self, stream: StreamId) -> Option<&mut Store> {
        self.stores.get_mut(self.streams.get(&stream)?)
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for (&id, store) in &mut self.stores {
            for action in store.schedule.tick(now) {
                let Action::Attempt { upload, attempt, owner, bytes, hedge } = action;
                let owner = store.instances.get(&owner);
                let directory = owner.map_or("", |owner| &owner.directory);
                let environment = owner.map_or(&store.environment, |owner| &owner.environment);
                let path = format!("{directory}log-{}", uuid::Uuid::new_v4().simple());
                count(&self.counters.attempts, 1);
                count(&self.counters.hedges, u64::from(hedge));
                let report = Report { store: id, upload, attempt, path, result: Ok(()) };
                let timeout = self.options.attempt_timeout;
                upload::start(environment, report, bytes, timeout, Arc::clone(&self.own));
            }
        }
    }

    fn settle(&mut self, report: Report) {
        let Report { store: id, upload, attempt, path, result } = report;
        let Some(store) = self.stores.get_mut(&id) else { return };
        match store.schedule.settle(Instant::now(), upload, attempt, result) {
            Settled::Done { items, bytes } => self.publish(id, path, &bytes, items),
            // One that failed may have arrived all the same: nobody will name it.
            Settled::Superfluous | Settled::Again | Settled::GivenUp => {
                store.tidy();
                self.dispose(id, path, false);
                self.forget_if_unused(id);
            }
        }
    }

    /// An object is in the store: its batches are where they are, and nobody else knows yet.
    fn publish(&mut self, id: StoreId, path: String, bytes: &Bytes, items: Vec<Placed>) {
        let length = bytes.len() as u64;
        count(&self.counters.objects, 1);
        count(&self.counters.object_bytes, length);
        count(&self.counters.batches, items.len() as u64);
        let copy = self.copy(id, &path, bytes);
        let reference = ObjectRef::new(path, length, crc32fast::hash(bytes)).shared();
        let object = LogObject::new(reference, id, Arc::clone(&self.own), copy);
        // A batch that nobody needs any more ends with its item: the object must not end with it.
        let _while_published = ObjectUse::of(&object);
        for Placed { item, offset } in items {
            // Batches are shorter than 4 GiB.
            let length = item.batch.len() as u32;
            item.chunk.store(Stored { object: ObjectUse::of(&object), offset, length });
        }
        if let Some(store) = self.stores.get_mut(&id) {
            store.needed += 1;
            store.schedule.answer();
            store.tidy();
        }
    }

    /// Writes the second copy.
    fn copy(&self, id: StoreId, path: &str, bytes: &Bytes) -> Option<CopyUse> {
        let (copies, store) = (self.copies.as_ref()?, self.stores.get(&id)?);
        let needed = copies.need(path);
        copies.write(&*store.environment.spawner, path, bytes.clone(), &self.counters);
        Some(needed)
    }

    /// Nobody in this process needs an object any more. One that a handle has named is the collector's,
    /// and its copy serves the next attempt.
    fn dispose(&self, id: StoreId, path: String, named: bool) {
        let Some(store) = self.stores.get(&id).filter(|_| !named) else { return };
        let (remote, copies) = (store.environment.store.clone(), self.copies.clone());
        count(&self.counters.deleted_objects, 1);
        store.environment.spawner.spawn(Box::pin(async move {
            // What cannot be deleted now, the collector finds when the attempt is over.
            drop(remote.delete(&path).await);
            if let Some(copies) = copies {
                copies.delete(&path).await;
            }
        }));
    }
}
