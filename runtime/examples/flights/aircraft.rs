//! The first operator: follows each aircraft through its day.

use weir_runtime::{Context, KeyedOperator};
use weir_state_api::{KeyedStore, ListState, Millis, Namespaced, Postcard, Result, ValueState};

use super::legs::{self, AircraftDay, AttributedFlight};
use super::records::Flight;
use super::timeline::{self, Minutes};

/// Attributes the delays of an aircraft's flights, which takes them in event-time order.
///
/// They arrive in no particular order, as they come from several splits. So each flight waits in
/// state until the watermark says that none before it is missing; then its timer fires.
pub(crate) struct Aircraft {
    /// Flights that wait, by the minute they are scheduled for.
    waiting: Namespaced<ListState<Flight, Postcard>, Minutes>,
    /// The legs of the current day.
    day: ValueState<AircraftDay, Postcard>,
}

impl Aircraft {
    pub(crate) fn open(store: &mut KeyedStore<String>) -> Result<Self> {
        Ok(Aircraft {
            waiting: store.namespaced().list_with("waiting", Postcard::schema("Flight", 1))?,
            day: store.value_with("day", Postcard::schema("AircraftDay", 1))?,
        })
    }
}

impl KeyedOperator for Aircraft {
    /// The tail number.
    type Key = String;
    type In = Flight;
    type Out = AttributedFlight;
    type Timer = ();

    fn process(&mut self, flight: Flight, context: &mut Context<'_, Self>) -> Result<()> {
        let time = context.time();
        if context.is_late(time) {
            context.count_late();
            return Ok(());
        }
        self.waiting.at(&flight.scheduled)?.add(context, &flight)?;
        context.register_timer(time, &())
    }

    /// Either flights are due, or the day has passed, or both at midnight.
    fn on_timer(&mut self, time: Millis, (): (), context: &mut Context<'_, Self>) -> Result<()> {
        let now = timeline::minutes(time);
        let waiting = self.waiting.at(&now)?;
        let due = waiting.get(context).wait()?;
        let mut day = self.day.get(context).wait()?.unwrap_or_default();
        if due.is_empty() {
            return if day.expires() <= now { self.day.clear(context) } else { Ok(()) };
        }
        for flight in &due {
            context.emit(legs::attribute(&mut day, flight))?;
        }
        waiting.clear(context)?;
        self.day.set(context, &day)?;
        context.register_timer(timeline::millis(day.expires()), &())
    }
}
