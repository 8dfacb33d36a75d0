//! States that expire, with records in flight.

use std::sync::Arc;
use std::time::Duration;

use weir_state_api::{
    Codec, Environment, InFlight, InFlightLimits, KeyedStore, ManualClock, OpenRequest, Ordered,
    RecordOperator, RecordState, Result, Ttl, ValueState, block_on,
};
use weir_tests::latency::{Latency, LatencyFactory};
use weir_tests::reference::ReferenceBackendFactory;

/// Writes what comes, or reads when nothing does.
struct ReadOrWrite(ValueState<u64>);

impl RecordOperator for ReadOrWrite {
    type Record = Option<u64>;
    type Output = Option<u64>;

    async fn process(
        &self,
        record: &Option<u64>,
        state: &mut RecordState<'_, Option<u64>>,
    ) -> Result<()> {
        match record {
            Some(value) => self.0.set(state, value)?,
            None => {
                let value = self.0.get(state).await?;
                state.emit(value);
            }
        }
        Ok(())
    }
}

#[test]
fn reads_that_end_late_are_refreshed_whoever_comes_next_and_clean_up_goes_on() {
    for latency in [Latency::seeded(3), Latency::seeded(3).deferring()] {
        let factory = LatencyFactory::new(ReferenceBackendFactory::default(), latency.by_itself());
        let ttl = Ttl::new(Duration::from_millis(100)).refresh_on_read();
        let clock = Arc::new(ManualClock::new(1_000));
        let mut environment = Environment::in_memory();
        environment.clock = clock.clone();
        let request = OpenRequest::new(environment, "operator", Codec::<u64>::id(&Ordered));
        let mut store: KeyedStore<u64> = block_on(KeyedStore::open(&factory, request)).unwrap();
        let value = store.with_ttl(ttl).value("value").unwrap();
        let mut in_flight = InFlight::new(store, ReadOrWrite(value), InFlightLimits::default());
        let mut round = |record: Option<u64>| {
            for key in 0..100 {
                drop(in_flight.submit(&key, record).unwrap());
            }
            in_flight.wait_idle().unwrap();
            in_flight.outputs().flatten().count()
        };
        round(Some(7));
        for now in [1_090, 1_180, 1_270] {
            clock.set(now);
            assert_eq!(round(None), 100, "at {now}");
        }
        clock.set(1_370);
        assert_eq!(round(None), 0);
    }
}
