//! One attempt to upload an object.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_timer::Delay;
use futures_util::future::{Either, select};
use opendal::Operator;
use weir_state_api::wire::corrupt;
use weir_state_api::{Environment, Error, ErrorKind, Result};

use super::mailbox::Mailbox;
use super::schedule::{AttemptId, UploadId};
use super::{Message, StoreId};

/// What an attempt reports.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) store: StoreId,
    pub(crate) upload: UploadId,
    pub(crate) attempt: AttemptId,
    /// Where it tried: a name of its own.
    pub(crate) path: String,
    pub(crate) result: Result<()>,
}

/// Starts an attempt; it reports once, also when the spawner drops it. After `timeout` it ends, and lets go
/// of its bytes.
pub(crate) fn start(
    environment: &Environment,
    report: Report,
    bytes: Bytes,
    timeout: Duration,
    to: Arc<Mailbox>,
) {
    let store = environment.store.clone();
    let path = report.path.clone();
    let mut once = Once { report: Some(report), to };
    environment.spawner.spawn(Box::pin(async move {
        let result = match select(pin!(upload(&store, &path, bytes)), Delay::new(timeout)).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => Err(took_too_long(timeout).object(&path)),
        };
        once.send(result);
    }));
}

/// The error of an attempt that has not ended.
pub(super) fn took_too_long(timeout: Duration) -> Error {
    let what = format!("an upload of the log has not ended after {timeout:?}");
    Error::new(ErrorKind::Unavailable, what)
}

/// Writes an object. That the store has it is not asked again, which would take a checkpoint as long as
/// writing it: a store that forgets is found out by the restore.
async fn upload(store: &Operator, path: &str, bytes: Bytes) -> Result<()> {
    let length = bytes.len() as u64;
    let written = store.write(path, bytes).await;
    let written = written.map_err(|error| Error::store("write", path, error))?;
    // Not every service says how much it has stored.
    let found = written.content_length();
    if found != 0 && found != length {
        return Err(corrupt(
            path,
            format!("the store holds {found} bytes of the log, {length} were written"),
        ));
    }
    Ok(())
}

struct Once {
    report: Option<Report>,
    to: Arc<Mailbox>,
}

impl Once {
    fn send(&mut self, result: Result<()>) {
        if let Some(mut report) = self.report.take() {
            report.result = result;
            // Without a writer nobody waits for it.
            self.to.post(Message::Attempted(report));
        }
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        self.send(Err(Error::new(
            ErrorKind::Unavailable,
            "the upload of the log panicked or was dropped before it ended",
        )));
    }
}
