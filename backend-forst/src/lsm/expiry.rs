//! How much of a table has expired, told from its properties.

use weir_state_api::Millis;
use weir_state_api::ttl::{NEVER, TtlTime};

use super::pick::{CompactionPlan, ids_of};
use super::table_view::{TableId, TableView};
use super::version::{Run, Shard};
use crate::format::StateProperties;

/// Tables of which every value has expired, and that hide nothing older: to be dropped unread.
/// Oldest first, since one that goes may be all that a newer one hides.
pub(super) fn expired_tables<T>(
    shard: &Shard<T>,
    busy: &[CompactionPlan],
    time: &TtlTime,
) -> Vec<TableId> {
    let busy = ids_of(busy);
    let mut expired = Vec::new();
    for (age, run) in shard.runs().iter().enumerate().rev() {
        for table in run.tables() {
            let older = shard.runs()[age + 1..].iter().flat_map(Run::tables);
            let hides =
                || older.filter(|older| !expired.contains(&older.id())).any(|o| o.overlaps(table));
            if has_expired(shard, table, time) && !busy.contains(&table.id()) && !hides() {
                expired.push(table.id());
            }
        }
    }
    // A table that is seen in several parts goes whole or not at all.
    let all_parts = |id: &TableId| {
        shard.tables().filter(|table| table.id() == *id).count()
            == expired.iter().filter(|other| *other == id).count()
    };
    let mut whole: Vec<_> = expired.iter().copied().filter(all_parts).collect();
    whole.sort_unstable();
    whole.dedup();
    whole
}

fn has_expired<T>(shard: &Shard<T>, table: &TableView<T>, time: &TtlTime) -> bool {
    let properties = table.properties();
    !properties.states.is_empty()
        && properties.states.iter().all(|of| {
            let values = of.puts + of.appends;
            values == 0
                || present_for(shard, of, time)
                    .is_some_and(|now| of.latest_expiry.is_some_and(|latest| latest <= now))
        })
}

/// The present in the time that the values of a state expire by. `None` when they do not, when that
/// time is not known, and when they are of an era that is over: then only a compaction can tell.
fn present_for<T>(shard: &Shard<T>, of: &StateProperties, time: &TtlTime) -> Option<Millis> {
    let eras = &shard.states().get(of.state.index())?.eras;
    if of.era != eras.current() {
        return None;
    }
    // Nothing ever reaches `NEVER`.
    Some(time.now(eras.ttl()?.domain)?.min(NEVER - 1))
}

/// About what share of a table's values has expired, in percent, if they expire evenly between the
/// first and the last.
pub(super) fn expired_percent<T>(shard: &Shard<T>, table: &TableView<T>, time: &TtlTime) -> u64 {
    let (mut values, mut expired) = (0_u128, 0_u128);
    for of in &table.properties().states {
        let count = u128::from(of.puts + of.appends);
        values += count;
        let Some(now) = present_for(shard, of, time) else { continue };
        let (Some(first), Some(last)) = (of.earliest_expiry, of.latest_expiry) else { continue };
        let width = i128::from(last) - i128::from(first) + 1;
        let over = (i128::from(now) - i128::from(first) + 1).clamp(0, width);
        expired += count * over.unsigned_abs() / width.unsigned_abs().max(1);
    }
    (expired * 100 / values.max(1)) as u64 // at most 100
}
