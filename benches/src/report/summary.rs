//! What a reader wants to know first: which backend for which workload, and where Weir loses.

use super::reasons::{counterparts, reason};
use super::suites::{Better, Headline, SUITES};
use crate::record::{Figure, Results};
use crate::statistics::{Median, geometric_mean};

/// How one contestant compares with another over all workloads of a suite that both have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Overall {
    pub(crate) suite: String,
    pub(crate) one: String,
    pub(crate) other: String,
    pub(crate) workloads: usize,
    pub(crate) geometric_mean: f64,
    /// The workload where `one` does worst, and its ratio.
    pub(crate) worst: (String, f64),
}

impl Overall {
    pub(crate) fn line(&self) -> String {
        let Overall { suite, one, other, workloads, geometric_mean, worst: (worst, ratio) } = self;
        let mean = if *workloads > 1 {
            format!(" (geometric mean of {workloads} workloads; worst: {worst}, {})", times(*ratio))
        } else {
            String::new()
        };
        if *geometric_mean >= 1.0 {
            format!("{suite}: {one} is {geometric_mean:.2} times as fast as {other}{mean}")
        } else {
            let longer = 1.0 / geometric_mean;
            format!("{suite}: {one} takes {longer:.2} times as long as {other}{mean}")
        }
    }

    /// Whether it says something about a backend as it is by default: in comparison with another one, or
    /// with what it is a measure of.
    pub(crate) fn is_telling(&self) -> bool {
        let (one, other) = (self.one.as_str(), self.other.as_str());
        let measure = !other.starts_with("weir") && counterparts(other).contains(&one);
        is_backend(one) && (is_backend(other) || measure)
    }
}

fn times(ratio: f64) -> String {
    if ratio >= 1.0 {
        format!("{ratio:.2} times as fast")
    } else {
        format!("{:.2} times as long", 1.0 / ratio)
    }
}

/// A sentence for each suite: which backend is best, in how many workloads.
pub(crate) fn leaders(choices: &[Choice]) -> Vec<String> {
    let mut suites: Vec<&str> = Vec::new();
    for choice in choices {
        if !suites.contains(&choice.suite.as_str()) {
            suites.push(&choice.suite);
        }
    }
    let sentence = |suite: &&str| {
        let mut wins: Vec<(&str, usize)> = Vec::new();
        for choice in choices.iter().filter(|choice| choice.suite == **suite) {
            match wins.iter_mut().find(|(name, _)| *name == choice.best) {
                Some((_, count)) => *count += 1,
                None => wins.push((&choice.best, 1)),
            }
        }
        wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let all: usize = wins.iter().map(|(_, count)| count).sum();
        let (first, won) = wins.first().copied().unwrap_or_default();
        let others = wins.iter().skip(1).map(|(name, count)| format!(", {name} in {count}"));
        let others = others.collect::<String>();
        let workloads = if all == 1 { "workload" } else { "workloads" };
        format!(
            "{suite}: {first} is the best of the backends in {won} of {all} {workloads}{others}"
        )
    };
    suites.iter().map(sentence).collect()
}

/// All pairs that were compared, in the order in which they appeared; only the named workloads if
/// there are any.
pub(crate) fn overall(results: &Results, workloads: Option<&[String]>) -> Vec<Overall> {
    let compared: Vec<(&Figure, &str)> = (results.records.iter())
        .filter(|figure| workloads.is_none_or(|some| some.contains(&figure.workload)))
        .filter_map(|figure| {
            let (other, by) = figure.compared_with()?;
            (by == decisive(&figure.suite)?.metric).then_some((figure, other))
        })
        .collect();
    let mut pairs: Vec<(&str, &str, &str)> = Vec::new();
    for (figure, other) in &compared {
        let pair = (figure.suite.as_str(), figure.contestant.as_str(), *other);
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    pairs
        .into_iter()
        .filter_map(|(suite, one, other)| {
            let ratios = || {
                compared.iter().filter_map(|(figure, with)| {
                    (figure.suite == suite && figure.contestant == one && *with == other)
                        .then_some((&figure.workload, figure.median))
                })
            };
            let worst = ratios().min_by(|a, b| a.1.total_cmp(&b.1))?;
            Some(Overall {
                suite: suite.into(),
                one: one.into(),
                other: other.into(),
                workloads: ratios().count(),
                geometric_mean: geometric_mean(ratios().map(|(_, ratio)| ratio))?,
                worst: (worst.0.clone(), worst.1),
            })
        })
        .collect()
}

/// The best of Weir's backends in a workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) suite: String,
    pub(crate) workload: String,
    pub(crate) best: String,
    pub(crate) figure: Median,
    pub(crate) unit: String,
    /// The others of Weir's, and how many times worse they are.
    pub(crate) others: Vec<(String, f64)>,
}

/// Which backend is best in which workload, where more than one of Weir's was measured.
pub(crate) fn choices(results: &Results) -> Vec<Choice> {
    let mut choices = Vec::new();
    for presentation in SUITES {
        let Some(headline) = presentation.headlines.first() else { continue };
        let figures = || {
            results.records.iter().filter(|figure| {
                figure.suite == presentation.suite
                    && figure.metric == headline.metric
                    && is_backend(&figure.contestant)
            })
        };
        let mut workloads: Vec<&str> = Vec::new();
        for figure in figures() {
            if !workloads.contains(&figure.workload.as_str()) {
                workloads.push(&figure.workload);
            }
        }
        for workload in workloads {
            let mut ranked: Vec<&Figure> = figures().filter(|f| f.workload == workload).collect();
            ranked.sort_by(|a, b| cost(a, *headline).total_cmp(&cost(b, *headline)));
            let [best, others @ ..] = &ranked[..] else { continue };
            if others.is_empty() {
                continue;
            }
            let times = |other: &&Figure| cost(other, *headline) / cost(best, *headline);
            choices.push(Choice {
                suite: best.suite.clone(),
                workload: workload.into(),
                best: best.contestant.clone(),
                figure: best.interval(),
                unit: best.unit.clone(),
                others: others.iter().map(|o| (o.contestant.clone(), times(o))).collect(),
            });
        }
    }
    choices
}

/// A comparison that Weir loses for certain: the whole interval lies below 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loss {
    pub(crate) suite: String,
    pub(crate) workload: String,
    pub(crate) backend: String,
    pub(crate) to: String,
    pub(crate) ratio: Median,
    pub(crate) why: &'static str,
}

/// Where Weir loses to a contestant from elsewhere, worst first. Each is compared with the backends
/// that it is a measure of.
pub(crate) fn losses(results: &Results) -> Vec<Loss> {
    let mut losses: Vec<Loss> = (results.records.iter())
        .filter(|figure| is_backend(&figure.contestant) && figure.high < 1.0)
        .filter_map(|figure| {
            let (to, by) = figure.compared_with()?;
            let counts = by == decisive(&figure.suite)?.metric
                && !to.starts_with("weir")
                && counterparts(to).contains(&figure.contestant.as_str());
            counts.then(|| Loss {
                suite: figure.suite.clone(),
                workload: figure.workload.clone(),
                backend: figure.contestant.clone(),
                to: to.into(),
                ratio: figure.interval(),
                why: reason(&figure.suite, &figure.workload, to),
            })
        })
        .collect();
    losses.sort_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value));
    losses
}

fn decisive(suite: &str) -> Option<&'static Headline> {
    super::suites::presentation(suite)?.headlines.first()
}

/// Whether this is one of Weir's backends as it is by default, no variant of one.
fn is_backend(contestant: &str) -> bool {
    contestant.starts_with("weir") && !contestant.contains(',')
}

fn cost(figure: &Figure, headline: Headline) -> f64 {
    match headline.better {
        Better::Lower => figure.median,
        Better::Higher => 1.0 / figure.median.max(f64::MIN_POSITIVE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::speed_over;
    use crate::record::tests::{figure, results};

    fn ratio(workload: &str, one: &str, other: &str, ratio: f64) -> Figure {
        figure(workload, one, &speed_over(other, "thread CPU"), ratio)
    }

    #[test]
    fn the_best_backend_is_the_one_that_costs_least() {
        let results = results(vec![
            figure("get", "weir heap", "thread CPU", 100.0),
            figure("get", "weir rocks", "thread CPU", 250.0),
            figure("get", "weir heap, 128 groups", "thread CPU", 1.0),
            figure("get", "hashbrown", "thread CPU", 10.0),
            figure("set", "weir heap", "thread CPU", 100.0),
        ]);
        let [choice] = &choices(&results)[..] else { panic!("one workload has two backends") };
        assert_eq!(choice.best, "weir heap");
        assert_eq!(choice.others, [("weir rocks".to_string(), 2.5)]);
        assert_eq!(
            leaders(&choices(&results)),
            ["micro: weir heap is the best of the backends in 1 of 1 workload"]
        );
    }

    #[test]
    fn a_loss_is_certain_and_to_a_counterpart() {
        let results = results(vec![
            ratio("get", "weir heap", "hashbrown", 0.5),
            ratio("set", "weir heap", "hashbrown", 0.95), // up to 1.045
            ratio("get", "weir rocks", "hashbrown", 0.01),
            ratio("get", "weir heap, 128 groups", "hashbrown", 0.4),
            ratio("get", "weir rocks", "weir heap", 0.01),
            ratio("get", "weir rocks", "rocksdb crate", 0.8),
        ]);
        let found: Vec<_> =
            losses(&results).into_iter().map(|loss| (loss.backend, loss.to)).collect();
        let expected = [("weir heap", "hashbrown"), ("weir rocks", "rocksdb crate")];
        assert_eq!(found, expected.map(|(backend, to)| (backend.to_string(), to.to_string())));
    }

    #[test]
    fn means_are_geometric_and_by_pair() {
        let results = results(vec![
            ratio("get", "weir heap", "hashbrown", 1.0),
            ratio("set", "weir heap", "hashbrown", 4.0),
            ratio("get", "weir rocks", "hashbrown", 0.1),
        ]);
        let all = overall(&results, None);
        assert!(all[0].is_telling() && !all[1].is_telling());
        assert_eq!(
            all[0].line(),
            "micro: weir heap is 2.00 times as fast as hashbrown (geometric mean of 2 workloads; \
             worst: get, 1.00 times as fast)"
        );
        assert_eq!(all[1].line(), "micro: weir rocks takes 10.00 times as long as hashbrown");
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].geometric_mean, all[0].workloads), (2.0, 2));
        assert_eq!(all[0].worst, ("get".to_string(), 1.0));
        assert_eq!(overall(&results, Some(&["set".to_string()])).len(), 1);
    }
}
