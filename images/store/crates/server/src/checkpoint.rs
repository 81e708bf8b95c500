//! How far this server is with a checkpoint of the coordinator's.

use wire::member::ReadCheckpoint;

/// What is under way.
#[derive(Default)]
pub(crate) struct Checkpoint {
    /// The number that the coordinator gave it, and what is here of it.
    pub coming: Option<(u64, Vec<u8>)>,
    /// Written and not safe yet: the coordinator's number, and the backup's.
    pub written: Option<(u64, u64)>,
    /// To be answered when the storage is open.
    pub asked: Option<ReadCheckpoint>,
    /// A checkpoint that is given out piece by piece, once it is read.
    pub read: Option<Vec<u8>>,
    /// The backup was asked to read it.
    pub is_reading: bool,
}

impl Checkpoint {
    /// The session has ended.
    pub fn forget(&mut self) {
        *self = Checkpoint::default();
    }
}
