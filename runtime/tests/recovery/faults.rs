//! A store that fails while checkpoints are written: nothing is lost, nothing is doubled.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use opendal::Operator;
use weir_runtime::{RestoreFrom, Storage, VecSink};
use weir_state_api::ErrorKind;
use weir_tests::faults::{Faults, StoreOp, When};

use crate::counting::{Trap, assert_exactly_once, config, count_job, numbers};

fn faulty_storage() -> (Storage, Faults) {
    let faults = Faults::new();
    let operator = Operator::new(opendal::services::Memory::default()).unwrap();
    (Storage::custom(operator.layer(faults.layer())), faults)
}

/// The start itself is not protected by restarts, so faults begin when the job runs.
#[test]
fn single_failures_cost_a_checkpoint_and_nothing_else() {
    for op in [StoreOp::Write, StoreOp::Close, StoreOp::Stat, StoreOp::List, StoreOp::Delete] {
        for when in [When::Before, When::After] {
            for nth in [1, 2, 5, 9] {
                let (storage, faults) = faulty_storage();
                let sink = VecSink::default();
                let trap = Trap::calling(1_000, move || faults.fail(op, nth, when));
                let graph = count_job(numbers(2, 3_000), trap, sink.clone());
                let report = weir_runtime::run(&graph, config(2, &storage));
                let report =
                    report.unwrap_or_else(|error| panic!("{op:?} {when:?} {nth}: {error}"));
                assert!(report.restarts >= 1);
                assert_exactly_once(sink.take(), 6_000);
            }
        }
    }
}

#[test]
fn a_store_that_stays_broken_fails_the_job_and_the_last_checkpoint_restores() {
    let (storage, faults) = faulty_storage();
    let sink = VecSink::default();
    let broken = faults.clone();
    let trap = Trap::calling(4_000, move || broken.fail_always(StoreOp::Write, When::Before));
    let graph = count_job(numbers(2, 6_000), trap, sink.clone());
    let mut settings = config(2, &storage);
    settings.restart.max_restarts = 1;
    let error = weir_runtime::run(&graph, settings.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("checkpoints failed in a row"), "{error}");

    faults.heal();
    settings.restore = RestoreFrom::Latest;
    let report = weir_runtime::run(&graph, settings).unwrap();
    assert!(report.restored_from.is_some());
    assert_exactly_once(sink.take(), 12_000);
}

/// A file system of 1 MiB, unmounted when dropped; `None` where mounting is not allowed.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(folder.path())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "the test's disk is unmounted");
    }
}

#[test]
fn a_full_disk_fails_checkpoints_by_name_and_the_job_goes_on_once_there_is_room() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    };
    let storage = Storage::open(disk.0.path().join("checkpoints").to_str().unwrap()).unwrap();
    let sink = VecSink::default();
    let ballast = disk.0.path().join("ballast");
    let full = Arc::new(AtomicBool::new(true));
    let (fills, stays_full) = (ballast.clone(), full.clone());
    let trap = Trap::calling(4_000, move || {
        let (fills, stays_full) = (fills.clone(), stays_full.clone());
        // Again and again: what the job deletes makes room.
        std::thread::spawn(move || {
            let mut file = File::create(fills).unwrap();
            while stays_full.load(SeqCst) {
                while file.write_all(&[0; 4096]).is_ok() {}
            }
        });
        // By then the first round has filled it.
        std::thread::sleep(Duration::from_millis(20));
    });
    let graph = count_job(numbers(2, 6_000), trap, sink.clone());
    let mut settings = config(2, &storage);
    settings.restart.max_restarts = 1;
    let error = weir_runtime::run(&graph, settings.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    let named = text.contains("chk-") || text.contains("shared/");
    assert!(text.contains("storage space") && named, "{text}");

    full.store(false, SeqCst);
    fs::remove_file(&ballast).unwrap();
    settings.restore = RestoreFrom::Latest;
    let report = weir_runtime::run(&graph, settings).unwrap();
    assert!(report.restored_from.is_some(), "the last complete checkpoint was usable");
    assert_exactly_once(sink.take(), 12_000);
}
