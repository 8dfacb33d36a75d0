//! Showing progress on standard error: a bar on a terminal, else a line about once a second.

use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use weir_runtime::Progress;

use super::figures::thousands;

const LINE_EVERY: Duration = Duration::from_secs(1);

/// Shows the progress of one run.
pub(crate) enum Display {
    Bar(ProgressBar),
    Lines { begun: Instant, last: Mutex<Instant>, total: Option<u64> },
}

impl Display {
    /// `total` is how many records there are to be read, if that is known.
    pub(crate) fn new(total: Option<u64>) -> Self {
        if !stderr().is_terminal() {
            let now = Instant::now();
            return Display::Lines { begun: now, last: Mutex::new(now), total };
        }
        let (bar, template) = match total {
            Some(total) => (
                ProgressBar::new(total),
                "{elapsed:>4} {bar:30} {human_pos} of {human_len} records{msg}",
            ),
            None => (ProgressBar::new_spinner(), "{elapsed:>4} {spinner} {human_pos} records{msg}"),
        };
        // The default style shows all that matters, too.
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Display::Bar(bar)
    }

    pub(crate) fn show(&self, progress: &Progress) {
        let read = progress.records_read;
        let mut more = format!(", {} checkpoints", thousands(progress.checkpoints));
        if progress.restarts > 0 {
            more += &format!(", {} restarts", progress.restarts);
        }
        match self {
            Display::Bar(bar) => {
                let seconds = bar.elapsed().as_secs_f64().max(0.1);
                bar.set_position(read);
                bar.set_message(format!(", {}/s{more}", thousands((read as f64 / seconds) as u64)));
            }
            Display::Lines { begun, last, total } => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if last.elapsed() < LINE_EVERY {
                    return;
                }
                *last = Instant::now();
                let of = total.map(|total| format!(" of {}", thousands(total))).unwrap_or_default();
                let seconds = begun.elapsed().as_secs();
                eprintln!("{seconds:>3} s: {}{of} records read{more}", thousands(read));
            }
        }
    }

    pub(crate) fn finish(&self) {
        if let Display::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
