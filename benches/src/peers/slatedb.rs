//! The backend for object storage against SlateDB, which keeps a key-value database there: the same
//! store (a local folder), the same memory, the same keys and values, LZ4 on both sides.
//!
//! SlateDB is set up as its documentation proposes: its default cache, split into blocks and metadata,
//! and reading ahead in scans. Its write-ahead log is off, because Weir has none: the stream can be read
//! again.

use std::sync::Arc;
use std::time::Duration;

use slatedb::config::{CompressionCodec, FlushOptions, FlushType, ScanOptions, Settings};
use slatedb::db_cache::SplitCache;
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::object_store::local::LocalFileSystem;
use slatedb::{Db, KeyValue};
use tempfile::TempDir;
use weir_backend_forst::{Compression, ForstBackendFactory, ForstOptions, ForstResources};
use weir_state_api::{
    CheckpointId, Codec, Environment, Error, ErrorKind, KeyedStore, Notification, OpenRequest,
    Ordered, Result, SnapshotRequest, SortedMapState, TokioSpawner, ValueState,
};

use crate::backends::{MEMORY, folder_store, local_folder, runtime};
use crate::interrupt;
use crate::measure::{Recorder, timed};
use crate::shuffle::shuffled;
use crate::stage::{VALUE_LEN, value_of};

pub(crate) const SUITE: &str = "slatedb";
const FORST: &str = "weir forst";
const SLATE: &str = "slatedb";
/// Memory for what is read; as much is for what is written.
const CACHE: u64 = MEMORY as u64 / 2;
/// SlateDB's share of it for filters and indexes: a quarter, as by its defaults about.
const META_CACHE: u64 = CACHE / 4;

/// Measures both with so many bytes of values; a quarter as much is scanned.
pub(crate) fn run(recorder: &mut Recorder, bytes: u64) -> Result<()> {
    let entries = (bytes / VALUE_LEN as u64) as i64;
    let keys = shuffled(entries, 42);
    let workload = |name: &str| format!("{name}, {} MB", bytes / 1_000_000);
    let (mut forst, mut slate) = (Forst::open(recorder)?, Slate::open(recorder)?);

    // Both are filled, then read, then the rounds.
    recorder.expect(recorder.rounds() + 2);
    let loaded = (timed(|| forst.load(&keys))?.1, timed(|| slate.load(&keys))?.1);
    compare(recorder, &workload("bulk load"), entries, &[loaded]);
    recorder.step();
    let scanned = entries / 4;
    forst.load_map(scanned)?;
    slate.load_map(scanned)?;

    // Everything into memory.
    forst.get(&keys, true)?;
    slate.get(&keys, true)?;
    recorder.step();
    let reads = &shuffled(entries, 7)[..keys.len() / 2];
    let absent: Vec<i64> = reads.iter().map(|key| key + entries).collect();
    let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..recorder.rounds() {
        if interrupt::requested() {
            return Ok(());
        }
        rounds[0].push((timed(|| forst.get(reads, true))?.1, timed(|| slate.get(reads, true))?.1));
        rounds[1]
            .push((timed(|| forst.get(&absent, false))?.1, timed(|| slate.get(&absent, false))?.1));
        rounds[2].push((timed(|| forst.scan(scanned))?.1, timed(|| slate.scan(scanned))?.1));
        recorder.step();
    }
    recorder.finished();
    compare(recorder, &workload("get, cached"), reads.len() as i64, &rounds[0]);
    compare(recorder, &workload("get, missing"), reads.len() as i64, &rounds[1]);
    compare(recorder, &workload("scan"), scanned, &rounds[2]);
    slate.close()
}

/// Records what each took for an operation, and how many times as fast Weir is.
fn compare(
    recorder: &mut Recorder,
    workload: &str,
    operations: i64,
    rounds: &[(Duration, Duration)],
) {
    let per_operation = |time: Duration| time.as_nanos() as f64 / operations as f64;
    let forst: Vec<f64> = rounds.iter().map(|(time, _)| per_operation(*time)).collect();
    let slate: Vec<f64> = rounds.iter().map(|(_, time)| per_operation(*time)).collect();
    recorder.add(SUITE, workload, FORST, "wall", "ns/op", forst.clone());
    recorder.add(SUITE, workload, SLATE, "wall", "ns/op", slate.clone());
    let ratio = recorder.compare(SUITE, workload, "wall", (FORST, &forst), (SLATE, &slate));
    recorder
        .say(&format!("{SUITE:<9} {workload:<22} {FORST:<16} {ratio:.2} times as fast as {SLATE}"));
}

fn differs(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what}: not what was written"))
}

/// An instance of Weir's backend.
struct Forst {
    store: KeyedStore<i64>,
    value: ValueState<Vec<u8>>,
    map: SortedMapState<i64, Vec<u8>>,
    bytes: Vec<u8>,
    tokio: tokio::runtime::Runtime,
    _folder: TempDir,
}

impl Forst {
    fn open(recorder: &mut Recorder) -> Result<Self> {
        let (folder, tokio) = (local_folder()?, runtime()?);
        let resources = ForstResources::builder()
            .cache_bytes(CACHE)
            .memtable_bytes(MEMORY as u64 / 2)
            .build()?;
        // Reads are answered by the block cache, not by memtables that were flushed, as SlateDB's are.
        let options = ForstOptions::default()
            .with_resources(resources)
            .with_keep_flushed(false)
            .with_flush_compression(Compression::Lz4);
        let factory = ForstBackendFactory::new(options);
        recorder.introduce(FORST, format!("{:?}", factory.options()));
        let mut environment = Environment::in_memory();
        environment.store = folder_store(folder.path())?;
        environment.spawner = Arc::new(TokioSpawner::new(tokio.handle().clone()));
        let mut request = OpenRequest::new(environment, "bench", Codec::<i64>::id(&Ordered));
        request.directory = "live/".into();
        let mut store: KeyedStore<i64> = tokio.block_on(KeyedStore::open(&factory, request))?;
        let (value, map) = (store.value("value")?, store.sorted_map("map")?);
        Ok(Forst { store, value, map, bytes: Vec::new(), tokio, _folder: folder })
    }

    /// Until a checkpoint holds all of it.
    fn load(&mut self, keys: &[i64]) -> Result<()> {
        for key in keys {
            self.store.set_key(key)?;
            value_of(*key, 0, &mut self.bytes);
            self.value.set(&mut self.store, &self.bytes)?;
        }
        self.checkpoint(1)
    }

    fn load_map(&mut self, entries: i64) -> Result<()> {
        self.store.set_key(&0)?;
        for key in 0..entries {
            value_of(key, 0, &mut self.bytes);
            self.map.put(&mut self.store, &key, &self.bytes)?;
        }
        self.checkpoint(2)
    }

    fn checkpoint(&mut self, number: u64) -> Result<()> {
        let id = CheckpointId(number);
        let request = SnapshotRequest::checkpoint(id, format!("chk-{number}"));
        self.tokio.block_on(self.store.snapshot(request)?.run())?;
        self.store.notify(Notification::Complete(id))
    }

    fn get(&mut self, keys: &[i64], there: bool) -> Result<()> {
        for key in keys {
            self.store.set_key(key)?;
            let found = self.value.get(&mut self.store).wait()?;
            if found.is_some() != there {
                return Err(differs(FORST));
            }
        }
        Ok(())
    }

    fn scan(&mut self, entries: i64) -> Result<()> {
        self.store.set_key(&0)?;
        let mut count = 0;
        for entry in self.map.entries(&mut self.store).wait()? {
            count += i64::from(entry?.1.len() == VALUE_LEN);
        }
        if count == entries { Ok(()) } else { Err(differs(FORST)) }
    }
}

/// A database of SlateDB. Keys are a letter and eight bytes.
struct Slate {
    db: Db,
    bytes: Vec<u8>,
    tokio: tokio::runtime::Runtime,
    _folder: TempDir,
}

fn failed(error: slatedb::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "SlateDB fails").source(error)
}

fn stored(letter: u8, key: i64) -> [u8; 9] {
    let mut stored = [letter; 9];
    stored[1..].copy_from_slice(&key.to_be_bytes());
    stored
}

impl Slate {
    fn open(recorder: &mut Recorder) -> Result<Self> {
        let (folder, tokio) = (local_folder()?, runtime()?);
        let settings = Settings {
            wal_enabled: false,
            compression_codec: Some(CompressionCodec::Lz4),
            max_unflushed_bytes: MEMORY / 2,
            ..Settings::default()
        };
        recorder.introduce(
            SLATE,
            format!(
                "{settings:?}, block cache {} bytes, metadata {META_CACHE}",
                CACHE - META_CACHE
            ),
        );
        let cache = |max_capacity| {
            let options = FoyerCacheOptions { max_capacity, ..FoyerCacheOptions::default() };
            Some(Arc::new(FoyerCache::new_with_opts(options)) as _)
        };
        let cache = SplitCache::new()
            .with_block_cache(cache(CACHE - META_CACHE))
            .with_meta_cache(cache(META_CACHE))
            .build();
        let store = LocalFileSystem::new_with_prefix(folder.path()).map_err(|error| {
            Error::new(ErrorKind::Unavailable, "SlateDB's folder").source(error)
        })?;
        let builder = Db::builder("db", Arc::new(store))
            .with_settings(settings)
            .with_db_cache(Arc::new(cache), 0);
        let db = tokio.block_on(async { builder.build().await }).map_err(failed)?;
        Ok(Slate { db, bytes: Vec::new(), tokio, _folder: folder })
    }

    fn put(&mut self, letter: u8, keys: impl Iterator<Item = i64>) -> Result<()> {
        let written = async {
            for key in keys {
                value_of(key, 0, &mut self.bytes);
                self.db.put(stored(letter, key), &self.bytes).await?;
            }
            self.db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await
        };
        self.tokio.block_on(written).map_err(failed)
    }

    fn load(&mut self, keys: &[i64]) -> Result<()> {
        self.put(b'v', keys.iter().copied())
    }

    fn load_map(&mut self, entries: i64) -> Result<()> {
        self.put(b'm', 0..entries)
    }

    fn get(&mut self, keys: &[i64], there: bool) -> Result<()> {
        let read = async {
            for key in keys {
                if self.db.get(stored(b'v', *key)).await.map_err(failed)?.is_some() != there {
                    return Err(differs(SLATE));
                }
            }
            Ok(())
        };
        self.tokio.block_on(read)
    }

    fn scan(&mut self, entries: i64) -> Result<()> {
        let options = ScanOptions {
            read_ahead_bytes: 2 << 20,
            cache_blocks: true,
            max_fetch_tasks: 4,
            ..ScanOptions::default()
        };
        let read = async {
            let range = stored(b'm', 0)..stored(b'm', entries);
            let mut found = self.db.scan_with_options(range, &options).await?;
            let mut count = 0;
            while let Some(KeyValue { value, .. }) = found.next().await? {
                count += i64::from(value.len() == VALUE_LEN);
            }
            Ok(count)
        };
        let count = self.tokio.block_on(read).map_err(failed)?;
        if count == entries { Ok(()) } else { Err(differs(SLATE)) }
    }

    fn close(self) -> Result<()> {
        self.tokio.block_on(self.db.close()).map_err(failed)
    }
}
