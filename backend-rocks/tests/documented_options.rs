//! What `docs/rocksdb-options.md` says is what real databases are opened with, and what the docs of
//! `RocksOptions` call the default is the default.
#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod common;

use std::path::Path;

use common::World;
use weir_backend_rocks::{Compaction, Preset, RocksOptions, TimerMemory};

const PAGE: &str = include_str!("../../docs/rocksdb-options.md");

/// The rows of a table of the page, by the heading of its section.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let section = PAGE.split_once(&format!("## {heading}\n")).unwrap().1;
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The text of the newest options file below a folder.
fn options_file(folder: &Path) -> Option<String> {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().rev().find_map(|path| {
        if path.is_dir() {
            return options_file(path);
        }
        let name = path.file_name()?.to_str()?;
        name.starts_with("OPTIONS-").then(|| std::fs::read_to_string(path).unwrap())
    })
}

/// The value of an option in one section of an options file.
#[track_caller]
fn value<'t>(text: &'t str, section: &str, name: &str) -> &'t str {
    let header = format!("[{section}]");
    let lines = text.lines().map(str::trim).skip_while(|line| *line != header).skip(1);
    let mut settings = lines.take_while(|line| !line.starts_with('['));
    let found = settings.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {name} in {section}"))
}

/// The sections of an options file that a row of the page is about.
fn sections(place: &str) -> Vec<String> {
    let families = ["default", "maps", "timers"];
    let all = |kind: &str| families.map(|family| format!("{kind} \"{family}\"")).to_vec();
    let table = |family: &str| vec![format!("TableOptions/BlockBasedTable \"{family}\"")];
    match place {
        "database" => vec!["DBOptions".into()],
        "families" => all("CFOptions"),
        "points" => vec!["CFOptions \"default\"".into()],
        "tables" => all("TableOptions/BlockBasedTable"),
        "tables of points" => table("default"),
        "tables of maps" => table("maps"),
        "tables of timers" => table("timers"),
        _ => panic!("the page names an unknown place: {place}"),
    }
}

#[test]
fn the_documented_options_are_those_of_real_databases() {
    let presets = [Preset::Flash, Preset::SpinningDisk, Preset::LittleMemory];
    for (column, preset) in presets.into_iter().enumerate() {
        let world = World::with_options(|options| options.with_preset(preset));
        let _backend = world.open(world.request());
        let text = options_file(world.directory.path()).unwrap();
        let mut checked = 0;
        let everywhere = rows("All presets").into_iter().map(|row| (row[0], row[1], row[2]));
        let own = rows("By preset").into_iter().map(|row| (row[0], row[1], row[2 + column]));
        for (place, name, documented) in everywhere.chain(own) {
            for section in sections(place) {
                let real = value(&text, &section, name);
                let same = match (real.parse::<f64>(), documented.parse::<f64>()) {
                    (Ok(real), Ok(documented)) => real == documented,
                    _ => real == documented,
                };
                assert!(same, "{preset:?} {section} {name}: {real}, documented {documented}");
                checked += 1;
            }
        }
        assert!(checked > 30, "{checked}");
    }
}

#[test]
fn universal_compaction_is_what_it_says() {
    let world = World::with_options(|options| options.with_compaction(Compaction::Universal));
    let _backend = world.open(world.request());
    let text = options_file(world.directory.path()).unwrap();
    let style = value(&text, "CFOptions \"default\"", "compaction_style");
    assert_eq!(style, "kCompactionStyleUniversal");
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let options = RocksOptions::new("folder");
    assert_eq!(options.memory.budget_bytes(), 256 << 20);
    assert_eq!(options.preset, Preset::Flash);
    assert_eq!(options.compaction, Compaction::Level);
    assert_eq!(options.timers, TimerMemory::Head(65_536));
    assert_eq!(options.max_value_len, 1 << 30);
    assert_eq!(options.parallel_transfers, 4);
    assert_eq!(options.write_batch_bytes, 1 << 20);
    assert!(!options.local_recovery && !options.driven_clean_up && !options.statistics);
    assert!(options.rocksdb.is_empty());
}
