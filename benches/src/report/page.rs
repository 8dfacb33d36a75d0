//! The report as one HTML page that needs nothing else.

use super::document::{Document, METHOD, Part, Table};

const STYLE: &str = include_str!("page.css");

/// All of it.
pub(crate) fn render(document: &Document) -> String {
    let mut body = format!("<h1>Weir: benchmarks</h1>\n<p class=\"machine\">{}</p>\n", {
        escape(&document.machine)
    });
    for warning in &document.warnings {
        body += &format!("<p class=\"warning\">{}</p>\n", escape(warning));
    }
    body += &summary(document);
    body += &format!("<h2>How to read this</h2>\n<p>{}</p>\n", escape(METHOD));
    for (number, chapter) in document.chapters.iter().enumerate() {
        let (title, about) = (escape(&chapter.title), escape(&chapter.about));
        body += &format!("<h2 id=\"suite-{number}\">{title}</h2>\n<p>{about}</p>\n");
        body.extend(chapter.parts.iter().map(part));
    }
    body += "<h2>Contestants</h2>\n<dl>\n";
    for participant in &document.contestants {
        let (name, options) = (escape(&participant.contestant), escape(&participant.options));
        body += &format!("<dt>{name}</dt><dd>{options}</dd>\n");
    }
    body += "</dl>\n<h2>Options of the run</h2>\n<dl class=\"options\">\n";
    for (name, value) in &document.options {
        body += &format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Weir: benchmarks</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</dl>\n</main>\n</body>\n</html>\n"
    )
}

fn summary(document: &Document) -> String {
    let mut text = String::from("<nav>");
    for (number, chapter) in document.chapters.iter().enumerate() {
        text += &format!("<a href=\"#suite-{number}\">{}</a> ", escape(&chapter.title));
    }
    text += "</nav>\n<section class=\"summary\">\n<h2>In short</h2>\n<ul>\n";
    for line in &document.summary {
        text += &format!("<li>{}</li>\n", escape(line));
    }
    text += "</ul>\n";
    if !document.failures.is_empty() {
        text += "<h3>Not measured</h3>\n<ul>\n";
        for failure in &document.failures {
            let (who, what) = (escape(&failure.contestant), escape(&failure.workload));
            let why = escape(&failure.message);
            text += &format!("<li><b>{who}</b> in {what}: {why}</li>\n");
        }
        text += "</ul>\n";
    }
    for (title, choices) in [
        ("Which backend for which workload", &document.choices),
        ("Where Weir is slower, and why", &document.losses),
    ] {
        if !choices.rows.is_empty() {
            text += &format!("<h3>{title}</h3>\n{}", table(choices));
        }
    }
    text + "</section>\n"
}

fn part(part: &Part) -> String {
    let mut text = String::new();
    if let Some(title) = &part.title {
        text += &format!("<h3>{}</h3>\n", escape(title));
    }
    for (caption, svg) in &part.charts {
        let caption = escape(caption);
        let svg = svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{caption}\" "), 1);
        text += &format!("<figure>\n<figcaption>{caption}</figcaption>\n{svg}</figure>\n");
    }
    text += &table(&part.table);
    if !part.notes.is_empty() {
        text += "<ul>\n";
        text.extend(part.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))));
        text += "</ul>\n";
    }
    text
}

fn table(table: &Table) -> String {
    let cells = |tag: &str, cells: &[String]| {
        let mut text = String::from("<tr>");
        for (column, cell) in cells.iter().enumerate() {
            let tag = if column == 0 { "th" } else { tag };
            let class = if table.has_words(column) { "word" } else { "figure" };
            text += &format!("<{tag} class=\"{class}\">{}</{tag}>", escape(cell));
        }
        text + "</tr>\n"
    };
    let mut text = format!("<div class=\"wide\"><table>\n<thead>{}</thead>\n<tbody>\n", {
        cells("th", &table.head)
    });
    text.extend(table.rows.iter().map(|row| cells("td", row)));
    text + "</tbody></table></div>\n"
}

/// Text as it may stand between tags and in attributes.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
