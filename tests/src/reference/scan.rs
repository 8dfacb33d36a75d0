//! Scans over a copy of the entries.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use weir_state_api::{
    BoxFuture, Error, ErrorKind, KeyGroup, Page, Result, Scan, ScanStep, StateId,
};

use super::tables::{Content, Place, Tables};
use super::{Defect, Options};

/// What is left of a scan.
pub(super) struct Rest {
    pub(super) entries: VecDeque<(Option<KeyGroup>, Vec<u8>, Vec<u8>)>,
    pub(super) options: Options,
    /// Where a defective scan looks for later changes.
    pub(super) live: Option<(Arc<Mutex<Tables>>, StateId, Place)>,
}

impl Rest {
    /// The first step: pending once, if the backend pends.
    pub(super) fn start(self, page: &mut Page) -> ScanStep {
        if self.options.pends {
            let future: BoxFuture<'static, Result<(Page, ScanStep)>> = Box::pin(async move {
                later().await;
                let mut page = Page::new();
                let step = self.fill(&mut page);
                Ok((page, step))
            });
            return ScanStep::Pending(future);
        }
        self.fill(page)
    }

    fn fill(mut self, page: &mut Page) -> ScanStep {
        while let Some((group, first, second)) = self.entries.pop_front() {
            match group {
                Some(group) => page.push_key(group, &first, &second),
                None => page.push(&first, &second),
            }
            if page.is_full() && !self.entries.is_empty() {
                return ScanStep::More(Box::new(self));
            }
        }
        ScanStep::Last
    }

    fn drop_removed(&mut self) -> Result<()> {
        let Some((live, state, place)) = &self.live else { return Ok(()) };
        let live = live.lock().map_err(|_| poisoned())?;
        if let Content::Ordered(maps) = &live.get(*state)?.content {
            let map = maps.get(place);
            self.entries.retain(|(_, key, _)| map.is_some_and(|map| map.contains_key(key)));
        }
        Ok(())
    }
}

impl Scan for Rest {
    fn next(mut self: Box<Self>, page: &mut Page) -> Result<ScanStep> {
        if self.options.has(Defect::PagesLoseAnEntry) {
            self.entries.pop_front();
        }
        self.drop_removed()?;
        Ok(self.start(page))
    }
}

fn poisoned() -> Error {
    Error::new(ErrorKind::Closed, "another thread panicked")
}

/// Pending on the first poll, ready on the second.
pub(super) async fn later() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut polled, true) {
            std::task::Poll::Ready(())
        } else {
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        }
    })
    .await;
}
