//! Where checkpoints and output go.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use weir_state_api::{Error, ErrorKind, Result};

use super::options::CommonOptions;

/// The folders of a run; those that were not asked for are removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Places {
    /// Folder or URL of the checkpoints.
    pub(crate) checkpoints: String,
    /// Folder of the output.
    pub(crate) output: PathBuf,
    /// Whether the output stays.
    pub(crate) output_stays: bool,
    temporary: Option<TempDir>,
}

impl Places {
    pub(crate) fn of(options: &CommonOptions) -> Result<Self> {
        let checkpoints = checkpoints(options)?;
        let temporary = match (&checkpoints, &options.output) {
            (Some(_), Some(_)) => None,
            _ => Some(TempDir::with_prefix("weir-").map_err(|error| {
                Error::new(ErrorKind::Unavailable, "no temporary folder can be created")
                    .source(error)
                    .advice("give folders with --checkpoints and --output")
            })?),
        };
        let or_temporary = |given: Option<PathBuf>, name: &str| {
            let temporary = temporary.as_ref().map(|folder| folder.path().join(name));
            given.or(temporary).unwrap_or_else(|| PathBuf::from(name))
        };
        let checkpoints = or_temporary(checkpoints.map(PathBuf::from), "checkpoints");
        Ok(Places {
            checkpoints: checkpoints.to_string_lossy().into_owned(),
            output: or_temporary(options.output.clone(), "output"),
            output_stays: options.output.is_some(),
            temporary,
        })
    }

    /// Whether the folders exist only as long as the process.
    pub(crate) fn temporary(&self) -> Option<&Path> {
        self.temporary.as_ref().map(TempDir::path)
    }
}

/// The store that was asked for, be it by `--checkpoints` or in the path after `--restore`.
fn checkpoints(options: &CommonOptions) -> Result<Option<String>> {
    let in_restore = options.restore.as_ref().and_then(|restore| restore.store());
    match (options.checkpoints.as_deref(), in_restore) {
        (Some(given), Some(other)) if !same_place(given, other) => Err(Error::new(
            ErrorKind::InvalidUsage,
            format!("the checkpoint after --restore is in {other:?}, not in {given:?}"),
        )
        .advice("leave --checkpoints out, or give the folder that the checkpoint is in")),
        (Some(place), _) | (None, Some(place)) => Ok(Some(place.to_owned())),
        (None, None) => Ok(None),
    }
}

fn same_place(a: &str, b: &str) -> bool {
    let resolve = |place: &str| {
        let path = place.strip_prefix("file://").unwrap_or(place);
        fs::canonicalize(path).unwrap_or_else(|_| path.trim_end_matches('/').into())
    };
    resolve(a) == resolve(b)
}

/// The names of the published files in a folder.
pub(crate) fn published_files(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with("part-")).count()
}
