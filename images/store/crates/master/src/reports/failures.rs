//! Why a recovery or a migration ends without its tablets.

use core::fmt;

use base::ids::{ServerId, TableId};
use wire::entry::EntryError;
use wire::peer::{MAX_FILTER_TABLETS, Malformed, ReplicaId, Status};

/// The memory that has no room for a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoomHere {
    Log,
    /// Cleaning it has not helped in time.
    LogForLong,
    /// The hash table, or the results of clients' requests.
    Tables,
}

impl fmt::Display for NoRoomHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            NoRoomHere::Log => "the log is full",
            NoRoomHere::LogForLong => "the log stays full",
            NoRoomHere::Tables => "the hash table, or what is remembered of clients, is full",
        };
        write!(
            f,
            "no room here for what is replayed: {what}; give servers more memory or the store more servers"
        )
    }
}

/// Why tablets of an order cannot be brought here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    NoRanges,
    /// A tablet of this table overlaps one that is here, or on its way.
    Taken {
        table_id: TableId,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conflict::NoRanges => f.write_str("the tablets of the order overlap, or are no ranges"),
            Conflict::Taken { table_id } => write!(
                f,
                "a tablet of table {table_id} overlaps one that this server has, or brings back already"
            ),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryError {
    /// As many recoveries as there may be at a time are under way.
    Busy {
        recoveries: usize,
    },
    TabletCount {
        tablets: usize,
    },
    Conflict(Conflict),
    /// No backup is left to read a replica from; what each had to say.
    Unreadable {
        replica: ReplicaId,
        tried: Vec<(ServerId, SourceError)>,
    },
    NoRoom(NoRoomHere),
}

impl RecoveryError {
    /// Another server may have the room that this one lacks.
    pub fn is_full(&self) -> bool {
        match self {
            RecoveryError::NoRoom(_) => true,
            RecoveryError::Busy { .. }
            | RecoveryError::TabletCount { .. }
            | RecoveryError::Conflict(_)
            | RecoveryError::Unreadable { .. } => false,
        }
    }
}

impl From<Conflict> for RecoveryError {
    fn from(conflict: Conflict) -> RecoveryError {
        RecoveryError::Conflict(conflict)
    }
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::Busy { recoveries } => write!(
                f,
                "this server is busy with {recoveries} recoveries already"
            ),
            RecoveryError::TabletCount { tablets } => write!(
                f,
                "{tablets} tablets cannot be recovered at once: give orders for 1 to {MAX_FILTER_TABLETS}"
            ),
            RecoveryError::Conflict(conflict) => conflict.fmt(f),
            RecoveryError::Unreadable { replica, tried } => {
                write!(f, "{replica} cannot be read")?;
                if tried.is_empty() {
                    f.write_str(": no backup was named that has it")?;
                }
                for (at, (backup, error)) in tried.iter().enumerate() {
                    let before = if at == 0 { ": " } else { "; " };
                    write!(f, "{before}backup {backup} {error}")?;
                }
                Ok(())
            }
            RecoveryError::NoRoom(what) => what.fmt(f),
        }
    }
}

impl core::error::Error for RecoveryError {}

/// Why a backup is not read from any further: the end of a sentence that begins with the backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceError {
    Disconnected,
    /// The coordinator does not name it any more.
    Down,
    /// The coordinator has never named it.
    NotNamed,
    Late,
    Malformed,
    Missing,
    Damaged,
    Retired,
    /// A status that no read has.
    OddStatus,
    TooLong {
        found_bytes: u32,
    },
    NotAsked,
    GivesNothing {
        beyond: u32,
        bytes: u32,
    },
    OtherSegment {
        segment_id: u64,
        log: ServerId,
    },
    NoHeader(EntryError),
    DamagedEntry(EntryError),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceError::Disconnected => f.write_str("has lost the connection"),
            SourceError::Down => f.write_str("is down, as the coordinator says"),
            SourceError::NotNamed => {
                f.write_str("is not among the backups that the coordinator named")
            }
            SourceError::Late => f.write_str("did not answer in time"),
            SourceError::Malformed => f.write_str("sent an answer that cannot be read"),
            SourceError::Missing => f.write_str("does not have it"),
            SourceError::Damaged => f.write_str("has found its replica damaged"),
            SourceError::Retired => {
                f.write_str("has a storage that has failed, and cannot read it")
            }
            SourceError::OddStatus => f.write_str("answers with a status that is none of a read"),
            SourceError::TooLong { found_bytes } => write!(
                f,
                "has a replica of more than the {found_bytes} bytes that were found"
            ),
            SourceError::NotAsked => f.write_str("answers what was not asked"),
            SourceError::GivesNothing { beyond, bytes } => {
                write!(f, "gives nothing beyond {beyond} of {bytes} bytes")
            }
            SourceError::OtherSegment { segment_id, log } => {
                write!(f, "gives out segment {segment_id} of {log} instead")
            }
            SourceError::NoHeader(error) => write!(
                f,
                "gives out what does not start with a segment's header: {error}"
            ),
            SourceError::DamagedEntry(error) => {
                write!(f, "gives out an entry that is damaged: {error}")
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationError {
    /// Of the target.
    TakesInAnother,
    /// Of the source.
    GivesOutAnother,
    NotOwned,
    Conflict(Conflict),
    NotFrozen,
    Split,
    /// Of the source, whose log cannot keep what was written meanwhile.
    SourceFull,
    Malformed(Malformed),
    SourceGaveUp,
    SourceRefuses(Status),
    DamagedEntry(EntryError),
    SourceSilent,
    NotDurable,
    NoRoom(NoRoomHere),
}

impl MigrationError {
    /// Memory is what is missing.
    pub fn is_full(&self) -> bool {
        match self {
            MigrationError::SourceFull | MigrationError::NoRoom(_) => true,
            MigrationError::TakesInAnother
            | MigrationError::GivesOutAnother
            | MigrationError::NotOwned
            | MigrationError::Conflict(_)
            | MigrationError::NotFrozen
            | MigrationError::Split
            | MigrationError::Malformed(_)
            | MigrationError::SourceGaveUp
            | MigrationError::SourceRefuses(_)
            | MigrationError::DamagedEntry(_)
            | MigrationError::SourceSilent
            | MigrationError::NotDurable => false,
        }
    }
}

impl From<Conflict> for MigrationError {
    fn from(conflict: Conflict) -> MigrationError {
        MigrationError::Conflict(conflict)
    }
}

impl fmt::Display for MigrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MigrationError::TakesInAnother => {
                f.write_str("this server is taking in another tablet already")
            }
            MigrationError::GivesOutAnother => {
                f.write_str("this server is giving out another tablet already")
            }
            MigrationError::NotOwned => f.write_str("this server does not have the tablet"),
            MigrationError::Conflict(conflict) => conflict.fmt(f),
            MigrationError::NotFrozen => {
                f.write_str("the tablet is not frozen at its source, or not any more")
            }
            MigrationError::Split => f.write_str("its tablet was split"),
            MigrationError::SourceFull => f.write_str(
                "memory is full at the source, and what was written since it began cannot be kept",
            ),
            MigrationError::Malformed(error) => {
                write!(f, "the source sent an answer that cannot be read: {error}")
            }
            MigrationError::SourceGaveUp => f.write_str("the source has given it up"),
            MigrationError::SourceRefuses(status) => {
                write!(f, "the source refuses to go on ({status:?})")
            }
            MigrationError::DamagedEntry(error) => {
                write!(f, "the source gives out an entry that is damaged: {error}")
            }
            MigrationError::SourceSilent => {
                f.write_str("the source cannot be reached, or knows nothing of it")
            }
            MigrationError::NotDurable => {
                f.write_str("what was read did not get its copies in time")
            }
            MigrationError::NoRoom(what) => what.fmt(f),
        }
    }
}

impl core::error::Error for MigrationError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_named_with_each_backups_reason() {
        let replica = ReplicaId {
            log: ServerId::new(1, 0),
            segment_id: 5,
        };
        let of = |tried| RecoveryError::Unreadable { replica, tried };
        assert_eq!(
            of(Vec::new()).to_string(),
            "segment 5 of 1.0 cannot be read: no backup was named that has it"
        );
        let gives_nothing = SourceError::GivesNothing {
            beyond: 0,
            bytes: 80,
        };
        let tried = vec![
            (ServerId::new(2, 0), SourceError::Late),
            (ServerId::new(3, 0), gives_nothing),
        ];
        assert_eq!(
            of(tried).to_string(),
            "segment 5 of 1.0 cannot be read: backup 2.0 did not answer in time; backup 3.0 gives nothing beyond 0 of 80 bytes"
        );
    }

    #[test]
    fn only_want_of_memory_is_full() {
        let recoveries = [
            RecoveryError::NoRoom(NoRoomHere::Tables),
            RecoveryError::Busy { recoveries: 8 },
        ];
        assert_eq!(recoveries.map(|error| error.is_full()), [true, false]);
        let migrations = [
            MigrationError::NoRoom(NoRoomHere::Log),
            MigrationError::SourceFull,
            MigrationError::SourceSilent,
        ];
        assert_eq!(migrations.map(|error| error.is_full()), [true, true, false]);
    }
}
