//! Enumeration of the keys that have state.

use std::fmt;
use std::marker::PhantomData;

use crate::{Codec, KeyGroup, Ordered, Page, Result, Scan, ScanStep, StateFuture};

/// A key that has state, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedKey {
    /// The encoded key.
    pub key: Vec<u8>,
    /// Its key group.
    pub group: KeyGroup,
    /// The encoded namespace the state is in.
    pub namespace: Vec<u8>,
}

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
        let codec = self.codec.clone();
        self.next_encoded().and_then(move |entry| {
            entry.map(|entry| Ok((codec.decode(&entry.key)?, entry.namespace))).transpose()
        })
    }

    /// The next key as it is stored, for an engine with its own encoding.
    pub fn next_encoded(&mut self) -> StateFuture<'_, Option<EncodedKey>> {
        while self.next >= self.page.len() {
            let rest: Box<dyn Scan> = match self.step.take() {
                None | Some(ScanStep::Last) => return StateFuture::ready(Ok(None)),
                Some(ScanStep::More(rest)) => rest,
                Some(ScanStep::Pending(future)) => {
                    return StateFuture::pending(async move {
                        let (page, step) = future.await?;
                        (self.page, self.next, self.step) = (page, 0, Some(step));
                        self.next_encoded().await
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
        let entry = self.page.get(self.next).zip(self.page.group(self.next));
        let entry = entry.map(|((key, namespace), group)| EncodedKey {
            key: key.to_vec(),
            group,
            namespace: namespace.to_vec(),
        });
        self.next += 1;
        StateFuture::ready(Ok(entry))
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
