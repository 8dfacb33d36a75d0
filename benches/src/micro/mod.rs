//! Workload W1: single accesses to state, one thread, everything through the object-safe interface.
//!
//! | file | content |
//! |---|---|
//! | `inputs.rs` | keys and values, the same for every contestant |
//! | `operation.rs` | what a table of operations consists of |
//! | `contestant.rs`, `family.rs` | who runs the operations |
//! | `contest.rs` | rounds, interleaved; answers compared; figures |
//! | `value.rs`, `list.rs`, `map.rs`, `range.rs`, `folding.rs`, `timers.rs`, `ttl.rs` | the tables |
//! | `by_bytes.rs` | fjall and redb as contestants |
//! | `raw_rocksdb.rs` | the raw `rocksdb` crate as a contestant |
//! | `memory.rs` | bytes per entry |

mod by_bytes;
pub(crate) mod contest;
pub(crate) mod contestant;
pub(crate) mod family;
mod folding;
mod inputs;
mod list;
mod map;
pub(crate) mod memory;
mod operation;
mod range;
#[cfg(feature = "rocks")]
mod raw_rocksdb;
mod timers;
mod ttl;
mod value;

use std::rc::Rc;

use clap::ValueEnum;
use weir_state_api::{Error, ErrorKind, Result};

use crate::backends::Backend;
use crate::measure::Recorder;
use crate::peers::flink::{FlinkBackend, FlinkInstall};
use contest::Contest;
use family::Family;
use inputs::Inputs;

/// Something that is not Weir.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// Collections of hashbrown and the standard library: the limit.
    Raw,
    /// The `rocksdb` crate with the options of Weir's backend: the limit of that one.
    #[cfg(feature = "rocks")]
    Rocksdb,
    /// A log-structured merge tree on the local disk, in Rust.
    Fjall,
    /// A copy-on-write B+ tree on the local disk, in Rust.
    Redb,
    /// State in object storage, in Rust: it has a suite of its own, which runs too.
    #[cfg(feature = "slatedb")]
    Slatedb,
    /// Apache Flink's backends, in a JVM.
    Flink,
}

/// Who takes part, and how much there is to do.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) backends: Vec<Backend>,
    pub(crate) peers: Vec<Peer>,
    /// There when Flink takes part and could be prepared.
    pub(crate) flink: Option<Rc<FlinkInstall>>,
    pub(crate) flink_backends: Vec<FlinkBackend>,
    /// Keys that are set up.
    pub(crate) keys: usize,
    /// Entries for the measurement of memory.
    pub(crate) memory_entries: usize,
    /// Rounds before the measured ones.
    pub(crate) warm_up: usize,
    /// Only operations whose name contains this.
    pub(crate) only: Option<String>,
}

/// Measures all families.
pub(crate) fn run(recorder: &mut Recorder, settings: &Settings) -> Result<()> {
    let inputs = Rc::new(Inputs::new(settings.keys));
    Contest::new(recorder, settings).run(families(settings, &inputs));
    if settings.only.as_ref().is_none_or(|only| memory::WORKLOAD.contains(only.as_str())) {
        memory::run(recorder, settings);
    }
    Ok(())
}

/// Runs one operation on a backend for some rounds, and nothing else; returns what one
/// round's cost is divided by.
pub(crate) fn hot_path(
    backend: Backend,
    operation: &str,
    keys: usize,
    rounds: usize,
) -> Result<u64> {
    let settings = Settings {
        backends: vec![backend],
        peers: Vec::new(),
        flink: None,
        flink_backends: Vec::new(),
        keys,
        memory_entries: 0,
        warm_up: 0,
        only: None,
    };
    let inputs = Rc::new(Inputs::new(keys));
    let unknown = || Error::new(ErrorKind::InvalidUsage, "no such operation").object(operation);
    let mut families = families(&settings, &inputs);
    let family = families.iter_mut().find(|family| family.counted(operation).is_some());
    let family = family.ok_or_else(unknown)?;
    let contestant = family.contestants.first_mut().ok_or_else(unknown)?;
    if rounds > 0 {
        contestant.begin(operation)?;
    }
    for round in 0..rounds {
        contestant.untimed_round(round)?;
    }
    family.counted(operation).ok_or_else(unknown)
}

fn families<'a>(settings: &'a Settings, inputs: &'a Rc<Inputs>) -> Vec<Family<'a>> {
    let new = |title| Family::new(title, settings, inputs);
    vec![
        value::family(new("value")),
        list::family(new("list")),
        map::family(new("map")),
        range::family(new("map ranges")),
        folding::reducing_family(new("reducing")),
        folding::aggregating_family(new("aggregating")),
        timers::family(new("timers")),
        ttl::value_family(new("value with a TTL")),
        ttl::refreshed_value_family(new("value with a TTL that reads refresh")),
        ttl::expired_value_family(new("value with a TTL, a third expired")),
        ttl::list_family(new("list with a TTL")),
        ttl::map_family(new("map with a TTL")),
    ]
}
