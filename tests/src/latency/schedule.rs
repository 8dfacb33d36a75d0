//! Which reads pend, and when they complete.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use weir_state_api::{BoxFuture, Error, ErrorKind, Result};

/// The schedule of a [`LatencyFactory`](super::LatencyFactory)'s reads; clones share it.
#[derive(Debug, Clone)]
pub struct Latency(Arc<Mutex<Schedule>>);

#[derive(Debug)]
struct Schedule {
    random: u64,
    hits: u64,
    defers: bool,
    by_itself: bool,
    failing: u64,
    gates: Vec<Weak<Mutex<Gate>>>,
    batches: Vec<usize>,
}

#[derive(Debug, Default)]
struct Gate {
    open: bool,
    reader: Option<Waker>,
}

impl Schedule {
    /// A number below `bound` (`SplitMix64`).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

impl Latency {
    /// Every read pends until [`complete_one`](Latency::complete_one) picks it.
    pub fn seeded(seed: u64) -> Self {
        Latency(Arc::new(Mutex::new(Schedule {
            random: seed,
            hits: 0,
            defers: false,
            by_itself: false,
            failing: 0,
            gates: Vec::new(),
            batches: Vec::new(),
        })))
    }

    /// So many reads of a hundred are answered at once.
    #[must_use]
    pub fn with_hits(self, percent: u64) -> Self {
        self.lock().hits = percent;
        self
    }

    /// Point reads that would pend are deferred where the caller allows it, to come as batches.
    #[must_use]
    pub fn deferring(self) -> Self {
        self.lock().defers = true;
        self
    }

    /// Reads complete after some polls, without anybody's help.
    #[must_use]
    pub fn by_itself(self) -> Self {
        self.lock().by_itself = true;
        self
    }

    /// The next reads that pend fail with [`Unavailable`](ErrorKind::Unavailable).
    pub fn fail_next(&self, reads: u64) {
        self.lock().failing = reads;
    }

    /// Completes one pending read, picked at random, and wakes its reader; `false` if there is none.
    pub fn complete_one(&self) -> bool {
        let mut schedule = self.lock();
        let gate = loop {
            let waiting = schedule.gates.len() as u64;
            if waiting == 0 {
                return false;
            }
            let picked = schedule.below(waiting) as usize;
            // Nobody waits for a read that was dropped.
            if let Some(gate) = schedule.gates.swap_remove(picked).upgrade() {
                break gate;
            }
        };
        drop(schedule);
        let reader = {
            let mut gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
            gate.open = true;
            gate.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        true
    }

    /// The number of reads, or batches of them, that pend.
    pub fn pending(&self) -> usize {
        self.lock().gates.iter().filter(|gate| gate.strong_count() > 0).count()
    }

    /// The sizes of the batched reads so far.
    pub fn batches(&self) -> Vec<usize> {
        self.lock().batches.clone()
    }

    pub(super) fn is_hit(&self) -> bool {
        let mut schedule = self.lock();
        schedule.below(100) < schedule.hits
    }

    pub(super) fn defers(&self) -> bool {
        self.lock().defers
    }

    pub(super) fn note_batch(&self, reads: usize) {
        self.lock().batches.push(reads);
    }

    /// A future that yields `answer` when the schedule says so.
    pub(super) fn delay<T: Send + 'static>(&self, answer: T) -> BoxFuture<'static, Result<T>> {
        let mut schedule = self.lock();
        let fails = schedule.failing > 0;
        schedule.failing = schedule.failing.saturating_sub(1);
        let gate = Arc::new(Mutex::new(Gate::default()));
        let mut polls = schedule.by_itself.then(|| 1 + schedule.below(3));
        if polls.is_none() {
            schedule.gates.push(Arc::downgrade(&gate));
        }
        drop(schedule);
        Box::pin(async move {
            poll_fn(|context| {
                if let Some(left) = &mut polls {
                    *left = left.saturating_sub(1);
                    context.waker().wake_by_ref();
                    return if *left == 0 { Poll::Ready(()) } else { Poll::Pending };
                }
                let mut gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
                if gate.open {
                    return Poll::Ready(());
                }
                gate.reader = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
            if fails {
                return Err(Error::new(ErrorKind::Unavailable, "the store did not answer"));
            }
            Ok(answer)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
