//! Bids, distinct bidders and distinct auctions of a window, for queries 15 and 16.
//!
//! One operator, keyed by what is grouped by and the start of the window ([`Statistics`]): a set of the
//! bidders and one of the auctions, as maps from ids to the ranks of price that they were seen in. Few
//! keys with large maps.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};
use weir_runtime::{Context, KeyedOperator, Stream};
use weir_state_api::{KeyedStore, MapState, OrderedType, Postcard, Result, ValueState};

use super::event::{Bid, Event, Millis};
use super::price_ranks::{Counts, RANKS, rank};
use super::window::Window;

/// Length of the windows, in ms: in place of the day of the statements, of which a run has less than
/// one.
pub(crate) const WINDOW: Millis = 10_000;

/// What is counted in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) bids: Counts,
    pub(crate) bidders: Counts,
    pub(crate) auctions: Counts,
    /// The time of the last bid.
    pub(crate) last: Millis,
}

/// `bids,bidders,auctions`, four counts each
impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.bids, self.bidders, self.auctions)
    }
}

/// A window of what is grouped by, once it is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group<K> {
    pub(crate) key: K,
    pub(crate) window: Window,
    pub(crate) totals: Totals,
}

/// Counts in windows.
struct Statistics<K> {
    totals: ValueState<Totals, Postcard>,
    bidders: MapState<u64, u8>,
    auctions: MapState<u64, u8>,
    key: PhantomData<K>,
}

type GroupContext<'c, K> = Context<'c, Statistics<K>>;

impl<K: OrderedType + Clone + Send + 'static> Statistics<K> {
    fn open(store: &mut KeyedStore<(K, Millis)>) -> Result<Self> {
        Ok(Statistics {
            totals: store.value_with("totals", Postcard::schema("nexmark.totals", 1))?,
            bidders: store.map("bidders")?,
            auctions: store.map("auctions")?,
            key: PhantomData,
        })
    }
}

/// Notes that an id was seen in a rank, and counts it if that is new.
fn note<K: OrderedType + Clone + Send + 'static>(
    seen: &MapState<u64, u8>,
    id: u64,
    rank: usize,
    counts: &mut Counts,
    context: &mut GroupContext<'_, K>,
) -> Result<()> {
    let known = seen.get(context, &id).wait()?.unwrap_or(0);
    if known & 1 << rank != 0 {
        return Ok(());
    }
    counts.all += u64::from(known == 0);
    counts.ranks[rank] += 1;
    seen.put(context, &id, &(known | 1 << rank))
}

impl<K: OrderedType + Clone + Send + 'static> KeyedOperator for Statistics<K> {
    type Key = (K, Millis);
    type In = (K, Millis, Bid);
    type Out = Group<K>;
    type Timer = ();

    fn process(
        &mut self,
        (_, time, bid): Self::In,
        context: &mut GroupContext<'_, K>,
    ) -> Result<()> {
        let last = Window::tumbling(time, WINDOW).end - 1;
        if context.is_late(last) {
            context.count_late();
            return Ok(());
        }
        let known = self.totals.get(context).wait()?;
        if known.is_none() {
            context.register_timer(last, &())?;
        }
        let mut totals = known.unwrap_or_default();
        let rank = rank(bid.price);
        totals.bids.add(bid.price);
        totals.last = totals.last.max(time);
        note(&self.bidders, bid.bidder, rank, &mut totals.bidders, context)?;
        note(&self.auctions, bid.auction, rank, &mut totals.auctions, context)?;
        self.totals.set(context, &totals)
    }

    fn on_timer(&mut self, _: Millis, (): (), context: &mut GroupContext<'_, K>) -> Result<()> {
        let (key, start) = context.key()?;
        let totals = self.totals.get(context).wait()?.unwrap_or_default();
        self.totals.clear(context)?;
        self.bidders.clear(context)?;
        self.auctions.clear(context)?;
        context.emit(Group { key, window: Window::tumbling(start, WINDOW), totals })
    }
}

/// The bids of each group and window, counted; `group` says what is grouped by.
pub(crate) fn groups<K: OrderedType + Clone + Send + 'static>(
    events: &Stream<Event>,
    group: impl Fn(&Bid) -> K + Clone + Send + 'static,
) -> Result<Stream<Group<K>>> {
    events
        .with_time()
        .filter_map(move |(time, event)| event.into_bid().map(|bid| (group(&bid), time, bid)))
        .key_by(|(group, time, _)| (group.clone(), Window::tumbling(*time, WINDOW).start))
        .process("statistics", Statistics::open)
}

/// The same by looking at all events at once.
pub(crate) fn reference<K: Clone + Eq + Hash>(
    events: impl Iterator<Item = (Millis, Event)>,
    group: impl Fn(&Bid) -> K,
) -> Vec<Group<K>> {
    let mut groups: HashMap<(K, Window), Vec<(Millis, Bid)>> = HashMap::new();
    for (time, event) in events {
        if let Event::Bid(bid) = event {
            let window = Window::tumbling(time, WINDOW);
            groups.entry((group(&bid), window)).or_default().push((time, bid));
        }
    }
    let counted = groups.into_iter().map(|((key, window), bids)| {
        let distinct = |id: fn(&Bid) -> u64| {
            let count = |counts: &dyn Fn(&Bid) -> bool| {
                let mut ids: Vec<u64> =
                    bids.iter().filter(|(_, bid)| counts(bid)).map(|(_, bid)| id(bid)).collect();
                ids.sort_unstable();
                ids.dedup();
                ids.len() as u64
            };
            let ranks: [u64; RANKS] =
                std::array::from_fn(|wanted| count(&|bid| rank(bid.price) == wanted));
            Counts { all: count(&|_| true), ranks }
        };
        let mut all = Counts::default();
        bids.iter().for_each(|(_, bid)| all.add(bid.price));
        let totals = Totals {
            bids: all,
            bidders: distinct(|bid| bid.bidder),
            auctions: distinct(|bid| bid.auction),
            last: bids.iter().map(|(time, _)| *time).max().unwrap_or_default(),
        };
        Group { key, window, totals }
    });
    counted.collect()
}
