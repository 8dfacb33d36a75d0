//! What `docs/forst-options.md` calls the default is the default, and no option is missing there.

use std::collections::BTreeSet;

use weir_backend_forst::{ForstOptions, ForstResources};

const PAGE: &str = include_str!("../../docs/forst-options.md");

/// Name and default of each option in a table of the page, by the heading of its section.
fn documented(heading: &str) -> BTreeSet<(String, String)> {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).expect("a section");
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    cells.map(|cells| (cells[0].to_owned(), cells[1].to_owned())).collect()
}

/// Name and value of each field, of a structure's fields too, as `Debug` prints them.
fn fields(debug: &str) -> BTreeSet<(String, String)> {
    let lines = debug.lines().map(|line| line.trim().trim_end_matches(','));
    let pairs = lines.filter_map(|line| line.split_once(": "));
    let plain = pairs.filter(|(_, value)| !value.ends_with(['{', '(', '[']));
    plain.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_page_has_each_option_with_its_default() {
    let resources = fields(&format!("{:#?}", ForstResources::builder()));
    assert!(resources.len() > 5, "{resources:?}");
    assert_eq!(documented("Resources"), resources);

    let options = format!("{:#?}", ForstOptions::default());
    // What is in use is no option.
    let usage = fields(&format!("{:#?}", ForstResources::default().usage()));
    let options: BTreeSet<_> = fields(&options).difference(&usage).cloned().collect();
    assert!(options.len() > 10, "{options:?}");
    assert_eq!(documented("Options"), options);
}
