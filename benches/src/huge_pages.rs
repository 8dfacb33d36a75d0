//! Memory in huge pages, for all contestants alike.
//!
//! A state that is larger than the processor's caches is read at random, and with pages of 4 KiB each
//! such read is two misses: the data, and where its page lies. In a virtual machine the second one
//! is the dearer.

use std::os::unix::process::CommandExt;
use std::process::Command;

use weir_state_api::{Error, ErrorKind, Result};

/// What glibc reads when a program starts.
const VARIABLE: &str = "GLIBC_TUNABLES";
/// Lets `malloc` ask the kernel for them (`madvise`).
const TUNABLE: &str = "glibc.malloc.hugetlb=1";
/// The same for the heap of a JVM.
pub(crate) const JVM_OPTION: &str = "-XX:+UseTransparentHugePages";

/// Whether this run asks for them.
pub(crate) fn are_asked_for() -> bool {
    std::env::var(VARIABLE).is_ok_and(|tunables| tunables.contains(TUNABLE))
}

/// Starts this program anew, asking for them; comes back if it does already, or cannot.
pub(crate) fn ask_for() -> Result<()> {
    if are_asked_for() {
        return Ok(());
    }
    let failed = |error| {
        Error::new(ErrorKind::Unavailable, "the program cannot start itself anew").source(error)
    };
    let mut tunables = std::env::var_os(VARIABLE).unwrap_or_default();
    if !tunables.is_empty() {
        tunables.push(":");
    }
    tunables.push(TUNABLE);
    let program = std::env::current_exe().map_err(failed)?;
    let arguments = std::env::args_os().skip(1);
    Err(failed(Command::new(program).args(arguments).env(VARIABLE, tunables).exec()))
}
