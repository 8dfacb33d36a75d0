//! Which worker a key belongs to: the same assignment as everywhere in Weir.

use weir_state_api::{Codec, KeyRef, MaxParallelism, Ordered, OrderedType, subtask_of_group};

/// Routes records to the worker that owns their key's group.
#[derive(Debug)]
pub(super) struct Route {
    max_parallelism: MaxParallelism,
    peers: u16,
    buffer: Vec<u8>,
}

impl Route {
    pub(super) fn new(max_parallelism: MaxParallelism, peers: usize) -> Self {
        let peers = u16::try_from(peers).unwrap_or(max_parallelism.get());
        Route { max_parallelism, peers, buffer: Vec::new() }
    }

    /// The index of the worker. A key that cannot be encoded goes anywhere: it is refused there, when
    /// it is to be used.
    #[inline]
    pub(super) fn worker<K: OrderedType + 'static>(&mut self, key: &K) -> u64 {
        self.buffer.clear();
        let encoded = Ordered.encode(key, &mut self.buffer);
        match encoded.and_then(|()| KeyRef::new(&self.buffer, self.max_parallelism)) {
            Ok(key) => u64::from(subtask_of_group(self.max_parallelism, self.peers, key.group())),
            Err(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_state_api::{KeyGroupRange, key_group_of};

    #[test]
    fn a_key_goes_to_the_worker_whose_range_holds_its_group() {
        let max = MaxParallelism::default();
        for peers in [1, 2, 3, 7] {
            let mut route = Route::new(max, peers);
            for key in 0..500_u64 {
                let worker = route.worker(&key) as u16;
                let range = KeyGroupRange::of_subtask(max, peers as u16, worker).unwrap();
                assert!(range.contains(key_group_of(&Ordered, &key, max).unwrap()));
            }
        }
    }
}
