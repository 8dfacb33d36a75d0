//! Records that wait: those of the open epoch in their order, those of later epochs until it is closed.

use std::collections::{BTreeMap, VecDeque};

use weir_state_api::{Error, ErrorKind, Millis, Result};

use crate::time::{EpochTime, Progress};

/// What waits in an epoch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item<D> {
    /// Records, the next one last.
    Records(Vec<D>),
    /// The watermark: no record behind it in this epoch, or in a later one, has an earlier event time.
    Watermark(Millis),
}

#[derive(Debug)]
struct Waiting<D> {
    items: VecDeque<Item<D>>,
    earliest: Millis,
}

impl<D> Default for Waiting<D> {
    fn default() -> Self {
        Waiting { items: VecDeque::new(), earliest: Millis::MAX }
    }
}

/// Records by epoch.
///
/// An operator sees a record of the next epoch before this one is over when one source is quicker than
/// another. It must not touch state before the snapshot of this epoch, so it waits. Its event time
/// holds the watermark back meanwhile, although the frontier has forgotten it: the operator has
/// received it.
#[derive(Debug)]
pub(crate) struct Stash<D> {
    open: u64,
    by_epoch: BTreeMap<u64, Waiting<D>>,
    records: usize,
    /// The last watermark that was put among the records.
    watermark: Millis,
}

impl<D> Stash<D> {
    pub(crate) fn new() -> Self {
        Stash { open: 0, by_epoch: BTreeMap::new(), records: 0, watermark: Millis::MIN }
    }

    /// The epoch that is open.
    pub(crate) fn epoch(&self) -> u64 {
        self.open
    }

    /// Records that wait.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// Takes records in, which came at these times.
    pub(crate) fn take_in(&mut self, times: &[EpochTime], mut records: Vec<D>) -> Result<()> {
        let [time] = times else {
            return Err(Error::new(
                ErrorKind::InvalidUsage,
                format!("records came under {} times, so their epoch is unknown", times.len()),
            )
            .advice("send records with one capability, not with a set of them"));
        };
        if time.epoch < self.open {
            return Err(Error::new(
                ErrorKind::InvalidUsage,
                format!("records of epoch {} came when epoch {} was open", time.epoch, self.open),
            ));
        }
        let waiting = self.by_epoch.entry(time.epoch).or_default();
        waiting.earliest = waiting.earliest.min(time.event);
        self.records += records.len();
        records.reverse();
        waiting.items.push_back(Item::Records(records));
        Ok(())
    }

    /// Notes what the frontier says, after everything that came before was taken in: puts the
    /// watermark behind the records of the open epoch, if it has advanced.
    pub(crate) fn note(&mut self, progress: Progress) {
        let later = self.by_epoch.range(self.open.saturating_add(1)..);
        let watermark =
            later.map(|(_, waiting)| waiting.earliest).fold(progress.event, Millis::min);
        if watermark > self.watermark {
            self.watermark = watermark;
            let items = &mut self.by_epoch.entry(self.open).or_default().items;
            // Of two that follow each other the second says it all.
            if let Some(Item::Watermark(last)) = items.back_mut() {
                *last = watermark;
            } else {
                items.push_back(Item::Watermark(watermark));
            }
        }
    }

    /// The next item of the open epoch.
    pub(crate) fn next(&mut self) -> Option<Item<D>> {
        let item = self.by_epoch.get_mut(&self.open)?.items.pop_front()?;
        if let Item::Records(records) = &item {
            self.records -= records.len();
        }
        Some(item)
    }

    /// Puts an item back to the front.
    pub(crate) fn put_back(&mut self, item: Item<D>) {
        if let Item::Records(records) = &item {
            self.records += records.len();
        }
        self.by_epoch.entry(self.open).or_default().items.push_front(item);
    }

    /// Goes on to the next epoch. What still waited is gone: only for an epoch that is drained.
    pub(crate) fn close(&mut self) {
        self.by_epoch.remove(&self.open);
        self.open += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(epoch: u64, event: Millis) -> Progress {
        Progress { epoch: Some(epoch), event }
    }

    #[test]
    fn later_epochs_wait_and_hold_the_watermark_back() {
        let mut stash = Stash::new();
        stash.take_in(&[EpochTime::new(1, 7)], vec!['x', 'y']).unwrap();
        stash.take_in(&[EpochTime::new(0, 3)], vec!['a']).unwrap();
        stash.note(progress(0, 50));
        assert_eq!(stash.next(), Some(Item::Records(vec!['a'])));
        assert_eq!(stash.next(), Some(Item::Watermark(7)), "a record with event time 7 waits");
        assert_eq!(stash.next(), None);
        assert_eq!(stash.records(), 2);
        stash.close();
        stash.note(progress(1, 50));
        assert_eq!(stash.next(), Some(Item::Records(vec!['y', 'x'])), "the next one last");
        assert_eq!(stash.next(), Some(Item::Watermark(50)));
        assert_eq!(stash.next(), None);
    }

    #[test]
    fn watermarks_that_follow_each_other_are_one_and_none_runs_backwards() {
        let mut stash = Stash::<()>::new();
        stash.note(progress(0, 5));
        stash.note(progress(0, 9));
        stash.note(progress(0, 8));
        assert_eq!(stash.next(), Some(Item::Watermark(9)));
        assert_eq!(stash.next(), None);
    }

    #[test]
    fn records_without_a_single_time_or_of_a_closed_epoch_are_refused() {
        let mut stash = Stash::new();
        assert!(stash.take_in(&[], vec![1]).is_err());
        assert!(stash.take_in(&[EpochTime::new(0, 1), EpochTime::new(1, 0)], vec![1]).is_err());
        stash.close();
        assert!(stash.take_in(&[EpochTime::new(0, 1)], vec![1]).is_err());
        assert_eq!(stash.records(), 0);
    }
}
