//! How soon a memtable is frozen while checkpoints are taken: what will be written anyway is written
//! before the barrier comes.
//!
//! A checkpoint waits until everything written since the last one is in the store. So a memtable is ended
//! early, after a share of what the time from one barrier to the next is expected to bring, and flushed
//! while the task goes on; the barrier finds the last piece only. The expectation is what the last time
//! has brought. A job that takes no snapshots has no early flushes.
//!
//! Where keys are overwritten again and again before a barrier comes, each piece would hold the same keys;
//! there a memtable is left alone, and is written once.

use crate::memtable::Churn;

/// How many whole pieces there are from one barrier to the next; the barrier comes in the middle of one
/// more.
pub(super) const PIECES: usize = 4;

/// Beyond so many pieces they grow, as expected too little: as long as an eighth of all before them.
const EQUAL_PIECES: usize = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct StreamOut {
    /// The least length of a piece, in bytes of memory.
    least: usize,
    /// The length of pieces; `None` where none are made.
    piece: Option<usize>,
    /// What was frozen since the last barrier.
    bytes: usize,
    entries: usize,
}

impl StreamOut {
    pub(super) fn new(least: usize) -> Self {
        StreamOut { least: least.max(1), piece: None, bytes: 0, entries: 0 }
    }

    /// The bytes at which the memtable that takes writes is to be frozen, if it is.
    pub(super) fn piece(&self) -> Option<usize> {
        self.piece.map(|piece| piece.max(self.bytes / EQUAL_PIECES))
    }

    /// Memtables were frozen that hold so much.
    pub(super) fn frozen(&mut self, bytes: usize, entries: usize) {
        self.bytes += bytes;
        self.entries += entries;
    }

    /// A snapshot begins. Everything was frozen before; `churn` is that of the time since the last one.
    pub(super) fn barrier(&mut self, churn: Churn) {
        let (bytes, entries) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.entries));
        if entries > 0 {
            let lasts = 2 * churn.overwritten(entries as u64) < entries as u64;
            let piece = bytes.saturating_mul(2) / (2 * PIECES + 1);
            self.piece = (lasts && self.least < usize::MAX).then(|| piece.max(self.least));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: usize = 1_000;

    /// What lasts: each entry was put once.
    fn once(entries: u64) -> Churn {
        Churn { puts: entries, superseded: 0 }
    }

    /// The pieces in which so many bytes are frozen, and what the barrier finds.
    fn pieces(stream: &mut StreamOut, bytes: usize) -> (Vec<usize>, usize) {
        let (mut pieces, mut tail) = (Vec::new(), 0);
        for _ in 0..bytes / 10 {
            tail += 10;
            if stream.piece().is_some_and(|piece| tail >= piece) {
                stream.frozen(tail, tail / 10);
                pieces.push(std::mem::take(&mut tail));
            }
        }
        stream.frozen(tail, tail / 10);
        (pieces, tail)
    }

    #[test]
    fn without_snapshots_nothing_is_flushed_early() {
        let mut stream = StreamOut::new(LEAST);
        assert_eq!(pieces(&mut stream, 100_000), (vec![], 100_000));
    }

    #[test]
    fn a_barrier_finds_half_a_piece_where_times_are_alike() {
        let mut stream = StreamOut::new(LEAST);
        pieces(&mut stream, 90_000);
        stream.barrier(once(9_000));
        for _ in 0..3 {
            assert_eq!(pieces(&mut stream, 90_000), (vec![20_000; 4], 10_000));
            stream.barrier(once(9_000));
        }
    }

    #[test]
    fn where_nothing_is_written_nothing_is_learned() {
        let mut stream = StreamOut::new(LEAST);
        pieces(&mut stream, 90_000);
        stream.barrier(once(9_000));
        stream.barrier(once(0));
        assert_eq!(stream.piece(), Some(20_000));
    }

    #[test]
    fn pieces_grow_where_more_comes_than_was_expected() {
        let mut stream = StreamOut::new(LEAST);
        pieces(&mut stream, 100);
        stream.barrier(once(10));
        let (pieces, tail) = pieces(&mut stream, 1_000_000);
        assert_eq!(pieces[..8], [LEAST; 8]);
        assert!(pieces.len() < 60 && tail < 120_000, "{} and {tail}", pieces.len());
    }

    #[test]
    fn what_is_overwritten_soon_is_written_once() {
        let mut stream = StreamOut::new(LEAST);
        pieces(&mut stream, 90_000);
        stream.barrier(Churn { puts: 13_500, superseded: 0 });
        assert_eq!(stream.piece(), None);
        // In pieces it shows in another way.
        pieces(&mut stream, 90_000);
        stream.barrier(Churn { puts: 9_000, superseded: 4_500 });
        assert_eq!(stream.piece(), None);
        pieces(&mut stream, 90_000);
        stream.barrier(Churn { puts: 9_000, superseded: 4_400 });
        assert_eq!(stream.piece(), Some(20_000));
    }

    #[test]
    fn it_can_be_turned_off() {
        let mut stream = StreamOut::new(usize::MAX);
        pieces(&mut stream, 90_000);
        stream.barrier(once(9_000));
        assert_eq!(stream.piece(), None);
    }
}
