//! The report as Markdown.

use super::document::{Document, METHOD, Table};

/// All of it but the pictures.
pub(crate) fn render(document: &Document) -> String {
    let mut text = format!("# Weir: benchmarks\n\n{}\n\n", document.machine);
    for warning in &document.warnings {
        text += &format!("**{warning}**\n\n");
    }
    text += &list(&document.summary);
    if !document.failures.is_empty() {
        text += "\n## Not measured\n\n";
        for failure in &document.failures {
            let (who, what) = (&failure.contestant, &failure.workload);
            text += &format!("- {who} in {what}: {}\n", failure.message);
        }
    }
    for (title, choices) in [
        ("Which backend for which workload", &document.choices),
        ("Where Weir is slower, and why", &document.losses),
    ] {
        if !choices.rows.is_empty() {
            text += &format!("\n## {title}\n\n{}", table(choices));
        }
    }
    text += &format!("\n{METHOD}\n");
    for chapter in &document.chapters {
        text += &format!("\n## {}\n\n{}\n", chapter.title, chapter.about);
        for part in &chapter.parts {
            if let Some(title) = &part.title {
                text += &format!("\n### {title}\n");
            }
            text += &format!("\n{}", table(&part.table));
            if !part.notes.is_empty() {
                text += &format!("\n{}", list(&part.notes));
            }
        }
    }
    text += "\n## Contestants\n\n";
    for participant in &document.contestants {
        text += &format!("- **{}**: {}\n", participant.contestant, participant.options);
    }
    text += "\n## Options\n\n";
    for (name, value) in &document.options {
        text += &format!("- `--{name} {value}`\n");
    }
    text
}

fn list(items: &[String]) -> String {
    items.iter().map(|item| format!("- {item}\n")).collect()
}

fn table(table: &Table) -> String {
    let mut text = row(&table.head);
    let side = |column| if table.has_words(column) { "---|" } else { "--:|" };
    text += &format!("|{}\n", (0..table.head.len()).map(side).collect::<String>());
    text.extend(table.rows.iter().map(|cells| row(cells)));
    text
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}
