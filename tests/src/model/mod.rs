//! Random programs against a plain model.
//!
//! A program writes to every kind of state in two namespaces, and to states whose values expire by a
//! clock that it moves, takes snapshots and writes them later, sends notifications, crashes, restores
//! a random complete checkpoint at a random parallelism, scans, lists keys and polls timers. Every answer is compared with a model made of
//! `BTreeMap`s, and the whole contents at the end. A failing program is shrunk before it is shown.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `WEIR_SEED` | run the one program with this seed | none |
//! | `WEIR_PROGRAMS` | how many programs to run | 60 |
//! | `WEIR_STEPS` | how many steps a program has | 150 |

mod ageing;
mod checks;
mod instance;
mod job;
mod oracle;
mod program;

use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_state_api::BackendFactory;

use crate::harness::Harness;
use program::Step;

/// The first seed when none is given: runs are the same everywhere unless asked otherwise.
const FIRST_SEED: u64 = 1;

/// A program on which the backend and the model differ.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Replays it: `WEIR_SEED`.
    pub seed: u64,
    /// What differed after the smallest program that still fails.
    pub reason: String,
    /// The steps of that program.
    pub steps: Vec<String>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} (replay with WEIR_SEED={})", self.reason, self.seed)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "    {step}"))
    }
}

/// Runs as many programs as the environment asks for.
///
/// # Errors
/// The first difference, shrunk.
pub fn check(factory: &dyn BackendFactory) -> Result<(), Difference> {
    let steps = variable("WEIR_STEPS").unwrap_or(150);
    if let Some(seed) = variable("WEIR_SEED") {
        return check_seed(factory, seed, steps);
    }
    let programs = variable("WEIR_PROGRAMS").unwrap_or(60);
    (FIRST_SEED..FIRST_SEED + programs).try_for_each(|seed| check_seed(factory, seed, steps))
}

/// Runs the program with this seed and number of steps.
///
/// # Errors
/// The difference, shrunk.
pub fn check_seed(factory: &dyn BackendFactory, seed: u64, steps: u64) -> Result<(), Difference> {
    let program = program::generate(seed, steps);
    let Err(reason) = execute(factory, &program) else { return Ok(()) };
    let (program, reason) = shrink(factory, program, reason);
    let steps = program.iter().map(|step| format!("{step:?}")).collect();
    Err(Difference { seed, reason, steps })
}

fn execute(factory: &dyn BackendFactory, program: &[Step]) -> Result<(), String> {
    let run = || {
        let harness = Harness::new(factory);
        job::run(&harness, program)
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("a panic".to_string()))
}

/// Leaves out ever smaller parts of the program as long as it still fails.
fn shrink(
    factory: &dyn BackendFactory,
    mut program: Vec<Step>,
    mut reason: String,
) -> (Vec<Step>, String) {
    let mut part = program.len().div_ceil(2);
    let mut attempts = 500;
    loop {
        let mut start = 0;
        let mut shorter = false;
        while start < program.len() && attempts > 0 {
            attempts -= 1;
            let end = (start + part).min(program.len());
            let mut candidate = program.clone();
            candidate.drain(start..end);
            match execute(factory, &candidate) {
                Err(why) => (program, reason, shorter) = (candidate, why, true),
                Ok(()) => start = end,
            }
        }
        if attempts == 0 || part <= 1 && !shorter {
            return (program, reason);
        }
        if !shorter {
            part = part.div_ceil(2);
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
