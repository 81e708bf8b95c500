//! Tablets that move between living masters: by order, and so that servers have about as much each.

pub(crate) mod balance;
pub(crate) mod migration;
#[cfg(test)]
mod tests;

use balance::Balance;
use migration::Migrations;

/// All migrations, and what decides which there are.
#[derive(Debug, Default)]
pub(crate) struct Movement {
    pub migrations: Migrations,
    pub balance: Balance,
}

/// What others have said about moving tablets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Servers are to have about as much each.
    pub evens_out: bool,
    /// Of each migration that the coordinator begins by itself.
    pub bytes_per_second: u64,
    /// Recoveries under way.
    pub recoveries: usize,
}
