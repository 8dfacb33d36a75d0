//! Flushes and compactions in the user's hand.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::background::Mail;
use super::mailbox::Mailbox;

/// Asks instances to flush and to compact, one step at a time.
///
/// Given to [`ForstOptions::with_steps`](super::ForstOptions::with_steps), nothing is compacted unless
/// it is asked for here; what has expired altogether is dropped as ever. Full memtables, snapshots and
/// the limits of memory still flush by themselves, because memory is bounded. So a test drives the tree
/// through the shapes that it wants to see, and a job compacts when it has little else to do.
///
/// Clones speak to the same instances: all that were opened with one of them. Each takes in what it is
/// asked at its next call, whichever that is; with an [`InlineSpawner`](weir_state_api::InlineSpawner)
/// it is done when that call returns, with others it is begun.
/// [`ForstUsage`](crate::ForstUsage) counts what has been done.
///
/// ```
/// use weir_backend_forst::{ForstBackendFactory, ForstOptions, ForstResources, ForstSteps};
/// use weir_state_api::KeyedStore;
///
/// # fn main() -> weir_state_api::Result<()> {
/// let (steps, resources) = (ForstSteps::default(), ForstResources::default());
/// let options = ForstOptions::default().with_steps(&steps).with_resources(resources.clone());
/// let factory = ForstBackendFactory::new(options);
/// let mut store = KeyedStore::<String>::open_in_memory(&factory)?;
/// let visits = store.value::<u64>("visits")?;
/// store.set_key(&"ann".to_string())?;
/// // Eight tables of one entry each: enough for a compaction, which waits until it is asked for.
/// for count in 1..=8 {
///     visits.set(&mut store, &count)?;
///     steps.flush();
///     assert_eq!(visits.get(&mut store).wait()?, Some(count));
/// }
/// let done = resources.usage();
/// assert_eq!((done.flushes, done.compactions), (8, 0));
/// steps.compact();
/// assert_eq!(visits.get(&mut store).wait()?, Some(8));
/// assert_eq!(resources.usage().compactions, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ForstSteps(Arc<Mutex<Vec<Weak<Mailbox<Mail>>>>>);

impl ForstSteps {
    /// Each instance makes a table of what it holds in memory, if it holds anything.
    pub fn flush(&self) {
        self.ask(|| Mail::Flush);
    }

    /// Each instance begins the compaction that it finds most urgent, if any is to be done and fewer
    /// than two are running.
    pub fn compact(&self) {
        self.ask(|| Mail::Compact);
    }

    /// An instance that has this mailbox does what is asked from now on.
    pub(crate) fn attach(&self, mailbox: &Arc<Mailbox<Mail>>) {
        let mut instances = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        instances.retain(|instance| instance.strong_count() > 0);
        instances.push(Arc::downgrade(mailbox));
    }

    fn ask(&self, what: impl Fn() -> Mail) {
        let instances = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for instance in instances.iter().filter_map(Weak::upgrade) {
            instance.post(what());
        }
    }
}
