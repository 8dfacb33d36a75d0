//! Scans over the entries of one map.

use std::task::{Context, Poll, Waker, ready};

use weir_state_api::{Page, Result, Scan, ScanStep, StateId};

use super::view::Walk;

/// The rest of a scan. It owns what it reads from.
#[derive(Debug)]
pub(crate) struct MapScan {
    pub(crate) walk: Walk,
    /// The state's stored number.
    pub(crate) state: StateId,
    /// Length of what precedes the map key.
    pub(crate) prefix_len: usize,
}

/// A scan that can stop for a read at any entry.
pub(crate) trait PollScan: Scan + Sized + 'static {
    /// Appends entries until the page is full; whether the scan has ended.
    fn poll_fill(&mut self, page: &mut Page, context: &mut Context<'_>) -> Poll<Result<bool>>;

    /// A step of the scan: what is in memory at once, else a future.
    fn step(mut self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        match self.poll_fill(page, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => Ok(if ended? { ScanStep::Last } else { ScanStep::More(self) }),
            Poll::Pending if !page.is_empty() => Ok(ScanStep::More(self)),
            Poll::Pending => Ok(ScanStep::Pending(Box::pin(async move {
                let mut page = Page::new();
                let ended =
                    std::future::poll_fn(|context| match self.poll_fill(&mut page, context) {
                        // What is there goes out before the next read is waited for.
                        Poll::Pending if !page.is_empty() => Poll::Ready(Ok(false)),
                        polled => polled,
                    });
                let ended = ended.await?;
                let step = if ended { ScanStep::Last } else { ScanStep::More(self) };
                Ok((page, step))
            }))),
        }
    }
}

impl PollScan for MapScan {
    fn poll_fill(&mut self, page: &mut Page, context: &mut Context<'_>) -> Poll<Result<bool>> {
        while ready!(self.walk.poll_key(context))? {
            if page.is_full() {
                return Poll::Ready(Ok(false));
            }
            let map_key = self.walk.key().get(self.prefix_len..).unwrap_or_default();
            self.walk.with_value(self.state, |value| page.push(map_key, value))?;
            self.walk.leave();
        }
        Poll::Ready(Ok(true))
    }
}

impl Scan for MapScan {
    fn next(self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        self.step(page)
    }
}
