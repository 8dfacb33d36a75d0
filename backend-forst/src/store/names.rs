//! Names of objects: each is given to one attempt to write one object, and never again.
//!
//! Two attempts never write one name, whatever crashed, was retried or still runs as a zombie. So a
//! name in a handle says which bytes are meant, and an object that no handle names can be deleted by
//! whoever made its name.

use std::fmt;

use uuid::Uuid;

/// What an object holds; the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    /// A table file.
    Table,
    /// The manifest of a snapshot.
    Manifest,
    /// Copies of the ends of tables.
    Ends,
}

/// Makes names of objects below one path of the store.
#[derive(Debug, Clone)]
pub(crate) struct ObjectNames {
    directory: String,
    shared: bool,
}

impl ObjectNames {
    /// Names below `directory`, which is empty or ends in `/`.
    pub(crate) fn below(directory: impl Into<String>) -> Self {
        ObjectNames { directory: directory.into(), shared: false }
    }

    /// The same for objects that several snapshots may name
    /// ([`ObjectRef::shared`](weir_state_api::ObjectRef::shared)).
    pub(crate) fn shared(self) -> Self {
        ObjectNames { shared: true, ..self }
    }

    pub(super) fn are_shared(&self) -> bool {
        self.shared
    }

    /// Where they are.
    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    /// A name that was not given out before, here or anywhere.
    pub(crate) fn fresh(&self, kind: ObjectKind) -> String {
        format!("{}forst-{}.{kind}", self.directory, Uuid::new_v4().simple())
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ObjectKind::Table => "table",
            ObjectKind::Manifest => "manifest",
            ObjectKind::Ends => "ends",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_say_where_and_what() {
        let names = ObjectNames::below("job/op-1/");
        let first = names.fresh(ObjectKind::Table);
        assert!(first.starts_with("job/op-1/forst-") && first.ends_with(".table"), "{first}");
        assert_ne!(first, names.fresh(ObjectKind::Table));
        assert!(ObjectNames::below("").fresh(ObjectKind::Manifest).ends_with(".manifest"));
    }
}
