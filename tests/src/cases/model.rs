//! The random test as a case.

use weir_state_api::Result;

use super::{Case, group};
use crate::harness::Harness;

pub(super) const CASES: &[Case] = group!["model":
    random_programs_match_the_model => "all clauses together; see `weir_tests::model`",
];

/// Random programs with snapshots, crashes and rescaling answer as a plain model does.
fn random_programs_match_the_model(h: &Harness<'_>) -> Result<()> {
    if let Err(difference) = crate::model::check(h.factory()) {
        panic!("{difference}");
    }
    Ok(())
}
