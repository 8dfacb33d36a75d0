//! Enumerations of the keys of a state.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use weir_state_api::stored_key::{
    DecodedAddress, decode, push_group, push_map_prefix, push_state, successor,
};
use weir_state_api::ttl::TtlTime;
use weir_state_api::{
    Error, ErrorKind, KeyGroup, KeyRef, Page, Result, Scan, ScanStep, StateId, StateShape,
};

use super::scan::PollScan;
use super::sources::KeyRange;
use super::view::{ShardView, Walk};
use crate::lsm::Direction;

/// Entries that are stepped over one by one before the walk jumps behind their map.
const STEPS_BEFORE_JUMP: usize = 8;

/// What is left of one shard.
#[derive(Debug)]
struct ShardKeys {
    view: ShardView,
    /// The state's number in the shard.
    state: StateId,
    /// Key groups that were not walked yet, the one that is being walked first.
    groups: VecDeque<KeyGroup>,
    walk: Option<Walk>,
    /// The map whose entries are stepped over: what its keys begin with.
    listed_map: Vec<u8>,
    steps: usize,
}

/// A scan over the distinct (key, namespace) pairs of a state.
#[derive(Debug)]
pub(crate) struct KeyScan {
    shards: VecDeque<ShardKeys>,
    shape: StateShape,
    namespace: Option<Vec<u8>>,
    time: TtlTime,
    decoded: DecodedAddress,
}

impl KeyScan {
    /// `views` with the state's number in each.
    pub(crate) fn new(
        views: impl Iterator<Item = (ShardView, StateId)>,
        shape: StateShape,
        namespace: Option<&[u8]>,
        time: TtlTime,
    ) -> Self {
        let shards = views.map(|(view, state)| ShardKeys {
            groups: view.shard().groups().iter().collect(),
            view,
            state,
            walk: None,
            listed_map: Vec::new(),
            steps: 0,
        });
        KeyScan {
            shards: shards.collect(),
            shape,
            namespace: namespace.map(<[u8]>::to_vec),
            time,
            decoded: DecodedAddress::default(),
        }
    }
}

impl PollScan for KeyScan {
    fn poll_fill(&mut self, page: &mut Page, context: &mut Context<'_>) -> Poll<Result<bool>> {
        let KeyScan { shards, shape, namespace, time, decoded } = self;
        while let Some(shard) = shards.front_mut() {
            if !ready!(shard.poll_fill(*shape, namespace.as_deref(), time, decoded, page, context))?
            {
                return Poll::Ready(Ok(false));
            }
            shards.pop_front();
        }
        Poll::Ready(Ok(true))
    }
}

impl Scan for KeyScan {
    fn next(self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        self.step(page)
    }
}

impl ShardKeys {
    /// Appends keys until the page is full; whether the shard has been walked.
    fn poll_fill(
        &mut self,
        shape: StateShape,
        namespace: Option<&[u8]>,
        time: &TtlTime,
        decoded: &mut DecodedAddress,
        page: &mut Page,
        context: &mut Context<'_>,
    ) -> Poll<Result<bool>> {
        while let Some(&group) = self.groups.front() {
            let walk = match &mut self.walk {
                Some(walk) => walk,
                None => {
                    let mut from = Vec::new();
                    push_state(group, self.state, &mut from);
                    self.walk.insert(walk_from(&self.view, group, self.state, from))
                }
            };
            while ready!(walk.poll_key(context))? {
                if page.is_full() {
                    return Poll::Ready(Ok(false));
                }
                let listed =
                    !self.listed_map.is_empty() && walk.key().starts_with(&self.listed_map);
                if listed {
                    self.steps += 1;
                    if self.steps >= STEPS_BEFORE_JUMP {
                        let mut from = std::mem::take(&mut self.listed_map);
                        // It ends with the code that ends a part, so it has a successor.
                        successor(&mut from);
                        *walk = walk_from(&self.view, group, self.state, from);
                        self.steps = 0;
                    } else {
                        walk.leave();
                    }
                    continue;
                }
                if walk.is_live(self.state, time)? {
                    decode(shape, walk.key(), decoded).ok_or_else(odd_key)?;
                    if shape == StateShape::Ordered {
                        self.listed_map.clear();
                        self.steps = 0;
                        let key = KeyRef::with_group(&decoded.key, group)?;
                        push_map_prefix(self.state, key, &decoded.namespace, &mut self.listed_map);
                    }
                    if namespace.is_none_or(|wanted| decoded.namespace == wanted) {
                        page.push_key(group, &decoded.key, &decoded.namespace);
                    }
                }
                walk.leave();
            }
            self.walk = None;
            self.groups.pop_front();
        }
        Poll::Ready(Ok(true))
    }
}

/// A walk over the rest of a state in a key group.
fn walk_from(view: &ShardView, group: KeyGroup, state: StateId, from: Vec<u8>) -> Walk {
    view.walk(&KeyRange { from, to: end_of_state(group, state) }, Direction::Forward, None)
}

/// Behind all keys of a state in a key group.
pub(crate) fn end_of_state(group: KeyGroup, state: StateId) -> Vec<u8> {
    let mut end = Vec::new();
    push_state(group, state, &mut end);
    if !successor(&mut end) {
        // Key groups end at 32,767.
        push_group(KeyGroup(u16::MAX), &mut end);
    }
    end
}

#[cold]
pub(crate) fn odd_key() -> Error {
    Error::new(ErrorKind::Corrupt, "a stored key has not the layout of its state")
        .advice("restore another checkpoint")
}
