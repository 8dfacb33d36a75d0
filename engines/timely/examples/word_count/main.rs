//! A keyed word count over several processes, which can be killed and started again.
//!
//! ```sh
//! cargo run --release -p weir-engine-timely --example word_count -- --checkpoints /tmp/w/c --output /tmp/w/o
//! ```
//!
//! starts two processes with two workers each on this machine and waits for them. Kill any of them:
//! all end. Start the command again, with another number of workers if you like: the job goes on from
//! its latest checkpoint. The published lines, `word count` in the files `part-*`, are those of an
//! undisturbed run; the command checks them.

mod cluster;
mod files;
mod options;
mod words;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use timely::{CommunicationConfig, Config, WorkerConfig};
use weir_engine_timely::{
    Job, JobReport, JobSettings, Keyed, KeyedContext, KeyedLogic, SinkTo, Stateful,
};
use weir_state_api::opendal::{Operator, services};
use weir_state_api::{
    Environment, Error, ErrorKind, Result, SystemClock, TokioSpawner, ValueState,
};

use files::FileSink;
use options::Options;
use words::{SPLITS, Words};

/// Counts each word.
struct Count(ValueState<u64>);

impl KeyedLogic for Count {
    type Key = String;
    type Record = String;
    type Out = String;
    type Timer = ();

    async fn process(&self, word: &String, context: &mut impl KeyedContext<Self>) -> Result<()> {
        let count = self.0.update(context, |old| old.unwrap_or(0) + 1).await?;
        context.emit(format!("{word} {count}"));
        Ok(())
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.process {
        Some(process) => run_process(&options, process),
        None => cluster::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One process of the job.
fn run_process(options: &Options, process: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| unavailable("no threads for the store's client", &error))?;
    let settings = settings(options, runtime.handle().clone())?;
    let workers = usize::from(options.workers);
    let communication = match options.addresses.len() {
        0 | 1 => CommunicationConfig::Process(workers),
        _ => CommunicationConfig::Cluster {
            threads: workers,
            process,
            addresses: options.addresses.clone(),
            report: false,
            zerocopy: false,
        },
    };
    let config = Config { communication, worker: WorkerConfig::default() };
    let job_options = options.clone();
    let backend = options.backend.factory()?;
    let workers = timely::execute(config, move |worker| {
        let job = Job::join(worker, settings.clone())?;
        let sink = FileSink::new(&job_options.output, worker.index())?;
        job.dataflow(worker, |scope| {
            let words = job.source(scope, "words", SPLITS, |split, offset| {
                Ok(Words::new(&job_options, split, offset))
            });
            words
                .stateful(
                    &job,
                    Keyed::new("count", backend.clone()),
                    |word| word,
                    |store| Ok(Count(store.value("count")?)),
                )
                .sink_to(&job, "lines", sink);
        })?;
        job.run(worker)
    });
    let workers = workers.map_err(|error| unavailable("no cluster", &error))?;
    let mut report: Result<Option<JobReport>> = Ok(None);
    for worker in workers.join() {
        let ended = worker.map_err(|panic| unavailable("a worker panicked", &panic))?;
        report = report.and(ended.map(Some));
    }
    if let Some(report) = report?
        && process == 0
    {
        println!("{} checkpoints, restored from {:?}", report.completed, report.restored);
    }
    Ok(())
}

fn settings(options: &Options, runtime: tokio::runtime::Handle) -> Result<JobSettings> {
    let folder = options.checkpoints.to_string_lossy();
    let staging = options.checkpoints.join(".staging");
    // Objects appear whole or not at all.
    let files = services::Fs::default().root(&folder).atomic_write_dir(&staging.to_string_lossy());
    let store = Operator::new(files)
        .map_err(|error| Error::store("open the checkpoint folder", &folder, error))?;
    let spawner = Arc::new(TokioSpawner::new(runtime));
    let environment = Environment::new(Arc::new(SystemClock), store, spawner);
    Ok(JobSettings::new("word-count", environment).with_interval(options.interval()))
}

fn unavailable(what: &str, cause: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what}: {cause}"))
}
