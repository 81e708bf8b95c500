//! Events of recoveries, and of what is lost.

use core::fmt;

use base::ids::ServerId;
use base::level::Level;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryEvent {
    Began {
        server: ServerId,
        member: String,
        tablet_count: u64,
    },
    Waits {
        server: ServerId,
        /// The same text is in the status.
        why: String,
    },
    Ended {
        server: ServerId,
        objects: u64,
        bytes: u64,
        took_ms: u64,
        expected_ms: u64,
    },
    /// A process without replicas is dead, and another one has its place.
    TabletsLost {
        member: String,
        /// `None`: nobody knows how many.
        objects: Option<u64>,
        tablet_count: u64,
    },
    /// A recovery goes on without a part of the log.
    LossAccepted {
        server: ServerId,
        member: String,
        /// The same text is in the status.
        missing: String,
        tablet_count: u64,
    },
    /// Parts were given up of logs from which these tablets were not durable again.
    MayHaveLost { tablet_count: u64, missing: String },
}

impl RecoveryEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            RecoveryEvent::Waits { .. }
            | RecoveryEvent::TabletsLost { .. }
            | RecoveryEvent::LossAccepted { .. }
            | RecoveryEvent::MayHaveLost { .. } => Level::Error,
            RecoveryEvent::Began { .. } | RecoveryEvent::Ended { .. } => Level::Notice,
        }
    }
}

impl fmt::Display for RecoveryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryEvent::Began {
                server,
                member,
                tablet_count,
            } => write!(
                f,
                "recovering {tablet_count} tablets that server {server} of member {member:?} held"
            ),
            RecoveryEvent::Waits { server, why } => {
                write!(f, "the recovery of server {server} waits: {why}")
            }
            RecoveryEvent::Ended {
                server,
                objects,
                bytes,
                took_ms,
                expected_ms,
            } => write!(
                f,
                "recovered server {server}: {objects} objects, {} MiB of log, {took_ms} ms after its death was known ({expected_ms} ms \
                 expected)",
                bytes >> 20
            ),
            RecoveryEvent::TabletsLost {
                member,
                objects,
                tablet_count,
            } => {
                write!(f, "member {member:?} has a new process: ")?;
                match objects {
                    Some(objects) => write!(f, "the {objects} objects")?,
                    None => f.write_str("all objects (nobody knows how many)")?,
                }
                write!(
                    f,
                    " in {tablet_count} tablets that the one before held are lost"
                )
            }
            RecoveryEvent::LossAccepted {
                server,
                member,
                missing,
                tablet_count,
            } => write!(
                f,
                "accepted by an operator: the recovery of server {server} of member {member:?} goes on without what is missing {missing}; tablets that may have lost objects: {tablet_count}"
            ),
            RecoveryEvent::MayHaveLost {
                tablet_count,
                missing,
            } => write!(
                f,
                "{tablet_count} tablets may have lost objects: missing {missing}"
            ),
        }
    }
}
