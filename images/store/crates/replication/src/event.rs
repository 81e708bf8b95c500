//! Events of a log's replication that belong in the log of its process. Nothing is decided here.

use core::fmt;

use base::ids::ServerId;
use base::level::Level;

use crate::request::Request;

/// Given to [`crate::ReplicationEffects::report`]; [`fmt::Display`] writes the line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicationEvent {
    /// A backup cannot hold a segment of this log.
    FramesTooSmall {
        backup: ServerId,
        host: String,
        frame_bytes: u32,
        segment_bytes: u32,
    },
    BackupRetired {
        backup: ServerId,
        host: String,
    },
    /// An answer came that belongs to no request.
    UnknownAnswer {
        backup: ServerId,
    },
    /// A backup refuses this server, because its log is being recovered.
    Deposed,
    /// Another server has written segments under this server's id.
    IdGivenOutTwice {
        backup: ServerId,
    },
    /// A backup does not hold a replica any more that it held before.
    ReplicaGone {
        backup: ServerId,
        segment_id: u64,
    },
    /// A backup refuses a request because its data is not what was sent.
    Mismatch {
        backup: ServerId,
        request: Request,
    },
    /// Writes wait for a free frame.
    BackupsFull {
        full: usize,
        known: usize,
    },
}

impl ReplicationEvent {
    pub fn level(&self) -> Level {
        match self {
            ReplicationEvent::Deposed
            | ReplicationEvent::IdGivenOutTwice { .. }
            | ReplicationEvent::Mismatch { .. }
            | ReplicationEvent::BackupsFull { .. } => Level::Error,
            ReplicationEvent::FramesTooSmall { .. }
            | ReplicationEvent::BackupRetired { .. }
            | ReplicationEvent::UnknownAnswer { .. }
            | ReplicationEvent::ReplicaGone { .. } => Level::Warning,
        }
    }
}

impl fmt::Display for ReplicationEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplicationEvent::FramesTooSmall {
                backup,
                host,
                frame_bytes,
                segment_bytes,
            } => write!(
                f,
                "backup {backup} on {host} has frames of {frame_bytes} bytes, and gets no replicas of this log's segments of {segment_bytes} bytes: \
                 to use it, start its server with larger segments and an empty storage"
            ),
            ReplicationEvent::BackupRetired { backup, host } => write!(
                f,
                "backup {backup} on {host} has retired, and its replicas are made again elsewhere: replace its storage and restart its \
                 server"
            ),
            ReplicationEvent::UnknownAnswer { backup } => {
                write!(f, "backup {backup} has answered what it was not asked")
            }
            ReplicationEvent::Deposed => {
                f.write_str("this server's log is being recovered by others: it serves no more")
            }
            ReplicationEvent::IdGivenOutTwice { backup } => write!(
                f,
                "backup {backup} holds segments that another server has written under the id of this one, which was given out twice: the \
                 coordinator's state was put back to an older one; this server ends, and is to be started again"
            ),
            ReplicationEvent::ReplicaGone { backup, segment_id } => write!(
                f,
                "backup {backup} does not hold segment {segment_id} any more as it did"
            ),
            // An honest backup never answers like this. The replica is made again elsewhere, so the text says what to do.
            ReplicationEvent::Mismatch { backup, request } => write!(
                f,
                "backup {backup} refused {request}: what it holds differs from what this server sent, or was damaged on the way; the replica is made again \
                 elsewhere; if this comes again, replace that server's disk or memory"
            ),
            ReplicationEvent::BackupsFull { full, known } => write!(
                f,
                "no backup takes this log's next segment: {full} of {known} that are known have no free frame, or a device that is late, and writes wait \
                 until one takes it; a late device is in that server's log and report; if there is none, give servers more room (a larger \
                 --segmentFrames or device, and a restart), or the store more servers"
            ),
        }
    }
}
