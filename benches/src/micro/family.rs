//! A family: the contestants that run the same table of operations.

use std::rc::Rc;

use super::by_bytes::ByBytes;
use super::contestant::{Contestant, Local, Register, Weir};
use super::inputs::Inputs;
use super::operation::Table;
use super::{Peer, Settings};
use crate::backends::Budget;
use crate::peers::flink::{FlinkPeer, FlinkProcess};
use crate::peers::ordered::Store;
#[cfg(feature = "rocks")]
use crate::peers::rocksdb::RawRocksdb;

/// Key groups (max parallelism) of Flink's benchmarks of states; its timers have Flink's default.
pub(crate) const BASELINE_GROUPS: u16 = 2;
/// Flink's and Weir's default.
pub(crate) const DEFAULT_GROUPS: u16 = 128;

/// A row of a family's table, without the code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What a round's time is divided by.
    pub(crate) counted: u64,
    /// Whether the written state is compared after the last round.
    pub(crate) writes: bool,
}

/// The contestants of a family; the first one is who the others are compared with.
pub(crate) struct Family<'a> {
    pub(crate) title: &'static str,
    pub(crate) rows: Vec<Row>,
    pub(crate) contestants: Vec<Box<dyn Contestant>>,
    settings: &'a Settings,
    inputs: &'a Rc<Inputs>,
}

impl<'a> Family<'a> {
    pub(crate) fn new(title: &'static str, settings: &'a Settings, inputs: &'a Rc<Inputs>) -> Self {
        Family { title, rows: Vec::new(), contestants: Vec::new(), settings, inputs }
    }

    /// Adds each of Weir's backends that was asked for.
    pub(crate) fn weir<H: 'static>(
        self,
        key_groups: u16,
        table: fn() -> Table<Weir<H>>,
        register: Register<H>,
    ) -> Self {
        self.weir_named("", key_groups, table, register)
    }

    /// The same with something after the backend's name.
    pub(crate) fn weir_named<H: 'static>(
        mut self,
        suffix: &str,
        key_groups: u16,
        table: fn() -> Table<Weir<H>>,
        register: Register<H>,
    ) -> Self {
        self.note_rows(&table());
        for &backend in &self.settings.backends {
            let (name, inputs) = (format!("{backend}{suffix}"), self.inputs.clone());
            let contestant = Weir::contestant(backend, key_groups, name, inputs, table(), register);
            self.contestants.push(contestant);
        }
        self
    }

    /// Adds a collection in memory as the limit.
    pub(crate) fn raw<S: 'static>(
        mut self,
        name: &str,
        table: fn() -> Table<S>,
        empty: fn() -> S,
    ) -> Self {
        if self.settings.peers.contains(&Peer::Raw) {
            let options = || Ok("no bytes, no key groups, no snapshots".into());
            let (name, inputs) = (name.into(), self.inputs.clone());
            let local = Local::new(name, inputs, table(), move || Ok(empty()), options);
            self.contestants.push(Box::new(local));
        }
        self
    }

    /// Adds the stores on the local disk that were asked for.
    pub(crate) fn by_bytes(mut self, table: fn() -> Table<ByBytes>) -> Self {
        for store in [Store::Fjall, Store::Redb] {
            if store.is_asked(&self.settings.peers) {
                let options = move || Ok(store.options(Budget::default()));
                let inputs = self.inputs.clone();
                let open = move || ByBytes::open(store);
                let local = Local::new(store.to_string(), inputs, table(), open, options);
                self.contestants.push(Box::new(local));
            }
        }
        self
    }

    /// Adds the raw `rocksdb` crate as the limit of the backend above it.
    #[cfg(feature = "rocks")]
    pub(crate) fn raw_rocksdb(
        mut self,
        table: fn() -> Table<RawRocksdb>,
        layout: crate::peers::rocksdb::Layout,
    ) -> Self {
        if self.settings.peers.contains(&Peer::Rocksdb) {
            let options = || Ok("the options of weir rocks; keys of fixed width".into());
            let inputs = self.inputs.clone();
            let open = move || RawRocksdb::open(layout);
            let local = Local::new("rocksdb crate".into(), inputs, table(), open, options);
            self.contestants.push(Box::new(local));
        }
        self
    }

    /// Adds Flink's backends that were asked for.
    pub(crate) fn flink(mut self, key_groups: u16) -> Self {
        if let Some(install) = &self.settings.flink {
            for &backend in &self.settings.flink_backends {
                let peer = FlinkPeer {
                    install: install.clone(),
                    backend,
                    keys: self.inputs.keys(),
                    key_groups,
                };
                self.contestants.push(Box::new(FlinkProcess::new(peer)));
            }
        }
        self
    }

    /// What a round's time of an operation is divided by, if the family has that operation.
    pub(crate) fn counted(&self, operation: &str) -> Option<u64> {
        Some(self.rows.iter().find(|row| row.name == operation)?.counted)
    }

    fn note_rows<S>(&mut self, table: &Table<S>) {
        let calls = (table.calls)(self.inputs) as u64;
        if self.rows.is_empty() {
            self.rows = (table.operations.iter())
                .map(|operation| Row {
                    name: operation.name,
                    counted: calls * operation.entries,
                    writes: operation.writes,
                })
                .collect();
        }
    }
}
