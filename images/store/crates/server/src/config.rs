//! What a server is told when it is made.

use backup::Durability;
use wire::format::Formats;

/// Sizes and promises of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub master: master::Config,
    /// `None`: the server keeps no copies for others.
    pub backup: Option<BackupConfig>,
    /// It takes no tablets. There is a master all the same, a small one without replicas: it is what members of the store talk to.
    pub backup_only: bool,
}

/// What is known of a backup before its server is in a cluster; see [`backup::Config`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupConfig {
    /// The largest segment that it takes.
    pub segment_bytes: u32,
    pub frame_count: u32,
    pub durability: Durability,
    pub boot_id: [u8; 16],
}

impl BackupConfig {
    /// As many frames as each backup of a store needs all of whose servers have this master; docs/replication.md, "How many frames".
    pub fn frames_needed(master: &master::Config) -> u32 {
        let replicas = master.replication.map_or(0, |wanted| wanted.replicas);
        // Others like this one put so many here; and as many stay, when all processes have ended at once, until all logs were brought back.
        let logs = (2 * u32::from(replicas)).max(1);
        master.log().max_frames().saturating_mul(logs)
    }

    pub(crate) fn in_cluster(
        &self,
        cluster_id: u64,
        formats: Formats,
        format: u32,
    ) -> backup::Config {
        backup::Config {
            cluster_id,
            segment_bytes: self.segment_bytes,
            frame_count: self.frame_count,
            durability: self.durability,
            boot_id: self.boot_id,
            formats,
            format,
        }
    }
}
