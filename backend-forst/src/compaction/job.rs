//! Compactions as bytes, to be carried out in another process, and what comes back.
//!
//! Both are postcard in a [`Frame`]: magic, version, length, body, checksum. They live as long as a
//! compaction does; but since the two processes may be of different versions of Weir, an unknown
//! version is refused by name, and the instance carries the compaction out itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_state_api::frame::Frame;
use weir_state_api::ttl::{EventTime, TtlTime};
use weir_state_api::{Error, ErrorKind, KeyGroupRange, Millis, ObjectRef, Result};

use super::input::Input;
use super::output::OutputOptions;
use super::run::{Compaction, Finished};
use crate::format::{Compression, FilterKind, MetaPlace, TableOptions};
use crate::lsm::{KeyRanges, ShardState, StateEras};
use crate::store::{Destination, NewTable, ObjectNames, Tables};

const JOB: Frame = Frame { magic: *b"WEIRFCJB", version: 1 };
const RESULT: Frame = Frame { magic: *b"WEIRFCRS", version: 1 };

/// Blocks and tables of a job are at most so long: beyond, it is not one of ours.
const MAX_BLOCK: u32 = 64 << 20;
const MAX_TABLE: u64 = 4 << 30;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JobBody {
    groups: KeyGroupRange,
    /// Name and eras of each state, by number.
    states: Vec<(String, StateEras)>,
    /// Newest first.
    runs: Vec<Vec<JobTable>>,
    older: KeyRanges,
    cuts: Vec<Vec<u8>>,
    now: Millis,
    /// The current and the first watermark.
    event: Option<(Millis, Millis)>,
    directory: String,
    table_bytes: u64,
    block_bytes: u32,
    restart_interval: u32,
    /// 0 for none, 1 for LZ4, 2 for Zstandard with the level.
    compression: (u8, i32),
    filter: bool,
    hash_index: bool,
}

/// A table in the store.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JobTable {
    object: ObjectRef,
    meta_offset: u64,
    meta_length: u32,
    meta_crc32: u32,
    groups: KeyGroupRange,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ResultBody {
    /// Checksum of the job it answers.
    job: u32,
    groups: KeyGroupRange,
    tables: Vec<JobTable>,
    entries: u64,
}

/// A compaction as bytes. `None` when an input or an output is in memory: then only this process can
/// carry it out.
pub(crate) fn encode(compaction: &Compaction, options: &OutputOptions) -> Option<Vec<u8>> {
    let Destination::Store(names) = &options.destination else { return None };
    let runs = compaction.runs.iter().map(|run| {
        let tables = run.iter().map(|input| {
            JobTable::new(input.table.object()?, input.table.meta_place(), input.groups)
        });
        tables.collect::<Option<Vec<_>>>()
    });
    let states = compaction.states.iter().map(|state| (state.name.clone(), state.eras.clone()));
    let time = &compaction.time;
    Some(JOB.encode(&JobBody {
        groups: compaction.groups,
        states: states.collect(),
        runs: runs.collect::<Option<_>>()?,
        older: compaction.older.clone(),
        cuts: compaction.cuts.iter().map(|cut| cut.to_vec()).collect(),
        now: time.processing,
        event: time.event.map(|event| (event.now, event.first)),
        directory: names.directory().to_string(),
        table_bytes: options.table_bytes,
        block_bytes: u32::try_from(options.table.block_len).ok()?,
        restart_interval: u32::try_from(options.table.restart_interval).ok()?,
        compression: match options.table.compression {
            Compression::None => (0, 0),
            Compression::Lz4 => (1, 0),
            Compression::Zstd(level) => (2, level),
        },
        filter: options.table.filter != FilterKind::None,
        hash_index: options.table.hash_index,
    }))
}

/// A compaction from bytes. Its tables are opened, nothing is read.
///
/// # Errors
/// [`Corrupt`](ErrorKind::Corrupt) and [`Incompatible`](ErrorKind::Incompatible) for bytes that are no
/// job, or one of another version.
pub(crate) fn decode(bytes: &[u8], tables: &Arc<Tables>) -> Result<(Compaction, OutputOptions)> {
    let body: JobBody = JOB.decode(bytes, "compaction job")?;
    let refuse = |what: &str| Err(damaged(&format!("a compaction job {what}")));
    if body.states.iter().any(|(_, eras)| !eras.is_sound()) {
        return refuse("has a state of too many eras");
    }
    if body.groups.is_empty() || !body.older.is_sound() || !body.cuts.is_sorted() {
        return refuse("has ranges that are none");
    }
    if !(1..=MAX_BLOCK).contains(&body.block_bytes)
        || !(1..=MAX_BLOCK).contains(&body.restart_interval)
        || !(1..=MAX_TABLE).contains(&body.table_bytes)
    {
        return refuse("asks for tables of an odd length");
    }
    let compression = match body.compression {
        (0, _) => Compression::None,
        (1, _) => Compression::Lz4,
        (2, level) => Compression::Zstd(level),
        _ => return refuse("asks for an unknown compression"),
    };
    let mut runs = Vec::with_capacity(body.runs.len());
    for run in body.runs {
        let mut inputs = Vec::with_capacity(run.len());
        for table in run {
            let groups = table.groups;
            if groups.is_empty() || groups.intersection(body.groups) != groups {
                return refuse("names a table outside of its key groups");
            }
            let (object, meta) = table.checked()?;
            inputs.push(Input { table: tables.open(object, meta), groups });
        }
        runs.push(inputs);
    }
    let time = TtlTime::new(body.now);
    let states = body.states.into_iter().map(|(name, eras)| ShardState { name, eras });
    let compaction = Compaction {
        groups: body.groups,
        states: Arc::new(states.collect()),
        runs,
        older: body.older,
        cuts: body.cuts.into_iter().map(Vec::into_boxed_slice).collect(),
        time: match body.event {
            Some((now, first)) => time.with_event(EventTime { now, first }),
            None => time,
        },
    };
    let table = TableOptions {
        block_len: body.block_bytes as usize,
        compression,
        filter: if body.filter { FilterKind::BinaryFuse8 } else { FilterKind::None },
        hash_index: body.hash_index,
        restart_interval: body.restart_interval as usize,
    };
    let destination = Destination::Store(ObjectNames::below(body.directory));
    Ok((compaction, OutputOptions { destination, table, table_bytes: body.table_bytes }))
}

/// What a job has done, as bytes. `None` when an output is in memory.
pub(crate) fn encode_result(job: &[u8], finished: &Finished) -> Option<Vec<u8>> {
    let tables = finished.tables.iter().map(|new| {
        JobTable::new(new.table.object()?, new.table.meta_place(), new.properties.groups())
    });
    Some(RESULT.encode(&ResultBody {
        job: crc32fast::hash(job),
        groups: finished.groups,
        tables: tables.collect::<Option<_>>()?,
        entries: finished.entries,
    }))
}

/// What has come back for a job. The new tables' metas are read, which shows that the tables are
/// there.
///
/// # Errors
/// [`Corrupt`](ErrorKind::Corrupt) and [`Incompatible`](ErrorKind::Incompatible) for bytes that are no
/// result, or that of another job; those of reading metas.
pub(crate) async fn decode_result(
    bytes: &[u8],
    job: &[u8],
    groups: KeyGroupRange,
    tables: &Arc<Tables>,
) -> Result<Finished> {
    let body: ResultBody = RESULT.decode(bytes, "compaction result")?;
    let refuse = |what: &str| Err(damaged(&format!("the result of a compaction {what}")));
    if body.job != crc32fast::hash(job) {
        return refuse("is that of another one");
    }
    let done = body.groups;
    if done.intersection(groups) != done || (!done.is_empty() && done.first() != groups.first()) {
        return refuse("is about key groups that were not asked for");
    }
    let mut new_tables = Vec::with_capacity(body.tables.len());
    let mut reached: Box<[u8]> = Box::default();
    for table in body.tables {
        let (object, meta) = table.checked()?;
        let table = tables.open(object, meta);
        let meta = table.load_meta().await?;
        let properties = Arc::new(meta.properties().clone());
        let inside = properties.groups().intersection(done) == properties.groups();
        if properties.is_empty() || !inside || properties.first_key < reached {
            return refuse("names tables that are not in order");
        }
        reached.clone_from(&properties.end_key);
        new_tables.push(NewTable { table, properties });
    }
    Ok(Finished { groups: done, tables: new_tables, entries: body.entries })
}

impl JobTable {
    fn new(object: &ObjectRef, meta: &MetaPlace, groups: KeyGroupRange) -> Option<Self> {
        let object = object.clone();
        let MetaPlace { offset, length, crc32 } = *meta;
        Some(JobTable {
            object,
            meta_offset: offset,
            meta_length: length,
            meta_crc32: crc32,
            groups,
        })
    }

    fn checked(self) -> Result<(ObjectRef, MetaPlace)> {
        let JobTable { object, meta_offset: offset, meta_length, meta_crc32, .. } = self;
        if offset.checked_add(u64::from(meta_length)) != Some(object.length) {
            return Err(damaged("a table's end is not where it should be").object(object.path));
        }
        Ok((object, MetaPlace { offset, length: meta_length, crc32: meta_crc32 }))
    }
}

#[cold]
fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, what).advice("let the instance carry the compaction out itself")
}
