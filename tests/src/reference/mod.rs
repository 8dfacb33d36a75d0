//! A deliberately naive backend: the contract in plain `BTreeMap`s, and ways to break it.
//!
//! It shows a backend author what the interface asks for, and it proves that the suite can fail:
//! with a [`Defect`] planted, some case must find it (`tests/self_check.rs`). A snapshot copies
//! everything, so it is **not** a backend to run a job on.

mod backend;
mod instance;
mod scan;
mod sharing;
mod snapshot;
mod tables;
mod ttl;

use weir_state_api::ttl::TtlClock;
use weir_state_api::{BackendFactory, BoxFuture, Capabilities, KeyedBackend, OpenRequest, Result};

/// A mistake that real backends have made, planted on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Defect {
    /// New list elements go to the front.
    ListsGrowAtTheFront,
    /// All namespaces are one.
    NamespacesAreForgotten,
    /// Key and namespace are joined without a border between them.
    KeyAndNamespaceAreJoined,
    /// Zero bytes count as absent.
    EmptyValuesAreAbsent,
    /// A failing user function removes the value.
    FailedUpdatesClear,
    /// A batched read answers each address only once.
    MultiGetSkipsDuplicates,
    /// A value that does not fit the caller's buffer is cut instead of left out.
    GetIntoCuts,
    /// Values of any length are accepted.
    NoValueLimit,
    /// Keys of other instances are accepted.
    ForeignKeysAreAccepted,
    /// An unknown state reads as absent.
    UnknownStatesAreAbsent,
    /// Scans only go upwards.
    DescendingIsIgnored,
    /// Excluded ends of a range are included.
    RangeEndsAreIncluded,
    /// Every page but the first loses its first entry.
    PagesLoseAnEntry,
    /// A running scan skips entries that were removed meanwhile.
    ScansSeeLaterRemovals,
    /// Clearing a map clears the maps of all keys that begin like its key.
    ClearingHitsLongerKeys,
    /// A map stays when its last entry goes.
    EmptyMapsStay,
    /// A key is listed once per map entry.
    KeysAreListedPerEntry,
    /// Listing the keys of one namespace lists those of all.
    KeysOfAllNamespaces,
    /// Registering ignores what is there under the name.
    AnyRegistrationFits,
    /// A later snapshot leaves out what was restored and not registered.
    UnregisteredStatesAreDropped,
    /// Registering a timer twice makes two timers.
    TimersRepeat,
    /// Timers come due by key group, then by time.
    TimersByKeyGroup,
    /// Negative times are later than positive ones.
    TimesAreUnsigned,
    /// A timer is due only after its time.
    TimersAreLate,
    /// Timers are in no snapshot.
    TimersAreNotRestored,
    /// The snapshot is what the state is when its task runs.
    SnapshotsAreNotIsolated,
    /// Snapshot objects are named after the operator only.
    ObjectNamesRepeat,
    /// A failed upload is reported as a success.
    UploadFailuresAreIgnored,
    /// A failed upload closes the instance.
    UploadFailuresAreFatal,
    /// Lengths and checksums are not looked at.
    ChecksumsAreIgnored,
    /// A missing object counts as empty.
    MissingObjectsAreEmpty,
    /// A handle covers only the groups that have data.
    EmptyGroupsAreUncovered,
    /// A restore takes all that the handles hold.
    RestoreTakesForeignGroups,
    /// A restore reads only the first handle.
    RestoreReadsOneHandle,
    /// The handle has no watermark.
    WatermarksAreLost,
    /// A restore checks nothing up front.
    RestoreChecksNothing,
    /// News about an unknown checkpoint is an error.
    UnknownCheckpointsFail,
    /// News of completion forgets timers that are due by then.
    CompletionDropsTimers,
    /// A snapshot builds on the one before, complete or not.
    UnconfirmedSnapshotsAreBuiltOn,
    /// A snapshot builds on one that it was told is no longer kept.
    SubsumedSnapshotsAreBuiltOn,
    /// A snapshot builds on older ones than its request allows.
    ReuseFromIsIgnored,
    /// A snapshot builds on what was restored without a claim.
    NoClaimIsIgnored,
    /// News of an abort deletes all that the aborted snapshot names.
    AbortsDeleteSharedObjects,
    /// Shared objects lie among those of one checkpoint.
    SharedObjectsAreMisplaced,
    /// Keys are listed although their values have expired.
    ExpiredKeysAreListed,
    /// The backend does not hear of watermarks.
    WatermarksAreNotNoted,
    /// Clean-up does nothing.
    CleanUpRemovesNothing,
    /// Clean-up removes what expires within the next millisecond.
    CleanUpIsEarly,
    /// Clean-up leaves lists as long as one element lives.
    CleanUpSparesMixedLists,
    /// Clean-up leaves the map of entries that are all gone.
    CleanUpLeavesEmptyMaps,
    /// Clean-up visits everything, whatever its budget.
    CleanUpIgnoresItsBudget,
    /// A snapshot leaves out what has expired when it is written, not when it began.
    SnapshotsSweepLate,
    /// Another TTL changes the descriptor, not the values.
    ChangesOfTtlConvertNothing,
    /// Switching a TTL off brings back what had expired.
    SwitchingOffRevives,
    /// Another lifetime brings back what had expired.
    LongerLifetimesRevive,
    /// The values of a state whose TTL is switched on count from the beginning of time.
    SwitchingOnExpires,
    /// Restored values count from the restore.
    RestoresRefresh,
    /// A restored state that is not registered loses its TTL.
    UnregisteredTtlsAreDropped,
    /// A restore reads the values of all handles by the first one's TTL.
    HandlesShareOneTtl,
}

impl Defect {
    /// All of them.
    pub const ALL: &[Defect] = &[
        Defect::ListsGrowAtTheFront,
        Defect::NamespacesAreForgotten,
        Defect::KeyAndNamespaceAreJoined,
        Defect::EmptyValuesAreAbsent,
        Defect::FailedUpdatesClear,
        Defect::MultiGetSkipsDuplicates,
        Defect::GetIntoCuts,
        Defect::NoValueLimit,
        Defect::ForeignKeysAreAccepted,
        Defect::UnknownStatesAreAbsent,
        Defect::DescendingIsIgnored,
        Defect::RangeEndsAreIncluded,
        Defect::PagesLoseAnEntry,
        Defect::ScansSeeLaterRemovals,
        Defect::ClearingHitsLongerKeys,
        Defect::EmptyMapsStay,
        Defect::KeysAreListedPerEntry,
        Defect::KeysOfAllNamespaces,
        Defect::AnyRegistrationFits,
        Defect::UnregisteredStatesAreDropped,
        Defect::TimersRepeat,
        Defect::TimersByKeyGroup,
        Defect::TimesAreUnsigned,
        Defect::TimersAreLate,
        Defect::TimersAreNotRestored,
        Defect::SnapshotsAreNotIsolated,
        Defect::ObjectNamesRepeat,
        Defect::UploadFailuresAreIgnored,
        Defect::UploadFailuresAreFatal,
        Defect::ChecksumsAreIgnored,
        Defect::MissingObjectsAreEmpty,
        Defect::EmptyGroupsAreUncovered,
        Defect::RestoreTakesForeignGroups,
        Defect::RestoreReadsOneHandle,
        Defect::WatermarksAreLost,
        Defect::RestoreChecksNothing,
        Defect::UnknownCheckpointsFail,
        Defect::CompletionDropsTimers,
        Defect::UnconfirmedSnapshotsAreBuiltOn,
        Defect::SubsumedSnapshotsAreBuiltOn,
        Defect::ReuseFromIsIgnored,
        Defect::NoClaimIsIgnored,
        Defect::AbortsDeleteSharedObjects,
        Defect::SharedObjectsAreMisplaced,
        Defect::ExpiredKeysAreListed,
        Defect::WatermarksAreNotNoted,
        Defect::CleanUpRemovesNothing,
        Defect::CleanUpIsEarly,
        Defect::CleanUpSparesMixedLists,
        Defect::CleanUpLeavesEmptyMaps,
        Defect::CleanUpIgnoresItsBudget,
        Defect::SnapshotsSweepLate,
        Defect::ChangesOfTtlConvertNothing,
        Defect::SwitchingOffRevives,
        Defect::LongerLifetimesRevive,
        Defect::SwitchingOnExpires,
        Defect::RestoresRefresh,
        Defect::UnregisteredTtlsAreDropped,
        Defect::HandlesShareOneTtl,
    ];
}

/// Opens reference backends.
#[derive(Debug, Clone)]
pub struct ReferenceBackendFactory {
    options: Options,
}

#[derive(Debug, Clone, Copy)]
struct Options {
    defect: Option<Defect>,
    pends: bool,
    incremental: bool,
    max_value_len: u64,
}

impl Options {
    fn has(self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn capabilities(self) -> Capabilities {
        Capabilities::minimal()
            .with_never_pends(!self.pends)
            .with_incremental_snapshots(self.incremental)
            .with_driven_clean_up(true)
            .with_max_value_len(self.max_value_len)
    }
}

impl Default for ReferenceBackendFactory {
    /// Correct, never pending, full snapshots, values up to 1 MiB.
    fn default() -> Self {
        ReferenceBackendFactory {
            options: Options {
                defect: None,
                pends: false,
                incremental: false,
                max_value_len: 1 << 20,
            },
        }
    }
}

impl ReferenceBackendFactory {
    /// Plants a defect.
    #[must_use]
    pub fn with_defect(mut self, defect: Defect) -> Self {
        self.options.defect = Some(defect);
        self
    }

    /// Makes every read, scan and poll pend once, as on remote storage.
    #[must_use]
    pub fn pending(mut self) -> Self {
        self.options.pends = true;
        self
    }

    /// Makes snapshots share objects: one for each key group, as long as it does not change.
    #[must_use]
    pub fn incremental(mut self) -> Self {
        self.options.incremental = true;
        self
    }
}

impl BackendFactory for ReferenceBackendFactory {
    fn name(&self) -> &str {
        snapshot::BACKEND
    }

    fn capabilities(&self) -> Capabilities {
        self.options.capabilities()
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'static, Result<Box<dyn KeyedBackend>>> {
        let options = self.options;
        Box::pin(async move {
            let clock = request.environment.clock.clone();
            let mut clock = TtlClock::new(clock, request.restored_watermark());
            let (tables, pieces) = snapshot::restore(&request, clock.time(), options).await?;
            let sharing = sharing::Sharing::new(options, &request, pieces);
            let backend = instance::ReferenceBackend::new(request, tables, options, sharing, clock);
            Ok(Box::new(backend) as Box<dyn KeyedBackend>)
        })
    }
}
