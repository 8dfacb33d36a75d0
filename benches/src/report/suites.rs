//! How each suite is presented: what it answers, and which of its metrics stand at the front.

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// A metric that is drawn, and that decides who is better in a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Headline {
    pub(crate) metric: &'static str,
    pub(crate) better: Better,
}

/// A suite for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Presentation {
    pub(crate) suite: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// The first one decides.
    pub(crate) headlines: &'static [Headline],
}

const fn lower(metric: &'static str) -> Headline {
    Headline { metric, better: Better::Lower }
}

const fn higher(metric: &'static str) -> Headline {
    Headline { metric, better: Better::Higher }
}

/// The suites in the order of the report.
pub(crate) const SUITES: &[Presentation] = &[
    Presentation {
        suite: "micro",
        title: "Single accesses",
        about: "One thread, one call after the other. Time is processor time of the calling thread, \
                per call, or per entry where entries are read.",
        headlines: &[lower("thread CPU")],
    },
    Presentation {
        suite: "patterns",
        title: "Access patterns of operators",
        about: "Each contestant in a process of its own: events as fast as it can, then at a pace of half \
                of what the slowest can do, the same for all. Latencies count from the moment at which \
                an event was due, so a stall counts for every event that it delays.",
        headlines: &[lower("thread CPU"), lower("p99.9 at the pace"), lower("memory, resident")],
    },
    Presentation {
        suite: "in-flight",
        title: "Records in flight",
        about: "The same updates one after the other, and with many records waiting at a time.",
        headlines: &[lower("time")],
    },
    Presentation {
        suite: "snapshot",
        title: "Snapshots of state in memory",
        about: "How long a snapshot holds the writer, and what it takes from it while it is written.",
        headlines: &[lower("synchronous part"), lower("longest write")],
    },
    Presentation {
        suite: "checkpoint",
        title: "Checkpoints of a large state",
        about: "All of the state, then one percent of random updates between two checkpoints, then the \
                same beside a writer at full speed, then a series of checkpoints at fixed times.",
        headlines: &[lower("1 %: written in"), lower("busy: longest pause")],
    },
    Presentation {
        suite: "restore",
        title: "Restore and rescale",
        about: "From the request to the first correct read, and until a subtask reads as fast as before, from \
                a store that answers late and streams slowly unless the name of the workload says \
                otherwise. 4→1 restores what four subtasks had in one.",
        headlines: &[
            lower("2→2: restored in"),
            lower("2→3: slowest subtask"),
            lower("2→2: as fast as before"),
        ],
    },
    Presentation {
        suite: "changelog",
        title: "A changelog around each backend",
        about: "Checkpoints under the same updates at several sizes of the state, beside one write of as many \
                bytes to the same store; an update with and without a log; the replay of a log behind a \
                restored state; the objects of 32 subtasks.",
        headlines: &[
            lower("checkpoint p99/one write"),
            lower("with/without log"),
            higher("replayed"),
        ],
    },
    Presentation {
        suite: "compaction",
        title: "What trees write",
        about: "Bytes written to files and objects for each byte that an operator writes.",
        headlines: &[lower("written")],
    },
    Presentation {
        suite: "layout",
        title: "How RocksDB is laid out",
        about: "On the raw crate: reads of sorted files with and without a hash index in their blocks, and \
                checkpoints of many states that share a column family or have one each.",
        headlines: &[lower("read"), lower("synchronous part")],
    },
    Presentation {
        suite: "far",
        title: "State that is far away",
        about: "Counters per key. One side has all of them on the local disk, one record at a time; the other \
                in a store that answers after 20 ms, many records in flight, with local copies of a part or \
                of nothing. Both have memory for a quarter of the state.",
        headlines: &[lower("time")],
    },
    Presentation {
        suite: "slatedb",
        title: "State in object storage beside SlateDB",
        about: "The same store, memory, keys and values. Nanoseconds by the wall clock for an entry.",
        headlines: &[lower("wall")],
    },
    Presentation {
        suite: "nexmark",
        title: "The auction benchmark",
        about: "Queries of Nexmark through the runtime, exactly once, with a checkpoint each second. CPU is \
                that of the whole process, the generator of the events in it.",
        headlines: &[lower("CPU"), lower("longest checkpoint")],
    },
    Presentation {
        suite: "runtime",
        title: "Records through the runtime",
        about: "Source, key by, count, sink. Millions of records a second.",
        headlines: &[higher("per core")],
    },
];

/// How a suite is presented; one without an entry gets a plain table.
pub(crate) fn presentation(suite: &str) -> Option<&'static Presentation> {
    SUITES.iter().find(|known| known.suite == suite)
}
