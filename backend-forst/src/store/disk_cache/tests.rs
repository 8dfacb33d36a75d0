use super::*;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;

struct Fixture {
    folder: tempfile::TempDir,
    clock: ReadClock,
}

impl Fixture {
    fn new() -> Self {
        Fixture { folder: tempfile::tempdir().unwrap(), clock: ReadClock::default() }
    }

    fn open(&self, limit: u64) -> Arc<DiskCache> {
        Arc::new(DiskCache::open(self.folder.path(), limit, &self.clock).unwrap())
    }

    /// A table of that many bytes, all the same; the heat it has, the one it is begun with.
    fn add(&self, cache: &Arc<DiskCache>, byte: u8, length: usize) -> Option<(CacheId, Arc<Heat>)> {
        self.add_with(cache, byte, length, None)
    }

    fn add_with(
        &self,
        cache: &Arc<DiskCache>,
        byte: u8,
        length: usize,
        density: Option<Density>,
    ) -> Option<(CacheId, Arc<Heat>)> {
        let (id, heat) = (CacheId::unique(), Heat::new(&self.clock));
        let mut file = cache.begin(length as u64, density)?;
        for _ in 0..length / 1000 {
            file.write(&Bytes::from(vec![byte; 1000]));
        }
        file.write(&Bytes::from(vec![byte; length % 1000]));
        let good = file.is_good();
        file.keep(id, &heat);
        good.then_some((id, heat))
    }

    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.folder.path()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "lock").collect()
    }
}

#[test]
fn what_is_written_is_read_also_after_a_restart() {
    let fixture = Fixture::new();
    let cache = fixture.open(MIB);
    let (id, _) = fixture.add(&cache, 7, 2_500).unwrap();
    assert_eq!(cache.read(id, 1_500, 1_000).unwrap(), vec![7; 1_000]);
    assert_eq!(cache.read(id, 1_501, 1_000), None, "beyond the end");
    assert_eq!(cache.read(id, u64::MAX, 1), None);
    assert_eq!(cache.read(CacheId::unique(), 0, 1), None);
    assert!(DiskCache::open(fixture.folder.path(), MIB, &fixture.clock).is_err(), "in use");
    drop(cache);

    // What a crash leaves, what somebody cut short, what is not ours.
    let folder = fixture.folder.path();
    fs::write(folder.join("3.part"), b"half").unwrap();
    fs::write(folder.join(files::name_of(CacheId::unique(), 9)), b"short").unwrap();
    fs::write(folder.join("notes.txt"), b"mine").unwrap();
    let cache = fixture.open(MIB);
    assert_eq!((cache.len(), cache.used_bytes()), (1, 2_500));
    assert_eq!(cache.read(id, 0, 2_500).unwrap(), vec![7; 2_500]);
    assert_eq!(fixture.files().len(), 2);
    drop(cache);

    // A lower limit holds at once.
    let cache = fixture.open(2_000);
    assert_eq!((cache.len(), cache.used_bytes()), (0, 0));
    assert_eq!(fixture.files(), ["notes.txt"]);
}

#[test]
fn the_limit_is_never_exceeded_and_the_coldest_make_way() {
    let fixture = Fixture::new();
    let cache = fixture.open(10_000);
    let mut tables = Vec::new();
    for byte in 0..5 {
        tables.push(fixture.add(&cache, byte, 2_000).unwrap());
    }
    for (_, heat) in [&tables[0], &tables[3]] {
        heat.add(1_000);
    }
    assert_eq!(cache.used_bytes(), 10_000);
    let mut file = cache.begin(500, None).unwrap();
    for _ in 0..4 {
        file.write(&Bytes::from(vec![9; 1_000]));
        assert!(cache.used_bytes() <= 10_000);
    }
    assert!(file.is_good());
    let kept: Vec<bool> = tables.iter().map(|(id, _)| cache.contains(*id)).collect();
    assert_eq!(kept, [true, false, false, true, true], "the oldest of the cold ones went");
    drop(file);
    assert_eq!((cache.used_bytes(), cache.counters.evicted_bytes.get()), (6_000, 4_000));
    assert_eq!(fixture.files().len(), 3);
}

#[test]
fn cold_tables_do_not_displace_hot_ones() {
    let fixture = Fixture::new();
    let cache = fixture.open(4_000);
    let (hot, heat) = fixture.add(&cache, 1, 3_000).unwrap();
    heat.add(1_000);
    let cold = Some(Density(1.0));
    assert!(!cache.has_room(2_000, Density(1.0)) && cache.has_room(1_000, Density(1.0)));
    assert!(fixture.add_with(&cache, 2, 2_000, cold).is_none());
    assert!(fixture.add_with(&cache, 3, 5_000, None).is_none(), "larger than the cache");
    assert!(cache.contains(hot));
    let hotter = Density(heat.density(3_000).0 * 2.0);
    assert!(cache.has_room(2_000, hotter));
    let (new, _) = fixture.add_with(&cache, 4, 2_000, Some(hotter)).unwrap();
    assert!(cache.contains(new) && !cache.contains(hot));
    assert_eq!(fixture.files().len(), 1);
}

#[test]
fn files_that_vanish_or_shrink_are_misses() {
    let fixture = Fixture::new();
    let cache = fixture.open(MIB);
    let (gone, _) = fixture.add(&cache, 1, 1_000).unwrap();
    let (short, _) = fixture.add(&cache, 2, 1_000).unwrap();
    let (good, _) = fixture.add(&cache, 3, 1_000).unwrap();
    fs::remove_file(cache.path_of(gone, 1_000)).unwrap();
    File::options().write(true).open(cache.path_of(short, 1_000)).unwrap().set_len(10).unwrap();
    for id in [gone, short] {
        assert_eq!(cache.read(id, 0, 1_000), None);
        assert!(!cache.contains(id));
    }
    let counters = &cache.counters;
    assert_eq!((counters.damaged.get(), counters.failures.get()), (2, 0));
    assert!(cache.read(good, 0, 1_000).is_some() && cache.is_writable());
}

#[test]
fn removed_tables_are_gone_but_for_who_reads_them() {
    let fixture = Fixture::new();
    let cache = fixture.open(MIB);
    let (id, _) = fixture.add(&cache, 1, 1_000).unwrap();
    let reader = cache.open_file(id, &cache.path_of(id, 1_000)).unwrap();
    cache.remove(id);
    cache.remove(id);
    assert_eq!((cache.used_bytes(), cache.read(id, 0, 1)), (0, None));
    let mut byte = [0];
    reader.read_exact_at(&mut byte, 999).unwrap();
    assert_eq!(byte, [1]);
    assert!(fixture.files().is_empty());
    // A reader that comes late does not keep the file of a table that has made way.
    let path = fixture.folder.path().join("gone");
    fs::write(&path, b"x").unwrap();
    cache.open_file(id, &path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(cache.open_file(id, &path).is_err());
}

#[test]
fn a_broken_disk_ends_the_writing_and_keeps_what_can_be_read() {
    let fixture = Fixture::new();
    let cache = fixture.open(MIB);
    let (id, _) = fixture.add(&cache, 1, 1_000).unwrap();
    assert!(cache.read(id, 0, 1_000).is_some());
    // The open file stays readable; no new one can be made.
    fs::remove_dir_all(fixture.folder.path()).unwrap();
    assert!(cache.begin(1, None).is_none());
    assert_eq!((cache.counters.failures.get(), cache.is_writable()), (1, false));
    assert!(cache.read(id, 0, 1_000).is_some());
    assert!(cache.begin(1, None).is_none() && !cache.has_room(1, Density(0.0)));
    assert_eq!(cache.counters.failures.get(), 1);
}

/// `/dev/full` takes nothing: every write says that no space is left.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_writing() {
    let fixture = Fixture::new();
    let cache = fixture.open(MIB);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let path = fixture.folder.path().join("0.part");
    let mut file = NewFile::new(Arc::clone(&cache), full, path, (0, Density(0.0)));
    file.write(&Bytes::from_static(b"abc"));
    assert!(!file.is_good());
    file.write(&Bytes::from_static(b"def"));
    file.keep(CacheId::unique(), &Heat::new(&fixture.clock));
    assert_eq!((cache.len(), cache.used_bytes(), cache.is_writable()), (0, 0, false));
    assert_eq!(cache.counters.failures.get(), 1);
}
