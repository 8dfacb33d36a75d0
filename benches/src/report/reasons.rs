//! Whom Weir's backends are compared with, and why they lose where they do.
//!
//! A reason stands here once a profile has shown it; docs/performance.md tells where the instructions go.

/// The backends of Weir that do what a contestant from elsewhere does: those it is a measure of.
pub(crate) fn counterparts(contestant: &str) -> &'static [&'static str] {
    const ALL: &[&str] = &["weir heap", "weir rocks", "weir forst"];
    let name = contestant.trim_start_matches("flink ").trim_end_matches("-changelog");
    match name {
        "heap" => &["weir heap"],
        "rocksdb crate" | "rocksdb" | "rocksdb-managed" => &["weir rocks"],
        "fjall" | "redb" => &["weir rocks", "weir forst"],
        "forst" => &["weir forst"],
        name if name.starts_with("slatedb") => &["weir forst"],
        name if name.starts_with("hashbrown") || name.starts_with("BTree") => &["weir heap"],
        _ => ALL,
    }
}

/// An access with a key that is known beforehand, against a collection of the program.
const ACCESS: &str = "an access is 250 to 400 instructions: the key is encoded and hashed, its group found, the \
    backend called through the interface, the value decoded; of raw accesses the processor overlaps about ten, of \
    these three. With one key in flight (chained) both wait for memory alike, once the state is larger than caches";

const NOT_KNOWN: &str = "not known";

const LISTS: &str = "a list is handed out decoded, in a vector of its own, whose allocation and release are a quarter of \
    a read's 510 instructions; with so many hardly two reads overlap. A raw vector is lent. One element more is encoded, \
    and the bytes of a list that grows are moved";

const MAP_ENTRIES: &str = "a map's entries lie encoded side by side (22 bytes for two words): its key is encoded like \
    that of the map, and found by a search among bytes";

const WALKS: &str = "a walk keeps what it began with whatever is changed meanwhile: entries are copied into a page, and \
    then decoded, some 240 instructions for each; a raw map lends them where they are";

const TIMERS: &str = "timers are kept for each of 128 key groups, so that groups can move: what is registered is logged, \
    sorted and merged, and the first of all groups is found anew after each that fires; a raw set has one order";

const TTL: &str = "besides what values take, an access looks at the clock, decodes the stamp before the value or writes \
    one, and cleans up another entry on the way; the raw map compares a number beside the value";

const PATTERNS: &str = "what a walk meets is handed out decoded, each value in a vector of its own (their allocation and \
    release take a sixth of the time), and expired state is cleaned up on the way (a tenth where there is a TTL); by \
    hand the stored bytes are lent, and what has expired is removed key by key";

/// Why Weir is slower than such a contestant in a workload, as far as it is known.
pub(crate) fn reason(suite: &str, workload: &str, contestant: &str) -> &'static str {
    if contestant.starts_with("hashbrown") || contestant.starts_with("BTree") {
        collection(suite, workload)
    } else if contestant == "rocksdb crate" {
        "the same engine without keys of any length, key groups, types and TTL above it"
    } else if contestant == "redb" {
        "a B+ tree has neighbouring entries on one page, where a log-structured tree merges its memtable and \
         its tables for each walk; its commits wait for no disk here"
    } else if contestant.starts_with("flink heap") {
        "objects on the Java heap are handed out as they are; Weir decodes bytes"
    } else {
        NOT_KNOWN
    }
}

fn collection(suite: &str, workload: &str) -> &'static str {
    let begins = |names: &[&str]| names.iter().any(|name| workload.starts_with(name));
    if suite == "patterns" {
        PATTERNS
    } else if suite != "micro" {
        NOT_KNOWN
    } else if begins(&["ttl"]) {
        TTL
    } else if begins(&["timer"]) {
        TIMERS
    } else if begins(&["list"]) {
        LISTS
    } else if begins(&["mapKeys", "mapValues", "mapEntries", "mapIterator", "mapRange"]) {
        WALKS
    } else if begins(&["map"]) {
        MAP_ENTRIES
    } else {
        ACCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_to_collections_have_a_reason_for_each_kind_of_access() {
        let of = |workload| reason("micro", workload, "hashbrown of something");
        let workloads =
            ["valueGet", "listGet", "mapGet", "mapIterator", "timerFire", "ttlValueGet"];
        let mut reasons: Vec<_> = workloads.iter().map(|workload| of(workload)).collect();
        reasons.push(reason("patterns", "join, Zipf, 100 B", "BTreeMap"));
        assert!(reasons.iter().all(|reason| *reason != NOT_KNOWN));
        reasons.sort_unstable();
        reasons.dedup();
        assert_eq!(reasons.len(), workloads.len() + 1);
        assert_eq!(of("mapRemove"), of("mapGet"));
        assert_eq!(reason("nexmark", "q5", "flink rocksdb"), NOT_KNOWN);
    }
}
