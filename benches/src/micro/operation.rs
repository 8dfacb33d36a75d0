//! What is measured, as data: a family is a table of operations over one kind of state.

use std::hint::black_box;

use weir_state_api::Result;

use super::inputs::{Inputs, Pass};

/// The operations of a family on a subject: Weir's state, or a collection of the standard library.
pub(crate) struct Table<S> {
    /// Brings an empty subject into the state that the operations expect.
    pub(crate) fill: fn(&mut S, &Inputs) -> Result<()>,
    /// A number that stands for all of the subject's content. May empty it.
    pub(crate) digest: fn(&mut S, &Inputs) -> Result<u64>,
    /// How many calls a round is.
    pub(crate) calls: fn(&Inputs) -> usize,
    /// The rows.
    pub(crate) operations: Vec<Operation<S>>,
}

impl<S> Table<S> {
    /// Only the operations that are named on the left, with the names on the right.
    pub(crate) fn renamed(mut self, names: &[(&str, &'static str)]) -> Self {
        self.operations.retain_mut(|operation| {
            let renamed = names.iter().find(|(old, _)| *old == operation.name);
            if let Some((_, new)) = renamed {
                operation.name = new;
            }
            renamed.is_some()
        });
        self
    }
}

type Batch<S> = dyn Fn(&mut S, &Pass<'_>, usize) -> Result<u64>;

/// One operation: a loop over calls, and what goes with it.
pub(crate) struct Operation<S> {
    pub(crate) name: &'static str,
    /// What the figures count: calls, or the entries that each call reads.
    pub(crate) entries: u64,
    /// Whether it writes: others then get a subject that is set up anew.
    pub(crate) writes: bool,
    /// Runs before each round; not measured.
    pub(crate) before_round: Option<fn(&mut S, &Inputs) -> Result<()>>,
    /// So many calls, with a checksum of their answers.
    pub(crate) batch: Box<Batch<S>>,
}

/// An operation whose calls follow each other at once: the keys are known beforehand, so the
/// processor may overlap the cache misses of neighbouring calls.
pub(crate) fn operation<S>(
    name: &'static str,
    call: impl Fn(&mut S, &Pass<'_>, usize) -> Result<u64> + 'static,
) -> Operation<S> {
    Operation::new(name, move |subject, pass, calls| {
        (0..calls).try_fold(0, |sum, index| Ok(mix(sum, call(subject, pass, index)?)))
    })
}

/// An operation whose next key depends on the answer before: one key is in flight, as in an
/// operator that handles record after record.
pub(crate) fn chained<S>(
    name: &'static str,
    call: impl Fn(&mut S, &Pass<'_>, usize) -> Result<u64> + 'static,
) -> Operation<S> {
    Operation::new(name, move |subject, pass, calls| {
        let never = black_box(0x5eed_0fff_ffff_ffff);
        let (mut index, mut sum) = (0, 0);
        while index < calls {
            let answer = call(subject, pass, index)?;
            sum = mix(sum, answer);
            // This adds one; the processor cannot know before the answer is there.
            index += 1 + usize::from(answer == never);
        }
        Ok(sum)
    })
}

impl<S> Operation<S> {
    fn new(
        name: &'static str,
        batch: impl Fn(&mut S, &Pass<'_>, usize) -> Result<u64> + 'static,
    ) -> Self {
        let batch = Box::new(batch);
        Operation { name, entries: 1, writes: false, before_round: None, batch }
    }

    /// Each call reads so many entries, and entries are what is counted.
    pub(crate) fn per_entry(mut self, entries: usize) -> Self {
        self.entries = entries as u64;
        self
    }

    /// It writes; the written state is compared after the last round.
    pub(crate) fn writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Runs `prepare` before each round.
    pub(crate) fn before_round(mut self, prepare: fn(&mut S, &Inputs) -> Result<()>) -> Self {
        self.before_round = Some(prepare);
        self.writes()
    }
}

/// Adds an answer to a checksum of answers in order.
#[inline(always)]
pub(crate) fn mix(sum: u64, answer: u64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(answer)
}

/// The answer that stands for "no value" in checksums.
pub(crate) const ABSENT: i64 = -1;
