//! What a backend passes, as a table: kind of state × TTL × kind of snapshot × rescaling.
//!
//! The [cases](crate::conformance) state one thing each; the matrix takes one short life of a job
//! through every combination. [`conformance::run`](crate::conformance::run) runs it after the cases,
//! and [`conformance_tests!`](crate::conformance_tests) makes it a test of its own, which shows the
//! table whether it passes or not:
//!
//! ```text
//! matrix of backend "reference": 232 ok, 0 failed, 116 skipped
//!
//! state        TTL                checkpoint           incremental          savepoint
//!                                 2→2  1→2  2→3  3→1   2→2  1→2  2→3  3→1   2→2  1→2  2→3  3→1
//! value        none               ok   ok   ok   ok    skip skip skip skip  ok   ok   ok   ok
//! value        processing time    ok   ok   ok   ok    skip skip skip skip  ok   ok   ok   ok
//! value        refreshed on read  ok   ok   ok   ok    skip skip skip skip  ok   ok   ok   ok
//! value        event time         ok   ok   ok   ok    skip skip skip skip  ok   ok   ok   ok
//! value        per write          ok   ok   ok   ok    skip skip skip skip  ok   ok   ok   ok
//! ...
//! timers       none               ok   ok   ok   ok    skip skip skip skip  ok   ok   ok   ok
//! timers       processing time    -    -    -    -     -    -    -    -     -    -    -    -
//! ...
//!
//! skip: 116 cells, the backend lacks incremental_snapshots
//! -:    no such combination
//! ```
//!
//! `2→3` is a snapshot of two instances that three are restored from. Below the table stands why
//! cells failed. From code:
//!
//! ```
//! use weir_tests::matrix::{Kind, Matrix, Rescale};
//! use weir_tests::reference::ReferenceBackendFactory;
//!
//! let factory = ReferenceBackendFactory::default();
//! let matrix = Matrix::run_where(&factory, |cell| {
//!     cell.kind == Kind::Value && cell.rescale == Rescale { from: 2, to: 3 }
//! });
//! assert!(matrix.passed(), "{matrix}");
//! ```

mod axes;
mod cell;
mod job;
mod model;
mod table;

use std::io::Write as _;

use weir_state_api::BackendFactory;

pub use axes::{Kind, Rescale, SnapshotMode, TtlMode};

use crate::conformance::{Outcome, judge};

/// One combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell {
    /// The kind of state.
    pub kind: Kind,
    /// How it expires.
    pub ttl: TtlMode,
    /// What it is restored from.
    pub snapshot: SnapshotMode,
    /// At which parallelism.
    pub rescale: Rescale,
}

impl Cell {
    /// All combinations that exist, row by row.
    pub fn all() -> impl Iterator<Item = Cell> {
        let rows =
            Kind::ALL.iter().flat_map(|kind| TtlMode::ALL.iter().map(move |ttl| (kind, ttl)));
        rows.filter(|(kind, ttl)| kind.can_have(**ttl)).flat_map(|(&kind, &ttl)| {
            columns().map(move |(snapshot, rescale)| Cell { kind, ttl, snapshot, rescale })
        })
    }

    /// Runs it in a world of its own; a panic is a failure.
    pub fn run(&self, factory: &dyn BackendFactory) -> Outcome {
        judge(factory, self.snapshot.needs(), |h| cell::run(h, self))
    }
}

/// The columns of the table.
fn columns() -> impl Iterator<Item = (SnapshotMode, Rescale)> {
    let snapshots = SnapshotMode::ALL.iter();
    snapshots.flat_map(|&snapshot| Rescale::ALL.iter().map(move |&rescale| (snapshot, rescale)))
}

/// How the cells ended; shown as a table.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// The backend's name.
    pub backend: String,
    /// The cells that were run or skipped, row by row.
    pub cells: Vec<(Cell, Outcome)>,
}

impl Matrix {
    /// Runs all cells: some hundred short jobs, seconds for a backend in memory.
    pub fn run(factory: &dyn BackendFactory) -> Self {
        Self::run_where(factory, |_| true)
    }

    /// Runs the cells that `wanted` picks; the others stay blank in the table.
    pub fn run_where(factory: &dyn BackendFactory, wanted: impl Fn(&Cell) -> bool) -> Self {
        let cells = Cell::all().filter(wanted).map(|cell| (cell, cell.run(factory))).collect();
        Matrix { backend: factory.name().to_string(), cells }
    }

    /// Whether no cell failed.
    pub fn passed(&self) -> bool {
        self.failed().next().is_none()
    }

    /// The cells that failed, with the reason.
    pub fn failed(&self) -> impl Iterator<Item = (Cell, &str)> {
        self.cells.iter().filter_map(|(cell, outcome)| match outcome {
            Outcome::Failed(reason) => Some((*cell, reason.as_str())),
            _ => None,
        })
    }
}

/// Runs all cells as a test; what [`conformance_tests!`](crate::conformance_tests) expands to.
///
/// # Panics
/// When a cell fails.
pub fn check(factory: &dyn BackendFactory) {
    let matrix = Matrix::run(factory);
    // Around the test harness, which shows what a test prints only when it fails: the table is what
    // one runs the matrix for. In one piece, because other tests report meanwhile.
    let table = format!("\n{matrix}\n");
    std::io::stdout().lock().write_all(table.as_bytes()).expect("the standard output takes text");
    assert!(matrix.passed(), "{} cells of the matrix failed", matrix.failed().count());
}
