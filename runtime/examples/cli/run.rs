//! Running a job the way the options say.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use weir_changelog::ChangelogControl;
use weir_runtime::{CheckpointConfig, JobConfig, JobGraph, RestoreFrom, Source, Storage};
use weir_state_api::{Error, ErrorKind, Result};

use super::crash::{CrashPoint, Crashing, EXIT_CODE};
use super::display::Display;
use super::figures::thousands;
use super::options::CommonOptions;
use super::pace::Paced;
use super::places::Places;
use super::recorder::Recorder;
use super::restore::Restore;
use super::summary::{Changelog, Summary, folder_name};
use super::table::{Column, table};
use super::verify::verify;

/// One run of a job: prepared before the graph is built, which takes sources and output from it.
pub(crate) struct Run {
    options: CommonOptions,
    places: Arc<Places>,
    storage: Storage,
    recorder: Arc<Recorder>,
    crash: Option<Arc<CrashPoint>>,
}

impl Run {
    /// Prepares a run of the job named `job`. Options that do not go together end the process with
    /// status 2.
    pub(crate) fn prepare(job: &str, options: &CommonOptions) -> Result<Self> {
        if let Err(error) = options.check() {
            error.exit();
        }
        let places = Arc::new(Places::of(options)?);
        if let Some(Restore::Checkpoint { .. }) = options.restore {
            // Opening a store creates its folder, which would hide a mistyped path.
            let location = Path::new(&places.checkpoints);
            if !places.checkpoints.contains("://") && !location.exists() {
                return Err(Error::new(ErrorKind::NotFound, "there is no such checkpoint folder")
                    .object(&places.checkpoints)
                    .advice("check the path behind --restore or --checkpoints"));
            }
        }
        let storage = Storage::open(&places.checkpoints)?;
        let recorder = Arc::new(Recorder::new());
        let crash = options.crash_after.map(|after| {
            let (job, options) = (job.to_owned(), options.clone());
            let (places, recorder) = (places.clone(), recorder.clone());
            Arc::new(CrashPoint::new(after, move |read| {
                last_words(&job, read, &options, &places, &recorder);
            }))
        });
        Ok(Run { options: options.clone(), places, storage, recorder, crash })
    }

    /// A source that keeps to the rate, and crashes the process when it is time.
    pub(crate) fn source<S: Source>(&self, source: S) -> Crashing<Paced<S>> {
        Crashing::at(self.crash.clone(), Paced::to(self.options.rate, source))
    }

    /// The folder for the sink.
    pub(crate) fn output(&self) -> &Path {
        &self.places.output
    }

    /// Runs the job to the end of its input, then prints the summary. `records` is how many there
    /// are in all sources; `expected` evaluates them the plain way, for `--verify`.
    pub(crate) fn execute<L: IntoIterator<Item = String>>(
        &self,
        graph: &JobGraph,
        records: u64,
        expected: impl FnOnce() -> Result<L>,
    ) -> Result<()> {
        self.tell_where_it_starts()?;
        let total = self.options.restore.is_none().then_some(records);
        let display = Arc::new(Display::new(total));
        let (recorder, shown) = (self.recorder.clone(), display.clone());
        let (mut config, changelog) = self.config()?;
        config.on_progress = Some(Arc::new(move |progress| {
            recorder.note(progress);
            shown.show(progress);
        }));
        let report = weir_runtime::run(graph, config);
        display.finish();
        let mut summary = Summary::of(&report?, &self.options, &self.places)?;
        let verified = match self.options.verify {
            true => Some(expected().and_then(|lines| verify(self.output(), lines))),
            false => None,
        };
        summary.changelog = changelog.map(|changelog| Changelog::of(&changelog.metrics()));
        summary.verified = verified.as_ref().map(Result::is_ok);
        print(&summary, self.options.json)?;
        self.notes();
        verified.transpose().map(drop)
    }

    /// What may not be as it was meant.
    fn notes(&self) {
        if let Some(after) = self.options.crash_after {
            eprintln!("note: the input ended before {after} records were read: no crash");
        }
    }

    /// Says what may surprise about the starting point, before anything is read.
    fn tell_where_it_starts(&self) -> Result<()> {
        let Some(restore) = &self.options.restore else { return Ok(()) };
        let complete = self.storage.complete_checkpoints()?;
        match restore {
            Restore::Latest if complete.is_empty() => eprintln!(
                "note: no complete checkpoint is in {}: starting from the beginning",
                self.places.checkpoints
            ),
            Restore::Checkpoint { id, .. } if complete.iter().any(|other| other > id) => eprintln!(
                "warning: {} is not the latest checkpoint: what later ones published is published \
                 again",
                folder_name(*id)
            ),
            _ => {}
        }
        Ok(())
    }

    fn config(&self) -> Result<(JobConfig, Option<ChangelogControl>)> {
        let (backend, changelog) = self.options.factory()?;
        let restore = self.options.restore.as_ref();
        let config = JobConfig {
            parallelism: self.options.parallelism,
            backend,
            storage: self.storage.clone(),
            checkpoints: CheckpointConfig {
                interval: self.options.checkpoint_interval,
                ..CheckpointConfig::default()
            },
            restore: restore.map_or(RestoreFrom::Fresh, Restore::starting_point),
            ..JobConfig::default()
        };
        Ok((config, changelog))
    }
}

/// What a process tells before it crashes.
fn last_words(job: &str, read: u64, options: &CommonOptions, places: &Places, recorder: &Recorder) {
    eprintln!("crash: the process ends with status {EXIT_CODE} after {} records", thousands(read));
    if places.temporary().is_some() {
        let output = places.output.display();
        eprintln!(
            "to go on: --restore latest --checkpoints {} --output {output}",
            places.checkpoints
        );
    }
    if options.json {
        let summary = Summary::at_crash(job, read, &recorder.so_far(), options, places);
        if let Err(error) = summary.and_then(|summary| print(&summary, true)) {
            eprintln!("note: no summary: {error}");
        }
    }
}

fn print(summary: &Summary, json: bool) -> Result<()> {
    let text = if json { summary.to_json()? + "\n" } else { readable(summary) };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the summary cannot be printed").source(error)
    })
}

fn readable(summary: &Summary) -> String {
    let mut text = table(&[Column { title: &summary.job, summary }]);
    if let Some(folder) = &summary.output.folder {
        text += &format!("\noutput: {folder}/part-*\n");
    }
    match summary.verified {
        Some(true) => text += "verified: equal to a plain evaluation of the input\n",
        Some(false) => text += "verified: NOT equal to a plain evaluation of the input\n",
        None => {}
    }
    text
}
