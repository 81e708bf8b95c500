//! How a backup's storage is opened, and closed.

use backup::{Backup, OpenError, Storage};
use base::time::Time;

use super::Server;
use crate::effects::ServerEffects;
use crate::end::End;
use crate::stage::Stage;

impl<S: Storage> Server<S> {
    /// The server is in this cluster.
    pub(super) fn use_storage(&mut self, wanted: u64, out: &mut impl ServerEffects) {
        if let Some(found) = self.stage.cluster_id() {
            if found != wanted {
                self.end(End::Storage(OpenError::OtherCluster { found, wanted }));
            }
        } else if let Stage::Waiting(config) = &self.stage {
            let format = self.shard.format();
            let config = config.in_cluster(wanted, self.formats, format);
            self.stage = Stage::Opening { cluster_id: wanted };
            out.open_backup(config);
        }
    }

    /// The result of [`ServerEffects::open_backup`].
    pub fn backup_opened(&mut self, now: Time, opened: Result<Backup<S>, OpenError>) {
        assert!(
            matches!(self.stage, Stage::Opening { .. }),
            "a storage is opened once, when it is asked for"
        );
        match opened {
            Ok(mut backup) => {
                // It may be a newer one than when this was asked for.
                backup.activate(self.shard.format());
                self.stage = Stage::Open(Box::new(backup));
                self.report.begin(now);
            }
            Err(error) => self.end(End::Storage(error)),
        }
    }

    /// For a process that is told to end: makes all that the backup holds durable, and waits for that. The backup is gone afterwards.
    ///
    /// # Errors
    /// The storage has failed. What it holds is judged anew when it is opened again.
    pub fn close_in_order(&mut self) -> Result<(), backup::StorageError> {
        match std::mem::replace(&mut self.stage, Stage::Absent) {
            Stage::Open(backup) => backup.close_in_order().1,
            Stage::Absent | Stage::Waiting(_) | Stage::Opening { .. } => Ok(()),
        }
    }
}
