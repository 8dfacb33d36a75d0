//! One instance of the job, and small helpers.

use std::fmt::Debug;

use weir_state_api::{
    Aggregate, AggregatingState, BoxError, ListState, MapState, Namespaced, Native, Ordered,
    ReducingState, TimerState, ValueState,
};

use super::ageing::Ageing;
use crate::harness::Store;

/// What a step or a check comes to; the error says what differed.
pub(super) type Checked = Result<(), String>;

/// Joins texts.
pub(super) struct Text;

impl Aggregate for Text {
    type Input = char;
    type Accumulator = String;
    type Output = String;

    fn create(&self) -> String {
        String::new()
    }

    fn add(&self, text: &mut String, input: char) -> Result<(), BoxError> {
        text.push(input);
        Ok(())
    }

    fn merge(&self, a: String, b: String) -> Result<String, BoxError> {
        Ok(a + &b)
    }

    fn output(&self, text: &String) -> String {
        text.clone()
    }
}

/// One instance with its handles; state ids differ from instance to instance.
pub(super) struct Instance {
    pub(super) store: Store,
    pub(super) values: Namespaced<ValueState<u64>, u8>,
    pub(super) lists: Namespaced<ListState<Vec<u8>>, u8>,
    pub(super) maps: Namespaced<MapState<i16, Vec<u8>>, u8>,
    pub(super) sums: Namespaced<ReducingState<i64>, u8>,
    pub(super) folds: Namespaced<AggregatingState<Text>, u8>,
    pub(super) timers: TimerState<u8>,
    pub(super) ageing: Ageing,
}

impl Instance {
    pub(super) fn new(mut store: Store) -> weir_state_api::Result<Self> {
        Ok(Instance {
            values: store.namespaced().value("values")?,
            lists: store.namespaced().list_with("lists", Native)?,
            maps: store.namespaced().map_with("maps", Ordered, Native)?,
            sums: store.namespaced().reducing_with("sums", Native, |a: i64, b| Ok(a + b))?,
            folds: store.namespaced().aggregating_with("folds", Native, Text)?,
            timers: store.timers("timers")?,
            ageing: Ageing::register(&mut store)?,
            store,
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "call sites compute both sides in place")]
pub(super) fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Checked {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}"))
}

#[expect(clippy::needless_pass_by_value, reason = "used as `map_err(text)`")]
pub(super) fn text(error: weir_state_api::Error) -> String {
    format!("{error:?}")
}

pub(super) fn bind<S: weir_state_api::Bind>(
    state: &Namespaced<S, u8>,
    ns: u8,
) -> Result<S, String> {
    state.at(&ns).map_err(text)
}
