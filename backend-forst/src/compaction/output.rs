//! The tables that come out of a compaction: where they are cut, and how they leave.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_state_api::stored_key::group_of;
use weir_state_api::{Error, KeyGroup, Result, Spawned, StateId};

use crate::format::{Entry, EntryTraits, TableOptions, TableWriter};
use crate::lsm::KeyRanges;
use crate::store::{Density, Destination, NewTable, TableSink, Tables};

/// Finished tables that may be on their way to the store at once, beside the one being written. Each
/// is in memory until it is there.
const UPLOADS: usize = 2;

/// Where outputs go, and what they are like.
#[derive(Debug, Clone)]
pub(crate) struct OutputOptions {
    pub(crate) destination: Destination,
    pub(crate) table: TableOptions,
    /// About how long tables become. They end where a key group does, from half of this length on;
    /// within a key group only at twice the length.
    pub(crate) table_bytes: u64,
}

/// Writes the tables of one compaction, in the order of their keys.
#[derive(Debug)]
pub(super) struct Outputs {
    tables: Arc<Tables>,
    options: OutputOptions,
    density: Option<Density>,
    /// Bytes that all of them take, at most.
    expected: u64,
    eras: Vec<(StateId, u8)>,
    /// What stands in the outputs besides entries.
    range_deletes: KeyRanges,
    /// Keys before which a table must end, ascending: other tables of the run begin there.
    cuts: VecDeque<Box<[u8]>>,
    /// Where the present table's part of the keys begins.
    start: Vec<u8>,
    present: Option<(TableWriter, TableSink)>,
    /// The group of the last entry.
    group: Option<KeyGroup>,
    uploads: VecDeque<Spawned<NewTable>>,
    done: Vec<NewTable>,
}

impl Outputs {
    pub(super) fn new(
        tables: Arc<Tables>,
        options: OutputOptions,
        eras: Vec<(StateId, u8)>,
        range_deletes: KeyRanges,
        cuts: Vec<Box<[u8]>>,
    ) -> Self {
        Outputs {
            tables,
            options,
            density: None,
            expected: u64::MAX,
            eras,
            range_deletes,
            cuts: cuts.into(),
            start: Vec::new(),
            present: None,
            group: None,
            uploads: VecDeque::new(),
            done: Vec::new(),
        }
    }

    /// How much the outputs will be read, and how long they are about, at most: no more room is made for
    /// them on local disk.
    pub(super) fn with_expected(mut self, density: Option<Density>, bytes: u64) -> Self {
        (self.density, self.expected) = (density, bytes);
        self
    }

    /// Makes room for a key, which follows all that was written: ends the present table if it is long
    /// enough or another one begins before the key.
    ///
    /// # Errors
    /// Those of writing tables.
    pub(super) async fn make_room(&mut self, key: &[u8]) -> Result<()> {
        while self.cuts.front().is_some_and(|cut| **cut <= *key) {
            if let Some(cut) = self.cuts.pop_front() {
                self.end_table(&cut).await?;
            }
        }
        let group = group_of(key);
        let Some((writer, _)) = &self.present else {
            self.group = group;
            return Ok(());
        };
        let length = writer.estimated_len();
        let new_group = self.group != group;
        self.group = group;
        if new_group && length >= self.options.table_bytes / 2 {
            // The first key of the group: range deletes of the former stay with it.
            let start: &[u8] = key.get(..2).unwrap_or(key);
            return self.end_table(start).await;
        }
        if length >= self.options.table_bytes.saturating_mul(2) {
            return self.end_table(key).await;
        }
        Ok(())
    }

    /// Writes an entry, for whose key there is room.
    ///
    /// # Errors
    /// Those of [`TableWriter::add`].
    pub(super) fn add(&mut self, entry: Entry<'_>, traits: EntryTraits) -> Result<()> {
        let (writer, sink) = self.writer()?;
        writer.add(entry, traits)?;
        let ready = writer.take_ready();
        if !ready.is_empty() {
            sink.write(ready);
        }
        Ok(())
    }

    /// Ends the last table, whose part of the keys reaches up to `end`, and waits for all of them.
    ///
    /// # Errors
    /// Those of writing tables. Those that were written are deleted then, as far as possible.
    pub(super) async fn finish(mut self, end: &[u8]) -> Result<Vec<NewTable>> {
        let ended = self.end_all(end).await;
        match ended {
            Ok(()) => Ok(self.done),
            Err(error) => Err(self.abandon(error).await),
        }
    }

    async fn end_all(&mut self, end: &[u8]) -> Result<()> {
        while self.cuts.front().is_some_and(|cut| **cut < *end) {
            if let Some(cut) = self.cuts.pop_front() {
                self.end_table(&cut).await?;
            }
        }
        self.end_table(end).await?;
        self.wait_for_uploads(0).await
    }

    /// Deletes what was written: nobody will name it.
    pub(super) async fn abandon(mut self, error: Error) -> Error {
        while let Some(upload) = self.uploads.pop_front() {
            self.done.extend(upload.await);
        }
        for new in &self.done {
            if let Err(failure) = new.table.delete().await {
                tracing::warn!(%failure, "an unused table stays until it is collected");
            }
        }
        error
    }

    fn writer(&mut self) -> Result<&mut (TableWriter, TableSink)> {
        match &mut self.present {
            Some(present) => Ok(present),
            none => {
                let mut writer = TableWriter::new(self.options.table)?;
                writer.set_eras(self.eras.clone());
                let destination = self.options.destination.clone();
                let expected = self.options.table_bytes.min(self.expected);
                let sink = self.tables.sink(destination, expected, self.density);
                Ok(none.insert((writer, sink)))
            }
        }
    }

    /// Ends the present table before `end`. Nothing happens when there is nothing to write.
    async fn end_table(&mut self, end: &[u8]) -> Result<()> {
        let start = std::mem::replace(&mut self.start, end.to_vec());
        let deletes: Vec<(Vec<u8>, Vec<u8>)> = self
            .range_deletes
            .overlapping(&start, end)
            .map(|(from, to)| (from.to_vec(), to.to_vec()))
            .collect();
        if !deletes.is_empty() {
            let (writer, _) = self.writer()?;
            deletes.iter().for_each(|(from, to)| writer.add_range_delete(from, to));
        }
        let Some((writer, sink)) = self.present.take() else { return Ok(()) };
        let finished = writer.finish()?;
        let spawner = Arc::clone(self.tables.spawner());
        self.uploads.push_back(Spawned::future(&*spawner, sink.finish(finished)));
        self.wait_for_uploads(UPLOADS).await
    }

    async fn wait_for_uploads(&mut self, left: usize) -> Result<()> {
        while self.uploads.len() > left {
            let Some(upload) = self.uploads.pop_front() else { break };
            self.done.push(upload.await?);
        }
        Ok(())
    }
}
