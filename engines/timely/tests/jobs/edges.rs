//! Input and state at the edge: nothing, empty keys, values of megabytes, states that are not what
//! they were, names that are taken.

use std::sync::{Arc, Mutex};

use timely::dataflow::operators::Inspect;
use weir_backend_forst::ForstBackendFactory;
use weir_backend_heap::HeapBackendFactory;
use weir_engine_timely::{
    EpochTime, Job, JobReport, JobSettings, Keyed, KeyedContext, KeyedLogic, ReadState, Split,
    Stateful,
};
use weir_state_api::{
    BackendFactory, Environment, Error, ErrorKind, KeyedStore, NativeType, Result, ValueState,
};

/// A key, and how many bytes to append to its value.
type Growth = (String, usize);

/// Appends, and says how long the value is.
struct Grow<T>(ValueState<T>);

trait Value: NativeType + Clone + Default + Send + Sync + 'static {
    fn grow(&mut self, by: usize) -> usize;
}

impl Value for String {
    fn grow(&mut self, by: usize) -> usize {
        self.extend(std::iter::repeat_n('x', by));
        self.len()
    }
}

impl Value for u64 {
    fn grow(&mut self, by: usize) -> usize {
        *self += by as u64;
        *self as usize
    }
}

impl<T: Value> KeyedLogic for Grow<T> {
    type Key = String;
    type Record = Growth;
    type Out = (String, usize);
    type Timer = ();

    async fn process(
        &self,
        (key, by): &Growth,
        context: &mut impl KeyedContext<Self>,
    ) -> Result<()> {
        let mut value = self.0.get(context).await?.unwrap_or_default();
        let len = value.grow(*by);
        self.0.set(context, &value)?;
        context.emit((key.clone(), len));
        Ok(())
    }
}

/// Growths, so many of which are read before the input breaks off.
struct Growths {
    all: Arc<Vec<Growth>>,
    next: usize,
    breaks: bool,
    begun: std::cell::Cell<u32>,
}

impl Split for Growths {
    type Record = Growth;

    fn read(&mut self, records: &mut Vec<Growth>, limit: usize) -> Result<ReadState> {
        let to = self.all.len().min(self.next + limit);
        records.extend_from_slice(&self.all[self.next..to]);
        self.next = to;
        match (self.breaks, self.begun.get()) {
            (false, _) => Ok(ReadState::Ended),
            (true, 0..2) => Ok(ReadState::Idle),
            // The second checkpoint begins when the first one is complete.
            (true, _) => Err(Error::new(ErrorKind::Unavailable, "the input breaks off")),
        }
    }

    fn offset(&self) -> u64 {
        if self.next == self.all.len() {
            self.begun.set(self.begun.get() + 1);
        }
        self.next as u64
    }
}

#[derive(Clone)]
struct World {
    settings: JobSettings,
    backend: Arc<dyn BackendFactory>,
    growths: Arc<Vec<Growth>>,
    lengths: Arc<Mutex<Vec<(String, usize)>>>,
    breaks: bool,
}

impl World {
    fn new(backend: Arc<dyn BackendFactory>, growths: &[(&str, usize)]) -> Self {
        let settings = JobSettings::new("edges", Environment::in_memory())
            .with_interval(std::time::Duration::from_millis(2));
        let growths = growths.iter().map(|(key, by)| (key.to_string(), *by)).collect();
        World {
            settings,
            backend,
            growths: Arc::new(growths),
            lengths: Arc::default(),
            breaks: false,
        }
    }

    /// Runs operators with these names, one behind the other, over values of this type.
    fn run<T: Value>(
        &self,
        workers: usize,
        names: &'static [&'static str],
    ) -> Vec<Result<JobReport>> {
        let world = self.clone();
        let guards = timely::execute(timely::Config::process(workers), move |worker| {
            let job = Job::join(worker, world.settings.clone())?;
            worker.dataflow::<EpochTime, _, _>(|scope| {
                let (growths, breaks) = (world.growths.clone(), world.breaks);
                let mut stream = job.source(scope, "growths", 1, |_, offset| {
                    let (all, next) = (growths.clone(), offset as usize);
                    Ok(Growths { all, next, breaks, begun: std::cell::Cell::new(0) })
                });
                for name in names {
                    let keyed = Keyed::new(*name, world.backend.clone());
                    let logic =
                        |store: &mut KeyedStore<String>| Ok(Grow(store.value::<T>("value")?));
                    stream = stream.stateful(&job, keyed, |(key, _)| key, logic);
                }
                let lengths = world.lengths.clone();
                stream.inspect(move |length| lengths.lock().unwrap().push(length.clone()));
            });
            job.run(worker)
        });
        guards.unwrap().join().into_iter().map(|result| result.expect("no worker panics")).collect()
    }

    /// What was emitted since the last call, sorted.
    fn lengths(&self) -> Vec<(String, usize)> {
        let mut lengths = std::mem::take(&mut *self.lengths.lock().unwrap());
        lengths.sort();
        lengths
    }
}

fn backends() -> [Arc<dyn BackendFactory>; 2] {
    [Arc::new(HeapBackendFactory::default()), Arc::new(ForstBackendFactory::default())]
}

/// The error that all workers have.
fn refused(results: Vec<Result<JobReport>>) -> Error {
    let mut errors: Vec<_> = results.into_iter().map(|result| result.unwrap_err()).collect();
    assert!(errors.iter().all(|error| error.to_string() == errors[0].to_string()), "{errors:?}");
    errors.remove(0)
}

#[test]
fn without_input_a_job_ends_with_a_checkpoint() {
    for backend in backends() {
        let world = World::new(backend, &[]);
        for report in world.run::<u64>(3, &["grow"]) {
            assert!(report.unwrap().completed > 0);
        }
        for report in world.run::<u64>(2, &["grow"]) {
            assert!(report.unwrap().restored.is_some());
        }
        assert_eq!(world.lengths(), []);
    }
}

#[test]
fn empty_keys_and_huge_values_survive_a_restore_at_another_number_of_workers() {
    const HUGE: usize = 9 << 20;
    for backend in backends() {
        let mut world = World::new(backend, &[("", 3), ("a", HUGE), ("\0", 1), ("", 4)]);
        world.breaks = true;
        let error = refused(world.run::<String>(3, &["grow"]));
        assert!(error.to_string().contains("breaks off"), "{error}");
        let grown = |of: &[(&str, usize)]| -> Vec<(String, usize)> {
            of.iter().map(|(key, len)| (key.to_string(), *len)).collect()
        };
        assert_eq!(world.lengths(), grown(&[("", 3), ("", 7), ("\0", 1), ("a", HUGE)]));

        let more = [("", 1), ("a", HUGE), ("\0", 1)].map(|(key, by)| (key.to_string(), by));
        world.growths = Arc::new([&world.growths[..], &more].concat());
        world.breaks = false;
        for report in world.run::<String>(2, &["grow"]) {
            assert!(report.unwrap().restored.is_some());
        }
        assert_eq!(world.lengths(), grown(&[("", 8), ("\0", 2), ("a", 2 * HUGE)]));
    }
}

#[test]
fn a_state_of_another_type_is_refused_on_every_worker() {
    for backend in backends() {
        let world = World::new(backend, &[("a", 1), ("b", 2)]);
        for report in world.run::<u64>(2, &["grow"]) {
            report.unwrap();
        }
        let error = refused(world.run::<String>(3, &["grow"]));
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        let message = error.to_string();
        assert!(message.contains("operator \"grow\"") && message.contains("value"), "{message}");
        // It has changed nothing.
        for report in world.run::<u64>(2, &["grow"]) {
            assert!(report.unwrap().restored.is_some());
        }
    }
}

#[test]
fn operators_of_one_name_are_refused() {
    let world = World::new(Arc::new(HeapBackendFactory::default()), &[("a", 1)]);
    let error = refused(world.run::<u64>(2, &["grow", "grow"]));
    assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
    assert!(error.to_string().contains("two operators are called \"grow\""), "{error}");
    for name in [&[""], &["a/b"]] {
        let error = refused(world.run::<u64>(2, name));
        assert!(error.to_string().contains("is no name of an operator"), "{error}");
    }
}
