use super::*;
use crate::sink::SinkWriter;

fn sink(folder: &Path) -> FileSink<String> {
    FileSink::new(folder, |line: &String, out| out.extend_from_slice(line.as_bytes()))
}

fn opening(attempt: &str, subtask: u16) -> SinkOpening {
    SinkOpening {
        subtask,
        parallelism: 2,
        attempt: attempt.into(),
        restored: None,
        state: OperatorState::new(),
    }
}

fn restored(attempt: &str, checkpoint: u64, states: &[OperatorState]) -> SinkOpening {
    SinkOpening {
        restored: Some(CheckpointId(checkpoint)),
        state: OperatorState::redistribute(states, 1).unwrap().remove(0),
        ..opening(attempt, 0)
    }
}

fn write(writer: &mut dyn SinkWriter<String>, lines: &[&str]) {
    let record = |line: &&str| Record { time: 0, value: (*line).to_string() };
    writer.write(lines.iter().map(record).collect()).unwrap();
}

fn published(folder: &Path) -> Vec<String> {
    FileSink::<String>::published(folder).unwrap()
}

fn pending(folder: &Path) -> usize {
    names(&folder.join(PENDING_FOLDER)).unwrap().len()
}

#[test]
fn nothing_is_visible_before_its_checkpoint_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sink(folder.path()).open(&opening("a", 0)).unwrap();
    write(&mut *writer, &["1"]);
    writer.prepare(CheckpointId(1)).unwrap();
    write(&mut *writer, &["2"]);
    writer.prepare(CheckpointId(2)).unwrap();
    assert!(published(folder.path()).is_empty());
    writer.commit(CheckpointId(1)).unwrap();
    assert_eq!(published(folder.path()), ["1"]);
    writer.commit(CheckpointId(2)).unwrap();
    writer.commit(CheckpointId(1)).unwrap();
    writer.commit(CheckpointId(2)).unwrap();
    assert_eq!(published(folder.path()), ["1", "2"], "late and repeated news change nothing");
}

#[test]
fn a_later_commit_includes_checkpoints_that_were_never_announced() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sink(folder.path()).open(&opening("a", 0)).unwrap();
    write(&mut *writer, &["1"]);
    writer.prepare(CheckpointId(1)).unwrap();
    write(&mut *writer, &["2"]);
    writer.prepare(CheckpointId(2)).unwrap();
    writer.commit(CheckpointId(2)).unwrap();
    assert_eq!(published(folder.path()), ["1", "2"]);
}

#[test]
fn a_restore_publishes_what_the_checkpoint_holds_and_sweeps_the_rest_of_all_subtasks() {
    let folder = tempfile::tempdir().unwrap();
    let shared = sink(folder.path());
    let mut writers =
        [shared.open(&opening("a", 0)).unwrap(), shared.open(&opening("a", 1)).unwrap()];
    let mut states = Vec::new();
    for (writer, line) in writers.iter_mut().zip(["x", "y"]) {
        write(&mut **writer, &[line]);
        states.push(writer.prepare(CheckpointId(1)).unwrap());
        write(&mut **writer, &["lost with the crash"]);
        writer.prepare(CheckpointId(2)).unwrap();
        write(&mut **writer, &["lost too"]);
    }
    drop(writers);
    // At another parallelism, twice: the second restore finds everything done.
    for attempt in ["b", "c"] {
        sink(folder.path()).open(&restored(attempt, 1, &states)).unwrap();
        assert_eq!(published(folder.path()), ["x", "y"]);
        assert_eq!(pending(folder.path()), 0);
    }
}

#[test]
fn lost_or_damaged_prepared_output_is_an_error_and_publishes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sink(folder.path()).open(&opening("a", 0)).unwrap();
    write(&mut *writer, &["x"]);
    let states = [writer.prepare(CheckpointId(1)).unwrap()];
    drop(writer);
    let name = names(&folder.path().join(PENDING_FOLDER)).unwrap().into_iter().next().unwrap();
    let path = folder.path().join(PENDING_FOLDER).join(name);

    fs::write(&path, "y\n").unwrap();
    let error = sink(folder.path()).open(&restored("b", 1, &states)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(published(folder.path()).is_empty());

    fs::remove_file(&path).unwrap();
    let error = sink(folder.path()).open(&restored("c", 1, &states)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn a_fresh_run_into_used_output_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("part-1"), "old\n").unwrap();
    let error = sink(folder.path()).open(&opening("a", 0)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
}

#[test]
fn a_second_sink_is_kept_out_of_the_folder_while_the_first_writes() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sink(folder.path()).open(&opening("a", 0)).unwrap();
    write(&mut *writer, &["1"]);
    let error = sink(folder.path()).open(&opening("b", 0)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(pending(folder.path()), 1, "the first one's output is untouched");
    drop(writer);
    sink(folder.path()).open(&opening("c", 0)).unwrap();
}

#[test]
fn a_record_with_a_line_break_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sink(folder.path()).open(&opening("a", 0)).unwrap();
    let error = writer.write(vec![Record { time: 0, value: "a\nb".to_string() }]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUsage, "{error}");
}
