//! Clients that have asked for a migration and wait for its end.

use wire::ids::ReplyTo;

/// Clients that wait; more are told to come again.
pub(crate) const MAX_WAITING: usize = 16;

/// Clients that wait for the end of a migration.
#[derive(Default)]
pub(crate) struct Wanted {
    pub waiting: Vec<(u64, ReplyTo)>,
    pub last_sequence: u64,
}
