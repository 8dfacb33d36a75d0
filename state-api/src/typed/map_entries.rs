//! The entries of a map, read page by page.

use std::fmt;

use super::expiring::Life;
use super::map::MapState;
use super::refresh::Refresher;
use crate::ttl::{Stamp, cut_short};
use crate::{BoxFuture, Change, Codec, Native, Ordered, Page, Result, Scan, ScanStep, StateFuture};

/// The entries of a map, read page by page.
///
/// Independent of the store: it may be changed, even dropped, while this is read. As an
/// [`Iterator`] it blocks on remote reads; [`next_entry`](MapEntries::next_entry) awaits them.
///
/// Of a state with a TTL it yields what had not expired at the call that began it. Where reads
/// refresh, each entry it yields is refreshed at the next access to such a state of the instance,
/// and takes memory until then.
pub struct MapEntries<K, V, KC = Ordered, VC = Native> {
    pub(super) state: MapState<K, V, KC, VC>,
    pub(super) page: Page,
    pub(super) next: usize,
    pub(super) rest: Option<Box<dyn Scan>>,
    pub(super) life: Option<Life>,
    pub(super) refresher: Option<Refresher>,
}

impl<K, V, KC, VC> MapEntries<K, V, KC, VC>
where
    K: Send + 'static,
    V: Send + 'static,
    KC: Codec<K>,
    VC: Codec<V>,
{
    /// The next entry, or `None` at the end.
    pub fn next_entry(&mut self) -> StateFuture<'_, Option<(K, V)>> {
        loop {
            if let Some(entry) = self.next_here() {
                return StateFuture::ready(entry.map(Some));
            }
            match self.next_page() {
                Ok(NextPage::Read) => {}
                Ok(NextPage::None) => return StateFuture::ready(Ok(None)),
                Ok(NextPage::Pending(future)) => {
                    return StateFuture::pending(async move {
                        self.take_page(future.await)?;
                        self.next_entry().await
                    });
                }
                Err(error) => return StateFuture::ready(Err(error)),
            }
        }
    }

    /// The next entry of the page that is read.
    #[inline(always)]
    fn next_here(&mut self) -> Option<Result<(K, V)>> {
        let Some(life) = &self.life else {
            let (map_key, value) = self.page.get(self.next)?;
            self.next += 1;
            let entry = self.state.decode(map_key, value);
            return Some(entry.map_err(|error| self.state.slot.blame(error)));
        };
        while let Some((map_key, stored)) = self.page.get(self.next) {
            self.next += 1;
            let entry = self.decode_live(life, map_key, stored);
            let entry = entry.map_err(|error| self.state.slot.blame(error));
            if let Some(entry) = entry.transpose() {
                return Some(entry);
            }
        }
        None
    }

    /// The next entry, of entries that are not needed afterwards.
    pub(super) fn into_first(mut self) -> StateFuture<'static, Option<(K, V)>> {
        match (self.next_here(), &self.rest) {
            (Some(entry), _) => StateFuture::ready(entry.map(Some)),
            (None, None) => StateFuture::ready(Ok(None)),
            (None, Some(_)) => StateFuture::pending(async move { self.next_entry().await }),
        }
    }

    /// Reads all entries that are left.
    ///
    /// # Errors
    /// Those of reading and decoding.
    pub async fn collect_all(mut self) -> Result<Vec<(K, V)>> {
        let mut all = Vec::new();
        while let Some(entry) = self.next_entry().await? {
            all.push(entry);
        }
        Ok(all)
    }

    /// Whether no entry is left.
    pub(super) fn into_is_empty(mut self) -> StateFuture<'static, bool> {
        loop {
            for index in 0..self.page.len() {
                match self.shows(index) {
                    Ok(true) => return StateFuture::ready(Ok(false)),
                    Ok(false) => {}
                    Err(error) => return StateFuture::ready(Err(self.state.slot.blame(error))),
                }
            }
            match self.next_page() {
                Ok(NextPage::Read) => {}
                Ok(NextPage::None) => return StateFuture::ready(Ok(true)),
                Ok(NextPage::Pending(future)) => {
                    return StateFuture::pending(async move {
                        self.take_page(future.await)?;
                        self.into_is_empty().await
                    });
                }
                Err(error) => return StateFuture::ready(Err(error)),
            }
        }
    }

    fn next_page(&mut self) -> Result<NextPage> {
        let Some(rest) = self.rest.take() else { return Ok(NextPage::None) };
        self.page.clear();
        self.next = 0;
        match rest.next(&mut self.page) {
            Ok(ScanStep::Last) => {}
            Ok(ScanStep::More(rest)) => self.rest = Some(rest),
            Ok(ScanStep::Pending(future)) => {
                return Ok(NextPage::Pending(Box::pin(async move { settle(future.await?).await })));
            }
            Err(error) => return Err(self.state.slot.blame(error)),
        }
        Ok(NextPage::Read)
    }

    fn take_page(&mut self, page: Result<ReadPage>) -> Result<()> {
        (self.page, self.rest) = page.map_err(|error| self.state.slot.blame(error))?;
        Ok(())
    }

    /// Whether a read returns entry `index` of the page.
    fn shows(&self, index: usize) -> Result<bool> {
        let (Some(life), Some((_, stored))) = (&self.life, self.page.get(index)) else {
            return Ok(true);
        };
        let (stamp, _) = Stamp::split(stored).ok_or_else(cut_short)?;
        Ok(life.shows(stamp))
    }

    /// An entry of a state with a TTL, unless it has expired.
    fn decode_live(&self, life: &Life, map_key: &[u8], stored: &[u8]) -> Result<Option<(K, V)>> {
        let mut new = Vec::new();
        let (entry, change) = life.read_value(Some(stored), &mut new, |live| {
            live.map(|value| self.state.decode(map_key, value)).transpose()
        })?;
        if let (Some(refresher), Change::Put) = (&self.refresher, change) {
            refresher.refresh(map_key, new);
        }
        Ok(entry)
    }
}

/// A page, and what follows it.
pub(super) type ReadPage = (Page, Option<Box<dyn Scan>>);

/// The outcome of asking a scan for its next page.
enum NextPage {
    Read,
    None,
    Pending(BoxFuture<'static, Result<ReadPage>>),
}

impl<K, V, KC, VC> Iterator for MapEntries<K, V, KC, VC>
where
    K: Send + 'static,
    V: Send + 'static,
    KC: Codec<K>,
    VC: Codec<V>,
{
    type Item = Result<(K, V)>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if let entry @ Some(_) = self.next_here() {
            return entry;
        }
        self.rest.as_ref()?;
        self.next_entry().wait().transpose()
    }
}

impl<K, V, KC, VC> fmt::Debug for MapEntries<K, V, KC, VC> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapEntries").field("state", &self.state.slot).finish_non_exhaustive()
    }
}

/// Awaits a scan until it has a page.
pub(super) async fn settle((mut page, mut step): (Page, ScanStep)) -> Result<ReadPage> {
    loop {
        match step {
            ScanStep::Last => return Ok((page, None)),
            ScanStep::More(rest) => return Ok((page, Some(rest))),
            ScanStep::Pending(future) => (page, step) = future.await?,
        }
    }
}
