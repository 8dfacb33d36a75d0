//! The entries of one map, or of one queue in one key group: sorted, and pinned at once.
//!
//! A short one is one leaf. A longer one has three levels: leaves of some entries, branches of some
//! leaves, and the list of branches. Leaves and branches are shared with scans; the writer copies the
//! leaf it changes, and the branch above it, when somebody else still holds them. So a scan takes a
//! reference to a leaf, or to each branch it touches (some thousand entries each), and costs the writer
//! one leaf of copies at most.

use std::ops::Range;
use std::sync::Arc;

use super::Found;
use super::leaf::{Leaf, Sought};
use crate::format::{Entry, EntryKind};

/// A leaf with more entries is cut in two.
const LEAF_ENTRIES: usize = 64;
/// So is one with more bytes, so that copies are short: unless one entry has them all.
const LEAF_BYTES: usize = 8 << 10;
/// A full branch is cut in two.
const BRANCH_LEAVES: usize = 128;

/// What is below in the tree, with the head of its first key: to go down by comparing numbers.
#[derive(Debug, Clone)]
struct Child<T> {
    head: u64,
    node: Arc<T>,
}

type Branch = Vec<Child<Leaf>>;

impl Child<Leaf> {
    fn leaf(leaf: Leaf) -> Self {
        Child { head: leaf.first_head(), node: Arc::new(leaf) }
    }
}

impl Child<Branch> {
    fn branch(branch: Branch) -> Self {
        Child { head: branch.first().map_or(0, |first| first.head), node: Arc::new(branch) }
    }
}

#[derive(Debug, Clone)]
enum Levels {
    Leaf(Arc<Leaf>),
    Tree(Vec<Child<Branch>>),
}

/// Entries whose stored keys begin with the same bytes, in order. Never empty, but while its last entry
/// is being removed.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    prefix_len: u32,
    levels: Levels,
}

/// Where an entry is: branch, leaf, entry. The end is behind the last branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(usize, usize, usize);

impl Position {
    /// Before all entries.
    pub(crate) const START: Position = Position(0, 0, 0);
}

/// What a table of sequences counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) entries: usize,
    /// Held by leaves.
    pub(super) bytes: usize,
}

/// Where to go down for a key: to the last child that begins with it or before.
#[inline]
fn child_of<T>(
    children: &[Child<T>],
    sought: Sought<'_>,
    first_key: impl Fn(&T) -> &[u8],
) -> usize {
    let not_behind = |child: &Child<T>| sought.order_of(child.head, first_key(&child.node)).is_le();
    children.partition_point(not_behind).saturating_sub(1)
}

fn first_of(branch: &Branch) -> &[u8] {
    branch.first().map_or(&[], |leaf| leaf.node.first_key())
}

impl Sequence {
    /// A sequence with one entry.
    pub(super) fn of(
        sought: Sought<'_>,
        kind: EntryKind,
        value: &[u8],
        account: &mut Account,
    ) -> Self {
        let leaf = Leaf::of(sought, kind, value);
        account.entries += 1;
        account.bytes += leaf.memory_bytes();
        // Stored keys have some 128 KiB at most.
        Sequence { prefix_len: sought.prefix_len as u32, levels: Levels::Leaf(Arc::new(leaf)) }
    }

    /// What all keys begin with.
    #[inline]
    pub(super) fn prefix(&self) -> &[u8] {
        let first = match &self.levels {
            Levels::Leaf(leaf) => leaf.first_key(),
            Levels::Tree(branches) => {
                branches.first().map_or(&[][..], |first| first_of(&first.node))
            }
        };
        first.get(..self.prefix_len as usize).unwrap_or_default()
    }

    /// Whether this is what all keys begin with.
    #[inline]
    pub(super) fn is_of(&self, prefix: &[u8]) -> bool {
        let first = match &self.levels {
            Levels::Leaf(leaf) => Some(&**leaf),
            Levels::Tree(_) => self.leaf(0, 0),
        };
        self.prefix_len as usize == prefix.len()
            && first.is_some_and(|leaf| leaf.begins_with(prefix))
    }

    #[inline]
    fn sought<'k>(&self, key: &'k [u8]) -> Sought<'k> {
        Sought::new(key, self.prefix_len as usize)
    }

    /// The leaf that holds a key or would, and the first two parts of its place.
    #[inline]
    fn leaf_for(&self, sought: Sought<'_>) -> (usize, usize, &Leaf) {
        match &self.levels {
            Levels::Leaf(leaf) => (0, 0, leaf),
            Levels::Tree(branches) => {
                let b = child_of(branches, sought, first_of);
                let branch = &branches[b].node;
                let l = child_of(branch, sought, Leaf::first_key);
                (b, l, &branch[l].node)
            }
        }
    }

    #[inline]
    fn leaf(&self, b: usize, l: usize) -> Option<&Leaf> {
        match &self.levels {
            Levels::Leaf(leaf) => (b == 0 && l == 0).then_some(leaf),
            Levels::Tree(branches) => Some(&branches.get(b)?.node.get(l)?.node),
        }
    }

    fn branch_count(&self) -> usize {
        match &self.levels {
            Levels::Leaf(_) => 1,
            Levels::Tree(branches) => branches.len(),
        }
    }

    fn leaf_count(&self, b: usize) -> usize {
        match &self.levels {
            Levels::Leaf(_) => 1,
            Levels::Tree(branches) => branches.get(b).map_or(0, |branch| branch.node.len()),
        }
    }

    fn end(&self) -> Position {
        Position(self.branch_count(), 0, 0)
    }

    /// The version under a stored key, which begins as all keys here do.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<Found<'_>> {
        let sought = self.sought(key);
        let (_, _, leaf) = self.leaf_for(sought);
        leaf.find(sought).ok().map(|index| leaf.found(index))
    }

    /// Replaces what is there, or adds it.
    #[inline]
    pub(super) fn set(&mut self, key: &[u8], kind: EntryKind, value: &[u8], account: &mut Account) {
        let sought = self.sought(key);
        let (b, l, leaf) = self.leaf_for(sought);
        match leaf.find(sought) {
            Ok(index) => {
                let replaced = self.own_leaf(b, l).is_some_and(|l| l.overwrite(index, kind, value));
                if !replaced {
                    self.change(b, l, account, |leaf| leaf.replace(index, kind, value));
                }
            }
            Err(index) => {
                account.entries += 1;
                self.change(b, l, account, |leaf| leaf.insert(index, sought, kind, value));
                self.grown(b, l, account);
            }
        }
    }

    /// Appends to what is there; to nothing, as an entry of this kind.
    pub(super) fn append(
        &mut self,
        key: &[u8],
        more: &[u8],
        to_nothing: EntryKind,
        account: &mut Account,
    ) {
        let sought = self.sought(key);
        let (b, l, leaf) = self.leaf_for(sought);
        match leaf.find(sought) {
            Ok(index) => self.change(b, l, account, |leaf| leaf.append(index, more)),
            Err(_) => self.set(key, to_nothing, more, account),
        }
    }

    /// Removes all entries from `from` up to `to`. Whether some are left.
    pub(super) fn remove_range(&mut self, from: &[u8], to: &[u8], account: &mut Account) -> bool {
        loop {
            let start = self.bound(from);
            let end = self.bound(to);
            if start >= end {
                return true;
            }
            let Position(b, l, first) = start;
            let len = self.leaf(b, l).map_or(0, Leaf::len);
            let last = if (end.0, end.1) == (b, l) { end.2 } else { len };
            if !self.remove_in_leaf(b, l, first..last, account) {
                return false;
            }
        }
    }

    /// Removes an entry, if it is there. Whether some are left.
    pub(super) fn take_out(&mut self, key: &[u8], account: &mut Account) -> bool {
        let sought = self.sought(key);
        let (b, l, leaf) = self.leaf_for(sought);
        match leaf.find(sought) {
            Ok(index) => self.remove_in_leaf(b, l, index..index + 1, account),
            Err(_) => true,
        }
    }

    /// Removes some entries of a leaf, and the leaf if it is empty then. Whether some are left.
    fn remove_in_leaf(
        &mut self,
        b: usize,
        l: usize,
        range: Range<usize>,
        account: &mut Account,
    ) -> bool {
        let is_all = self.leaf(b, l).is_some_and(|leaf| leaf.len() == range.len());
        account.entries -= range.len();
        self.change(b, l, account, |leaf| leaf.remove(range));
        !is_all || self.drop_leaf(b, l, account)
    }

    /// Removes an empty leaf. Whether some are left.
    fn drop_leaf(&mut self, b: usize, l: usize, account: &mut Account) -> bool {
        account.bytes -= self.leaf(b, l).map_or(0, Leaf::memory_bytes);
        let Levels::Tree(branches) = &mut self.levels else { return false };
        let branch = Arc::make_mut(&mut branches[b].node);
        branch.remove(l);
        match branch.first() {
            Some(first) => branches[b].head = first.head,
            None => {
                branches.remove(b);
            }
        }
        !branches.is_empty()
    }

    /// A leaf that nobody else holds.
    #[inline]
    fn own_leaf(&mut self, b: usize, l: usize) -> Option<&mut Leaf> {
        match &mut self.levels {
            Levels::Leaf(leaf) => Arc::get_mut(leaf),
            Levels::Tree(branches) => {
                let branch = Arc::get_mut(&mut branches[b].node)?;
                Arc::get_mut(&mut branch[l].node)
            }
        }
    }

    /// Changes a leaf, copied if somebody else holds it.
    #[inline]
    fn change(
        &mut self,
        b: usize,
        l: usize,
        account: &mut Account,
        change: impl FnOnce(&mut Leaf),
    ) {
        let counted = |leaf: &mut Arc<Leaf>| {
            account.bytes -= leaf.memory_bytes();
            let leaf = Arc::make_mut(leaf);
            change(leaf);
            account.bytes += leaf.memory_bytes();
        };
        match &mut self.levels {
            Levels::Leaf(leaf) => counted(leaf),
            Levels::Tree(branches) => {
                let branch = &mut branches[b];
                let child = &mut Arc::make_mut(&mut branch.node)[l];
                counted(&mut child.node);
                child.head = child.node.first_head();
                if l == 0 {
                    branch.head = child.head;
                }
            }
        }
    }

    /// Cuts a leaf that has become too long, and the branch above it.
    #[inline]
    fn grown(&mut self, b: usize, l: usize, account: &mut Account) {
        let too_long = self.leaf(b, l).is_some_and(|leaf| {
            leaf.len() > LEAF_ENTRIES || leaf.live_bytes() > LEAF_BYTES && leaf.len() > 1
        });
        if too_long {
            self.split(b, l, account);
        }
    }

    #[cold]
    fn split(&mut self, b: usize, l: usize, account: &mut Account) {
        // Keys mostly come in order or at random: half and half suits both.
        let mut upper = Leaf::default();
        self.change(b, l, account, |leaf| upper = leaf.split());
        account.bytes += upper.memory_bytes();
        let upper = Child::leaf(upper);
        match &mut self.levels {
            Levels::Leaf(leaf) => {
                let lower = Child { head: leaf.first_head(), node: Arc::clone(leaf) };
                self.levels = Levels::Tree(vec![Child::branch(vec![lower, upper])]);
            }
            Levels::Tree(branches) => {
                let branch = Arc::make_mut(&mut branches[b].node);
                branch.insert(l + 1, upper);
                if branch.len() > BRANCH_LEAVES {
                    let upper = branch.split_off(BRANCH_LEAVES / 2);
                    branches.insert(b + 1, Child::branch(upper));
                }
            }
        }
    }

    /// The first entry at a bound or behind. A bound need not begin as the keys do.
    pub(crate) fn bound(&self, bound: &[u8]) -> Position {
        let prefix = self.prefix();
        if !bound.starts_with(prefix) {
            return if bound < prefix { Position::START } else { self.end() };
        }
        if bound.len() == prefix.len() {
            return Position::START;
        }
        let sought = self.sought(bound);
        let (b, l, leaf) = self.leaf_for(sought);
        let (Ok(index) | Err(index)) = leaf.find(sought);
        self.settled(Position(b, l, index))
    }

    /// Whether all keys that begin as those here do are before a bound.
    pub(crate) fn is_before(&self, bound: &[u8]) -> bool {
        let prefix = self.prefix();
        prefix < bound && !bound.starts_with(prefix)
    }

    /// Whether all keys that begin as those here do are at a bound or behind.
    pub(crate) fn is_behind(&self, bound: &[u8]) -> bool {
        self.prefix() >= bound
    }

    /// Moves from behind the end of a leaf to the start of the next.
    #[inline]
    fn settled(&self, Position(b, l, e): Position) -> Position {
        match self.leaf(b, l) {
            Some(leaf) if e < leaf.len() => Position(b, l, e),
            _ if l + 1 < self.leaf_count(b) => Position(b, l + 1, 0),
            _ => Position(b + 1, 0, 0),
        }
    }

    /// The place behind an entry's.
    #[inline]
    pub(crate) fn next(&self, Position(b, l, e): Position) -> Position {
        self.settled(Position(b, l, e + 1))
    }

    /// The place before another one; `None` before the first.
    pub(crate) fn previous(&self, Position(b, l, e): Position) -> Option<Position> {
        if e > 0 {
            return Some(Position(b, l, e - 1));
        }
        let (b, l) = match (b, l) {
            (_, 1..) => (b, l - 1),
            (1.., 0) => (b - 1, self.leaf_count(b - 1).checked_sub(1)?),
            (0, 0) => return None,
        };
        Some(Position(b, l, self.leaf(b, l)?.len().checked_sub(1)?))
    }

    /// The entry at a place; `None` at the end.
    #[inline]
    pub(crate) fn entry(&self, Position(b, l, e): Position) -> Option<Entry<'_>> {
        self.leaf(b, l).filter(|leaf| e < leaf.len()).map(|leaf| leaf.entry(e))
    }

    /// Visits entries from one place up to another, until one is refused. Whether none was; the places of
    /// those that were not visited are left.
    #[inline]
    pub(crate) fn visit<'s>(
        &'s self,
        left: &mut Range<Position>,
        mut visit: impl FnMut(Entry<'s>) -> bool,
    ) -> bool {
        while left.start < left.end {
            let Position(b, l, first) = left.start;
            let Some(leaf) = self.leaf(b, l) else { break };
            let to_end = (b, l) == (left.end.0, left.end.1);
            let end = if to_end { left.end.2 } else { leaf.len() };
            if let Some(refused) = (first..end).find(|&e| !visit(leaf.entry(e))) {
                left.start.2 = refused;
                return false;
            }
            left.start = self.settled(Position(b, l, end));
        }
        true
    }

    /// The same from the end.
    pub(crate) fn visit_backwards<'s>(
        &'s self,
        left: &mut Range<Position>,
        mut visit: impl FnMut(Entry<'s>) -> bool,
    ) -> bool {
        while left.start < left.end {
            let Some(Position(b, l, last)) = self.previous(left.end) else { break };
            let Some(leaf) = self.leaf(b, l) else { break };
            let from_start = (b, l) == (left.start.0, left.start.1);
            let first = if from_start { left.start.2 } else { 0 };
            if let Some(refused) = (first..=last).rev().find(|&e| !visit(leaf.entry(e))) {
                left.end = self.settled(Position(b, l, refused + 1));
                return false;
            }
            left.end = Position(b, l, first);
        }
        true
    }

    /// About how many bytes map keys and values have that a page takes, from a place on.
    pub(crate) fn bytes_from(&self, Position(b, l, e): Position) -> usize {
        let Some(leaf) = self.leaf(b, l) else { return 0 };
        let of_map_keys = leaf.live_bytes() - leaf.len() * self.prefix_len as usize;
        // All entries of a leaf count as equally long.
        of_map_keys * (leaf.len() - e.min(leaf.len())) / leaf.len().max(1)
    }

    /// Whether an entry lies from `from` up to `to`.
    pub(crate) fn has_any(&self, from: &[u8], to: &[u8]) -> bool {
        self.bound(from) < self.bound(to)
    }

    /// Whether one of the first entries has a value.
    pub(crate) fn begins_with_a_value(&self) -> bool {
        self.leaf(0, 0).is_some_and(Leaf::has_value)
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        let leaves = move |b| (0..self.leaf_count(b)).filter_map(move |l| self.leaf(b, l));
        let leaves = (0..self.branch_count()).flat_map(leaves);
        leaves.flat_map(|leaf| (0..leaf.len()).map(move |e| leaf.entry(e)))
    }

    /// The part that holds `from..to`, and perhaps more, as it is: shares branches or the leaf.
    pub(crate) fn pin(&self, from: &[u8], to: &[u8]) -> Sequence {
        let levels = match &self.levels {
            Levels::Leaf(leaf) => Levels::Leaf(Arc::clone(leaf)),
            Levels::Tree(branches) => {
                let (first, end) = (self.bound(from).0, self.bound(to));
                let behind = if end.1 == 0 && end.2 == 0 { end.0 } else { end.0 + 1 };
                // Never without a branch: all that is known of the keys is in them.
                let first = first.min(branches.len() - 1);
                Levels::Tree(branches[first..behind.max(first + 1)].to_vec())
            }
        };
        Sequence { prefix_len: self.prefix_len, levels }
    }

    /// Bytes held by its leaves.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        let leaves = |b| (0..self.leaf_count(b)).filter_map(move |l| self.leaf(b, l));
        (0..self.branch_count()).flat_map(leaves).map(Leaf::memory_bytes).sum()
    }
}
