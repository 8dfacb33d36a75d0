//! The figures as Markdown: a table per family, ratios beside, a summary on top.

use std::path::Path;

use weir_state_api::Result;

use crate::measure::{Comparison, Failure, Recorder, Section, unwritable};
use crate::micro::contest::{SUITE, THREAD};
use crate::micro::memory;
use crate::statistics::{Median, geometric_mean};

/// How one contestant compares with another over all operations that both have.
#[derive(Debug, Clone)]
pub(crate) struct Summary {
    pub(crate) one: String,
    pub(crate) other: String,
    pub(crate) operations: usize,
    pub(crate) geometric_mean: f64,
    /// The operation where `one` does worst, and its ratio.
    pub(crate) worst: (String, f64),
}

impl Summary {
    pub(crate) fn line(&self) -> String {
        let Summary { one, other, operations, geometric_mean, worst: (worst, ratio) } = self;
        format!(
            "{one} is {geometric_mean:.2} times as fast as {other} (geometric mean of \
             {operations} operations, thread CPU); worst: {worst}, {ratio:.2} times"
        )
    }
}

/// The summaries of comparisons, in the order in which contestants appeared.
pub(crate) fn summaries<'c>(comparisons: impl Iterator<Item = &'c Comparison>) -> Vec<Summary> {
    let comparisons: Vec<&Comparison> = comparisons.collect();
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for comparison in &comparisons {
        let pair = (comparison.one.as_str(), comparison.other.as_str());
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    pairs.into_iter().filter_map(|(one, other)| summary(&comparisons, one, other)).collect()
}

fn summary(comparisons: &[&Comparison], one: &str, other: &str) -> Option<Summary> {
    let all = || comparisons.iter().filter(|c| c.one == one && c.other == other);
    let worst = all().min_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value))?;
    Some(Summary {
        one: one.into(),
        other: other.into(),
        operations: all().count(),
        geometric_mean: geometric_mean(all().map(|comparison| comparison.ratio.value))?,
        worst: (worst.workload.clone(), worst.ratio.value),
    })
}

/// Writes the report.
pub(crate) fn write_markdown(recorder: &Recorder, path: &Path) -> Result<()> {
    std::fs::write(path, markdown(recorder)).map_err(|error| unwritable(path, error))
}

fn markdown(recorder: &Recorder) -> String {
    let mut text = format!("# Weir: state access\n\n{}\n\n", recorder.machine.line());
    for summary in summaries(recorder.comparisons.iter()) {
        text += &format!("- {}\n", summary.line());
    }
    for failure in &recorder.failures {
        let Failure { workload, contestant, message } = failure;
        text += &format!("- not measured: {contestant} in {workload}: {message}\n");
    }
    text += "\nns of the calling thread's CPU time per operation (per entry where entries are \
             read), median; ratios: how many times as fast the first contestant is, median of paired \
             rounds with its confidence interval.\n";
    for section in &recorder.sections {
        text += &format!("\n## {}\n\n", section.title);
        text += &if section.title == memory::WORKLOAD {
            memory_table(recorder)
        } else {
            table(recorder, section)
        };
        let of_section =
            recorder.comparisons.iter().filter(|c| section.workloads.contains(&c.workload));
        text += "\n";
        for summary in summaries(of_section) {
            text += &format!("- {}\n", summary.line());
        }
    }
    text += "\n## Contestants\n\n";
    for participant in &recorder.participants {
        text += &format!("- **{}**: {}\n", participant.contestant, participant.options);
    }
    text
}

fn table(recorder: &Recorder, section: &Section) -> String {
    let of = |workload: &str, contestant: &str, metric: &str| {
        recorder.figures.iter().find(|figure| {
            figure.suite == SUITE
                && figure.workload == workload
                && figure.contestant == contestant
                && figure.metric == metric
        })
    };
    let contestants: Vec<&str> = (recorder.participants.iter())
        .map(|participant| participant.contestant.as_str())
        .filter(|name| {
            section.workloads.iter().any(|workload| of(workload, name, THREAD).is_some())
        })
        .collect();
    let Some((first, others)) = contestants.split_first() else { return String::new() };
    let mut head = vec!["operation".to_string()];
    head.extend(contestants.iter().map(|name| format!("{name}, ns")));
    head.extend(others.iter().map(|name| format!("times {name}")));
    let mut text = row(&head);
    text += &format!("|---|{}\n", "--:|".repeat(head.len() - 1));
    for workload in &section.workloads {
        let mut cells = vec![workload.clone()];
        cells.extend(contestants.iter().map(|name| {
            of(workload, name, THREAD).map_or(String::new(), |f| format!("{:.1}", f.median))
        }));
        cells.extend(others.iter().map(|other| {
            let of_this = |c: &&Comparison| c.workload == *workload && c.one == *first;
            let mut all = recorder.comparisons.iter().filter(of_this);
            all.find(|comparison| comparison.other == **other).map_or(String::new(), |found| {
                let Median { value, low, high } = found.ratio;
                format!("**{value:.2}** ({low:.2} to {high:.2})")
            })
        }));
        text += &row(&cells);
    }
    text
}

fn memory_table(recorder: &Recorder) -> String {
    let figures = || recorder.figures.iter().filter(|figure| figure.workload == memory::WORKLOAD);
    let mut contestants: Vec<&str> = figures().map(|f| f.contestant.as_str()).collect();
    contestants.dedup();
    let mut text = row(&["contestant".into(), "own account, B".into(), "resident, B".into()]);
    text += "|---|--:|--:|\n";
    for contestant in contestants {
        let mut cells = vec![contestant.to_string()];
        cells.extend(memory::METRICS.iter().map(|metric| {
            figures()
                .find(|figure| figure.contestant == contestant && figure.metric == *metric)
                .map_or(String::new(), |figure| format!("{:.1}", figure.median))
        }));
        text += &row(&cells);
    }
    text
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}
