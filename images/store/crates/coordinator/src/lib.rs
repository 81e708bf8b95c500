//! The coordinator: who is in the store, which tables there are, which server owns which part of them, and client leases.
//!
//! A state machine without I/O: a driver hands in what arrived, with the time, and carries out what [`CoordinatorEffects`] is told.
//! What must outlive the process comes out as pairs ([`Coordinator::take_changes`]), of which the next one is made
//! ([`Coordinator::restore`]); [`Coordinator::new`] is a new, empty store.

#![forbid(unsafe_code)]

mod admin;
#[cfg(test)]
mod alone;
mod balancing;
mod config;
mod directory;
mod effects;
mod events;
mod hindrance;
mod journaled;
pub mod leader;
mod liveness;
mod movement;
pub mod orders;
pub mod outbox;
mod pending;
mod position;
mod records;
mod recovery;
mod registry;
pub mod reports;
mod resource;
mod resources;
mod root;
pub mod sole;
pub mod state;
pub mod status;
mod store;
mod table_limit;

pub use balancing::{Balancing, Rules as BalancingRules};
pub use config::{Config, Limits};
pub use directory::leases::TERM_NS as LEASE_TERM_NS;
pub use effects::CoordinatorEffects;
pub use orders::{
    AcceptLossError, Acceptance, Drain, DrainError, Finalize, FinalizeError, GiveUpMigrationError,
    MigrateError, MigrationOrder, MigrationTarget, Removal, RemoveMemberError, SettingsError,
    SettingsOrder, SpecVersion, SplitOrder, SplitTableError, TableSplit, TabletTable,
};
pub use reports::{CoordinatorEvent, RestoreError};
pub use root::Coordinator;
pub use state::checkpoint;
