//! Events of a backup that belong in the log of its process. Nothing is decided here.

use core::fmt;

use base::ids::ServerId;
use base::level::Level;
use wire::entry::EntryError;
use wire::peer::ReplicaId;

use crate::disk::StorageError;
use crate::layout::MAX_FENCES;
use crate::record::Damage;

/// Given to [`crate::BackupEffects::report`]; [`fmt::Display`] writes the line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupEvent {
    /// The storage has more frames than are asked for, and keeps them.
    FramesKept {
        found: u32,
        wanted: u32,
    },
    /// The storage has fewer frames than are asked for, and has no room for more.
    CannotGrow {
        found: u32,
        wanted: u32,
        error: StorageError,
    },
    Grown {
        found: u32,
        wanted: u32,
    },
    FrameUnreadable {
        frame: u32,
        error: StorageError,
    },
    HeaderDamaged {
        frame: u32,
    },
    ReplicaDamaged {
        frame: u32,
        replica: ReplicaId,
        damage: Damage,
    },
    /// A recovery has asked for entries from a place where none begins.
    NoEntryAt {
        frame: u32,
        replica: ReplicaId,
        offset: u32,
        error: EntryError,
    },
    Retired {
        error: StorageError,
    },
    /// The storage completes nothing.
    Stalled(Stall),
    /// It does again.
    GoesOn,
    /// The fence of a log cannot be made durable.
    FenceNotWritten {
        log: ServerId,
        error: StorageError,
    },
    /// The replicas of a log that is being recovered cannot be made durable.
    LogNotSynced {
        log: ServerId,
        error: StorageError,
    },
    TooManyFences {
        log: ServerId,
    },
    TooManyRecoveries {
        log: ServerId,
    },
}

/// The operation that the storage takes too long for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    Write,
    Sync,
    Job,
}

impl Stall {
    pub fn text(self) -> &'static str {
        match self {
            Stall::Write => "a write has taken more than 1 s, and is not over",
            Stall::Sync => "a sync has taken more than 3 s, and is not over",
            Stall::Job => "a read has taken more than 1 s, and is not over",
        }
    }
}

impl BackupEvent {
    pub fn level(&self) -> Level {
        match self {
            BackupEvent::FrameUnreadable { .. }
            | BackupEvent::HeaderDamaged { .. }
            | BackupEvent::ReplicaDamaged { .. }
            | BackupEvent::NoEntryAt { .. }
            | BackupEvent::Retired { .. }
            | BackupEvent::FenceNotWritten { .. }
            | BackupEvent::LogNotSynced { .. }
            | BackupEvent::TooManyFences { .. } => Level::Error,
            BackupEvent::CannotGrow { .. }
            | BackupEvent::Stalled(_)
            | BackupEvent::TooManyRecoveries { .. } => Level::Warning,
            BackupEvent::FramesKept { .. } | BackupEvent::Grown { .. } | BackupEvent::GoesOn => {
                Level::Notice
            }
        }
    }
}

impl fmt::Display for BackupEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("backup: ")?;
        match self {
            BackupEvent::FramesKept { found, wanted } => write!(
                f,
                "the storage keeps its {found} frames, though only {wanted} are asked for; to have fewer, start with an empty storage once the \
                 other backups hold all replicas"
            ),
            BackupEvent::CannotGrow {
                found,
                wanted,
                error,
            } => write!(
                f,
                "the storage keeps its {found} frames, though {wanted} are asked for, because it cannot grow: {error}; give it more room and \
                 restart this server"
            ),
            BackupEvent::Grown { found, wanted } => write!(
                f,
                "the storage has {wanted} frames from now on; it had {found}"
            ),
            BackupEvent::FrameUnreadable { frame, error } => write!(
                f,
                "frame {frame} is out of use, its header cannot be read: {error}"
            ),
            BackupEvent::HeaderDamaged { frame } => write!(
                f,
                "frame {frame} has a damaged header: if it held a replica, that is lost here"
            ),
            BackupEvent::ReplicaDamaged {
                frame,
                replica,
                damage,
            } => write!(f, "frame {frame}: {replica} {damage}"),
            BackupEvent::NoEntryAt {
                frame,
                replica,
                offset,
                error,
            } => write!(
                f,
                "frame {frame}: {replica} has no entry at offset {offset}, from where one was asked for: {error}"
            ),
            BackupEvent::Retired { error } => write!(
                f,
                "the storage has failed, nothing new is accepted and what it holds is copied elsewhere; \
                 replace it and restart this server: {error}"
            ),
            BackupEvent::Stalled(stall) => write!(
                f,
                "the storage has stopped: {}; the copies that it was to take go to other servers; see that its device works",
                stall.text()
            ),
            BackupEvent::GoesOn => f.write_str("the storage goes on"),
            BackupEvent::FenceNotWritten { log, error } => write!(
                f,
                "the storage cannot note that {log} is being recovered, so nothing of it is given out \
                 until it is asked for again: {error}"
            ),
            BackupEvent::LogNotSynced { log, error } => write!(
                f,
                "the storage cannot sync what it holds of {log}, which is being recovered, so nothing of it is given out \
                 until it is asked for again: {error}"
            ),
            BackupEvent::TooManyFences { log } => write!(
                f,
                "{log} cannot be recovered from here: {MAX_FENCES} server indexes have been recovered already, \
                 and a storage notes no more; empty this backup's storage once the others hold all replicas"
            ),
            BackupEvent::TooManyRecoveries { log } => write!(
                f,
                "too many recoveries at once, that of {log} must ask again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// People and tests of whole stores look for these lines.
    #[test]
    fn lines_say_that_they_are_a_backups_and_what_to_do() {
        let error = StorageError("no space left on device".to_owned());
        let cases = [
            (
                BackupEvent::Grown {
                    found: 2,
                    wanted: 4,
                },
                Level::Notice,
                "backup: the storage has 4 frames from now on; it had 2",
            ),
            (
                BackupEvent::ReplicaDamaged {
                    frame: 3,
                    replica: ReplicaId {
                        log: ServerId::new(1, 1),
                        segment_id: 7,
                    },
                    damage: Damage::Rotten,
                },
                Level::Error,
                "backup: frame 3: segment 7 of 1.1 does not have its checksum",
            ),
            (
                BackupEvent::Retired { error },
                Level::Error,
                "backup: the storage has failed, nothing new is accepted and what it holds is copied elsewhere; replace it and restart this \
                 server: no space left on device",
            ),
        ];
        for (event, level, line) in cases {
            assert_eq!((event.level(), event.to_string().as_str()), (level, line));
        }
    }
}
