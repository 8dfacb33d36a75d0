//! What a run measured, as data: `--json` writes it, `report` reads it again.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_state_api::{Error, ErrorKind, Result};

use crate::machine::Machine;
use crate::statistics::Median;

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) suite: String,
    pub(crate) workload: String,
    pub(crate) contestant: String,
    pub(crate) metric: String,
    pub(crate) unit: String,
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) rounds: usize,
}

impl Figure {
    /// The median with its interval.
    pub(crate) fn interval(&self) -> Median {
        Median { value: self.median, low: self.low, high: self.high }
    }

    /// Whether this is a ratio to another contestant: to whom, and by which metric.
    pub(crate) fn compared_with(&self) -> Option<(&str, &str)> {
        self.metric.strip_prefix(SPEED_OVER)?.rsplit_once(", ")
    }
}

const SPEED_OVER: &str = "speed over ";

/// The name of the metric "how many times as fast as another contestant, by another metric".
pub(crate) fn speed_over(other: &str, by: &str) -> String {
    format!("{SPEED_OVER}{other}, {by}")
}

/// What could not be measured, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) workload: String,
    pub(crate) contestant: String,
    pub(crate) message: String,
}

/// Who took part, with which options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Participant {
    pub(crate) contestant: String,
    pub(crate) options: String,
}

/// Workloads that belong together in reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) workloads: Vec<String>,
}

/// Where, with what and with which options a run was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) machine: Machine,
    /// The options of the command, with their defaults.
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) contestants: Vec<Participant>,
    pub(crate) sections: Vec<Section>,
}

/// A run, or several of the same machine put together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) header: Header,
    pub(crate) records: Vec<Figure>,
    pub(crate) failures: Vec<Failure>,
}

impl Results {
    pub(crate) fn new(machine: Machine, options: BTreeMap<String, String>) -> Self {
        let (contestants, sections) = (Vec::new(), Vec::new());
        let header = Header { machine, options, contestants, sections };
        Results { header, records: Vec::new(), failures: Vec::new() }
    }

    /// Writes them as JSON.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_vec_pretty(self).map_err(|error| unwritable(path, error))?;
        std::fs::write(path, json).map_err(|error| unwritable(path, error))
    }

    /// Reads what [`write`](Self::write) has written.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| unreadable(path, error))?;
        serde_json::from_slice(&bytes).map_err(|error| unreadable(path, error))
    }

    /// Adds another run. Of a figure that both have, the later one stays.
    ///
    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible) when it comes from another machine or build: such
    /// figures cannot stand beside each other.
    pub(crate) fn join(&mut self, other: Results) -> Result<()> {
        if !self.header.machine.is_like(&other.header.machine) {
            let message = "the runs are of different machines or of different builds";
            return Err(Error::new(ErrorKind::Incompatible, message)
                .object(format!("{}; {}", self.header.machine.line(), other.header.machine.line()))
                .advice("make a report of each"));
        }
        let same = |one: &Figure, other: &Figure| {
            (&one.suite, &one.workload, &one.contestant, &one.metric)
                == (&other.suite, &other.workload, &other.contestant, &other.metric)
        };
        self.records.retain(|known| !other.records.iter().any(|new| same(known, new)));
        self.records.extend(other.records);
        self.failures.extend(other.failures);
        for participant in other.header.contestants {
            self.introduce(participant);
        }
        for section in other.header.sections {
            self.open_section(section);
        }
        for (name, value) in other.header.options {
            let known = self.header.options.entry(name).or_insert_with(|| value.clone());
            if *known != value {
                *known = format!("{known} | {value}");
            }
        }
        Ok(())
    }

    /// Notes a contestant, once. Whether it is new.
    pub(crate) fn introduce(&mut self, participant: Participant) -> bool {
        let mut known = self.header.contestants.iter();
        let new = !known.any(|known| known.contestant == participant.contestant);
        if new {
            self.header.contestants.push(participant);
        }
        new
    }

    /// Notes which workloads belong together.
    pub(crate) fn open_section(&mut self, section: Section) {
        let known = self.header.sections.iter_mut().find(|known| known.title == section.title);
        let Some(known) = known else { return self.header.sections.push(section) };
        for workload in section.workloads {
            if !known.workloads.contains(&workload) {
                known.workloads.push(workload);
            }
        }
    }
}

/// The error of a report that cannot be written.
pub(crate) fn unwritable(
    path: &Path,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::new(ErrorKind::InvalidUsage, "the figures cannot be written")
        .object(path.display().to_string())
        .source(error)
}

fn unreadable(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::InvalidUsage, "these are no figures of a former run")
        .object(path.display().to_string())
        .advice("give a file that --json has written")
        .source(error)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn figure(workload: &str, contestant: &str, metric: &str, median: f64) -> Figure {
        Figure {
            suite: "micro".into(),
            workload: workload.into(),
            contestant: contestant.into(),
            metric: metric.into(),
            unit: "ns/op".into(),
            median,
            low: median * 9.0 / 10.0,
            high: median * 11.0 / 10.0,
            rounds: 7,
        }
    }

    pub(crate) fn results(records: Vec<Figure>) -> Results {
        let mut results = Results::new(Machine::inspect(), BTreeMap::new());
        results.records = records;
        results
    }

    #[test]
    fn figures_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures.json");
        let mut written = results(vec![figure("get", "a", "wall", 10.0)]);
        written.failures.push(Failure {
            workload: "get".into(),
            contestant: "b".into(),
            message: "gone".into(),
        });
        written.write(&path).unwrap();
        let read = Results::read(&path).unwrap();
        assert_eq!((&read.records, &read.failures), (&written.records, &written.failures));
        assert!(read.header.machine.is_like(&written.header.machine));

        std::fs::write(&path, "{}").unwrap();
        let error = Results::read(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        assert!(Results::read(&folder.path().join("none")).is_err());
    }

    #[test]
    fn of_a_figure_in_two_runs_the_later_one_stays() {
        let mut both =
            results(vec![figure("get", "a", "wall", 1.0), figure("set", "a", "wall", 2.0)]);
        both.join(results(vec![figure("get", "a", "wall", 3.0)])).unwrap();
        let medians: Vec<f64> = both.records.iter().map(|record| record.median).collect();
        assert_eq!(medians, [2.0, 3.0]);
    }

    #[test]
    fn runs_of_other_machines_are_kept_apart() {
        let mut elsewhere = results(Vec::new());
        elsewhere.header.machine.cpu = "another".into();
        let error = results(Vec::new()).join(elsewhere).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
    }

    #[test]
    fn ratios_name_whom_they_compare_with() {
        let ratio = figure("get", "a", &speed_over("b, 128 groups", "thread CPU"), 2.0);
        assert_eq!(ratio.compared_with(), Some(("b, 128 groups", "thread CPU")));
        assert_eq!(figure("get", "a", "wall", 1.0).compared_with(), None);
    }
}
