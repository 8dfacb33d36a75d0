//! The job against the plain evaluation, in one process.

use std::time::Duration;

use weir_runtime::{CheckpointConfig, FileSink, JobConfig};

use super::input::Input;
use super::job;

#[test]
fn the_job_publishes_what_the_plain_evaluation_gives() {
    let input = Input::read(None, None).unwrap().replayed(2, Some(30_000));
    let expected: Vec<String> = input.expected().collect();
    assert!(expected.is_sorted() && expected.len() > 5_133);
    for (parallelism, batch_size) in [(1, 512), (2, 64), (3, 7)] {
        let folder = tempfile::tempdir().unwrap();
        let graph = job::build(input.flights(), input.weather(), folder.path()).unwrap();
        let config = JobConfig {
            parallelism,
            batch_size,
            checkpoints: CheckpointConfig {
                interval: Duration::from_millis(20),
                ..CheckpointConfig::default()
            },
            ..JobConfig::default()
        };
        let report = weir_runtime::run(&graph, config).unwrap();
        assert_eq!((report.records_read, report.records_late), (input.rows(), 0));
        assert_eq!(FileSink::<String>::published(folder.path()).unwrap(), expected);
    }
}
