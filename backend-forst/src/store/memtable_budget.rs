//! Memory for what is written and not yet in a table, one budget for all instances of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An account may hold this part of its share without telling, and no more than so many bytes.
const STEPS: u64 = 64;
const LONGEST_STEP: u64 = 16 << 10;

/// How much memory memtables take, and how much they should.
///
/// Nobody waits here: an instance accounts for what it holds, asks whether that is too much, and if so
/// freezes a memtable or waits for one to be flushed. So the budget is exceeded by what is written in
/// between, and by a small part that is not told, never without being seen.
#[derive(Debug)]
pub(crate) struct MemtableBudget {
    limit: u64,
    used: AtomicU64,
    /// What only answers reads, because there is room for it.
    resident: AtomicU64,
    accounts: AtomicU64,
}

impl MemtableBudget {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(MemtableBudget {
            limit,
            used: AtomicU64::new(0),
            resident: AtomicU64::new(0),
            accounts: AtomicU64::new(0),
        })
    }

    /// An account for one instance, still empty.
    pub(crate) fn account(self: &Arc<Self>) -> MemtableAccount {
        self.accounts.fetch_add(1, Ordering::Relaxed);
        MemtableAccount { permit: self.permit(0), step: self.step() }
    }

    fn step(&self) -> u64 {
        (self.fair_share() / STEPS).clamp(1, LONGEST_STEP)
    }

    fn permit(self: &Arc<Self>, bytes: u64) -> MemtablePermit {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        MemtablePermit { budget: Arc::clone(self), bytes }
    }

    /// A memtable that has become a table stays in memory as long as there is room.
    pub(crate) fn resident(self: &Arc<Self>, bytes: u64) -> ResidentPermit {
        self.resident.fetch_add(bytes, Ordering::Relaxed);
        ResidentPermit { budget: Arc::clone(self), bytes }
    }

    /// Whether memory must be given back that only answers reads.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.used_bytes() + self.resident_bytes() > self.limit
    }

    /// What only answers reads.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.resident.load(Ordering::Relaxed)
    }

    /// What all instances hold that is in no table yet.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether all instances together hold more than they should.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.used_bytes() > self.limit
    }

    /// What one instance may hold if all are to have the same.
    fn fair_share(&self) -> u64 {
        self.limit / self.accounts.load(Ordering::Relaxed).max(1)
    }
}

/// What one instance holds in its active memtables.
#[derive(Debug)]
pub(crate) struct MemtableAccount {
    permit: MemtablePermit,
    /// What it may change by before it tells: threads that write at the same time would otherwise wait for
    /// the same number at each entry.
    step: u64,
}

impl MemtableAccount {
    /// Accounts for about `bytes` in all: for less than a step, it leaves alone what all threads share.
    #[inline]
    pub(crate) fn follow(&mut self, bytes: u64) {
        if bytes.abs_diff(self.permit.bytes) >= self.step {
            self.set(bytes);
        }
    }

    /// Accounts for `bytes` in all.
    pub(crate) fn set(&mut self, bytes: u64) {
        let permit = &mut self.permit;
        let used = &permit.budget.used;
        match bytes.checked_sub(permit.bytes) {
            Some(more) => used.fetch_add(more, Ordering::Relaxed),
            None => used.fetch_sub(permit.bytes - bytes, Ordering::Relaxed),
        };
        permit.bytes = bytes;
        self.step = permit.budget.step();
    }

    /// Whether this instance should freeze what it holds: the budget is exceeded, and it has half of
    /// its fair share or more. One that holds little would only make tiny tables.
    pub(crate) fn should_freeze(&self) -> bool {
        let MemtablePermit { budget, bytes } = &self.permit;
        budget.is_exceeded() && *bytes >= budget.fair_share() / 2
    }

    pub(crate) fn budget(&self) -> &Arc<MemtableBudget> {
        &self.permit.budget
    }

    /// What is held so far goes with a frozen memtable, until that is flushed; the account is empty.
    pub(crate) fn freeze(&mut self) -> MemtablePermit {
        let budget = Arc::clone(&self.permit.budget);
        std::mem::replace(&mut self.permit, budget.permit(0))
    }
}

impl Drop for MemtableAccount {
    fn drop(&mut self) {
        self.permit.budget.accounts.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory that a memtable takes; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct MemtablePermit {
    budget: Arc<MemtableBudget>,
    bytes: u64,
}

#[cfg(test)]
impl MemtablePermit {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MemtablePermit {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Memory that a memtable takes after it was flushed; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct ResidentPermit {
    budget: Arc<MemtableBudget>,
    bytes: u64,
}

impl ResidentPermit {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for ResidentPermit {
    fn drop(&mut self) {
        self.budget.resident.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_until_it_is_flushed() {
        let budget = MemtableBudget::new(100);
        let mut account = budget.account();
        account.set(70);
        account.set(60);
        let frozen = account.freeze();
        assert_eq!((frozen.bytes(), budget.used_bytes()), (60, 60));
        account.set(50);
        assert!(budget.is_exceeded());
        drop(frozen);
        assert_eq!(budget.used_bytes(), 50);
        drop(account);
        assert_eq!((budget.used_bytes(), budget.is_exceeded()), (0, false));
    }

    #[test]
    fn what_is_a_table_already_takes_only_what_is_left() {
        let budget = MemtableBudget::new(100);
        let mut account = budget.account();
        let resident = budget.resident(60);
        account.set(40);
        assert!(!budget.is_full());
        account.set(41);
        assert!(budget.is_full() && !budget.is_exceeded() && !account.should_freeze());
        drop(resident);
        assert_eq!((budget.is_full(), budget.resident_bytes()), (false, 0));
    }

    #[test]
    fn what_grows_by_less_than_a_step_is_not_told() {
        let budget = MemtableBudget::new(64 << 10);
        let (mut account, other) = (budget.account(), budget.account());
        account.follow(1_023);
        assert_eq!(budget.used_bytes(), 0);
        account.follow(1_024);
        // As long as there are two, half of that is told.
        account.follow(1_535);
        assert_eq!(budget.used_bytes(), 1_024);
        account.follow(1_536);
        assert_eq!(budget.used_bytes(), 1_536);
        drop(other);
        account.follow(1_025);
        assert_eq!(budget.used_bytes(), 1_536);
        account.set(1_025);
        assert_eq!(account.freeze().bytes(), 1_025);
    }

    #[test]
    fn those_who_hold_little_do_not_freeze_for_others() {
        let budget = MemtableBudget::new(100);
        let (mut large, mut small) = (budget.account(), budget.account());
        large.set(90);
        small.set(10);
        assert!(!large.should_freeze() && !small.should_freeze());
        small.set(11);
        assert!(large.should_freeze() && !small.should_freeze());
        // All of it is being flushed: who writes on reaches the share soon enough.
        let frozen = large.freeze();
        assert!(!large.should_freeze() && budget.is_exceeded());
        small.set(25);
        assert!(small.should_freeze());
        drop(frozen);
        assert!(!small.should_freeze());
    }
}
