//! The figures for people: a page, the same as Markdown, and a few lines for the terminal.
//!
//! | file | content |
//! |---|---|
//! | `suites.rs` | how each suite is presented |
//! | `reasons.rs` | whom Weir is compared with, and why it loses where it does |
//! | `summary.rs` | which backend for which workload, where Weir loses |
//! | `document.rs` | the report as a whole, before it has a form |
//! | `chart.rs` | pictures |
//! | `page.rs`, `page.css` | the HTML page |
//! | `markdown.rs` | Markdown |

mod chart;
mod document;
mod markdown;
mod page;
mod reasons;
mod suites;
mod summary;

use std::path::Path;

use weir_state_api::Result;

use crate::record::{Results, unwritable};
use document::Document;

/// Writes one HTML page that needs nothing else.
pub(crate) fn write_page(results: &Results, path: &Path) -> Result<()> {
    let page = page::render(&Document::new(results)?);
    std::fs::write(path, page).map_err(|error| unwritable(path, error))
}

/// Writes Markdown.
pub(crate) fn write_markdown(results: &Results, path: &Path) -> Result<()> {
    let text = markdown::render(&Document::new(results)?);
    std::fs::write(path, text).map_err(|error| unwritable(path, error))
}

/// The summary, line by line.
pub(crate) fn summary_lines(results: &Results) -> Vec<String> {
    document::summary(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Failure;
    use crate::record::tests::{figure, results};

    #[test]
    fn the_page_needs_nothing_else_and_lets_no_text_through_unescaped() {
        let mut results = results(vec![figure("<get>", "weir heap", "thread CPU", 10.0)]);
        results.failures.push(Failure {
            workload: "set".into(),
            contestant: "flink heap".into(),
            message: "no \"java\" <here> & there".into(),
        });
        let document = Document::new(&results).unwrap();
        let page = page::render(&document);
        assert!(page.contains("no &quot;java&quot; &lt;here&gt; &amp; there"));
        assert!(page.contains("&lt;get&gt;") && !page.contains("<get>"));
        let elsewhere = page.matches("http").count() - page.matches("http://www.w3.org/").count();
        assert_eq!(elsewhere, 0, "a page that works without a network");
        for (open, close) in [("<table", "</table>"), ("<figure>", "</figure>"), ("<dl", "</dl>")] {
            assert_eq!(page.matches(open).count(), page.matches(close).count(), "{open}");
        }
        assert!(markdown::render(&document).contains("- flink heap in set: no \"java\""));
    }
}
