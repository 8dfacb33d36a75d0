//! How a keyed operator is put into a dataflow.

use std::sync::Arc;
use std::time::Duration;

use timely::ExchangeData;
use timely::container::CapacityContainerBuilder;
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Exchange;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use weir_state_api::{
    BackendFactory, Codec, Error, ErrorKind, InFlightLimits, KeyedStore, OpenRequest, Ordered,
    Result, waker_fn,
};

use super::executor::Executor;
use super::logic::KeyedLogic;
use super::operator::{Gathering, KeyedTask, Watermark};
use super::queues::Queues;
use super::route::Route;
use super::stash::Stash;
use crate::alarm::Alarm;
use crate::checkpoint::live_folder;
use crate::control::{Role, Shared, wake};
use crate::job::{Job, wait_on};
use crate::panics::caught;
use crate::time::{EpochTime, Progress};

/// Reads of the store that are sent in one go.
const READS: usize = 1024;

/// How long they are gathered.
const GATHER: Duration = Duration::from_millis(5);

/// A keyed operator: its name, the backend of its state, limits.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Keyed {
    /// Its name in checkpoints; unique in the job, without `/`.
    pub name: String,
    /// Where its state lives.
    pub backend: Arc<dyn BackendFactory>,
    /// How many records may wait for reads, on a backend whose reads may pend. Others ignore it. 4096
    /// by default, and 1024 reads in one go.
    pub limits: InFlightLimits,
    /// How long reads of the store wait for others while input keeps coming, unless there are
    /// [enough](InFlightLimits::reads) before: many in one go cost much less. 5 ms by default; zero
    /// sends them as soon as the records at hand are handled.
    pub gather: Duration,
}

impl Keyed {
    /// An operator with the default limits.
    pub fn new(name: impl Into<String>, backend: Arc<dyn BackendFactory>) -> Self {
        let limits = InFlightLimits::default().with_reads(READS);
        Keyed { name: name.into(), backend, limits, gather: GATHER }
    }

    /// Sets [`limits`](Self::limits).
    #[must_use]
    pub fn with_limits(mut self, limits: InFlightLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets [`gather`](Self::gather).
    #[must_use]
    pub fn with_gather(mut self, gather: Duration) -> Self {
        self.gather = gather;
        self
    }
}

/// Keyed state for a stream.
pub trait Stateful<'scope, D: ExchangeData> {
    /// Sends each record to the worker that owns its key's group, and runs the logic there with the
    /// key's state. On restore, the state of the job's checkpoint is there.
    ///
    /// `key` finds the key in a record; map the stream first where it must be computed. `logic` builds
    /// the logic over the opened store, whose states it registers.
    ///
    /// Outputs carry the open epoch and the watermark as their time, not the time of the record they
    /// are for. Building never fails: what goes wrong, a restore that is refused for example, is the
    /// result of [`Job::run`] on every worker.
    fn stateful<L, F, B>(
        self,
        job: &Job,
        keyed: Keyed,
        key: F,
        logic: B,
    ) -> StreamVec<'scope, EpochTime, L::Out>
    where
        L: KeyedLogic<Record = D>,
        F: Fn(&D) -> &L::Key + Clone + 'static,
        B: FnOnce(&mut KeyedStore<L::Key>) -> Result<L>;
}

impl<'scope, D: ExchangeData + Send + Sync> Stateful<'scope, D>
    for StreamVec<'scope, EpochTime, D>
{
    fn stateful<L, F, B>(
        self,
        job: &Job,
        keyed: Keyed,
        key: F,
        logic: B,
    ) -> StreamVec<'scope, EpochTime, L::Out>
    where
        L: KeyedLogic<Record = D>,
        F: Fn(&D) -> &L::Key + Clone + 'static,
        B: FnOnce(&mut KeyedStore<L::Key>) -> Result<L>,
    {
        let shared = job.shared().clone();
        shared.add_operator(&keyed.name, Role::Keyed, self.scope());
        let executor = open(&shared, &keyed, logic).unwrap_or_else(|error| {
            let what = format!("operator {:?}: {error}", keyed.name);
            shared.fail(&Error::new(error.kind(), what));
            None
        });

        let scope = self.scope();
        let mut builder = OperatorBuilder::new(keyed.name.clone(), scope);
        let mut route = Route::new(shared.settings.max_parallelism, shared.peers);
        let of_route = key.clone();
        let exchange = Exchange::new(move |record: &D| route.worker(of_route(record)));
        let mut input = builder.new_input(self, exchange);
        let (output, stream) = builder.new_output::<Vec<L::Out>>();
        let mut output = OutputBuilder::<_, CapacityContainerBuilder<Vec<L::Out>>>::from(output);
        let info = builder.operator_info();
        let listener = shared.listen(scope.activator_for(info.address.clone()));
        let alarm = Alarm::new(scope.activator_for(info.address.clone()));
        let activator = scope.worker().sync_activator_for(info.address.to_vec());
        let waker = waker_fn(move || wake(&activator));

        builder.build_reschedule(move |capabilities| {
            let held = capabilities.into_iter().next();
            let mut task = executor.zip(shared.reporter()).map(|(executor, reporter)| KeyedTask {
                shared: shared.clone(),
                name: keyed.name,
                key,
                executor,
                stash: Stash::new(),
                listener,
                reporter,
                waker,
                held,
                watermark: Watermark::new(),
                processing: None,
                alarm,
                gathering: Gathering::new(keyed.gather),
                congested: false,
            });
            move |frontiers| {
                let Some(task) = &mut task else {
                    // The job fails; input is let go.
                    input.for_each(|_, records| records.clear());
                    return !shared.is_over();
                };
                input.for_each(|time, records| {
                    task.take_in(time.stamp().elements(), std::mem::take(records));
                });
                let progress = Progress::of(&frontiers[0].frontier());
                task.schedule(progress, &mut output.activate())
            }
        });
        stream
    }
}

/// Opens the worker's share of the state, from the job's checkpoint if there is one.
fn open<L: KeyedLogic>(
    shared: &Shared,
    keyed: &Keyed,
    logic: impl FnOnce(&mut KeyedStore<L::Key>) -> Result<L>,
) -> Result<Option<Executor<L>>> {
    let settings = &shared.settings;
    let (peers, worker) = (index(shared.peers)?, index(shared.worker)?);
    let codec = Codec::<L::Key>::id(&Ordered);
    let mut request = OpenRequest::new(settings.environment.clone(), &*keyed.name, codec)
        .for_subtask(settings.max_parallelism, peers, worker)?;
    request.directory = live_folder(shared.run, &keyed.name, shared.worker);
    if let Some(checkpoint) = &shared.restored {
        request = request.restore_from(checkpoint.handles(&keyed.name));
    }
    let backend = keyed.backend.clone();
    let opening = async move { KeyedStore::<L::Key>::open(&*backend, request).await };
    let mut store = wait_on(&*settings.environment.spawner, opening)?;
    let logic = caught(|| logic(&mut store))?;
    let timers = Queues::open(&mut store, settings.environment.clock.clone())?;
    Ok(Some(Executor::new(store, logic, timers, keyed.limits, settings.max_parallelism)))
}

fn index(number: usize) -> Result<u16> {
    u16::try_from(number).map_err(|_| {
        Error::new(ErrorKind::InvalidUsage, format!("{number} workers are more than 65,535"))
    })
}
