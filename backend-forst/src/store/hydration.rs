//! Tables that are read much come to local disk, in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_timer::Delay;
use futures_util::FutureExt;
use weir_state_api::Result;

use super::caches::Caches;
use super::disk_cache::DiskCache;
use super::table::Table;
use super::traffic::Counter;
use crate::format::TableMeta;

/// How much is read from the store at once: so little that foreground reads are not held up by it.
const STRIPE: u64 = 4 << 20;

/// What tables come to local disk, and how fast. One at a time in a process: who finds it busy asks
/// again with the next read.
#[derive(Debug)]
pub(crate) struct Hydration {
    bytes_per_second: u64,
    busy: AtomicBool,
    pub(crate) bytes: Counter,
}

impl Hydration {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Hydration { bytes_per_second, busy: AtomicBool::new(false), bytes: Counter::default() }
    }

    /// The pause after so many bytes that keeps within the limit, however fast the store is.
    fn pause(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.max(1) as f64)
    }
}

/// Begins to bring a table to local disk, if it is worth that: as much of it was read from the store,
/// one block at a time, as a quarter of it, and it is hotter than what it would displace.
pub(super) fn consider(table: &Arc<Table>, meta: &TableMeta) {
    let caches = table.tables.caches();
    let hydration = &caches.hydration;
    let (Some(disk), Some(_)) = (&caches.disk, table.object()) else { return };
    let reads = table.shared.heat.reads() as usize;
    if hydration.bytes_per_second == 0
        || reads < (meta.block_count() / 4).max(2)
        || hydration.busy.load(Ordering::Relaxed)
        || disk.contains(table.shared.id)
        || !disk.has_room(table.length(), table.density())
        || hydration.busy.swap(true, Ordering::Relaxed)
    {
        return;
    }
    let (reader, disk) = (Arc::clone(table), Arc::clone(disk));
    let turn = Turn(Arc::clone(caches));
    let work = async move {
        // Ends also when the spawner drops it.
        let _turn = turn;
        // Nobody waits for it: a store that fails is seen by the next read.
        drop(hydrate(&reader, &disk).await);
    };
    table.tables.spawner().spawn(work.boxed());
}

/// The one hydration that runs; over when this is dropped.
struct Turn(Arc<Caches>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.hydration.busy.store(false, Ordering::Relaxed);
    }
}

async fn hydrate(table: &Table, disk: &Arc<DiskCache>) -> Result<()> {
    let (Some(object), hydration) = (table.object(), &table.tables.caches().hydration) else {
        return Ok(());
    };
    let Some(mut file) = disk.begin(table.length(), Some(table.density())) else { return Ok(()) };
    let mut crc32 = crc32fast::Hasher::new();
    let mut offset = 0;
    while offset < object.length && file.is_good() {
        let end = object.length.min(offset + STRIPE);
        let stripe = table.tables.store().read_range(&object.path, offset..end).await?;
        crc32.update(&stripe);
        file.write(&stripe);
        hydration.bytes.add(end - offset);
        Delay::new(hydration.pause(end - offset)).await;
        offset = end;
    }
    if crc32.finalize() == object.crc32 {
        file.keep(table.shared.id, &table.shared.heat);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_keep_the_limit() {
        let hydration = Hydration::new(8 << 20);
        assert_eq!(hydration.pause(STRIPE), Duration::from_millis(500));
        assert_eq!(Hydration::new(0).pause(0), Duration::ZERO);
    }
}
