//! When memtables are frozen and flushed, what waits for it, and what comes of background work.

use std::collections::HashSet;
use std::sync::Arc;

use weir_state_api::ttl::{TtlClock, TtlTime};
use weir_state_api::{Error, Result, Spawned, Spawner, block_on};

use super::compactor::{Compactor, Ended};
use super::flush::encode;
use super::frozen::{Flushed, Frozen};
use super::mailbox::Mailbox;
use super::obsolete::{NamedByHandles, Obsolete};
use super::options::ForstOptions;
use super::stream_out::{PIECES, StreamOut};
use super::tree::Tree;
use super::{TableView, Version};
use crate::format::TableOptions;
use crate::lsm::TableId;
use crate::store::{
    BackgroundCounters, Destination, MemtableAccount, NewTable, ObjectNames, Tables,
};

/// What background work tells the instance.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A flush has ended: the frozen memtable has its table.
    Flushed,
    /// A flush has failed; the memtable stays in memory.
    FlushFailed(Error),
    /// A table that was in memory only, or not the instance's own, is in the store now.
    Moved(TableId, super::Table),
    /// A compaction has ended.
    Compacted(Ended),
    /// The user asks for a flush.
    Flush,
    /// The user asks for a compaction.
    Compact,
    /// News was taken in, and nothing begun that follows from it.
    Resume,
}

/// Who waits for a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// A checkpoint.
    Checkpoint,
    /// Nobody, or a writer who has filled memory faster than it can be flushed.
    Memory,
}

/// Turns frozen memtables into tables. Shared with whatever runs in the background.
#[derive(Debug)]
pub(crate) struct Flusher {
    pub(crate) tables: Arc<Tables>,
    options: TableOptions,
    /// Where tables go; `None` for memory.
    names: Option<ObjectNames>,
    /// Objects that the instance began with: those of checkpoints, wherever they lie.
    restored: HashSet<String>,
    /// Memtables of so many bytes or less become tables in memory: a checkpoint takes them along.
    tiny_bytes: usize,
}

impl Flusher {
    /// For an instance with a folder, or none, that begins with a version.
    pub(crate) fn new(
        tables: Arc<Tables>,
        options: &ForstOptions,
        directory: &str,
        version: &Version,
    ) -> Self {
        let objects = version.tables().filter_map(|view| view.table().object());
        Flusher {
            restored: objects.map(|object| object.path.clone()).collect(),
            tables,
            options: options.flush_options(),
            names: (!directory.is_empty()).then(|| ObjectNames::below(directory).shared()),
            tiny_bytes: usize::try_from(options.inline_tail_bytes).unwrap_or(usize::MAX),
        }
    }

    /// Whether a table is an object that this instance has made for itself, rather than a former one in the
    /// same folder.
    pub(crate) fn is_own(&self, table: &super::Table) -> bool {
        let own = self.names.as_ref().map(ObjectNames::directory);
        own.zip(table.object()).is_some_and(|(own, object)| {
            object.path.starts_with(own) && !self.restored.contains(&object.path)
        })
    }

    /// Where the instance's own tables go.
    pub(crate) fn destination(&self) -> Destination {
        self.names.clone().map_or(Destination::Memory, Destination::Store)
    }

    /// What a frozen memtable becomes. Whoever asks first does the work, before compactions if he is in a
    /// hurry.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn flush(&self, frozen: &Arc<Frozen>, haste: Haste) -> Result<Flushed> {
        frozen.flush_with(|| self.write(Arc::clone(frozen), haste)).await
    }

    /// The same on the spawner's threads: nobody else depends on whether the one who waits here is polled.
    pub(crate) fn flush_apart(
        self: &Arc<Self>,
        frozen: &Arc<Frozen>,
        haste: Haste,
    ) -> Spawned<Flushed> {
        let (flusher, frozen) = (Arc::clone(self), Arc::clone(frozen));
        let flush = async move { flusher.flush(&frozen, haste).await };
        Spawned::future(&**self.tables.spawner(), flush)
    }

    async fn write(&self, frozen: Arc<Frozen>, haste: Haste) -> Result<Flushed> {
        let bytes = frozen.memtable.memory_bytes();
        let destination =
            if bytes <= self.tiny_bytes { Destination::Memory } else { self.destination() };
        let mut sink = self.tables.sink(destination, bytes as u64, None);
        let options = self.options;
        let caches = Arc::clone(self.tables.caches());
        let written = Spawned::blocking(&**self.tables.spawner(), move || {
            let _urgent = (haste == Haste::Checkpoint).then(|| caches.priority.begin());
            let Some(mut writer) = encode(&frozen, options)? else { return Ok(None) };
            sink.write(writer.take_ready());
            Ok(Some((sink, writer.finish()?)))
        });
        let Some((sink, finished)) = written.await? else { return Ok(None) };
        let length = finished.length;
        let NewTable { table, properties } = sink.finish(finished).await?;
        Ok(Some(TableView::new(TableId::unique(), table, properties, length)))
    }
}

/// The background work of one instance.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) mailbox: Arc<Mailbox<Mail>>,
    /// Which of the instance's objects handles have named.
    pub(crate) named: Arc<NamedByHandles>,
    /// The time of the instance.
    pub(crate) clock: TtlClock,
    compactor: Compactor,
    obsolete: Obsolete,
    account: MemtableAccount,
    memtable_bytes: usize,
    max_frozen: usize,
    max_level0_tables: usize,
    keep_flushed: bool,
    stream_out: StreamOut,
    /// The bytes at which the memtable that takes writes may be worth freezing.
    freeze_at: usize,
}

/// Memtables may be on their way into tables when another one is frozen early: one of them is being written,
/// so that the next can begin at once.
const MOST_FROZEN_EARLY: usize = 2;

/// Memtables that snapshots may leave behind while the store takes nothing. When it is back, the next snapshot
/// flushes them all; only after so many failed ones it is declined once.
const MOST_LEFT_BY_SNAPSHOTS: usize = 16;

impl Background {
    pub(crate) fn new(flusher: Flusher, options: &ForstOptions, clock: TtlClock) -> Self {
        let mailbox: Arc<Mailbox<Mail>> = Arc::default();
        let (tables, destination) = (Arc::clone(&flusher.tables), flusher.destination());
        let compactor = Compactor::new(options, destination, tables, Arc::clone(&mailbox));
        if let Some(steps) = &options.steps {
            steps.attach(&mailbox);
        }
        Background {
            flusher: Arc::new(flusher),
            mailbox,
            named: Arc::default(),
            clock,
            compactor,
            obsolete: Obsolete::default(),
            account: options.resources.caches().memtables.account(),
            memtable_bytes: options.memtable_bytes.max(1),
            max_frozen: options.max_frozen.max(1),
            max_level0_tables: options.max_level0_tables.max(8),
            keep_flushed: options.keep_flushed,
            stream_out: StreamOut::new(options.stream_out_bytes),
            freeze_at: options.memtable_bytes.max(1),
        }
    }

    fn spawner(&self) -> &Arc<dyn Spawner> {
        self.flusher.tables.spawner()
    }

    /// Takes in what the background work tells. Costs a flag when there is nothing.
    #[inline]
    pub(crate) fn take_mail(&mut self, tree: &mut Tree) {
        if let Some(mail) = self.mailbox.take() {
            self.take_in(mail, tree);
        }
    }

    /// Takes in what the background tells, and begins nothing: the next call does.
    pub(crate) fn take_mail_quietly(&mut self, tree: &mut Tree) {
        let Some(mail) = self.mailbox.take() else { return };
        for news in mail {
            match news {
                Mail::Flush | Mail::Compact => self.mailbox.post(news),
                news => self.take_news(news, tree),
            }
        }
        tree.install_flushed(self.account.budget());
        self.mailbox.post(Mail::Resume);
    }

    #[cold]
    fn take_in(&mut self, mail: Vec<Mail>, tree: &mut Tree) {
        let (mut flush, mut compactions) = (false, 0);
        for news in mail {
            match news {
                Mail::Flush => flush = true,
                Mail::Compact => compactions += 1,
                news => self.take_news(news, tree),
            }
        }
        self.install_flushed(tree);
        let gone = self.compactor.schedule(tree, self.clock.time(), compactions);
        self.obsolete.add(gone);
        self.clean_up();
        if flush {
            self.freeze(tree);
        }
        if compactions > 0 {
            // A spawner that runs everything at once is done already.
            self.take_mail(tree);
        }
    }

    /// What background work has come to.
    fn take_news(&mut self, news: Mail, tree: &mut Tree) {
        match news {
            Mail::Flushed => self.counters().flushes.add(1),
            Mail::FlushFailed(error) => {
                self.counters().failed_flushes.add(1);
                tracing::warn!(%error, "a flush failed; it is tried again with the next one");
            }
            Mail::Moved(id, table) => tree.moved(id, &table),
            Mail::Compacted(ended) => {
                let gone = self.compactor.take_in(ended, tree);
                self.obsolete.add(gone);
            }
            // Requests, and whoever takes them in does them.
            Mail::Flush | Mail::Compact | Mail::Resume => {}
        }
    }

    /// Flushed memtables are tables from now on, and answer reads as long as there is room.
    fn install_flushed(&self, tree: &mut Tree) {
        tree.install_flushed(self.account.budget());
        self.give_back_memory(tree);
    }

    /// Lets go of memory that only answers reads, when there is not enough.
    fn give_back_memory(&self, tree: &mut Tree) {
        let budget = self.account.budget();
        while budget.is_full() || !self.keep_flushed {
            let Some(memtable) = tree.evict_resident() else { break };
            // Freeing its entries one by one takes long.
            self.spawner().spawn_blocking(Box::new(move || drop(memtable)));
        }
    }

    fn counters(&self) -> &BackgroundCounters {
        &self.flusher.tables.caches().background
    }

    /// Deletes objects that nobody needs and no handle has named.
    pub(crate) fn clean_up(&mut self) {
        for (table, is_named) in self.obsolete.sweep(&self.named) {
            let local = Arc::clone(&table);
            // A file system takes its time with large files.
            self.spawner().spawn_blocking(Box::new(move || local.drop_local()));
            if !is_named && self.flusher.is_own(&table) {
                self.spawner().spawn(Box::pin(async move {
                    if let Err(error) = table.delete().await {
                        tracing::warn!(%error, "an obsolete table is left to the collector");
                    }
                }));
            }
        }
    }

    /// Makes room before a write: waits while too many memtables are frozen, then freezes the full one.
    ///
    /// # Errors
    /// Those of the flush that is waited for. Nothing has been written then.
    #[inline]
    pub(crate) fn make_room(&mut self, tree: &mut Tree) -> Result<()> {
        self.take_mail(tree);
        let bytes = tree.active_bytes();
        self.account.follow(bytes as u64);
        if tree.has_resident() && self.account.budget().is_full() {
            self.give_back_memory(tree);
        }
        if bytes < self.freeze_at && !self.account.should_freeze() {
            return Ok(());
        }
        if bytes < self.memtable_bytes && !self.account.should_freeze() {
            self.freeze_early(tree, bytes);
            return Ok(());
        }
        // Before: where nothing can be flushed, each attempt to write would freeze one more.
        self.wait_for_room(tree)?;
        self.freeze(tree);
        self.wait_for_compactions(tree);
        Ok(())
    }

    /// Ends the memtables that take writes before memory asks for it, unless the background has enough to do:
    /// nobody waits for it.
    #[cold]
    fn freeze_early(&mut self, tree: &mut Tree, bytes: usize) {
        let is_busy = tree.most_frozen() >= MOST_FROZEN_EARLY.min(self.max_frozen)
            || tree.most_level0_tables() + PIECES > self.max_level0_tables;
        if is_busy {
            // Asks again after a quarter of a piece.
            let more = self.stream_out.piece().map_or(self.memtable_bytes, |piece| piece / 4);
            self.freeze_at = self.memtable_bytes.min(bytes + more.max(1));
            return;
        }
        self.counters().early_freezes.add(1);
        self.freeze(tree);
    }

    /// Ends the memtables that take writes and begins their flush.
    #[cold]
    fn freeze(&mut self, tree: &mut Tree) {
        self.freeze_only(tree);
        self.flush_frozen(tree);
    }

    /// Ends the memtables that take writes, for a snapshot. Somebody else begins their flush, the next memory
    /// pressure at the latest: whatever is begun here may take the core from the caller at once.
    ///
    /// # Errors
    /// Why former ones could not be flushed, when there are so many that none may be added. Their flush is
    /// begun once more.
    pub(crate) fn freeze_for_snapshot(&mut self, tree: &mut Tree) -> Result<()> {
        if tree.most_frozen() >= self.max_frozen {
            let waiting = tree.most_frozen();
            let failure = tree.next_to_flush().and_then(|oldest| {
                oldest.failure(&format!(
                    "a snapshot was declined: {waiting} memtables from before it are not flushed yet"
                ))
            });
            // Whoever was to do it has not.
            self.flush_frozen(tree);
            let most = self.max_frozen.max(MOST_LEFT_BY_SNAPSHOTS);
            if let Some(failure) = failure.filter(|_| tree.most_frozen() >= most) {
                self.counters().declined_snapshots.add(1);
                return Err(failure.advice(
                    "their flush was begun once more; take another snapshot when the store answers",
                ));
            }
        }
        self.freeze_only(tree);
        self.stream_out.barrier(tree.take_churn());
        self.await_next();
        Ok(())
    }

    fn freeze_only(&mut self, tree: &mut Tree) {
        let time: TtlTime = self.clock.time();
        self.stream_out.frozen(tree.active_bytes(), tree.active_entries());
        self.await_next();
        self.account.set(tree.active_bytes() as u64);
        let permit = Arc::new(self.account.freeze());
        for shard in 0..tree.shard_count() {
            tree.freeze(shard, time, Some(Arc::clone(&permit)));
        }
    }

    /// The memtables that take writes are empty now.
    fn await_next(&mut self) {
        let piece = self.stream_out.piece().unwrap_or(usize::MAX);
        self.freeze_at = self.memtable_bytes.min(piece);
    }

    /// Begins to flush whatever is frozen and not being flushed.
    pub(crate) fn flush_frozen(&mut self, tree: &mut Tree) {
        for shard in 0..tree.shard_count() {
            for frozen in tree.frozen(shard).iter().rev() {
                if frozen.is_idle() {
                    drop(begin_flush(&self.flusher, &self.mailbox, frozen, Haste::Memory));
                }
            }
        }
        // A spawner that runs everything at once is done already.
        self.take_mail(tree);
    }

    /// Waits until one more memtable may be frozen: the spawner must run on other threads then.
    fn wait_for_room(&mut self, tree: &mut Tree) -> Result<()> {
        while tree.most_frozen() >= self.max_frozen {
            let Some(oldest) = tree.next_to_flush() else { break };
            self.counters().memtable_stalls.add(1);
            block_on(self.flusher.flush_apart(&oldest, Haste::Memory))?;
            self.take_mail(tree);
            self.install_flushed(tree);
        }
        Ok(())
    }

    /// Waits while too many flushed tables lie above each other and compactions that change it are
    /// running. One that fails ends the waiting: the state is right, only slower to read.
    fn wait_for_compactions(&mut self, tree: &mut Tree) {
        let failed = |this: &Self| this.counters().failed_compactions.get();
        let before = failed(self);
        while tree.most_level0_tables() > self.max_level0_tables && self.compactor.is_running() {
            self.counters().level0_stalls.add(1);
            if block_on(self.compactor.one_ended()).is_err() || failed(self) > before {
                break;
            }
            self.take_mail(tree);
        }
    }
}

/// Begins to flush a memtable on the spawner's threads; the instance is told of the end, whether or not
/// somebody waits for the result.
pub(crate) fn begin_flush(
    flusher: &Arc<Flusher>,
    mailbox: &Arc<Mailbox<Mail>>,
    frozen: &Arc<Frozen>,
    haste: Haste,
) -> Spawned<Flushed> {
    let spawner = Arc::clone(flusher.tables.spawner());
    let (flusher, mailbox) = (Arc::clone(flusher), Arc::clone(mailbox));
    let frozen = Arc::clone(frozen);
    Spawned::future(&*spawner, async move {
        let flushed = flusher.flush(&frozen, haste).await;
        mailbox.post(match &flushed {
            Ok(_) => Mail::Flushed,
            Err(error) => Mail::FlushFailed(error.again("a memtable was not flushed")),
        });
        flushed
    })
}
