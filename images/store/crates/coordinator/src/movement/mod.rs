//! Tablets that move between living masters: by order, and so that servers have about as much each.

mod audit;
pub(crate) mod balance;
mod merges;
mod migration;
mod migrations;
mod rebalance;
mod resolve;
mod splits;
#[cfg(test)]
mod tests;
mod waiting;

use base::ids::ServerId;
use base::time::Time;
use wire::member::{TabletLoad, TabletRange};

use crate::CoordinatorEffects;
use crate::status::{self, Migration};
use crate::store::Store;
use balance::Balance;
use balance::loads::Load;
use migrations::Migrations;

pub(crate) use resolve::why_cannot_give;

/// All migrations, and what decides which there are.
#[derive(Debug, Default)]
pub(crate) struct Movement {
    migrations: Migrations,
    balance: Balance,
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

impl Movement {
    /// What a master tells of its tablets' loads.
    pub fn told(&mut self, now: Time, server: ServerId, loads: &[TabletLoad]) {
        self.balance.told(now, server, loads);
    }

    /// A server was let in: its loads count from zero.
    pub fn session_begins(&mut self, server: ServerId) {
        self.balance.session_begins(server);
    }

    /// The next look at who has how much is due.
    pub fn look_soon(&mut self) {
        self.balance.look_soon();
    }

    pub fn load_of(&self, tablet: &TabletRange) -> Option<&Load> {
        self.balance.load_of(tablet)
    }

    pub fn shown_balance(&self) -> status::Balance {
        self.balance.shown()
    }

    /// Migrations that have ended, some of them, those under way, and those that wait.
    pub fn shown(&self) -> impl Iterator<Item = &Migration> {
        self.migrations.shown().chain(self.balance.queue.shown())
    }

    /// Ends a migration, or takes one out that waits; whether there was such a one.
    pub fn give_up(
        &mut self,
        store: &Store,
        now: Time,
        migration_id: u64,
        why: &str,
        out: &mut impl CoordinatorEffects,
    ) -> bool {
        let Some(waiting) = self.balance.queue.take(migration_id) else {
            return self.end(store, now, migration_id, why, None, out);
        };
        self.end_waiting(store, now, waiting, why);
        true
    }
}
