//! The memory of this process as the operating system counts it.

/// Watches how far the resident set grows. Linux only; elsewhere it knows nothing.
pub(crate) struct ResidentMemory {
    before: Option<u64>,
}

impl ResidentMemory {
    /// Begins to watch, from the present resident set on.
    pub(crate) fn begin() -> Self {
        // Resets the peak to the present value (see proc(5)).
        let reset = std::fs::write("/proc/self/clear_refs", "5");
        ResidentMemory { before: reset.ok().and_then(|()| resident_bytes()) }
    }

    /// How far the peak since then lies above where it began, in bytes.
    pub(crate) fn peak_growth(&self) -> Option<u64> {
        Some(status("VmHWM:")?.saturating_sub(self.before?))
    }
}

/// The resident set of this process in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    status("VmRSS:")
}

fn status(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
