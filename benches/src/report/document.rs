//! The report as a whole, before it is written in one form or another.

use weir_state_api::Result;

use super::chart::{Chart, Series, number};
use super::suites::{Better, Headline, Presentation, SUITES};
use super::summary::{Loss, Overall, choices, leaders, losses, overall};
use crate::record::{Failure, Figure, Participant, Results};
use crate::statistics::Median;

/// Everything that a report says.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) machine: String,
    pub(crate) warnings: Vec<String>,
    /// Sentences of the summary.
    pub(crate) summary: Vec<String>,
    pub(crate) choices: Table,
    pub(crate) losses: Table,
    pub(crate) failures: Vec<Failure>,
    pub(crate) chapters: Vec<Chapter>,
    pub(crate) contestants: Vec<Participant>,
    pub(crate) options: Vec<(String, String)>,
}

/// A suite.
#[derive(Debug)]
pub(crate) struct Chapter {
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) parts: Vec<Part>,
}

/// Workloads that belong together.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) title: Option<String>,
    /// Caption and picture.
    pub(crate) charts: Vec<(String, String)>,
    pub(crate) table: Table,
    pub(crate) notes: Vec<String>,
}

/// Text in rows; the first `labels` columns are words.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Table {
    pub(crate) labels: usize,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Whether a column has words rather than figures.
    pub(crate) fn has_words(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|cells| cells.get(column));
        column < self.labels || cells.any(|cell| cell.starts_with(char::is_alphabetic))
    }
}

/// How to read the figures.
pub(crate) const METHOD: &str = "Figures are medians; in brackets the smallest and the largest of all \
    rounds. Ratios say how many times as fast the first contestant is: the median of the ratios of the \
    same rounds, in brackets the interval that holds it with 95 % confidence. Ratios carry over to other \
    machines, absolute figures do not.";

impl Document {
    pub(crate) fn new(results: &Results) -> Result<Self> {
        let mut chapters = Vec::new();
        let looks = distinct(results.records.iter().map(|figure| figure.contestant.as_str()));
        for presentation in SUITES {
            let of_suite: Vec<&Figure> =
                results.records.iter().filter(|f| f.suite == presentation.suite).collect();
            if !of_suite.is_empty() {
                chapters.push(chapter(results, presentation, &of_suite, &looks)?);
            }
        }
        let machine = &results.header.machine;
        let mut warnings = Vec::new();
        if !machine.optimized {
            warnings.push("A build without --release: these figures are of no value.".into());
        }
        if results.header.options.get("size").is_some_and(|size| size.contains("quick")) {
            warnings.push("A smoke test (--size quick): these figures are of no value.".into());
        }
        Ok(Document {
            machine: machine.line(),
            warnings,
            summary: summary(results),
            choices: choice_table(results),
            losses: loss_table(results),
            failures: results.failures.clone(),
            chapters,
            contestants: results.header.contestants.clone(),
            options: results.header.options.clone().into_iter().collect(),
        })
    }
}

/// Which backend leads in each suite, then how each compares with what it is a measure of.
pub(crate) fn summary(results: &Results) -> Vec<String> {
    let overall = overall(results, None);
    let is_new = |index: usize, one: &Overall| {
        // Of two backends, the other way round is the same.
        let mut before = overall[..index].iter();
        before.all(|o| (&o.suite, &o.one, &o.other) != (&one.suite, &one.other, &one.one))
    };
    let telling =
        overall.iter().enumerate().filter(|(index, one)| one.is_telling() && is_new(*index, one));
    let lines = telling.map(|(_, overall)| overall.line());
    leaders(&choices(results)).into_iter().chain(lines).collect()
}

/// A row for each suite and the backend that is best in some of it.
fn choice_table(results: &Results) -> Table {
    let choices = choices(results);
    let groups = distinct(choices.iter().map(|choice| (&choice.suite, &choice.best)));
    let rows = groups.into_iter().map(|(suite, best)| {
        let won = || choices.iter().filter(|one| (&one.suite, &one.best) == (suite, best));
        let of_suite = choices.iter().filter(|choice| choice.suite == *suite).count();
        let workloads = if won().count() > 8 && 2 * won().count() > of_suite {
            if won().count() == of_suite { "all" } else { "the rest" }.into()
        } else {
            won().map(|choice| choice.workload.as_str()).collect::<Vec<_>>().join("; ")
        };
        let others = distinct(won().flat_map(|choice| choice.others.iter().map(|other| &other.0)));
        let costs = others.into_iter().map(|name| {
            let mut times: Vec<f64> = (won().flat_map(|choice| &choice.others))
                .filter_map(|(other, times)| (other == name).then_some(*times))
                .collect();
            times.sort_by(f64::total_cmp);
            let [first, .., last] = &times[..] else {
                return format!("{name} {} x", number(times[0]));
            };
            format!("{name} {} to {} x", number(*first), number(*last))
        });
        let costs = costs.collect::<Vec<_>>().join(", ");
        vec![suite.clone(), best.clone(), won().count().to_string(), costs, workloads]
    });
    let head = ["suite", "best backend", "workloads", "cost of the others", "which"];
    Table { labels: 2, head: head.map(Into::into).into(), rows: rows.collect() }
}

/// A row for each backend, whom it loses to in some workloads of a suite, and the reason; worst first.
fn loss_table(results: &Results) -> Table {
    let losses = losses(results);
    let group = |loss: &Loss| (loss.suite.clone(), loss.backend.clone(), loss.to.clone(), loss.why);
    let rows = distinct(losses.iter().map(group)).into_iter().map(|lost| {
        let each = losses.iter().filter(|loss| group(loss) == lost);
        let each = each.map(|loss| format!("{} {}", loss.workload, number(1.0 / loss.ratio.value)));
        let each = each.collect::<Vec<_>>().join("; ");
        let (suite, backend, to, why) = lost;
        vec![suite, backend, to, each, why.to_string()]
    });
    let head = ["suite", "backend", "against", "takes so many times as long", "why"];
    Table { labels: 3, head: head.map(Into::into).into(), rows: rows.collect() }
}

fn chapter(
    results: &Results,
    suite: &Presentation,
    figures: &[&Figure],
    looks: &[&str],
) -> Result<Chapter> {
    let mut parts = Vec::new();
    let mut rest: Vec<&Figure> = figures.to_vec();
    for section in &results.header.sections {
        let (of_section, others): (Vec<&Figure>, Vec<&Figure>) =
            rest.into_iter().partition(|figure| section.workloads.contains(&figure.workload));
        rest = others;
        if !of_section.is_empty() {
            let mut part = part(suite, Some(section.title.clone()), &of_section, looks)?;
            let of_these = overall(results, Some(&section.workloads));
            // With one workload the table says it all.
            let telling =
                of_these.iter().filter(|overall| overall.workloads > 1 && overall.is_telling());
            part.notes = telling.map(Overall::line).collect();
            parts.push(part);
        }
    }
    if !rest.is_empty() {
        parts.push(part(suite, None, &rest, looks)?);
    }
    let title = format!("{} ({})", suite.title, suite.suite);
    Ok(Chapter { title, about: suite.about.into(), parts })
}

fn part(
    suite: &Presentation,
    title: Option<String>,
    figures: &[&Figure],
    looks: &[&str],
) -> Result<Part> {
    let mut charts = Vec::new();
    for headline in suite.headlines {
        let of_metric: Vec<&Figure> =
            figures.iter().copied().filter(|figure| figure.metric == headline.metric).collect();
        let chart = chart(headline, &of_metric, looks);
        if let Some(svg) = chart.svg()? {
            let what = title.as_deref().unwrap_or(suite.title);
            charts.push((format!("{what}: {}", chart.axis), svg));
        }
    }
    Ok(Part { title, charts, table: table(suite, figures), notes: Vec::new() })
}

fn chart(headline: &Headline, figures: &[&Figure], looks: &[&str]) -> Chart {
    let rows = distinct(figures.iter().map(|figure| figure.workload.as_str()));
    let series = distinct(figures.iter().map(|figure| figure.contestant.as_str()));
    let unit = figures.first().map_or("", |figure| figure.unit.as_str());
    let better = match headline.better {
        Better::Lower => "less is better",
        Better::Higher => "more is better",
    };
    let series = series.into_iter().map(|contestant| Series {
        contestant: contestant.into(),
        look: looks.iter().position(|look| *look == contestant).unwrap_or_default(),
        points: (figures.iter())
            .filter(|figure| figure.contestant == contestant)
            .filter_map(|figure| {
                let row = rows.iter().position(|row| *row == figure.workload)?;
                Some((row, figure.interval()))
            })
            .collect(),
    });
    Chart {
        axis: format!("{}, {unit} ({better})", headline.metric),
        series: series.collect(),
        rows: rows.iter().map(ToString::to_string).collect(),
    }
}

/// A row for each workload and metric, a column for each contestant; then the ratios of the first
/// contestant to the others.
fn table(suite: &Presentation, figures: &[&Figure]) -> Table {
    let (ratios, values): (Vec<&Figure>, Vec<&Figure>) =
        figures.iter().copied().partition(|figure| figure.compared_with().is_some());
    // Where all else are other views of the same, the deciding metric is enough.
    let decisive = suite.headlines.first().map_or("", |headline| headline.metric);
    let views = ["thread CPU", "wall", "process CPU"];
    let only_views = views.contains(&decisive)
        && values.iter().all(|figure| views.contains(&figure.metric.as_str()));
    let shown = |figure: &&&Figure| !only_views || figure.metric == decisive;
    let values: Vec<&Figure> = values.iter().filter(shown).copied().collect();
    let contestants = distinct(values.iter().map(|figure| figure.contestant.as_str()));
    let Some(first) = contestants.first() else { return Table::default() };
    let rows = distinct(values.iter().map(|f| (f.workload.as_str(), f.metric.as_str())));
    let many_metrics = rows.iter().any(|(_, metric)| *metric != rows[0].1);
    let mut others = distinct(ratios.iter().filter_map(|ratio| {
        let (other, by) = ratio.compared_with()?;
        (ratio.contestant == *first && by == decisive).then_some(other)
    }));
    others.retain(|other| contestants.contains(other));
    let mut head = vec!["workload".to_string()];
    if many_metrics {
        head.push("metric".into());
    }
    let labels = head.len();
    let unit = |metric: &str| {
        let of_metric = values.iter().find(|figure| figure.metric == metric);
        of_metric.map_or("", |figure| figure.unit.as_str())
    };
    let shared_unit = if many_metrics { String::new() } else { format!(", {}", unit(rows[0].1)) };
    head.extend(contestants.iter().map(|name| format!("{name}{shared_unit}")));
    head.extend(others.iter().map(|other| format!("{first} over {other}")));
    let rows = rows.iter().map(|(workload, metric)| {
        let mut cells = vec![(*workload).to_string()];
        if many_metrics {
            let unit = unit(metric);
            cells.push(if unit.is_empty() {
                (*metric).into()
            } else {
                format!("{metric}, {unit}")
            });
        }
        cells.extend(contestants.iter().map(|contestant| {
            let found = values.iter().find(|figure| {
                (figure.workload.as_str(), figure.metric.as_str()) == (*workload, *metric)
                    && figure.contestant == *contestant
            });
            found.map_or(String::new(), |figure| interval(&figure.interval()))
        }));
        cells.extend(others.iter().map(|other| {
            let found = ratios.iter().find(|ratio| {
                ratio.workload == *workload
                    && ratio.contestant == *first
                    && *metric == decisive
                    && ratio.compared_with() == Some((*other, decisive))
            });
            found.map_or(String::new(), |ratio| interval(&ratio.interval()))
        }));
        cells
    });
    Table { labels, head, rows: rows.collect() }
}

fn interval(median: &Median) -> String {
    let Median { value, low, high } = median;
    let [value, low, high] = [*value, *low, *high].map(number);
    if low == high { value } else { format!("{value} ({low} to {high})") }
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::speed_over;
    use crate::record::tests::{figure, results};

    #[test]
    fn a_table_has_a_column_for_each_contestant_and_each_ratio() {
        let results = results(vec![
            figure("get", "weir heap", "thread CPU", 100.0),
            figure("get", "weir heap", "wall", 110.0),
            figure("get", "hashbrown", "thread CPU", 50.0),
            figure("get", "weir heap", &speed_over("hashbrown", "thread CPU"), 0.5),
            figure("set", "weir heap", "thread CPU", 200.0),
        ]);
        let document = Document::new(&results).unwrap();
        let table = &document.chapters[0].parts[0].table;
        assert_eq!(
            table.head,
            ["workload", "weir heap, ns/op", "hashbrown, ns/op", "weir heap over hashbrown"]
        );
        assert_eq!(
            table.rows,
            [
                vec!["get", "100 (90 to 110)", "50 (45 to 55)", "0.5 (0.45 to 0.55)"],
                vec!["set", "200 (180 to 220)", "", ""],
            ]
        );
        assert_eq!(document.losses.rows.len(), 1);
        assert_eq!(document.chapters[0].parts[0].charts.len(), 1);
    }

    #[test]
    fn workloads_stand_in_their_sections() {
        let mut results = results(vec![
            figure("get", "weir heap", "thread CPU", 1.0),
            figure("other", "weir heap", "thread CPU", 1.0),
        ]);
        results.open_section(crate::record::Section {
            title: "value".into(),
            workloads: vec!["get".into()],
        });
        let document = Document::new(&results).unwrap();
        let titles: Vec<_> =
            document.chapters[0].parts.iter().map(|part| part.title.as_deref()).collect();
        assert_eq!(titles, [Some("value"), None]);
    }
}
