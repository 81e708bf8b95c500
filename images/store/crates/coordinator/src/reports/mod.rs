//! Events of a store that belong in the coordinator's log, and the reasons that they give. Nothing is decided here.

mod clients;
mod members;
mod migrations;
mod recoveries;
mod refusal;
mod restore;
mod state;
mod tables;

use core::fmt;

use base::level::Level;

pub use crate::table_limit::TableLimit;
pub use clients::ClientEvent;
pub use members::{ForeignVolume, MemberEvent};
pub use migrations::MigrationEvent;
pub use recoveries::RecoveryEvent;
pub use refusal::Refusal;
pub use restore::{CheckpointError, RestoreError};
pub use state::{CheckpointId, StateEvent};
pub use tables::TableEvent;

/// Given to [`crate::CoordinatorEffects::report`]; [`fmt::Display`] writes the line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorEvent {
    Member(MemberEvent),
    Table(TableEvent),
    Recovery(RecoveryEvent),
    Migration(MigrationEvent),
    State(StateEvent),
    Client(ClientEvent),
}

impl CoordinatorEvent {
    pub fn level(&self) -> Level {
        match self {
            CoordinatorEvent::Member(event) => event.level(),
            CoordinatorEvent::Table(event) => event.level(),
            CoordinatorEvent::Recovery(event) => event.level(),
            CoordinatorEvent::Migration(event) => event.level(),
            CoordinatorEvent::State(event) => event.level(),
            CoordinatorEvent::Client(event) => event.level(),
        }
    }
}

impl fmt::Display for CoordinatorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoordinatorEvent::Member(event) => event.fmt(f),
            CoordinatorEvent::Table(event) => event.fmt(f),
            CoordinatorEvent::Recovery(event) => event.fmt(f),
            CoordinatorEvent::Migration(event) => event.fmt(f),
            CoordinatorEvent::State(event) => event.fmt(f),
            CoordinatorEvent::Client(event) => event.fmt(f),
        }
    }
}

impl From<MemberEvent> for CoordinatorEvent {
    fn from(event: MemberEvent) -> CoordinatorEvent {
        CoordinatorEvent::Member(event)
    }
}

impl From<TableEvent> for CoordinatorEvent {
    fn from(event: TableEvent) -> CoordinatorEvent {
        CoordinatorEvent::Table(event)
    }
}

impl From<RecoveryEvent> for CoordinatorEvent {
    fn from(event: RecoveryEvent) -> CoordinatorEvent {
        CoordinatorEvent::Recovery(event)
    }
}

impl From<MigrationEvent> for CoordinatorEvent {
    fn from(event: MigrationEvent) -> CoordinatorEvent {
        CoordinatorEvent::Migration(event)
    }
}

impl From<StateEvent> for CoordinatorEvent {
    fn from(event: StateEvent) -> CoordinatorEvent {
        CoordinatorEvent::State(event)
    }
}

impl From<ClientEvent> for CoordinatorEvent {
    fn from(event: ClientEvent) -> CoordinatorEvent {
        CoordinatorEvent::Client(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// People and tests of whole stores look for these lines.
    #[test]
    fn lines_are_put_together_as_people_know_them() {
        let checkpoint = CheckpointId {
            cluster_id: 0xc1,
            term: 3,
            number: 9,
        };
        let lost = |objects| RecoveryEvent::TabletsLost {
            member: "m1".to_owned(),
            objects,
            tablet_count: 2,
        };
        let made_again = |without: &[&str]| StateEvent::MadeAgain {
            checkpoint,
            without: without.iter().map(|&name| name.to_owned()).collect(),
        };
        let cases: [(CoordinatorEvent, Level, &str); 5] = [
            (
                lost(Some(30)).into(),
                Level::Error,
                "member \"m1\" has a new process: the 30 objects in 2 tablets that the one before held are lost",
            ),
            (
                lost(None).into(),
                Level::Error,
                "member \"m1\" has a new process: all objects (nobody knows how many) in 2 tablets that the one before held are lost",
            ),
            (
                made_again(&[]).into(),
                Level::Warning,
                "the store is made again from checkpoint number 9 of term 3 of store 00000000000000c1: what was noted after it is not known, all \
                 processes of before count as dead, and what they held is recovered",
            ),
            (
                made_again(&["m3", "m4"]).into(),
                Level::Warning,
                "the store is made again from checkpoint number 9 of term 3 of store 00000000000000c1, without the volumes of m3, m4: what was noted \
                 after it is not known, all processes of before count as dead, and what they held is recovered",
            ),
            (
                MemberEvent::Drained {
                    member: "m1".to_owned(),
                }
                .into(),
                Level::Notice,
                "member \"m1\" is drained: what it has goes to others",
            ),
        ];
        for (event, level, line) in cases {
            assert_eq!((event.level(), event.to_string().as_str()), (level, line));
        }
    }
}
