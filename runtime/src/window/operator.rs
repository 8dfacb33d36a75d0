//! Aggregating over windows: an accumulator per key and window, a timer at each window's end.

use std::fmt;

use weir_state_api::{
    Aggregate, AggregatingState, Codec, KeyedStore, Millis, Namespaced, Native, NativeType,
    OrderedType, Result, ValueState,
};

use super::assign::{TimeWindow, WindowAssigner};
use crate::graph::{KeyedStream, Stream};
use crate::operator::{Context, KeyedOperator};
use crate::record::Data;

/// The result of one window of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowResult<K, R> {
    /// The key.
    pub key: K,
    /// The window.
    pub window: TimeWindow,
    /// What was aggregated.
    pub value: R,
}

/// Aggregates the records of each key and window; emits when the watermark passes the window's end.
///
/// Built by [`KeyedStream::window`]. Records of a window that has passed are counted as late and
/// dropped. Windows are namespaces of the state; those of sessions are merged.
pub struct WindowOperator<K, G: Aggregate, W, C = Native> {
    assigner: W,
    accumulators: Namespaced<AggregatingState<G, C>, TimeWindow>,
    /// The open windows of a key, for assigners that merge.
    sessions: Option<ValueState<Vec<(Millis, Millis)>>>,
    windows: Vec<TimeWindow>,
    key: std::marker::PhantomData<fn() -> K>,
}

impl<K, G, W, C> WindowOperator<K, G, W, C>
where
    K: Data,
    K: OrderedType,
    G: Aggregate + Clone,
    W: WindowAssigner,
    C: Codec<G::Accumulator>,
{
    fn open(store: &mut KeyedStore<K>, assigner: W, aggregate: G, codec: C) -> Result<Self> {
        let sessions = match assigner.merges() {
            true => Some(store.value("sessions")?),
            false => None,
        };
        let accumulators =
            store.namespaced::<TimeWindow>().aggregating_with("accumulators", codec, aggregate)?;
        Ok(WindowOperator {
            assigner,
            accumulators,
            sessions,
            windows: Vec::new(),
            key: std::marker::PhantomData,
        })
    }

    /// Puts a new session among those of the key: merges the ones it overlaps, state and timers too.
    /// Returns the session the record belongs to, or `None` when that has passed.
    fn merge_sessions(
        &self,
        sessions: &ValueState<Vec<(Millis, Millis)>>,
        new: TimeWindow,
        context: &mut Context<'_, Self>,
    ) -> Result<Option<TimeWindow>>
    where
        G::Input: Data,
        G::Output: Data,
    {
        let open = sessions.get(context).wait()?.unwrap_or_default();
        let mut merged = new;
        let mut overlapping = Vec::new();
        let mut apart = Vec::with_capacity(open.len() + 1);
        for (start, end) in open {
            let window = TimeWindow { start, end };
            if window.overlaps(new) {
                merged = merged.cover(window);
                overlapping.push(window);
            } else {
                apart.push((start, end));
            }
        }
        if context.is_late(merged.last_time()) {
            return Ok(None);
        }
        if overlapping != [merged] {
            for window in overlapping.iter().filter(|&&window| window != merged) {
                context.delete_timer(window.last_time(), window)?;
            }
            self.accumulators.merge(context, &merged, &overlapping).wait()?;
            apart.push((merged.start, merged.end));
            sessions.set(context, &apart)?;
            context.register_timer(merged.last_time(), &merged)?;
        }
        Ok(Some(merged))
    }

    fn close_session(&self, window: TimeWindow, context: &mut Context<'_, Self>) -> Result<()>
    where
        G::Input: Data,
        G::Output: Data,
    {
        let Some(sessions) = &self.sessions else { return Ok(()) };
        let mut open = sessions.get(context).wait()?.unwrap_or_default();
        open.retain(|&(start, end)| (TimeWindow { start, end }) != window);
        if open.is_empty() { sessions.clear(context) } else { sessions.set(context, &open) }
    }
}

impl<K, G, W, C> KeyedOperator for WindowOperator<K, G, W, C>
where
    K: Data,
    K: OrderedType,
    G: Aggregate + Clone,
    G::Input: Data,
    G::Output: Data,
    W: WindowAssigner,
    C: Codec<G::Accumulator>,
{
    type Key = K;
    type In = G::Input;
    type Out = WindowResult<K, G::Output>;
    type Timer = TimeWindow;

    fn process(&mut self, value: G::Input, context: &mut Context<'_, Self>) -> Result<()> {
        let mut windows = std::mem::take(&mut self.windows);
        windows.clear();
        self.assigner.assign(context.time(), &mut windows);
        let mut in_time = false;
        for &window in &windows {
            let window = match &self.sessions {
                Some(sessions) => self.merge_sessions(sessions, window, context)?,
                None => (!context.is_late(window.last_time())).then_some(window),
            };
            if let Some(window) = window {
                in_time = true;
                let first = self.accumulators.at(&window)?.add(context, value.clone()).wait()?;
                // A session's timer moves with the session, when it is merged.
                if first && self.sessions.is_none() {
                    context.register_timer(window.last_time(), &window)?;
                }
            }
        }
        if !in_time && !windows.is_empty() {
            context.count_late();
        }
        self.windows = windows;
        Ok(())
    }

    fn on_timer(
        &mut self,
        time: Millis,
        window: TimeWindow,
        context: &mut Context<'_, Self>,
    ) -> Result<()> {
        let accumulator = self.accumulators.at(&window)?;
        if let Some(value) = accumulator.get(context).wait()? {
            let key = context.key()?;
            context.emit_at(time, WindowResult { key, window, value })?;
            accumulator.clear(context)?;
        }
        self.close_session(window, context)
    }
}

impl<K, T> KeyedStream<K, T>
where
    K: Data,
    K: OrderedType,
    T: Data,
{
    /// Aggregates each key's records per window. A result is emitted once, with the window's last
    /// time as its event time.
    ///
    /// # Errors
    /// See [`JobGraph::source`](crate::JobGraph::source).
    pub fn window<G, W>(
        self,
        name: &str,
        assigner: W,
        aggregate: G,
    ) -> Result<Stream<WindowResult<K, G::Output>>>
    where
        G: Aggregate<Input = T> + Clone,
        G::Output: Data,
        G::Accumulator: NativeType,
        W: WindowAssigner,
    {
        self.window_with(name, assigner, aggregate, Native)
    }

    /// As [`window`](KeyedStream::window), with a codec of your choice for the accumulators.
    ///
    /// # Errors
    /// See [`JobGraph::source`](crate::JobGraph::source).
    pub fn window_with<G, W, C>(
        self,
        name: &str,
        assigner: W,
        aggregate: G,
        codec: C,
    ) -> Result<Stream<WindowResult<K, G::Output>>>
    where
        G: Aggregate<Input = T> + Clone,
        G::Output: Data,
        W: WindowAssigner,
        C: Codec<G::Accumulator>,
    {
        self.process(name, move |store| {
            WindowOperator::open(store, assigner.clone(), aggregate.clone(), codec.clone())
        })
    }
}

impl<K, G: Aggregate, W: fmt::Debug, C> fmt::Debug for WindowOperator<K, G, W, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowOperator").field("assigner", &self.assigner).finish_non_exhaustive()
    }
}
