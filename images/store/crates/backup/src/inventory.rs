//! The inventory of a log: all that a backup tells a recovery about its replicas.

use core::fmt;

use base::ids::ServerId;
use wire::entry::EntryError;
use wire::peer::Role;

use crate::record::Damage;

/// What a backup holds of a log. Nothing of it changes any more, and no crash takes anything of it; of what was only buffered, the loss of power does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    pub log: ServerId,
    /// In the order of segment ids.
    pub replicas: Vec<ReplicaInfo>,
}

/// How far a replica has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Takes appends.
    Open,
    /// Complete.
    Closed,
}

impl State {
    pub(crate) fn of(closed: bool) -> State {
        if closed { State::Closed } else { State::Open }
    }
}

/// A replica as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaInfo {
    pub segment_id: u64,
    pub role: Role,
    pub state: State,
    /// Data that is here, and the CRC32C over all of it, for the reader to compare with what arrives.
    pub bytes: u32,
    pub crc: u32,
    /// Of an open head: the last digest in it, the ids of the segments that with it make up the log.
    pub digest: Vec<u64>,
    /// Why a recovery cannot use it. That of open replicas is known here; closed ones are looked at when they are
    /// read, and named here once they were found damaged.
    pub damage: Option<Flaw>,
}

/// What is wrong with a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// [`crate::Backup::read`] does not give it out.
    Damaged(Damage),
    /// It is as it was written, but no log wrote it, or that of another version.
    NoEntry { offset: u32, error: EntryError },
    /// It is as it was written, but does not say which segments make up the log, as every head does.
    NoDigest,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Damaged(damage) => damage.fmt(f),
            Flaw::NoEntry { offset, error } => {
                write!(f, "holds no log entry at offset {offset}: {error}")
            }
            Flaw::NoDigest => f.write_str("is a head without a digest"),
        }
    }
}
