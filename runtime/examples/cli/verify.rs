//! Comparing what was published with what should have been.

use std::collections::BTreeMap;
use std::path::Path;

use weir_runtime::FileSink;
use weir_state_api::{Error, ErrorKind, Result};

/// Checks that the lines published in `folder` are exactly these, each as often as it is given.
/// Their order does not matter. Returns how many they are.
pub(crate) fn verify(folder: &Path, expected: impl IntoIterator<Item = String>) -> Result<usize> {
    let mut published: BTreeMap<String, i64> = BTreeMap::new();
    let mut count = 0;
    for line in FileSink::<String>::published(folder)? {
        *published.entry(line).or_default() += 1;
        count += 1;
    }
    for line in expected {
        *published.entry(line).or_default() -= 1;
    }
    published.retain(|_, surplus| *surplus != 0);
    let Some((line, surplus)) = published.first_key_value() else { return Ok(count) };
    let what = if *surplus > 0 { "too often" } else { "too rarely" };
    let times = surplus.unsigned_abs();
    Err(Error::new(
        ErrorKind::Corrupt,
        format!(
            "{} lines of the output differ from the plain evaluation; the first, {line:?}, is \
             published {what} by {times}",
            published.len()
        ),
    )
    .object(folder.display().to_string())
    .advice(
        "restore with the same input and options that the job was started with; if you did, this \
         is a bug",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_repeated_or_wrong_is_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("part-1"), "b\na\n").unwrap();
        std::fs::write(folder.path().join("part-2"), "b\n").unwrap();
        let check = |lines: &[&str]| verify(folder.path(), lines.iter().map(ToString::to_string));
        assert_eq!(check(&["a", "b", "b"]).unwrap(), 3);
        let error = |lines: &[&str]| check(lines).unwrap_err().to_string();
        assert!(error(&["a", "b"]).contains("\"b\", is published too often by 1"));
        assert!(error(&["a", "b", "b", "c"]).contains("\"c\", is published too rarely by 1"));
        assert!(error(&["a", "b", "c"]).starts_with("2 lines"));
    }
}
