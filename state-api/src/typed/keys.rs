//! Enumeration of the keys that have state.

use std::fmt;
use std::marker::PhantomData;

use crate::{Codec, Ordered, Page, Result, Scan, ScanStep, StateFuture};

/// The distinct keys (with the encoded namespace) of a state, as of the call that began it.
///
/// Independent of the store, which may be changed meanwhile. As an [`Iterator`] it blocks on remote
/// reads; [`next_key`](Keys::next_key) awaits them. The order is by key group, then undefined.
pub struct Keys<K, C = Ordered> {
    codec: C,
    page: Page,
    next: usize,
    step: Option<ScanStep>,
    key: PhantomData<fn() -> K>,
}

impl<K: Send + 'static, C: Codec<K>> Keys<K, C> {
    pub(crate) fn new(codec: C, page: Page, step: ScanStep) -> Self {
        Keys { codec, page, next: 0, step: Some(step), key: PhantomData }
    }

    /// The next key and the encoded namespace it has state in, or `None` at the end.
    pub fn next_key(&mut self) -> StateFuture<'_, Option<(K, Vec<u8>)>> {
        while self.next >= self.page.len() {
            let rest: Box<dyn Scan> = match self.step.take() {
                None | Some(ScanStep::Last) => return StateFuture::ready(Ok(None)),
                Some(ScanStep::More(rest)) => rest,
                Some(ScanStep::Pending(future)) => {
                    return StateFuture::pending(async move {
                        let (page, step) = future.await?;
                        (self.page, self.next, self.step) = (page, 0, Some(step));
                        self.next_key().await
                    });
                }
            };
            self.page.clear();
            self.next = 0;
            match rest.next(&mut self.page) {
                Ok(step) => self.step = Some(step),
                Err(error) => return StateFuture::ready(Err(error)),
            }
        }
        let entry = self
            .page
            .get(self.next)
            .map(|(key, namespace)| self.codec.decode(key).map(|key| (key, namespace.to_vec())));
        self.next += 1;
        StateFuture::ready(entry.transpose())
    }
}

impl<K: Send + 'static, C: Codec<K>> Iterator for Keys<K, C> {
    type Item = Result<(K, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_key().wait().transpose()
    }
}

impl<K, C> fmt::Debug for Keys<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("step", &self.step).finish_non_exhaustive()
    }
}
