//! Who is measured: something that runs a round of an operation and answers with a checksum.

use std::rc::Rc;

use weir_state_api::{Error, ErrorKind, KeyedStore, Result};

use super::inputs::{Inputs, Pass};
use super::operation::Table;
use crate::backends::{Backend, Instance};
use crate::clock::{Elapsed, Stopwatch};

/// What one round took, and a checksum of its answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) elapsed: Elapsed,
    pub(crate) answer: u64,
}

/// One contestant of a family.
pub(crate) trait Contestant {
    /// Its name in tables.
    fn name(&self) -> &str;

    /// Its options, for the report.
    fn options(&self) -> Result<String>;

    /// Whether it has this operation.
    fn knows(&self, operation: &str) -> bool;

    /// Sets up what the operation works on.
    fn begin(&mut self, operation: &str) -> Result<()>;

    /// Runs round number `round`. The rounds of an operation count up from 0.
    fn round(&mut self, round: usize) -> Result<Round>;

    /// The same without a look at any clock; returns the checksum. Where instructions are counted,
    /// the clocks of the kernel may be out of reach.
    fn untimed_round(&mut self, round: usize) -> Result<u64> {
        self.round(round).map(|round| round.answer)
    }

    /// A checksum of all state after the last round.
    fn digest(&mut self) -> Result<u64>;

    /// Gives back what `begin` took, as far as it is of no use for the next operation.
    fn end(&mut self);
}

/// A subject in this process.
pub(crate) struct Local<S> {
    pub(crate) name: String,
    pub(crate) options: Box<dyn Fn() -> Result<String>>,
    pub(crate) inputs: Rc<Inputs>,
    pub(crate) table: Table<S>,
    pub(crate) empty: Box<dyn Fn() -> Result<S>>,
    subject: Option<S>,
    current: usize,
}

impl<S> Local<S> {
    pub(crate) fn new(
        name: String,
        inputs: Rc<Inputs>,
        table: Table<S>,
        empty: impl Fn() -> Result<S> + 'static,
        options: impl Fn() -> Result<String> + 'static,
    ) -> Self {
        let (empty, options) = (Box::new(empty), Box::new(options));
        Local { name, options, inputs, table, empty, subject: None, current: 0 }
    }

    fn position(&self, operation: &str) -> Option<usize> {
        self.table.operations.iter().position(|known| known.name == operation)
    }
}

impl<S> Local<S> {
    /// What comes before a round and is not measured.
    fn prepare(&mut self) -> Result<()> {
        let subject = self.subject.as_mut().ok_or_else(not_begun)?;
        match self.table.operations[self.current].before_round {
            Some(prepare) => prepare(subject, &self.inputs),
            None => Ok(()),
        }
    }

    /// The calls of a round.
    fn calls(&mut self, round: usize) -> Result<u64> {
        let subject = self.subject.as_mut().ok_or_else(not_begun)?;
        let pass = Pass::new(&self.inputs, round);
        let calls = (self.table.calls)(&self.inputs);
        (self.table.operations[self.current].batch)(subject, &pass, calls)
    }
}

impl<S> Contestant for Local<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn options(&self) -> Result<String> {
        (self.options)()
    }

    fn knows(&self, operation: &str) -> bool {
        self.position(operation).is_some()
    }

    fn begin(&mut self, operation: &str) -> Result<()> {
        self.current = self.position(operation).ok_or_else(not_begun)?;
        if self.subject.is_none() {
            let mut subject = (self.empty)()?;
            (self.table.fill)(&mut subject, &self.inputs)?;
            self.subject = Some(subject);
        }
        Ok(())
    }

    fn round(&mut self, round: usize) -> Result<Round> {
        self.prepare()?;
        let watch = Stopwatch::start();
        let answer = self.calls(round)?;
        Ok(Round { elapsed: watch.stop(), answer })
    }

    fn untimed_round(&mut self, round: usize) -> Result<u64> {
        self.prepare()?;
        self.calls(round)
    }

    fn digest(&mut self) -> Result<u64> {
        let subject = self.subject.as_mut().ok_or_else(not_begun)?;
        (self.table.digest)(subject, &self.inputs)
    }

    fn end(&mut self) {
        if self.table.operations[self.current].writes {
            self.subject = None;
        }
    }
}

fn not_begun() -> Error {
    Error::new(ErrorKind::InvalidUsage, "no such operation is under way")
}

/// A state of Weir, through the typed layer and the object-safe interface below it.
pub(crate) struct Weir<H> {
    pub(crate) instance: Instance,
    pub(crate) state: H,
}

/// Registers a family's state.
pub(crate) type Register<H> = fn(&mut KeyedStore<i64>) -> Result<H>;

impl<H: 'static> Weir<H> {
    /// An instance of a backend with that state, as a contestant.
    pub(crate) fn contestant(
        backend: Backend,
        key_groups: u16,
        name: String,
        inputs: Rc<Inputs>,
        table: Table<Self>,
        register: Register<H>,
    ) -> Box<dyn Contestant> {
        let open = move || {
            let mut instance = backend.open(key_groups)?;
            let state = register(&mut instance.store)?;
            Ok(Weir { instance, state })
        };
        Box::new(Local::new(name, inputs, table, open, move || backend.options()))
    }
}
