//! Reading the next timers of a queue out of the tree.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_state_api::stored_key::{STATE_PREFIX_LEN, push_state};
use weir_state_api::{HeadTimer, Result, StateId};

use crate::backend::key_scan::end_of_state;
use crate::backend::sources::KeyRange;
use crate::backend::view::ShardView;
use crate::lsm::Direction;

/// Key groups that are read at the same time.
const GROUPS_AT_ONCE: usize = 16;

/// What a refill found.
#[derive(Debug)]
pub(crate) struct Refilled {
    /// All timers before the horizon.
    pub(crate) timers: BTreeSet<HeadTimer>,
    /// Where the timers begin that were left in the tree; `None` when none were.
    pub(crate) horizon: Option<Arc<[u8]>>,
}

/// Where to read.
#[derive(Debug)]
pub(crate) struct Refill {
    /// The shards as they are, with the queue's number in each.
    pub(crate) shards: Vec<(ShardView, StateId)>,
    /// The first timer to take, without key group and queue.
    pub(crate) from: Vec<u8>,
    /// Timers that each key group gives at least, if it has so many.
    pub(crate) per_group: usize,
}

impl Refill {
    /// Reads the next timers of every key group and keeps those before the first that a group has
    /// left.
    pub(crate) async fn run(self) -> Result<Refilled> {
        use futures_util::{StreamExt, TryStreamExt, stream};
        let mut found = Vec::new();
        let mut horizon: Option<Arc<[u8]>> = None;
        let groups = self.shards.iter().flat_map(|(view, queue)| {
            view.shard().groups().iter().map(move |group| (view, *queue, group))
        });
        let reads: Vec<_> = groups
            .map(|(view, queue, group)| {
                let mut from = Vec::new();
                push_state(group, queue, &mut from);
                from.extend_from_slice(&self.from);
                let range = KeyRange { from, to: end_of_state(group, queue) };
                async move {
                    let mut walk = view.walk(&range, Direction::Forward, None);
                    let mut timers: Vec<HeadTimer> = Vec::new();
                    while timers.len() <= self.per_group
                        && std::future::poll_fn(|context| walk.poll_key(context)).await?
                    {
                        if walk.with_value(queue, |_| ())?.is_some() {
                            timers.push((Arc::from(&walk.key()[STATE_PREFIX_LEN..]), group));
                        }
                        walk.leave();
                    }
                    Ok::<_, weir_state_api::Error>(timers)
                }
            })
            .collect();
        let mut reads = stream::iter(reads).buffer_unordered(GROUPS_AT_ONCE);
        while let Some(mut timers) = reads.try_next().await? {
            if timers.len() > self.per_group
                && let Some((left, _)) = timers.pop()
                && horizon.as_ref().is_none_or(|horizon| left < *horizon)
            {
                horizon = Some(left);
            }
            found.extend(timers);
        }
        if let Some(horizon) = &horizon {
            found.retain(|(suffix, _)| suffix < horizon);
        }
        // Sorted and built at once, which costs less than one by one.
        Ok(Refilled { timers: BTreeSet::from_iter(found), horizon })
    }
}
