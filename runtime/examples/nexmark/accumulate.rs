//! What the queries compute in windows.

use std::marker::PhantomData;

use weir_state_api::{Aggregate, BoxError};

/// A summary of inputs that begins empty, takes them in one by one, and is itself the result.
pub(crate) trait Accumulator<T>: Clone + Default + Send + 'static {
    /// Takes in an input.
    fn add(&mut self, input: T);

    /// Takes in what another one has taken in.
    fn merge(&mut self, other: Self);
}

/// Fills an [`Accumulator`].
pub(crate) struct Accumulate<T, A>(PhantomData<fn(T) -> A>);

impl<T, A> Accumulate<T, A> {
    pub(crate) fn new() -> Self {
        Accumulate(PhantomData)
    }
}

impl<T, A> Clone for Accumulate<T, A> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<T: Send + 'static, A: Accumulator<T>> Aggregate for Accumulate<T, A> {
    type Input = T;
    type Accumulator = A;
    type Output = A;

    fn create(&self) -> A {
        A::default()
    }

    fn add(&self, accumulator: &mut A, input: T) -> Result<(), BoxError> {
        accumulator.add(input);
        Ok(())
    }

    fn merge(&self, mut a: A, b: A) -> Result<A, BoxError> {
        a.merge(b);
        Ok(a)
    }

    fn output(&self, accumulator: &A) -> A {
        accumulator.clone()
    }
}

/// How many ids there are; they are keys already, so which ones does not matter.
impl Accumulator<u64> for u64 {
    fn add(&mut self, _: u64) {
        *self += 1;
    }

    fn merge(&mut self, other: u64) {
        *self += other;
    }
}
