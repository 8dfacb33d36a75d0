//! Query 12: how many bids a user makes in each ten seconds of processing time.
//!
//! ```sql
//! SELECT B.bidder, count(*), window_start, window_end
//! FROM TABLE(TUMBLE(TABLE (SELECT *, PROCTIME() AS p_time FROM bid), DESCRIPTOR(p_time),
//!                   INTERVAL '10' SECOND)) B
//! GROUP BY B.bidder, window_start, window_end
//! ```
//!
//! Which bids a window has depends on the clock on the wall, so no two runs agree. What they agree on is
//! the sum of a user's windows, and that is the result here: one row per bidder, at the end of the input.
//! No bid may be missing from the windows or be in two of them, whatever fails in between.
//!
//! Two operators, keyed by bidder: one counts bids until a timer of processing time comes due
//! ([`Windows`]), and gives up what the last window has when the input ends; one sums up the windows
//! ([`Totals`]).

use std::collections::HashMap;

use weir_runtime::{Context, KeyedOperator, Stream};
use weir_state_api::{KeyedStore, Result, ValueState};

use super::event::{Event, Millis};

/// Length of the windows, in ms of processing time.
pub(crate) const WINDOW: Millis = 10_000;

/// Only the end of the input is so late.
const END: Millis = Millis::MAX - 1;

/// Counts the bids of a window.
struct Windows {
    bids: ValueState<u64>,
}

impl Windows {
    fn open(store: &mut KeyedStore<u64>) -> Result<Self> {
        Ok(Windows { bids: store.value("bids")? })
    }

    /// Ends the window, if there is one.
    fn end(&self, context: &mut Context<'_, Self>) -> Result<()> {
        let Some(bids) = self.bids.get(context).wait()? else { return Ok(()) };
        self.bids.clear(context)?;
        let bidder = context.key()?;
        context.emit((bidder, bids))
    }
}

impl KeyedOperator for Windows {
    type Key = u64;
    type In = u64;
    type Out = (u64, u64);
    type Timer = ();

    fn process(&mut self, _: u64, context: &mut Context<'_, Self>) -> Result<()> {
        let bids = self.bids.update(context, |bids| bids.unwrap_or(0) + 1).wait()?;
        if bids == 1 {
            let now = context.processing_time();
            context.register_processing_timer(now - now.rem_euclid(WINDOW) + WINDOW, &())?;
            context.register_timer(END, &())?;
        }
        Ok(())
    }

    fn on_processing_timer(
        &mut self,
        _: Millis,
        (): (),
        context: &mut Context<'_, Self>,
    ) -> Result<()> {
        self.end(context)
    }

    fn on_timer(&mut self, _: Millis, (): (), context: &mut Context<'_, Self>) -> Result<()> {
        self.end(context)
    }
}

/// Sums up the windows of a user.
struct Totals {
    bids: ValueState<u64>,
}

impl Totals {
    fn open(store: &mut KeyedStore<u64>) -> Result<Self> {
        Ok(Totals { bids: store.value("bids")? })
    }
}

impl KeyedOperator for Totals {
    type Key = u64;
    type In = (u64, u64);
    type Out = String;
    type Timer = ();

    fn process(&mut self, (_, bids): (u64, u64), context: &mut Context<'_, Self>) -> Result<()> {
        self.bids.update(context, |sum| sum.unwrap_or(0) + bids).wait()?;
        context.register_timer(END, &())
    }

    fn on_timer(&mut self, _: Millis, (): (), context: &mut Context<'_, Self>) -> Result<()> {
        let bids = self.bids.get(context).wait()?.unwrap_or(0);
        self.bids.clear(context)?;
        let line = line(context.key()?, bids);
        context.emit(line)
    }
}

/// `bidder,bids`
fn line(bidder: u64, bids: u64) -> String {
    format!("{bidder},{bids}")
}

/// The query as a job: lines of the result.
pub(crate) fn job(events: &Stream<Event>) -> Result<Stream<String>> {
    events
        .filter_map(|event| Some(event.into_bid()?.bidder))
        .key_by(|bidder| *bidder)
        .process("windows", Windows::open)?
        .key_by(|(bidder, _)| *bidder)
        .process("totals", Totals::open)
}

/// The lines of the result, sorted, by looking at all events at once.
pub(crate) fn reference(events: impl Iterator<Item = (Millis, Event)>) -> Vec<String> {
    let mut bidders: HashMap<u64, u64> = HashMap::new();
    for (_, event) in events {
        if let Event::Bid(bid) = event {
            *bidders.entry(bid.bidder).or_default() += 1;
        }
    }
    let mut lines: Vec<_> = bidders.into_iter().map(|(bidder, bids)| line(bidder, bids)).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::super::event::Bid;
    use super::*;

    #[test]
    fn bids_of_a_user_are_counted_whenever_they_come() {
        let bid = |bidder| Event::Bid(Bid { bidder, ..Bid::default() });
        let events = [(1, bid(7)), (2, bid(8)), (90_000, bid(7))];
        assert_eq!(reference(events.into_iter()), ["7,2", "8,1"]);
    }
}
