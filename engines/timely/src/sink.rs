//! Sinks that commit in two phases: prepared with a checkpoint, committed once it is complete.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use weir_state_api::{BoxFuture, CheckpointId, Error, Result, Spawned, waker_fn};

use crate::checkpoint::TaskPart;
use crate::control::{Listener, News, Reporter, Role, Shared, wake};
use crate::job::Job;
use crate::panics::caught;
use crate::stateful::{Item, Stash};
use crate::time::{EpochTime, Progress};

/// A sink with transactions. The futures run on the environment's spawner, not on the worker.
///
/// ```text
/// write, write, ... prepare(7) ──▶ checkpoint 7 complete ──▶ commit
///                       └──▶ crash ──▶ recover: commits what 7 names if it is complete, discards it if not
/// ```
pub trait TransactionalSink: 'static {
    /// What it takes.
    type Record;

    /// Called once at every start, on worker 0, before anything is written: commits all that the
    /// job's checkpoint names, prepared by whichever worker, and discards what else former runs have
    /// left. What was committed before must not be committed twice.
    fn recover(&mut self, prepared: Vec<Vec<u8>>) -> BoxFuture<'static, Result<()>>;

    /// Adds records to the open transaction.
    ///
    /// # Errors
    /// Any error ends the job on all workers.
    fn write(&mut self, records: Vec<Self::Record>) -> Result<()>;

    /// Ends the open transaction and makes it durable, unseen. The result is what
    /// [`commit`](TransactionalSink::commit) needs, in this process or another; `None` when nothing was
    /// written.
    fn prepare(&mut self, checkpoint: CheckpointId) -> BoxFuture<'static, Result<Option<Vec<u8>>>>;

    /// Publishes what was prepared. It may be called again for what was published.
    fn commit(&mut self, prepared: Vec<u8>) -> BoxFuture<'static, Result<()>>;
}

/// The end of a stream.
pub trait SinkTo<D> {
    /// Writes the stream into a sink, on the worker where the records are. Committed output is exactly
    /// that of an undisturbed run.
    fn sink_to<S: TransactionalSink<Record = D>>(self, job: &Job, name: &str, sink: S);
}

impl<D: 'static> SinkTo<D> for StreamVec<'_, EpochTime, D> {
    fn sink_to<S: TransactionalSink<Record = D>>(self, job: &Job, name: &str, sink: S) {
        let shared = job.shared().clone();
        let scope = self.scope();
        shared.add_operator(name, Role::Sink, scope);
        let mut builder = OperatorBuilder::new(name.to_string(), scope);
        let mut input = builder.new_input(self, Pipeline);
        let info = builder.operator_info();
        let listener = shared.listen(scope.activator_for(info.address.clone()));
        let alarm = scope.worker().sync_activator_for(info.address.to_vec());
        let waker = waker_fn(move || wake(&alarm));
        let name = name.to_string();
        builder.build_reschedule(move |_| {
            let mut task = shared.reporter().map(|reporter| {
                let mut task = SinkTask {
                    shared: shared.clone(),
                    name,
                    sink,
                    stash: Stash::new(),
                    listener,
                    reporter,
                    waker,
                    work: VecDeque::new(),
                    prepared: Vec::new(),
                };
                if let Err(error) = caught(|| task.recover()) {
                    task.fail(&error);
                }
                task
            });
            move |frontiers| {
                let Some(task) = &mut task else { return false };
                input.for_each(|time, records| {
                    task.take_in(time.stamp().elements(), std::mem::take(records));
                });
                task.schedule(Progress::of(&frontiers[0].frontier()))
            }
        });
    }
}

/// What the spawner does for a sink, one after the other.
enum Work {
    Recover(Spawned<()>),
    Prepare(u64, Spawned<Option<Vec<u8>>>),
    Commit(Spawned<()>),
}

/// A sink on one worker.
struct SinkTask<S: TransactionalSink> {
    shared: Rc<Shared>,
    name: String,
    sink: S,
    stash: Stash<S::Record>,
    listener: Listener,
    reporter: Reporter,
    waker: Waker,
    work: VecDeque<Work>,
    /// Prepared and not committed, with the epoch. Of a checkpoint that was given up it goes into the
    /// next one: the sources do not send it again.
    prepared: Vec<(u64, Vec<u8>)>,
}

impl<S: TransactionalSink> SinkTask<S> {
    fn recover(&mut self) -> Result<()> {
        if self.shared.worker != 0 || self.shared.is_failing() {
            return Ok(());
        }
        let restored = self.shared.restored.clone();
        let prepared = restored.map_or_else(Vec::new, |known| known.prepared(&self.name));
        let recovery = self.sink.recover(prepared);
        let recovery = self.spawn(recovery);
        self.work.push_back(Work::Recover(recovery));
        // Polls it: its end is to be heard of.
        self.listener.activate();
        Ok(())
    }

    fn spawn<T: Send + 'static>(&self, work: BoxFuture<'static, Result<T>>) -> Spawned<T> {
        self.shared.begin_work();
        Spawned::future(&*self.shared.settings.environment.spawner, work)
    }

    fn take_in(&mut self, times: &[EpochTime], records: Vec<S::Record>) {
        if !self.shared.is_failing()
            && let Err(error) = self.stash.take_in(times, records)
        {
            self.fail(&error);
        }
    }

    fn fail(&self, error: &Error) {
        let named = Error::new(error.kind(), format!("sink {:?}: {error}", self.name));
        self.shared.fail(&named);
    }

    /// Goes on as far as possible. Answers whether the sink must be kept.
    fn schedule(&mut self, progress: Progress) -> bool {
        while let Some(news) = self.listener.next() {
            if let News::Complete { epoch, .. } = news
                && let Err(error) = caught(|| self.commit(epoch))
            {
                self.fail(&error);
            }
        }
        if self.shared.is_failing() {
            return !self.shared.is_over();
        }
        if let Err(error) = caught(|| self.finish_work().and_then(|()| self.go_on(progress))) {
            self.fail(&error);
        }
        !self.work.is_empty() || !self.shared.is_over()
    }

    fn go_on(&mut self, progress: Progress) -> Result<()> {
        loop {
            while let Some(item) = self.stash.next() {
                if let Item::Records(mut records) = item {
                    records.reverse();
                    self.sink.write(records)?;
                }
            }
            let epoch = self.stash.epoch();
            if !progress.is_past(epoch) {
                return Ok(());
            }
            let Some(checkpoint) = self.shared.begun(epoch) else { return Ok(()) };
            if let Some(begun) = checkpoint {
                let preparation = self.sink.prepare(begun.id);
                let preparation = self.spawn(preparation);
                self.work.push_back(Work::Prepare(epoch, preparation));
                self.finish_work()?;
            }
            self.stash.close();
        }
    }

    /// Everything up to this epoch is to be published.
    fn commit(&mut self, complete: u64) -> Result<()> {
        let (due, rest) = std::mem::take(&mut self.prepared)
            .into_iter()
            .partition::<Vec<_>, _>(|(epoch, _)| *epoch <= complete);
        self.prepared = rest;
        for (_, prepared) in due {
            let commit = self.sink.commit(prepared);
            let commit = self.spawn(commit);
            self.work.push_back(Work::Commit(commit));
        }
        Ok(())
    }

    /// Looks what the spawner has done.
    fn finish_work(&mut self) -> Result<()> {
        let mut context = Context::from_waker(&self.waker);
        while let Some(work) = self.work.front_mut() {
            match work {
                Work::Recover(done) | Work::Commit(done) => {
                    let Poll::Ready(done) = Pin::new(done).poll(&mut context) else { break };
                    self.shared.end_work();
                    done?;
                }
                Work::Prepare(epoch, done) => {
                    let Poll::Ready(done) = Pin::new(done).poll(&mut context) else { break };
                    self.shared.end_work();
                    self.prepared.extend(done?.map(|prepared| (*epoch, prepared)));
                    let all = self.prepared.iter().map(|(_, prepared)| prepared.clone()).collect();
                    self.reporter.snapshot(&self.name, *epoch, Ok(TaskPart::Prepared(all)));
                }
            }
            self.work.pop_front();
        }
        Ok(())
    }
}
