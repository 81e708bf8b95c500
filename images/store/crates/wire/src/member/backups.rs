//! Backups: what they say of themselves, what masters are told of them, and what of a log is on them.

use prost::Message;

/// What of a log is on backups that are being drained, as its master sees it.
#[derive(Clone, PartialEq, Message)]
pub struct OnDraining {
    /// [`Backups::number`] of the list that this takes into account; 0 before there was one in this session.
    #[prost(uint64, tag = "1")]
    pub list_number: u64,
    /// One for each backup of that list that is being drained.
    #[prost(message, repeated, tag = "2")]
    pub backups: Vec<CopiesAt>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CopiesAt {
    #[prost(fixed64, tag = "1")]
    pub backup: u64,
    /// Of the log that have a copy there that may still be needed.
    #[prost(uint64, tag = "2")]
    pub segments: u64,
}

/// Open replicas of the shard's log in head segments with a smaller id shall not count any more in a recovery. The coordinator notes it
/// durably and says so with the same message; floors only rise.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct OpenFloor {
    #[prost(uint64, tag = "1")]
    pub segment_id: u64,
}

/// This shard's backup has opened its storage. The first after each welcome makes masters use it; more follow when something changes.
#[derive(Clone, PartialEq, Message)]
pub struct BackupReport {
    /// Logs that it holds replicas of; filled in the first report of a session only.
    #[prost(fixed64, repeated, tag = "1")]
    pub logs: Vec<u64>,
    /// The largest segment that it takes.
    #[prost(uint32, tag = "2")]
    pub segment_bytes: u32,
    #[prost(uint32, tag = "3")]
    pub frames: u32,
    #[prost(uint32, tag = "4")]
    pub frames_free: u32,
    #[prost(uint32, tag = "5")]
    pub frames_damaged: u32,
    /// Why it takes nothing new any more; empty while all is well.
    #[prost(string, tag = "6")]
    pub retired: String,
    /// It keeps checkpoints of the coordinator's state; older builds do not know the message.
    #[prost(bool, tag = "7")]
    pub keeps_checkpoints: bool,
    /// The operation that its device takes too long for; empty while all is well.
    #[prost(string, tag = "8")]
    pub stalled: String,
}

/// All backups of the store; what is not in the list is lost. Follows every welcome if there are any, and every change.
#[derive(Clone, PartialEq, Message)]
pub struct Backups {
    #[prost(message, repeated, tag = "1")]
    pub backups: Vec<Backup>,
    /// Counts the lists of this coordinator.
    #[prost(uint64, tag = "2")]
    pub number: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Backup {
    #[prost(fixed64, tag = "1")]
    pub server_id: u64,
    #[prost(string, tag = "2")]
    pub host_id: String,
    #[prost(string, tag = "3")]
    pub domain: String,
    /// Where it listens for masters.
    #[prost(string, tag = "4")]
    pub locator: String,
    /// The largest segment that it takes.
    #[prost(uint32, tag = "5")]
    pub segment_bytes: u32,
    /// Its storage has failed: it takes nothing new, and gives out what can be read.
    #[prost(bool, tag = "6")]
    pub is_retired: bool,
    /// It is to leave the store: it gets no new replicas, and those that it has are copied elsewhere.
    #[prost(bool, tag = "7")]
    pub is_draining: bool,
    /// Though it is to leave it gets replicas of a log that has too few other backups. Not set any more once nobody seems to need it.
    #[prost(bool, tag = "8")]
    pub is_last_resort: bool,
}
