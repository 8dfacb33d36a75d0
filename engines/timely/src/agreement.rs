//! How workers agree before a job begins: everybody hears everybody.

use std::cell::RefCell;
use std::rc::Rc;

use timely::ExchangeData;
use timely::dataflow::operators::vec::{Broadcast, ToStream};
use timely::dataflow::operators::{Inspect, Probe};
use timely::worker::Worker;

/// Gives each worker the messages of all workers, in the order of their indexes. All workers must
/// call it, as often and in the same order. It runs the worker meanwhile.
pub(crate) fn all_gather<M: ExchangeData + Clone>(worker: &mut Worker, message: M) -> Vec<M> {
    let index = worker.index() as u64;
    let heard = Rc::new(RefCell::new(Vec::new()));
    let probe = worker.dataflow_named::<u64, _, _>("weir agreement", |scope| {
        let heard = heard.clone();
        std::iter::once((index, message))
            .to_stream(scope)
            .broadcast()
            .inspect(move |message| heard.borrow_mut().push(message.clone()))
            .probe()
            .0
    });
    while !probe.done() {
        worker.step_or_park(None);
    }
    let mut heard = heard.take();
    heard.sort_by_key(|(index, _)| *index);
    heard.into_iter().map(|(_, message)| message).collect()
}
