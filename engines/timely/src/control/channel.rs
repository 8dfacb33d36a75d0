//! The dataflow that carries reports and news.

use std::rc::Rc;
use std::time::Duration;

use timely::container::CapacityContainerBuilder;
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::generic::{Operator, source};
use timely::dataflow::operators::vec::Broadcast;
use timely::worker::Worker;
use weir_state_api::waker_fn;

use super::coordinator::Coordinator;
use super::message::{News, Report};
use super::shared::{Shared, wake};
use crate::alarm::Alarm;

/// How often the coordinator looks at its clock at least.
const TICK: Duration = Duration::from_millis(100);

/// Builds the dataflow; the coordinator is on worker 0.
pub(crate) fn connect(worker: &mut Worker, shared: &Rc<Shared>, coordinator: Option<Coordinator>) {
    worker.dataflow_named::<u64, _, _>("weir control", |scope| {
        let reports: StreamVec<'_, u64, Report> =
            source::<_, CapacityContainerBuilder<Vec<Report>>, _, _>(
                scope,
                "reports",
                |capability, info| {
                    let wake = scope.worker().sync_activator_for(info.address.to_vec());
                    shared.set_outbox(wake, info.address[0]);
                    let shared = shared.clone();
                    let mut capability = Some(capability);
                    move |output| {
                        if let Some(capability) = &capability {
                            let mut session = output.session(capability);
                            while let Some(report) = shared.take_report() {
                                session.give(report);
                            }
                        }
                        if shared.is_over() {
                            capability = None;
                        }
                    }
                },
            );
        let news = coordinate(reports, coordinator);
        let shared = shared.clone();
        news.broadcast().sink_to(move |news| shared.deliver(&news));
    });
}

fn coordinate<'scope>(
    reports: StreamVec<'scope, u64, Report>,
    mut coordinator: Option<Coordinator>,
) -> StreamVec<'scope, u64, News> {
    let scope = reports.scope();
    reports.unary_frontier::<CapacityContainerBuilder<Vec<News>>, _, _, _>(
        Exchange::new(|_: &Report| 0),
        "coordinator",
        move |capability, info| {
            let mut alarm = Alarm::new(scope.activator_for(info.address.clone()));
            let activator = scope.worker().sync_activator_for(info.address.to_vec());
            let waker = waker_fn(move || wake(&activator));
            let mut capability = coordinator.is_some().then_some(capability);
            move |(input, _), output| {
                let Some(coordinator) = &mut coordinator else { return };
                input.for_each(|_, reports| {
                    reports.drain(..).for_each(|report| coordinator.take_report(report));
                });
                coordinator.advance(&waker);
                if let Some(held) = &capability {
                    output.session(held).give_iterator(coordinator.news());
                }
                if coordinator.is_over() {
                    capability = None;
                    return;
                }
                alarm.set(coordinator.patience().min(TICK));
            }
        },
    )
}

trait SinkTo<D> {
    fn sink_to(self, take: impl FnMut(D) + 'static);
}

impl<D: 'static> SinkTo<D> for StreamVec<'_, u64, D> {
    fn sink_to(self, mut take: impl FnMut(D) + 'static) {
        self.unary::<CapacityContainerBuilder<Vec<()>>, _, _, _>(Pipeline, "news", move |_, _| {
            move |input, _| input.for_each(|_, items| items.drain(..).for_each(&mut take))
        });
    }
}
