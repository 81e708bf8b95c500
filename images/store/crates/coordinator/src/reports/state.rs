//! Events of the store's state, of its format and its settings, and of who leads.

use core::fmt;

use base::level::Level;
use wire::member::Settings;

use super::restore::CheckpointError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateEvent {
    /// This coordinator serves nobody from now on.
    DoesNotLead {
        /// The same text is sent to whoever asks.
        why: String,
    },
    /// The store is being made again from volumes, and this is waited for.
    Rebuilding {
        why: String,
    },
    MadeAgain {
        checkpoint: CheckpointId,
        /// Members whose volumes were not there.
        without: Vec<String>,
    },
    CheckpointUnusable {
        checkpoint: CheckpointId,
        error: CheckpointError,
    },
    /// A backup does not keep a checkpoint; its own text.
    CheckpointNotKept {
        server_index: u32,
        why: String,
    },
    /// More waits for the state to be noted than this process can hold.
    Overfull {
        /// The place where the state is noted.
        waits_for: &'static str,
    },
    SettingsChanged(Settings),
    FormatInForce {
        format: u32,
        former: u32,
    },
}

/// Which checkpoint of which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointId {
    pub cluster_id: u64,
    pub term: u64,
    pub number: u64,
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CheckpointId {
            cluster_id,
            term,
            number,
        } = self;
        write!(
            f,
            "number {number} of term {term} of store {cluster_id:016x}"
        )
    }
}

impl StateEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            StateEvent::DoesNotLead { .. }
            | StateEvent::CheckpointUnusable { .. }
            | StateEvent::Overfull { .. } => Level::Error,
            StateEvent::MadeAgain { .. } | StateEvent::CheckpointNotKept { .. } => Level::Warning,
            StateEvent::Rebuilding { .. }
            | StateEvent::SettingsChanged(_)
            | StateEvent::FormatInForce { .. } => Level::Notice,
        }
    }
}

impl fmt::Display for StateEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateEvent::DoesNotLead { why } => f.write_str(why),
            StateEvent::Rebuilding { why } => write!(f, "Rebuilding: {why}"),
            StateEvent::MadeAgain {
                checkpoint,
                without,
            } => {
                write!(f, "the store is made again from checkpoint {checkpoint}")?;
                if !without.is_empty() {
                    write!(f, ", without the volumes of {}", without.join(", "))?;
                }
                f.write_str(
                    ": what was noted after it is not known, all processes of before count as dead, and what they held is recovered",
                )
            }
            StateEvent::CheckpointUnusable { checkpoint, error } => {
                write!(f, "checkpoint {checkpoint}: {error}")
            }
            StateEvent::CheckpointNotKept { server_index, why } => write!(
                f,
                "the backup of the server with index {server_index} does not keep the checkpoint of the coordinator's state: {why}"
            ),
            StateEvent::Overfull { waits_for } => write!(
                f,
                "more waits for the state to be noted than this process can hold ({waits_for}): it is to start anew"
            ),
            StateEvent::SettingsChanged(settings) => {
                write!(f, "settings are changed: {settings:?}")
            }
            StateEvent::FormatInForce { format, former } => write!(
                f,
                "format {format} is in force from now on, in place of {former}: builds that do not read it have no part in this store any more"
            ),
        }
    }
}
