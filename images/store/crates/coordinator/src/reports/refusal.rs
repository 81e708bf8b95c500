//! Why a shard is not let in.

use core::fmt;

use base::ids::ServerId;
use wire::format::Formats;
use wire::locator::LocatorError;
use wire::member::RefusedReason;

/// The text goes to the process that is not let in, and into the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A text of its Hello is empty.
    Empty {
        what: &'static str,
    },
    TooLong {
        what: &'static str,
        bytes: usize,
        most_bytes: usize,
    },
    OddShard {
        shard: u32,
        shards: u32,
        most_shards: u32,
    },
    OddLocator {
        locator: String,
        error: LocatorError,
    },
    /// The store has as many members as it may.
    MemberLimit {
        members: usize,
    },
    /// The same while the store is made again.
    MemberLimitOfRebuild {
        most: usize,
    },
    InstanceRemoved {
        member: String,
        instance: String,
    },
    MemberRemoved {
        member: String,
        held: ServerId,
    },
    OtherShardCount {
        member: String,
        before: usize,
        now: u32,
    },
    OtherServer {
        member: String,
        shard: u32,
        known: ServerId,
        held: ServerId,
    },
    DeclaredDead {
        member: String,
    },
    /// A newer process is the member's.
    Replaced {
        member: String,
        by_instance: String,
    },
    /// Another process is the member's, and is connected.
    NameTaken {
        member: String,
        by_instance: String,
    },
    IncarnationLimit {
        member: String,
        most: u32,
    },
    UnknownFormat {
        format: u32,
        member: String,
        build_version: String,
        known: Formats,
    },
}

impl Refusal {
    pub fn reason(&self) -> RefusedReason {
        match self {
            Refusal::Empty { .. }
            | Refusal::TooLong { .. }
            | Refusal::OddShard { .. }
            | Refusal::OddLocator { .. }
            | Refusal::MemberLimit { .. }
            | Refusal::MemberLimitOfRebuild { .. }
            | Refusal::OtherShardCount { .. }
            | Refusal::NameTaken { .. }
            | Refusal::IncarnationLimit { .. } => RefusedReason::Invalid,
            Refusal::InstanceRemoved { .. }
            | Refusal::MemberRemoved { .. }
            | Refusal::OtherServer { .. }
            | Refusal::DeclaredDead { .. }
            | Refusal::Replaced { .. } => RefusedReason::Superseded,
            Refusal::UnknownFormat { .. } => RefusedReason::Version,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Empty { what } => write!(f, "the {what} is empty"),
            Refusal::TooLong {
                what,
                bytes,
                most_bytes,
            } => write!(
                f,
                "the {what} is {bytes} bytes long; at most {most_bytes} are allowed"
            ),
            Refusal::OddShard {
                shard,
                shards,
                most_shards,
            } => write!(
                f,
                "shard {shard} of {shards} makes no sense: a member has 1 to {most_shards} shards, numbered from 0"
            ),
            Refusal::OddLocator { locator, error } => {
                write!(f, "the service locator {locator:?} is wrong: {error}")
            }
            Refusal::MemberLimit { members } => write!(
                f,
                "the store has {members} members, which is its limit; remove one first"
            ),
            Refusal::MemberLimitOfRebuild { most } => write!(
                f,
                "there are {most} members already, and a store has no more"
            ),
            Refusal::InstanceRemoved { member, instance } => write!(
                f,
                "member {member:?} was removed from the store; a process of instance {instance:?} is not let in again: end it"
            ),
            Refusal::MemberRemoved { member, held } => write!(
                f,
                "server {held} of member {member:?} was removed from the store; end this process"
            ),
            Refusal::OtherShardCount {
                member,
                before,
                now,
            } => write!(
                f,
                "this process of member {member:?} enlisted with {before} shards before, and says {now} now"
            ),
            Refusal::OtherServer {
                member,
                shard,
                known,
                held,
            } => write!(
                f,
                "shard {shard} of member {member:?} is server {known}, not {held}; restart this process"
            ),
            Refusal::DeclaredDead { member } => write!(
                f,
                "this process of member {member:?} did not answer and was declared dead; the store goes on without it: start it again"
            ),
            Refusal::Replaced {
                member,
                by_instance,
            } => write!(
                f,
                "a newer process (instance {by_instance:?}) has taken the place of this one as member {member:?}; end it, \
                 and give each running server its own --member"
            ),
            Refusal::NameTaken {
                member,
                by_instance,
            } => write!(
                f,
                "member {member:?} has a process that is connected (instance {by_instance:?}); if that one is dead, its connection \
                 ends by itself soon; if not, give each running server its own --member"
            ),
            Refusal::IncarnationLimit { member, most } => write!(
                f,
                "member {member:?} has had {most} incarnations, which is the limit; use another name"
            ),
            Refusal::UnknownFormat {
                format,
                member,
                build_version,
                known,
            } => {
                let what = if known.newest < *format {
                    "there is no way back to an older format: start a newer version of this server"
                } else {
                    "its members are to be upgraded to a version in between first, and that one finalized (rcbox upgrade finalize)"
                };
                write!(
                    f,
                    "the store is of format {format}, and version {build_version:?} of member {member:?} reads {known}: {what}"
                )
            }
        }
    }
}

impl core::error::Error for Refusal {}
