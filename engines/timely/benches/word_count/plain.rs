//! The same program without state: timely dataflow and a bare hash map.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use timely::Config;
use timely::container::CapacityContainerBuilder;
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Exchange;
use timely::dataflow::operators::generic::{Operator as _, source};

use crate::Failure;
use crate::input::Input;

const BATCH: u64 = 1024;

/// The sum of all counts, as each is reached: depends on every update.
pub(crate) fn run(input: Input, workers: usize) -> Result<u64, Failure> {
    let total = Arc::new(AtomicU64::new(0));
    let of_workers = total.clone();
    let guards = timely::execute(Config::process(workers), move |worker| {
        let (index, peers, total) =
            (worker.index() as u64, worker.peers() as u64, of_workers.clone());
        worker.dataflow::<u64, _, _>(|scope| {
            let words: StreamVec<'_, u64, String> =
                source::<_, CapacityContainerBuilder<Vec<String>>, _, _>(
                    scope,
                    "words",
                    |capability, info| {
                        let activator = scope.activator_for(info.address);
                        let (mut next, mut capability) = (index, Some(capability));
                        move |output| {
                            let Some(held) = &capability else { return };
                            let to = input.end.min(next + BATCH * peers);
                            let numbers = (next..to).step_by(peers as usize);
                            output.session(held).give_iterator(numbers.map(|n| input.word(n)));
                            next += BATCH * peers;
                            if next >= input.end {
                                capability = None;
                            } else {
                                activator.activate();
                            }
                        }
                    },
                );
            let exchange = Exchange::new(|word: &String| {
                let mut hasher = DefaultHasher::new();
                word.hash(&mut hasher);
                hasher.finish()
            });
            let mut counts = HashMap::<String, u64>::new();
            words.unary::<CapacityContainerBuilder<Vec<()>>, _, _, _>(
                exchange,
                "count",
                move |_, _| {
                    move |input, _| {
                        input.for_each(|_, words| {
                            let mut sum = 0_u64;
                            for word in words.drain(..) {
                                let count = counts.entry(word).or_default();
                                *count += 1;
                                sum = sum.wrapping_add(*count);
                            }
                            total.fetch_add(sum, Relaxed);
                        });
                    }
                },
            );
        });
    })?;
    for worker in guards.join() {
        worker?;
    }
    Ok(total.load(Relaxed))
}
