//! Which checkpoint to start from: `latest`, or the path or name of its folder.

use std::str::FromStr;

use weir_runtime::{CheckpointStore, RestoreFrom};
use weir_state_api::CheckpointId;

/// What follows `--restore`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Restore {
    /// The latest complete checkpoint, or the beginning when there is none.
    Latest,
    /// This one.
    Checkpoint {
        /// Which one.
        id: CheckpointId,
        /// The folder or URL that it is in, if a path was given.
        store: Option<String>,
    },
}

impl Restore {
    /// The store in the path, if one was given.
    pub(crate) fn store(&self) -> Option<&str> {
        match self {
            Restore::Latest => None,
            Restore::Checkpoint { store, .. } => store.as_deref(),
        }
    }

    pub(crate) fn starting_point(&self) -> RestoreFrom {
        match self {
            Restore::Latest => RestoreFrom::Latest,
            Restore::Checkpoint { id, .. } => RestoreFrom::Checkpoint(*id),
        }
    }
}

impl FromStr for Restore {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "latest" {
            return Ok(Restore::Latest);
        }
        let (store, name) = match text.trim_end_matches('/').rsplit_once('/') {
            Some(("", name)) => (Some("/"), name),
            Some((store, name)) => (Some(store), name),
            None => (None, text.trim_end_matches('/')),
        };
        let id = CheckpointStore::parse_directory(name);
        let expected = "expected `latest`, the path of a checkpoint's folder as in \
                        DIR/chk-00001-000000007, or its name alone";
        let store = store.map(str::to_owned);
        id.map(|id| Restore::Checkpoint { id, store }).ok_or_else(|| expected.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_have_names_and_paths() {
        let id = CheckpointStore::parse_directory("chk-00001-000000007").unwrap();
        let checkpoint =
            |store: Option<&str>| Ok(Restore::Checkpoint { id, store: store.map(str::to_owned) });
        assert_eq!("latest".parse(), Ok(Restore::Latest));
        assert_eq!("chk-00001-000000007".parse(), checkpoint(None));
        assert_eq!("a/b/chk-00001-000000007/".parse(), checkpoint(Some("a/b")));
        assert_eq!("/chk-00001-000000007".parse(), checkpoint(Some("/")));
        assert_eq!("s3://bucket/job/chk-1-7".parse(), checkpoint(Some("s3://bucket/job")));
        for bad in
            ["", "/", "7", "newest", "chk-", "a/7", "-7", "+7", "a/b", "99999999999999999999"]
        {
            assert!(bad.parse::<Restore>().is_err(), "{bad:?}");
        }
    }
}
