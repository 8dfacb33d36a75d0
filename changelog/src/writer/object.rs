//! The objects of a log that this process has written: who still needs one, and who deletes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weir_state_api::ObjectRef;

use super::mailbox::Mailbox;
use super::{Message, StoreId};
use crate::local_copies::CopyUse;

/// An object with batches of any number of instances.
///
/// Its instances count as users as long as a handle of theirs may need a batch of it. When the last one
/// is gone, an object that no handle has named is deleted here, because nobody else can know it;
/// one that was named is left to the collector.
#[derive(Debug)]
pub(crate) struct LogObject {
    reference: ObjectRef,
    store: StoreId,
    users: AtomicUsize,
    named: AtomicBool,
    writer: Arc<Mailbox>,
    _copy: Option<CopyUse>,
}

impl LogObject {
    pub(super) fn new(
        reference: ObjectRef,
        store: StoreId,
        writer: Arc<Mailbox>,
        copy: Option<CopyUse>,
    ) -> Arc<Self> {
        let (users, named) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(LogObject { reference, store, users, named, writer, _copy: copy })
    }

    pub(crate) fn reference(&self) -> &ObjectRef {
        &self.reference
    }

    /// A handle is about to name it.
    pub(crate) fn name(&self) {
        self.named.store(true, Ordering::SeqCst);
    }

    /// Whether an instance, or a snapshot of one under way, needs it.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(Ordering::SeqCst) > 0
    }
}

/// A user of an object, for as long as it lives.
#[derive(Debug)]
pub(crate) struct ObjectUse(Arc<LogObject>);

impl ObjectUse {
    pub(crate) fn of(object: &Arc<LogObject>) -> Self {
        object.users.fetch_add(1, Ordering::SeqCst);
        ObjectUse(Arc::clone(object))
    }

    pub(crate) fn object(&self) -> &Arc<LogObject> {
        &self.0
    }
}

impl Drop for ObjectUse {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let path = self.0.reference.path.clone();
        let named = self.0.named.load(Ordering::SeqCst);
        // Without a writer the process is about to end; the collector finds what is left.
        self.0.writer.post(Message::Unused { store: self.0.store, path, named });
    }
}
