//! The matrix as text: a table, and a legend of what is not `ok`.

use std::collections::BTreeMap;
use std::fmt;

use super::{Cell, Kind, Matrix, Rescale, SnapshotMode, TtlMode, columns};
use crate::conformance::Outcome;

/// How many failures are told at length.
const TOLD: usize = 12;

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |wanted: fn(&Outcome) -> bool| {
            self.cells.iter().filter(|(_, outcome)| wanted(outcome)).count()
        };
        writeln!(
            f,
            "matrix of backend {:?}: {} ok, {} failed, {} skipped\n",
            self.backend,
            count(|outcome| matches!(outcome, Outcome::Passed)),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
            count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        )?;
        let snapshots = SnapshotMode::ALL.iter().map(|snapshot| (format!("{snapshot:<19}"), true));
        line(f, "state", "TTL", snapshots)?;
        let heads = columns().map(|(_, rescale)| (rescale.to_string(), is_last(rescale)));
        line(f, "", "", heads)?;
        for (kind, ttl) in Kind::ALL.iter().flat_map(|k| TtlMode::ALL.iter().map(move |t| (*k, *t)))
        {
            let marks = columns().map(|(snapshot, rescale)| {
                (self.mark(Cell { kind, ttl, snapshot, rescale }).to_string(), is_last(rescale))
            });
            line(f, &kind.to_string(), &ttl.to_string(), marks)?;
        }
        writeln!(f)?;
        self.legend(f)
    }
}

/// Whether the next column is one of another kind of snapshot.
fn is_last(rescale: Rescale) -> bool {
    Rescale::ALL.last() == Some(&rescale)
}

/// A row; a marked field ends a block of columns.
fn line(
    f: &mut fmt::Formatter<'_>,
    state: &str,
    ttl: &str,
    fields: impl Iterator<Item = (String, bool)>,
) -> fmt::Result {
    let mut line = format!("{state:<13}{ttl:<19}");
    for (field, ends) in fields {
        line += &format!("{field:<4}{}", if ends { "  " } else { " " });
    }
    writeln!(f, "{}", line.trim_end())
}

impl Matrix {
    fn mark(&self, cell: Cell) -> &'static str {
        if !cell.kind.can_have(cell.ttl) {
            return "-";
        }
        match self.cells.iter().find(|(other, _)| *other == cell) {
            Some((_, Outcome::Passed)) => "ok",
            Some((_, Outcome::Failed(_))) => "FAIL",
            Some((_, Outcome::Skipped(_))) => "skip",
            None => "",
        }
    }

    fn legend(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (cell, reason) in self.failed().take(TOLD) {
            let Cell { kind, ttl, snapshot, rescale } = cell;
            writeln!(f, "FAIL: {kind}, TTL {ttl}, {snapshot} {rescale}")?;
            for line in reason.lines() {
                writeln!(f, "      {line}")?;
            }
        }
        if let Some(more @ 1..) = self.failed().count().checked_sub(TOLD) {
            writeln!(f, "FAIL: {more} more cells")?;
        }
        let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, outcome) in &self.cells {
            if let Outcome::Skipped(capability) = outcome {
                *skipped.entry(capability).or_default() += 1;
            }
        }
        for (capability, cells) in skipped {
            writeln!(f, "skip: {cells} cells, the backend lacks {capability}")?;
        }
        writeln!(f, "-:    no such combination")
    }
}
