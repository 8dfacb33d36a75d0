//! Running the cases: one by one as tests, or all of them and the matrix into a report.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_state_api::{BackendFactory, Capabilities, Result};

use crate::cases;
use crate::harness::Harness;
use crate::matrix::Matrix;

/// One statement about a backend, and the code that checks it.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Says what holds; unique within the group.
    pub name: &'static str,
    /// The theme.
    pub group: &'static str,
    /// The clause of the contract that it executes.
    pub clause: &'static str,
    /// The capability without which it is skipped: a field of
    /// [`Capabilities`].
    pub needs: Option<&'static str>,
    /// Returns an error or panics when the statement does not hold.
    pub run: fn(&Harness<'_>) -> Result<()>,
}

/// How a case or a cell of the matrix ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The statement holds.
    Passed,
    /// It does not; the text says why.
    Failed(String),
    /// The backend lacks the named capability.
    Skipped(&'static str),
}

/// The outcome of all cases, and of the matrix.
#[derive(Debug, Clone)]
pub struct Report {
    /// The backend's name.
    pub backend: String,
    /// The cases that hold.
    pub passed: Vec<Case>,
    /// The cases that do not, with the reason.
    pub failed: Vec<(Case, String)>,
    /// The cases that do not apply, with the capability that lacks.
    pub skipped: Vec<(Case, &'static str)>,
    /// The combinations; `None` after [`run_where`].
    pub matrix: Option<Matrix>,
}

impl Report {
    /// Fails the calling test unless every case and cell passed or was skipped.
    ///
    /// # Panics
    /// With the whole report, when a case or a cell of the matrix failed.
    pub fn assert_passed(&self) {
        let matrix = self.matrix.as_ref().is_none_or(Matrix::passed);
        assert!(self.failed.is_empty() && matrix, "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "backend {:?}: {} passed, {} failed, {} skipped",
            self.backend,
            self.passed.len(),
            self.failed.len(),
            self.skipped.len()
        )?;
        for (case, capability) in &self.skipped {
            writeln!(f, "  skip  {:<12} {} (lacks {capability})", case.group, case.name)?;
        }
        for (case, reason) in &self.failed {
            writeln!(f, "  FAIL  {:<12} {}", case.group, case.name)?;
            writeln!(f, "        contract: {}", case.clause)?;
            for line in reason.lines() {
                writeln!(f, "        {line}")?;
            }
        }
        if let Some(matrix) = &self.matrix {
            write!(f, "\n{matrix}")?;
        }
        Ok(())
    }
}

/// All cases, ordered by theme.
pub fn cases() -> impl Iterator<Item = Case> {
    cases::ALL.iter().copied().flatten().copied()
}

/// Runs all cases and the [`matrix`](crate::matrix), prints the report and returns it.
pub fn run(factory: &dyn BackendFactory) -> Report {
    let mut report = run_where(factory, |_| true);
    report.matrix = Some(Matrix::run(factory));
    println!("{report}");
    report
}

/// Runs the cases that `wanted` picks, without the matrix.
pub fn run_where(factory: &dyn BackendFactory, wanted: impl Fn(&Case) -> bool) -> Report {
    run_in(factory, wanted, || Harness::new(factory))
}

/// Runs the cases that `wanted` picks, without the matrix, each in a world that `world` makes: on a local
/// folder with [`Harness::on_disk`], or around any store with [`Harness::around`].
pub fn run_in<'f>(
    factory: &'f dyn BackendFactory,
    wanted: impl Fn(&Case) -> bool,
    world: impl Fn() -> Harness<'f>,
) -> Report {
    let mut report = Report {
        backend: factory.name().to_string(),
        passed: Vec::new(),
        failed: Vec::new(),
        skipped: Vec::new(),
        matrix: None,
    };
    for case in cases().filter(wanted) {
        match judge_in(&world, factory, case.needs, case.run) {
            Outcome::Passed => report.passed.push(case),
            Outcome::Failed(reason) => report.failed.push((case, reason)),
            Outcome::Skipped(capability) => report.skipped.push((case, capability)),
        }
    }
    report
}

/// Runs one case; a panic in it is a failure.
pub fn run_case(factory: &dyn BackendFactory, case: &Case) -> Outcome {
    judge(factory, case.needs, case.run)
}

/// Runs something in a world of its own, unless the backend lacks what it needs.
pub(crate) fn judge(
    factory: &dyn BackendFactory,
    needs: Option<&'static str>,
    run: impl FnOnce(&Harness<'_>) -> Result<()>,
) -> Outcome {
    judge_in(|| Harness::new(factory), factory, needs, run)
}

fn judge_in<'f>(
    world: impl FnOnce() -> Harness<'f>,
    factory: &dyn BackendFactory,
    needs: Option<&'static str>,
    run: impl FnOnce(&Harness<'_>) -> Result<()>,
) -> Outcome {
    if let Some(needed) = needs
        && !has(factory.capabilities(), needed)
    {
        return Outcome::Skipped(needed);
    }
    match catch_unwind(AssertUnwindSafe(|| run(&world()))) {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(error)) => Outcome::Failed(format!("{error:?}")),
        Err(panic) => Outcome::Failed(text_of(&*panic)),
    }
}

/// Runs the case with this group and name as a test; what [`conformance_tests!`] expands to.
///
/// [`conformance_tests!`]: crate::conformance_tests
///
/// # Panics
/// When the case fails, or there is none of that name.
pub fn check(factory: &dyn BackendFactory, group: &str, name: &str) {
    let case = cases()
        .find(|case| case.group == group && case.name == name)
        .unwrap_or_else(|| panic!("there is no case {group}::{name}"));
    match run_case(factory, &case) {
        Outcome::Passed => {}
        Outcome::Skipped(capability) => println!("skipped: the backend lacks {capability}"),
        Outcome::Failed(reason) => panic!("{reason}\ncontract: {}", case.clause),
    }
}

/// The largest value limit that is worth testing: beyond, the case would need the memory.
pub(crate) const TESTABLE_VALUE_LEN: u64 = 64 << 20;

fn has(capabilities: Capabilities, name: &str) -> bool {
    match name {
        "never_pends" => capabilities.never_pends,
        "driven_clean_up" => capabilities.driven_clean_up,
        "incremental_snapshots" => capabilities.incremental_snapshots,
        "max_value_len" => capabilities.max_value_len <= TESTABLE_VALUE_LEN,
        unknown => panic!("no capability is called {unknown:?}"),
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_string()
    } else {
        "a panic without a message".to_string()
    }
}
