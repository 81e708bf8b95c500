//! Events of members, their servers and their backups.

use core::fmt;

use base::ids::ServerId;
use base::level::Level;

use super::refusal::Refusal;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEvent {
    Enlisted {
        server: ServerId,
        member: String,
        locator: String,
    },
    /// A process is not let in.
    ShardRefused {
        shard: u32,
        member: String,
        refusal: Refusal,
    },
    /// The same for its volume.
    VolumeRefused(ForeignVolume),
    /// A message came that no session has.
    OddMessage,
    /// Nothing was heard on a session for the silence time-out: it was closed.
    SessionSilent {
        server: ServerId,
        silent_ms: u128,
    },
    ServerDead {
        server: ServerId,
        member: String,
        suspected_ms: u128,
    },
    LowerFloor {
        server: ServerId,
    },
    Removed {
        member: String,
    },
    Drained {
        member: String,
    },
    Undrained {
        member: String,
    },
    /// A draining member gets no copies, even for want of others.
    LastResortEnded {
        member: String,
    },
    BackupRetired {
        server: ServerId,
        why: String,
    },
    /// A backup's storage completes nothing.
    StorageStopped {
        server: ServerId,
        why: String,
    },
    StorageGoesOn {
        server: ServerId,
    },
    /// No backup has a free frame.
    BackupsFull {
        frames: u64,
        backups: usize,
    },
}

/// A volume that belongs to another store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignVolume {
    pub member: String,
    /// The store that the volume belongs to.
    pub found: u64,
    pub own: u64,
}

impl MemberEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            MemberEvent::BackupRetired { .. } | MemberEvent::BackupsFull { .. } => Level::Error,
            MemberEvent::ShardRefused { .. }
            | MemberEvent::VolumeRefused(_)
            | MemberEvent::OddMessage
            | MemberEvent::SessionSilent { .. }
            | MemberEvent::ServerDead { .. }
            | MemberEvent::StorageStopped { .. }
            | MemberEvent::LowerFloor { .. } => Level::Warning,
            MemberEvent::Enlisted { .. }
            | MemberEvent::Removed { .. }
            | MemberEvent::Drained { .. }
            | MemberEvent::Undrained { .. }
            | MemberEvent::StorageGoesOn { .. }
            | MemberEvent::LastResortEnded { .. } => Level::Notice,
        }
    }
}

impl fmt::Display for MemberEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberEvent::Enlisted {
                server,
                member,
                locator,
            } => write!(
                f,
                "server {server} of member {member:?} enlisted at {locator}"
            ),
            MemberEvent::ShardRefused {
                shard,
                member,
                refusal,
            } => write!(f, "refused shard {shard} of member {member:?}: {refusal}"),
            MemberEvent::VolumeRefused(volume) => volume.fmt(f),
            MemberEvent::OddMessage => f.write_str(
                "closed a member connection: a second Hello, or a message of a kind that this build does not know",
            ),
            MemberEvent::SessionSilent { server, silent_ms } => write!(
                f,
                "server {server} was silent for {silent_ms} ms: closed its connection"
            ),
            MemberEvent::ServerDead {
                server,
                member,
                suspected_ms,
            } => write!(
                f,
                "server {server} of member {member:?} is dead: neither this coordinator nor its other servers reach it; suspected for \
                 {suspected_ms} ms"
            ),
            MemberEvent::LowerFloor { server } => write!(
                f,
                "server {server} asked for a lower open floor than it had"
            ),
            MemberEvent::Removed { member } => {
                write!(f, "member {member:?} was removed from the store")
            }
            MemberEvent::Drained { member } => write!(
                f,
                "member {member:?} is drained: what it has goes to others"
            ),
            MemberEvent::Undrained { member } => {
                write!(f, "member {member:?} is not drained any more")
            }
            MemberEvent::LastResortEnded { member } => write!(
                f,
                "member {member:?} gets no copies any more, whatever happens"
            ),
            MemberEvent::BackupRetired { server, why } => {
                write!(f, "the backup of server {server} has retired: {why}")
            }
            MemberEvent::StorageStopped { server, why } => write!(
                f,
                "the storage of the backup of server {server} has stopped: {why}"
            ),
            MemberEvent::StorageGoesOn { server } => {
                write!(f, "the storage of the backup of server {server} goes on")
            }
            MemberEvent::BackupsFull { frames, backups } => write!(
                f,
                "no backup has a free frame: all {frames} frames of {backups} backups are taken; writes wait, and what recoveries have brought back is \
                 not safe on disks of its own. Give servers more room (a larger --segmentFrames or device, and a restart), or the store more servers"
            ),
        }
    }
}

impl fmt::Display for ForeignVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ForeignVolume { member, found, own } = self;
        write!(
            f,
            "the volume of member {member:?} belongs to store {found:016x}, and this is store {own:016x}: it is left as it is. If that is the store that is meant \
             and its state is gone, stop this coordinator and start one with --rebuild on an empty state; if what it held is to be forgotten, give \
             the server an empty volume"
        )
    }
}
