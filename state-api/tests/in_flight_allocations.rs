//! A record whose state is in memory allocates nothing. The allocator counts for each thread by
//! itself: the thread that runs the tests allocates too.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(unsafe_code, reason = "a global allocator is unsafe by its interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use weir_backend_heap::HeapBackendFactory;
use weir_state_api::{
    Admission, InFlight, InFlightLimits, KeyedStore, MapState, RecordOperator, RecordState, Result,
    ValueState,
};

struct Counting;

thread_local! {
    // A constant without a destructor: the first use on a thread allocates nothing itself.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; `alloc` is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Count {
    value: ValueState<u64>,
    map: MapState<u64, u64>,
}

impl RecordOperator for Count {
    type Record = u64;
    type Output = u64;

    async fn process(&self, record: &u64, state: &mut RecordState<'_, u64>) -> Result<()> {
        let count = self.value.update(state, |old| old.unwrap_or(0) + 1).await?;
        self.map.put(state, &(record % 2), &count)?;
        let latest = self.map.get(state, &(record % 2)).await?;
        state.emit(latest.unwrap());
        Ok(())
    }
}

#[test]
fn a_record_whose_state_is_in_memory_allocates_nothing() {
    const KEYS: u64 = 100;
    let mut store = KeyedStore::<u64>::open_in_memory(&HeapBackendFactory::default()).unwrap();
    let count = Count { value: store.value("value").unwrap(), map: store.map("map").unwrap() };
    let mut in_flight = InFlight::new(store, count, InFlightLimits::default());
    let mut round = |records: u64| {
        let mut sum = 0;
        for record in 0..records {
            assert_eq!(in_flight.submit(&(record % KEYS), record).unwrap(), Admission::Done);
            sum += in_flight.outputs().sum::<u64>();
        }
        sum
    };
    round(4 * KEYS);
    let before = ALLOCATIONS.get();
    let sum = round(100 * KEYS);
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(sum, KEYS * (5..=104).sum::<u64>());
}
