//! The second operator: joins flights with the weather at their airport.

use weir_runtime::{Context, KeyedOperator};
use weir_state_api::{KeyedStore, ListState, Millis, Postcard, ReducingState, Result};

use super::conditions::Conditions;
use super::legs::AttributedFlight;
use super::records::Weather;
use super::timeline::{self, Minutes};

/// What is known of an airport: both sides of the join as one stream.
#[derive(Debug, Clone)]
pub(crate) enum AirportEvent {
    /// A flight leaves.
    Departure(AttributedFlight),
    /// The weather is observed.
    Observation(Weather),
}

impl AirportEvent {
    /// Where and in which hour it happens: what the sides are joined by.
    pub(crate) fn place(&self) -> Place {
        match self {
            AirportEvent::Departure(flight) => {
                (flight.origin.clone(), timeline::hour(flight.scheduled))
            }
            AirportEvent::Observation(weather) => (weather.origin.clone(), weather.hour),
        }
    }
}

/// An airport and the start of an hour.
pub(crate) type Place = (String, Minutes);

/// A flight and the weather in the hour it was scheduled for, if that was observed.
pub(crate) type FlightInWeather = (AttributedFlight, Option<Conditions>);

/// Joins the flights of an hour with its weather once the hour is over.
///
/// Which side comes first does not matter: both wait in state until the watermark has passed the
/// hour, so that neither is missing.
pub(crate) struct AirportHour {
    departures: ListState<AttributedFlight, Postcard>,
    /// The worst conditions that were observed.
    conditions: ReducingState<Conditions, Postcard>,
}

impl AirportHour {
    pub(crate) fn open(store: &mut KeyedStore<Place>) -> Result<Self> {
        let attributed = Postcard::schema("AttributedFlight", 1);
        let conditions = Postcard::schema("Conditions", 1);
        let worst = |a: Conditions, b| Ok(a.max(b));
        Ok(AirportHour {
            departures: store.list_with("departures", attributed)?,
            conditions: store.reducing_with("conditions", conditions, worst)?,
        })
    }
}

impl KeyedOperator for AirportHour {
    type Key = Place;
    type In = AirportEvent;
    type Out = FlightInWeather;
    type Timer = ();

    fn process(&mut self, event: AirportEvent, context: &mut Context<'_, Self>) -> Result<()> {
        let (_, hour) = event.place();
        let last_time = timeline::millis(hour + timeline::HOUR) - 1;
        if context.is_late(last_time) {
            context.count_late();
            return Ok(());
        }
        match event {
            AirportEvent::Departure(flight) => self.departures.add(context, &flight)?,
            AirportEvent::Observation(weather) => {
                self.conditions.add(context, Conditions::of(&weather)).wait()?;
            }
        }
        context.register_timer(last_time, &())
    }

    fn on_timer(&mut self, _: Millis, (): (), context: &mut Context<'_, Self>) -> Result<()> {
        let conditions = self.conditions.get(context).wait()?;
        for flight in self.departures.get(context).wait()? {
            context.emit((flight, conditions))?;
        }
        self.departures.clear(context)?;
        self.conditions.clear(context)
    }
}
