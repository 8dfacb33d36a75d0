//! Ctrl-C (or a polite signal to end) ends the run after the current round; what was measured is reported.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_state_api::{Error, ErrorKind, Result};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Begins to listen. A second Ctrl-C ends the process.
pub(crate) fn listen() -> Result<()> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Relaxed) {
            std::process::exit(130);
        }
        eprintln!("interrupted: reporting what was measured (Ctrl-C again ends at once)");
    })
    .map_err(|error| Error::new(ErrorKind::Unsupported, "Ctrl-C cannot be handled").source(error))
}

/// Whether somebody wants the run to end.
pub(crate) fn requested() -> bool {
    INTERRUPTED.load(Relaxed)
}
