//! How it stands with a backup's storage, which belongs to one cluster for ever.

use backup::{Backup, Storage};

use crate::config::BackupConfig;

pub(crate) enum Stage<S> {
    /// The server has no backup.
    Absent,
    /// No coordinator has let the server in yet.
    Waiting(BackupConfig),
    Opening {
        cluster_id: u64,
    },
    Open(Box<Backup<S>>),
}

impl<S: Storage> Stage<S> {
    pub fn backup(&self) -> Option<&Backup<S>> {
        match self {
            Stage::Open(backup) => Some(backup),
            _ => None,
        }
    }

    pub fn backup_mut(&mut self) -> Option<&mut Backup<S>> {
        match self {
            Stage::Open(backup) => Some(backup),
            _ => None,
        }
    }

    pub fn is_opening(&self) -> bool {
        matches!(self, Stage::Opening { .. })
    }

    /// The cluster that the storage is used for.
    pub fn cluster_id(&self) -> Option<u64> {
        match self {
            Stage::Absent | Stage::Waiting(_) => None,
            Stage::Opening { cluster_id } => Some(*cluster_id),
            Stage::Open(backup) => Some(backup.config().cluster_id),
        }
    }
}
