//! Benchmarks of Weir: every contestant in one run, every answer checked, ratios before absolutes.
//!
//! ```text
//! cargo run --release -p weir-benches -- micro       # state access against raw collections
//! cargo run --release -p weir-benches -- micro --peers raw,flink    # and against Apache Flink
//! cargo run --release -p weir-benches -- patterns    # the patterns of real operators
//! cargo run --release -p weir-benches -- in-flight   # records in flight against one after the other
//! cargo run --release -p weir-benches -- snapshot    # how long a snapshot holds the writer
//! cargo run --release -p weir-benches -- checkpoint  # checkpoints of a large state
//! cargo run --release -p weir-benches -- restore     # restore and rescale it
//! cargo run --release -p weir-benches -- changelog   # what a changelog gives and takes
//! cargo run --release -p weir-benches --features rocks -- compaction   # what trees write
//! cargo run --release -p weir-benches --features rocks -- layout       # how RocksDB is laid out
//! cargo run --release -p weir-benches --features rocks -- far          # far state against RocksDB
//! cargo run --release -p weir-benches --features slatedb -- slatedb    # against SlateDB
//! cargo run --release -p weir-benches -- nexmark     # the auction benchmark
//! cargo run --release -p weir-benches -- runtime     # source, key_by, count, sink
//! cargo run --release -p weir-benches -- guard       # instructions of the hot paths
//! cargo run --release -p weir-benches -- report --from a.json,b.json --html report.html
//! ```

mod backends;
mod changelog;
mod checkpoint;
mod clock;
#[cfg(feature = "rocks")]
mod compaction;
#[cfg(feature = "rocks")]
mod far;
mod guard;
mod huge_pages;
mod in_flight;
mod interrupt;
#[cfg(feature = "rocks")]
mod layout;
mod machine;
mod measure;
mod micro;
mod nexmark;
mod options;
mod patterns;
mod peers;
mod record;
mod recovery;
mod report;
mod resident;
mod restore;
mod runtime;
#[cfg_attr(not(feature = "s3"), path = "no_s3_server.rs")]
mod s3_server;
mod shuffle;
mod slow_store;
mod snapshot;
mod stage;
mod statistics;
mod store;
mod store_model;
mod zipf;

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use weir_state_api::Result;

use backends::Backend;
use machine::Machine;
use measure::Recorder;
use micro::{Peer, Settings};
use options::{Options, Size, Suite, known};
use peers::flink::FlinkInstall;
use record::Results;
use store::Store;
use store_model::StoreModel;

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything could be measured.
fn run(options: &Options) -> Result<bool> {
    if let Some(name) = &options.memory_probe {
        return micro::memory::run_probe(name, options.memory_entries).map(|()| true);
    }
    if let Some(task) = &options.pattern_probe {
        return patterns::process::serve(task).map(|()| true);
    }
    if let Some(operation) = &options.guard_probe {
        let backends = known(&options.backends, "backend", |_, _| {});
        let backend = backends.first().copied().unwrap_or(Backend::Heap);
        return guard::run_probe(backend, operation, options.guard_rounds).map(|()| true);
    }
    if options.huge_pages {
        huge_pages::ask_for()?;
    }
    interrupt::listen()?;
    let mut former = options.from.iter().map(|path| Results::read(path));
    let only_report = options.suites.contains(&options::Asked::Known(Suite::Report));
    let mut results = match former.next() {
        Some(first) if only_report => first?,
        first => {
            let mut results = Results::new(Machine::inspect(), options.described());
            first.map_or(Ok(()), |first| results.join(first?))?;
            results
        }
    };
    for next in former {
        results.join(next?)?;
    }
    let mut recorder = Recorder::new(options.rounds, results);
    if !only_report {
        measure(options, &mut recorder);
    }
    let results = &recorder.results;
    for line in report::summary_lines(results) {
        println!("{line}");
    }
    if let Some(path) = &options.json {
        results.write(path)?;
    }
    if let Some(path) = &options.html {
        report::write_page(results, path)?;
    }
    if let Some(path) = &options.markdown {
        report::write_markdown(results, path)?;
    }
    Ok(results.failures.is_empty() && !interrupt::requested())
}

/// Runs the suites. What fails is noted, and the others go on.
fn measure(options: &Options, recorder: &mut Recorder) {
    let machine = &recorder.results.header.machine;
    println!("{}", machine.line());
    if !machine.optimized {
        eprintln!("a build without --release: the figures are of no value");
    }
    let everything = "all of them";
    let suites = known(&options.suites, "suite", |name, error| recorder.fail(name, "-", &error));
    let mut backends =
        known(&options.backends, "backend", |name, error| recorder.fail(everything, name, &error));
    backends.retain(|backend| match backend.options() {
        Ok(_) => true,
        Err(error) => {
            recorder.fail(everything, &backend.to_string(), &error);
            false
        }
    });
    let peers =
        known(&options.peers, "peer", |name, error| recorder.fail(everything, name, &error));
    for suite in Suite::value_variants() {
        let in_all = *suite != Suite::Guard && suites.contains(&Suite::All);
        let chosen = in_all || suites.contains(suite) || is_of_a_peer(*suite, &peers);
        if !chosen || interrupt::requested() {
            continue;
        }
        if let Err(error) = run_suite(*suite, options, &backends, &peers, recorder) {
            let name = suite.to_possible_value();
            let name = name.as_ref().map_or("", |name| name.get_name());
            recorder.fail(&format!("the rest of {name}"), everything, &error);
        }
    }
}

/// Whether a suite is how one of the peers is compared.
#[cfg_attr(not(feature = "slatedb"), expect(unused_variables, reason = "none of them is built in"))]
fn is_of_a_peer(suite: Suite, peers: &[Peer]) -> bool {
    #[cfg(feature = "slatedb")]
    return suite == Suite::Slatedb && peers.contains(&Peer::Slatedb);
    #[cfg(not(feature = "slatedb"))]
    false
}

fn run_suite(
    suite: Suite,
    options: &Options,
    backends: &[Backend],
    peers: &[Peer],
    recorder: &mut Recorder,
) -> Result<()> {
    let quick = options.size == Size::Quick;
    match suite {
        Suite::Micro => {
            let settings = micro_settings(options, backends, peers, recorder);
            micro::run(recorder, &settings)
        }
        Suite::InFlight => {
            let (keys, slow_reads) = if quick { (5_000, 50) } else { (500_000, 1_000) };
            in_flight::run(recorder, keys, slow_reads)
        }
        Suite::Snapshot => {
            let sizes = if quick {
                snapshot::Sizes { values: 10_000, under_load: 50_000 }
            } else {
                snapshot::Sizes { values: 1_000_000, under_load: 5_000_000 }
            };
            let flink = flink_install(options, peers, recorder);
            snapshot::run(recorder, backends, sizes, flink.as_ref())
        }
        Suite::Checkpoint => {
            let store = store(options, StoreModel::Folder, recorder)?;
            checkpoint::run(recorder, backends, checkpoint_extent(options), &store)
        }
        Suite::Patterns => patterns::run(recorder, &pattern_settings(options, backends, peers)),
        Suite::Nexmark => nexmark::run(recorder, backends, if quick { 50_000 } else { 2_000_000 }),
        Suite::Restore => {
            let store = store(options, StoreModel::ObjectStore, recorder)?;
            let patience = Duration::from_secs(if quick { 1 } else { 10 });
            let (bytes, only) = (options.state_bytes(), options.only.clone());
            restore::run(recorder, backends, &restore::Extent { bytes, patience, only }, &store)
        }
        Suite::Changelog => {
            let mut sizes = match options.size {
                Size::Quick => changelog::Sizes::quick(),
                Size::Default => changelog::Sizes::published(),
                Size::Large => changelog::Sizes::large(),
            };
            if let Some(state_mb) = options.state_mb {
                sizes.restored.0 = state_mb * 1_000_000;
                sizes.states.retain(|bytes| *bytes < sizes.restored.0);
                sizes.states.push(sizes.restored.0);
            }
            changelog::run(recorder, backends, &sizes, options.only.as_deref());
            Ok(())
        }
        #[cfg(feature = "rocks")]
        Suite::Compaction => {
            compaction::run(recorder, options.state_bytes() / 10, options.only.as_deref())
        }
        #[cfg(feature = "rocks")]
        Suite::Layout => layout::run(recorder, if quick { 5_000 } else { 1_000_000 }),
        #[cfg(feature = "rocks")]
        Suite::Far => far::run(recorder, &far_extent(options)),
        #[cfg(feature = "slatedb")]
        Suite::Slatedb => peers::slatedb::run(recorder, options.state_bytes() / 10),
        Suite::Runtime => runtime::run(recorder, if quick { 100_000 } else { 20_000_000 }),
        Suite::Guard => guard::run(recorder, backends, options.write),
        Suite::All | Suite::Report => Ok(()),
    }
}

/// A hundred checkpoints at one second are for large states; smaller ones show less and take less time.
fn checkpoint_extent(options: &Options) -> checkpoint::Extent {
    let (series, interval) = match options.size {
        Size::Quick => (10, Duration::from_millis(50)),
        Size::Default => (30, Duration::from_secs(1)),
        Size::Large => (100, Duration::from_secs(1)),
    };
    checkpoint::Extent { bytes: options.state_bytes(), series, interval }
}

#[cfg(feature = "rocks")]
fn far_extent(options: &Options) -> far::Extent {
    let (keys, events) = match options.size {
        Size::Quick => (5_000, 5_000),
        Size::Default => (1_000_000, 100_000),
        Size::Large => (10_000_000, 200_000),
    };
    let caches = if options.cache.is_empty() { vec![25, 0] } else { options.cache.clone() };
    far::Extent { keys: options.keys.unwrap_or(keys), events, caches }
}

/// The store of a suite: what is asked for, or a folder that is as slow as `by_default`.
fn store(options: &Options, by_default: StoreModel, recorder: &mut Recorder) -> Result<Store> {
    match options.s3_server {
        Some(kind) => Store::served(kind, options.store.unwrap_or(StoreModel::Folder), recorder),
        None => Ok(Store::local(options.store.unwrap_or(by_default))),
    }
}

/// Flink, if it takes part and is there.
fn flink_install(
    options: &Options,
    peers: &[Peer],
    recorder: &mut Recorder,
) -> Option<Rc<FlinkInstall>> {
    if !peers.contains(&Peer::Flink) {
        return None;
    }
    let folder = options.flink_folder.clone().unwrap_or_else(FlinkInstall::default_folder);
    match FlinkInstall::prepare(&folder) {
        Ok(install) => Some(Rc::new(install)),
        Err(error) => {
            recorder.fail("all of them", "flink", &error);
            None
        }
    }
}

fn pattern_settings(options: &Options, backends: &[Backend], peers: &[Peer]) -> patterns::Settings {
    let (keys, events, warm_up) = match options.size {
        Size::Quick => (2_000, 2_000, 1),
        Size::Default => (1_000_000, 200_000, 2),
        Size::Large => (10_000_000, 1_000_000, 2),
    };
    patterns::Settings {
        backends: backends.to_vec(),
        peers: peers.to_vec(),
        keys: options.keys.unwrap_or(keys),
        value_bytes: options.value_bytes.clone(),
        cache_percents: options.cache.clone(),
        events,
        warm_up,
        only: options.only.clone(),
    }
}

fn micro_settings(
    options: &Options,
    backends: &[Backend],
    peers: &[Peer],
    recorder: &mut Recorder,
) -> Settings {
    let flink = flink_install(options, peers, recorder);
    let (keys, memory_entries, warm_up) = match options.size {
        Size::Quick => (5_000, 1_000_000, 1),
        Size::Default => (500_000, 5_000_000, 3),
        Size::Large => (2_000_000, 20_000_000, 3),
    };
    Settings {
        backends: backends.to_vec(),
        peers: peers.to_vec(),
        flink,
        flink_backends: options.flink_backends.clone(),
        keys: options.keys.map_or(keys, |keys| keys as usize),
        memory_entries,
        warm_up,
        only: options.only.clone(),
    }
}
