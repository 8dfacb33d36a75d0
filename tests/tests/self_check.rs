//! Checks the suite itself: the reference backend passes, and every planted defect is found.

use weir_tests::conformance::{self, Case, Outcome};
use weir_tests::model;
use weir_tests::reference::{Defect, ReferenceBackendFactory};

#[test]
fn the_reference_passes() {
    conformance::run(&ReferenceBackendFactory::default()).assert_passed();
}

#[test]
fn the_pending_reference_passes() {
    conformance::run(&ReferenceBackendFactory::default().pending()).assert_passed();
}

#[test]
fn the_incremental_reference_passes() {
    // The groups that take snapshots; the others would see the same tables.
    let groups = ["registration", "isolation", "restore", "damage", "sharing"];
    let factory = ReferenceBackendFactory::default().incremental();
    conformance::run_where(&factory, |case| groups.contains(&case.group)).assert_passed();
}

/// The group of cases that must find each defect, whichever others do too.
fn finder(defect: Defect) -> &'static str {
    match defect {
        Defect::ListsGrowAtTheFront => "list",
        Defect::NamespacesAreForgotten => "namespaces",
        Defect::KeyAndNamespaceAreJoined
        | Defect::NoValueLimit
        | Defect::ForeignKeysAreAccepted
        | Defect::ClearingHitsLongerKeys => "keys",
        Defect::EmptyValuesAreAbsent => "absent",
        Defect::FailedUpdatesClear => "failures",
        Defect::MultiGetSkipsDuplicates | Defect::GetIntoCuts | Defect::UnknownStatesAreAbsent => {
            "bytes"
        }
        Defect::DescendingIsIgnored
        | Defect::RangeEndsAreIncluded
        | Defect::PagesLoseAnEntry
        | Defect::ScansSeeLaterRemovals => "iteration",
        Defect::EmptyMapsStay => "map",
        Defect::KeysAreListedPerEntry | Defect::KeysOfAllNamespaces => "enumeration",
        Defect::AnyRegistrationFits | Defect::UnregisteredStatesAreDropped => "registration",
        Defect::TimersRepeat
        | Defect::TimersByKeyGroup
        | Defect::TimesAreUnsigned
        | Defect::TimersAreLate
        | Defect::TimersAreNotRestored => "timers",
        Defect::SnapshotsAreNotIsolated | Defect::ObjectNamesRepeat => "isolation",
        Defect::UploadFailuresAreIgnored
        | Defect::UploadFailuresAreFatal
        | Defect::ChecksumsAreIgnored
        | Defect::MissingObjectsAreEmpty
        | Defect::UnknownCheckpointsFail
        | Defect::CompletionDropsTimers => "damage",
        Defect::EmptyGroupsAreUncovered
        | Defect::RestoreTakesForeignGroups
        | Defect::RestoreReadsOneHandle
        | Defect::WatermarksAreLost
        | Defect::RestoreChecksNothing => "restore",
        Defect::UnconfirmedSnapshotsAreBuiltOn
        | Defect::SubsumedSnapshotsAreBuiltOn
        | Defect::ReuseFromIsIgnored
        | Defect::NoClaimIsIgnored
        | Defect::AbortsDeleteSharedObjects
        | Defect::SharedObjectsAreMisplaced => "sharing",
        Defect::SnapshotsSweepLate | Defect::RestoresRefresh => "ttl",
        Defect::ExpiredKeysAreListed => "ttl_expired",
        Defect::WatermarksAreNotNoted => "ttl_event",
        Defect::ChangesOfTtlConvertNothing
        | Defect::SwitchingOffRevives
        | Defect::LongerLifetimesRevive
        | Defect::SwitchingOnExpires
        | Defect::UnregisteredTtlsAreDropped
        | Defect::HandlesShareOneTtl => "ttl_change",
        Defect::CleanUpRemovesNothing
        | Defect::CleanUpIsEarly
        | Defect::CleanUpSparesMixedLists
        | Defect::CleanUpLeavesEmptyMaps
        | Defect::CleanUpIgnoresItsBudget => "ttl_clean_up",
        other => panic!("{other:?} needs a group that must find it"),
    }
}

#[test]
fn every_defect_is_found_by_its_group() {
    let mut missed = Vec::new();
    for &defect in Defect::ALL {
        let mut factory = ReferenceBackendFactory::default().with_defect(defect);
        if finder(defect) == "sharing" {
            factory = factory.incremental();
        }
        let fails =
            |case: &Case| matches!(conformance::run_case(&factory, case), Outcome::Failed(_));
        match conformance::cases().filter(|case| case.group == finder(defect)).find(fails) {
            Some(case) => println!("{defect:?} is found by {}::{}", case.group, case.name),
            None => missed.push(defect),
        }
    }
    assert!(missed.is_empty(), "defects that their group does not find: {missed:?}");
}

/// Random programs find what concerns state and restores; they inject no faults.
#[test]
fn random_programs_find_defects_and_shrink_them() {
    for defect in [
        Defect::ListsGrowAtTheFront,
        Defect::NamespacesAreForgotten,
        Defect::FailedUpdatesClear,
        Defect::DescendingIsIgnored,
        Defect::ScansSeeLaterRemovals,
        Defect::EmptyMapsStay,
        Defect::KeysAreListedPerEntry,
        Defect::TimersRepeat,
        Defect::TimesAreUnsigned,
        Defect::TimersAreNotRestored,
        Defect::SnapshotsAreNotIsolated,
        Defect::RestoreTakesForeignGroups,
        Defect::RestoreReadsOneHandle,
        Defect::UnknownCheckpointsFail,
    ] {
        let factory = ReferenceBackendFactory::default().with_defect(defect);
        let found = (1..200).find_map(|seed| model::check_seed(&factory, seed, 150).err());
        let found = found.unwrap_or_else(|| panic!("{defect:?} is not found"));
        println!("{defect:?}: {found}");
        assert!(found.steps.len() <= 12, "{defect:?} is not shrunk: {found}");
        let again = model::check_seed(&factory, found.seed, 150).expect_err("a seed replays");
        assert_eq!(again.reason, found.reason);
    }
}

#[test]
fn the_macro_names_every_case() {
    let named = weir_tests::__with_all_cases!(names);
    let tables: Vec<_> = conformance::cases().map(|case| (case.group, case.name)).collect();
    assert_eq!(named.as_slice(), tables);
}

#[test]
fn every_group_finds_some_defect() {
    let groups: std::collections::BTreeSet<_> =
        conformance::cases().map(|case| case.group).filter(|group| *group != "model").collect();
    let without = ["value", "folding", "sorted_map"];
    for group in without {
        // These find what others find too: point reads, folds and ranges have no defects of their own.
        assert!(groups.contains(group));
    }
    let finders: std::collections::BTreeSet<_> =
        Defect::ALL.iter().map(|&defect| finder(defect)).chain(without).collect();
    assert_eq!(groups, finders);
}
