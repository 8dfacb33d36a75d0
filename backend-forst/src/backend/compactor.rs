//! When compactions run, and what comes of them.

use std::sync::Arc;

use futures_util::future::select_all;
use weir_state_api::ttl::TtlTime;
use weir_state_api::{Result, Spawned, block_on};

use super::background::Mail;
use super::mailbox::Mailbox;
use super::options::ForstOptions;
use super::tree::Tree;
use super::{ShardEdit, TableView};
use crate::compaction::{
    Compaction, CompactionService, Finished, OutputOptions, StopSignal, decode_result, encode_job,
    outcome,
};
use crate::lsm::{CompactionOptions, CompactionPlan, Pick, TableId, pick};
use crate::store::{Destination, NewTable, Tables};

/// Compactions of one instance that run at the same time.
const AT_ONCE: usize = 2;

/// A compaction that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    shard: usize,
    plan: CompactionPlan,
    result: Result<Finished>,
}

/// A compaction that is being carried out.
#[derive(Debug)]
struct Running {
    shard: usize,
    plan: CompactionPlan,
    /// Ready when the news of its end has been posted, or the spawner has dropped it.
    ended: Spawned<()>,
}

/// Picks compactions, has them carried out and changes the tree by their results.
#[derive(Debug)]
pub(crate) struct Compactor {
    enabled: bool,
    /// Whether each compaction must be asked for.
    by_steps: bool,
    options: CompactionOptions,
    output: OutputOptions,
    service: Option<Arc<dyn CompactionService>>,
    tables: Arc<Tables>,
    mailbox: Arc<Mailbox<Mail>>,
    running: Vec<Running>,
    stop: StopSignal,
}

impl Drop for Compactor {
    /// Nobody takes their results any more.
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl Compactor {
    pub(crate) fn new(
        options: &ForstOptions,
        destination: Destination,
        tables: Arc<Tables>,
        mailbox: Arc<Mailbox<Mail>>,
    ) -> Self {
        let defaults = CompactionOptions::default();
        Compactor {
            enabled: options.compaction,
            by_steps: options.steps.is_some(),
            options: CompactionOptions {
                table_bytes: options.table_bytes,
                small_bytes: defaults.small_bytes.min(options.memtable_bytes as u64),
                ..defaults
            },
            output: OutputOptions {
                destination,
                table: options.table_options(),
                table_bytes: options.table_bytes,
            },
            service: options.compaction_service.clone(),
            tables,
            mailbox,
            running: Vec::new(),
            stop: StopSignal::default(),
        }
    }

    /// Whether any compaction is being carried out.
    pub(crate) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Waits until one of the running compactions has ended and its news been posted.
    ///
    /// # Errors
    /// [`Closed`](weir_state_api::ErrorKind::Closed) when the spawner has dropped it.
    pub(crate) async fn one_ended(&mut self) -> Result<()> {
        let running = self.running.iter_mut().map(|running| &mut running.ended);
        select_all(running).await.0
    }

    /// Begins what is to be done, and does at once what takes no work; with steps, so many compactions as
    /// are asked for. Which tables left the tree.
    pub(crate) fn schedule(
        &mut self,
        tree: &mut Tree,
        time: TtlTime,
        mut asked: usize,
    ) -> Vec<TableView> {
        let mut gone = Vec::new();
        for shard in 0..tree.shard_count() {
            while self.enabled && self.running.len() < AT_ONCE {
                let of_shard = self.running.iter().filter(|running| running.shard == shard);
                let busy: Vec<_> = of_shard.map(|running| running.plan.clone()).collect();
                let shard_now = &tree.version().shards()[shard];
                let Some(pick) = pick(shard_now, &self.options, &busy, &time) else { break };
                let plan = match pick {
                    Pick::Drop(ids) => {
                        gone.extend(tree.edit_removing(shard, ShardEdit::Dropped(ids)));
                        continue;
                    }
                    Pick::Compact(_) if self.by_steps && asked == 0 => break,
                    Pick::Compact(plan) => plan,
                };
                asked = asked.saturating_sub(1);
                if let Some(moved) = Finished::nothing_but_moves(&plan) {
                    let edit = ShardEdit::Compacted(outcome(shard_now, &plan, moved));
                    gone.extend(tree.edit_removing(shard, edit));
                    self.tables.caches().background.compactions.add(1);
                    continue;
                }
                let Some(compaction) = Compaction::of_plan(shard_now, &plan, time) else { break };
                let ended = self.begin(shard, plan.clone(), compaction);
                self.running.push(Running { shard, plan, ended });
            }
        }
        gone
    }

    fn begin(&self, shard: usize, plan: CompactionPlan, compaction: Compaction) -> Spawned<()> {
        let work = Work {
            output: self.output.clone(),
            service: self.service.clone(),
            tables: Arc::clone(&self.tables),
            stop: self.stop.clone(),
        };
        let mailbox = Arc::clone(&self.mailbox);
        Spawned::future(&**self.tables.spawner(), async move {
            let result = work.carry_out(compaction).await;
            mailbox.post(Mail::Compacted(Ended { shard, plan, result }));
            Ok(())
        })
    }

    /// Changes the tree by what a compaction has done. Which tables left it; when the result came too
    /// late, those are the new ones.
    pub(crate) fn take_in(&mut self, ended: Ended, tree: &mut Tree) -> Vec<TableView> {
        let Ended { shard, plan, result } = ended;
        self.running.retain(|running| (running.shard, &running.plan) != (shard, &plan));
        let counters = &self.tables.caches().background;
        let finished = match result {
            Ok(finished) if !finished.groups.is_empty() => finished,
            Ok(_) => return Vec::new(),
            Err(error) => {
                counters.failed_compactions.add(1);
                tracing::warn!(%error, "a compaction failed; it is picked again later");
                return Vec::new();
            }
        };
        counters.compactions.add(1);
        let new: Vec<TableView> = finished.tables.iter().map(view_of).collect();
        let edit = outcome(&tree.version().shards()[shard], &plan, finished);
        let before = tree.version().clone();
        let gone = tree.edit_removing(shard, ShardEdit::Compacted(edit));
        if Arc::ptr_eq(&before, tree.version()) { new } else { gone }
    }
}

fn view_of(new: &NewTable) -> TableView {
    let (table, properties) = (Arc::clone(&new.table), Arc::clone(&new.properties));
    let length = table.length();
    TableView::new(TableId::unique(), table, properties, length)
}

/// What a compaction is carried out with.
struct Work {
    output: OutputOptions,
    service: Option<Arc<dyn CompactionService>>,
    tables: Arc<Tables>,
    stop: StopSignal,
}

impl Work {
    /// Elsewhere if that is wished for and works, else here.
    async fn carry_out(self, compaction: Compaction) -> Result<Finished> {
        if let Some(service) = &self.service
            && let Some(job) = encode_job(&compaction, &self.output)
        {
            let there = async {
                let answer = service.compact(job.clone()).await?;
                decode_result(&answer, &job, compaction.groups(), &self.tables).await
            };
            match there.await {
                Ok(finished) => return Ok(finished),
                Err(error) => {
                    tracing::warn!(%error, "a compaction service failed; compacting here");
                }
            }
        }
        let spawner = Arc::clone(self.tables.spawner());
        let Work { output, tables, stop, .. } = self;
        Spawned::blocking(&*spawner, move || block_on(compaction.run(&tables, output, &stop))).await
    }
}
