//! Reducing and aggregating states.

use weir_state_api::{Aggregate, BoxError, Result};

use super::{Case, group};
use crate::harness::{At, Harness};

pub(super) const CASES: &[Case] = group!["folding":
    reducing_stores_the_first_and_combines_the_rest => "reducing",
    reducing_keeps_the_order_of_arguments => "reducing",
    a_neutral_result_is_still_a_value => "absent vs empty",
    aggregating_folds_into_an_accumulator => "aggregating",
    accumulators_of_two_namespaces_share_nothing => "aggregating; namespaces",
    folds_go_on_after_a_restore => "reducing, aggregating; snapshots",
];

/// Counts and joins texts; fails on `"bad"`, panics on `"panic"`.
pub(crate) struct Join;

impl Aggregate for Join {
    type Input = String;
    type Accumulator = (u32, String);
    type Output = String;

    fn create(&self) -> (u32, String) {
        (0, String::new())
    }

    fn add(&self, (count, text): &mut (u32, String), input: String) -> Result<(), BoxError> {
        // Change the accumulator first: a failure must not let that through.
        *count += 1;
        text.push_str(&input);
        match input.as_str() {
            "bad" => Err("a bad input".into()),
            "panic" => panic!("a panicking input"),
            _ => Ok(()),
        }
    }

    fn merge(&self, a: (u32, String), b: (u32, String)) -> Result<(u32, String), BoxError> {
        if b.1.contains("unmergeable") {
            return Err("an unmergeable accumulator".into());
        }
        Ok((a.0 + b.0, a.1 + &b.1))
    }

    fn output(&self, (count, text): &(u32, String)) -> String {
        format!("{count}:{text}")
    }
}

/// The first element is stored as it is, absent reads as `None`, keys are isolated.
fn reducing_stores_the_first_and_combines_the_rest(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let sum = store.reducing("r", |a: i64, b| Ok(a + b))?;
    assert_eq!(sum.get(store.at("a")?).wait()?, None);
    assert!(sum.add(&mut store, 5).wait()?, "the first element is told of");
    assert_eq!(sum.get(&mut store).wait()?, Some(5));
    assert!(!sum.add(&mut store, 0).wait()?, "the second is not the first");
    for number in 1..=10 {
        sum.add(&mut store, number).wait()?;
    }
    sum.add(store.at("b")?, 1).wait()?;
    assert_eq!(sum.get(store.at("a")?).wait()?, Some(60));
    sum.clear(&mut store)?;
    assert_eq!(sum.get(&mut store).wait()?, None);
    sum.add(&mut store, 7).wait()?;
    assert_eq!(sum.get(&mut store).wait()?, Some(7));
    assert_eq!(sum.get(store.at("b")?).wait()?, Some(1));
    Ok(())
}

/// The function gets the old value first and the new element second.
fn reducing_keeps_the_order_of_arguments(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let text = store.reducing("r", |a: String, b: String| Ok(format!("{a},{b}")))?;
    store.at("a")?;
    for element in ["1", "", "u1"] {
        text.add(&mut store, element.to_string()).wait()?;
    }
    assert_eq!(text.get(&mut store).wait()?.as_deref(), Some("1,,u1"));
    Ok(())
}

/// A sum of zero and an empty text are present, and their keys are listed.
fn a_neutral_result_is_still_a_value(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let sum = store.reducing("sum", |a: i64, b| Ok(a + b))?;
    let unit = store.reducing("unit", |(): (), ()| Ok(()))?;
    store.at("a")?;
    sum.add(&mut store, 1).wait()?;
    sum.add(&mut store, -1).wait()?;
    unit.add(&mut store, ()).wait()?;
    assert_eq!(sum.get(&mut store).wait()?, Some(0));
    assert_eq!(unit.get(&mut store).wait()?, Some(()));
    assert_eq!(store.keys("sum")?.count(), 1);
    assert_eq!(store.keys("unit")?.count(), 1);
    Ok(())
}

/// Absent reads as `None`, not as the result of an empty accumulator; inputs fold in order.
fn aggregating_folds_into_an_accumulator(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let joined = store.aggregating("a", Join)?;
    assert_eq!(joined.get(store.at("a")?).wait()?, None);
    for input in ["x", "", "y"] {
        joined.add(&mut store, input.to_string()).wait()?;
    }
    assert_eq!(joined.get(&mut store).wait()?.as_deref(), Some("3:xy"));
    assert_eq!(joined.get(store.at("b")?).wait()?, None);
    joined.clear(store.at("a")?)?;
    assert_eq!(joined.get(&mut store).wait()?, None);
    Ok(())
}

/// The same input added to two namespaces makes two accumulators.
fn accumulators_of_two_namespaces_share_nothing(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let joined = store.namespaced::<i64>().aggregating_with("a", weir_state_api::Native, Join)?;
    store.at("a")?;
    for namespace in [1, 2] {
        joined.at(&namespace)?.add(&mut store, "x".into()).wait()?;
    }
    joined.at(&1)?.add(&mut store, "y".into()).wait()?;
    assert_eq!(joined.at(&1)?.get(&mut store).wait()?.as_deref(), Some("2:xy"));
    assert_eq!(joined.at(&2)?.get(&mut store).wait()?.as_deref(), Some("1:x"));
    Ok(())
}

/// A restored accumulator takes further inputs where it stood.
fn folds_go_on_after_a_restore(h: &Harness<'_>) -> Result<()> {
    let mut store = h.open()?;
    let sum = store.reducing("r", |a: i64, b| Ok(a + b))?;
    let joined = store.aggregating("a", Join)?;
    store.at("a")?;
    sum.add(&mut store, 1).wait()?;
    joined.add(&mut store, "x".into()).wait()?;
    let handle = h.snapshot(&mut store)?;
    let mut restored = h.restore(&[handle])?;
    let sum = restored.reducing("r", |a: i64, b| Ok(a + b))?;
    let joined = restored.aggregating("a", Join)?;
    restored.at("a")?;
    sum.add(&mut restored, 2).wait()?;
    joined.add(&mut restored, "y".into()).wait()?;
    assert_eq!(sum.get(&mut restored).wait()?, Some(3));
    assert_eq!(joined.get(&mut restored).wait()?.as_deref(), Some("2:xy"));
    Ok(())
}
