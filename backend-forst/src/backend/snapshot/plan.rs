//! What becomes of each table of a snapshot: a pure decision.

use weir_state_api::ObjectRef;

/// A table as the plan sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) length: u64,
    /// The object that may be named: one of the instance's own, or one of the base.
    pub(crate) nameable: Option<ObjectRef>,
    /// Whether its bytes are in memory.
    pub(crate) resident: bool,
}

/// What to do with a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is an object already.
    Named(ObjectRef),
    /// Its bytes go into the manifest.
    Inline,
    /// It becomes a new object.
    Copied,
}

/// Decides for all tables. What is in memory only goes into the manifest, the shortest first, as long as
/// all of it is no longer than `inline_bytes`.
pub(crate) fn plan(tables: &[Candidate], inline_bytes: u64) -> Vec<Place> {
    let mut places: Vec<Place> = tables
        .iter()
        .map(|table| table.nameable.clone().map_or(Place::Copied, Place::Named))
        .collect();
    let mut tails: Vec<usize> = (0..tables.len())
        .filter(|&at| places[at] == Place::Copied && tables[at].resident)
        .collect();
    tails.sort_by_key(|&at| tables[at].length);
    let mut room = inline_bytes;
    for at in tails {
        let Some(left) = room.checked_sub(tables[at].length) else { break };
        room = left;
        places[at] = Place::Inline;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(length: u64, nameable: bool, resident: bool) -> Candidate {
        let nameable = nameable.then(|| ObjectRef::new("o", length, 1));
        Candidate { length, nameable, resident }
    }

    #[test]
    fn short_tails_go_into_the_manifest_and_named_tables_nowhere() {
        let tables = [
            table(60, false, true),
            table(30, false, true),
            table(1_000, true, false),
            table(5, false, false),
            table(40, true, true),
            table(31, false, true),
        ];
        let named = |length| Place::Named(ObjectRef::new("o", length, 1));
        let places = plan(&tables, 64);
        assert_eq!(
            places,
            [Place::Copied, Place::Inline, named(1_000), Place::Copied, named(40), Place::Inline]
        );
        assert_eq!(plan(&tables, 29)[1], Place::Copied);
        assert_eq!(plan(&tables, 1_000)[0], Place::Inline);
        assert_eq!(plan(&[], 0), []);
    }
}
