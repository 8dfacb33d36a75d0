//! News of background work, for the instance's next call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whatever ends in the background is told here; the instance, which alone changes the tree, looks when
/// it is called. Looking costs one read of a flag.
#[derive(Debug)]
pub(crate) struct Mailbox<M> {
    any: AtomicBool,
    mail: Mutex<Vec<M>>,
}

impl<M> Default for Mailbox<M> {
    fn default() -> Self {
        Mailbox { any: AtomicBool::new(false), mail: Mutex::default() }
    }
}

impl<M> Mailbox<M> {
    pub(crate) fn post(&self, mail: M) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).push(mail);
        self.any.store(true, Ordering::Release);
    }

    /// All that came in, oldest first.
    #[inline]
    pub(crate) fn take(&self) -> Option<Vec<M>> {
        self.any.load(Ordering::Acquire).then(|| self.take_all())
    }

    #[cold]
    fn take_all(&self) -> Vec<M> {
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
