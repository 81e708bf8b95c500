//! Orders wait until the servers that they are about are free.

use core::time::Duration;
use std::collections::BTreeSet;

use base::time::Time;

use crate::CoordinatorEffects;
use crate::movement::Movement;
use crate::movement::balance::queue::Waiting;
use crate::movement::resolve::{tablet_to_migrate, target_of};
use crate::orders::{MigrateError, MigrationOrder, MigrationTarget, TabletTable};
use crate::status::Migration;
use crate::store::Store;

/// More are refused.
const MAX_WAITING: usize = 64;
/// A server that is not connected is waited for as long as this.
const AWAY_AT_MOST: Duration = Duration::from_secs(60);

impl Movement {
    /// An order that finds one of its servers busy waits behind those that came before it.
    pub(crate) fn let_wait(
        &mut self,
        store: &mut Store,
        now: Time,
        order: &MigrationOrder,
        why: String,
    ) -> Result<Migration, MigrateError> {
        let (tablet, source, table) = tablet_to_migrate(store, order)?;
        let target = target_of(store, &order.target)?;
        let queue = &self.balance.queue.0;
        let is_the_same = |one: &&Waiting| {
            one.shown.target_id == store.id_of(target).0
                && one.shown.table_id == tablet.table_id
                && one.shown.start_key_hash == tablet.start_key_hash
        };
        if let Some(one) = queue.iter().find(is_the_same) {
            return Ok(one.shown.clone());
        }
        if queue.len() >= MAX_WAITING {
            return Err(MigrateError::Busy(format!(
                "{why}; {MAX_WAITING} migrations wait already: try again when some of them have ended"
            )));
        }
        let mut shown = self.announce(store, now, &tablet, table, (source, target));
        shown.waits_for = why;
        // The order is about the same tablet later, whatever becomes of names.
        let order = MigrationOrder {
            table: TabletTable::Id(tablet.table_id),
            target: MigrationTarget::Server(store.id_of(target)),
            ..order.clone()
        };
        let waiting = Waiting {
            order,
            shown: shown.clone(),
            away_since: None,
        };
        self.balance.queue.0.push_back(waiting);
        Ok(shown)
    }

    /// Begins what has its servers free, in the order in which it came; nobody overtakes who waits for the same server.
    pub(crate) fn begin_waiting(
        &mut self,
        store: &Store,
        now: Time,
        out: &mut impl CoordinatorEffects,
    ) {
        let mut awaited = BTreeSet::new();
        for mut one in std::mem::take(&mut self.balance.queue.0) {
            let servers = [one.shown.source_id, one.shown.target_id];
            let is_behind = servers.iter().any(|server| awaited.contains(server));
            let found = self.find(store, &one.order);
            one.away_since = match found {
                Err(MigrateError::NotConnected { .. }) => one.away_since.or(Some(now)),
                _ => None,
            };
            let is_waited_for = one
                .away_since
                .is_none_or(|since| now.since(since) < AWAY_AT_MOST);
            match found {
                Ok((tablet, source, target)) => {
                    one.shown.source_id = store.id_of(source).0;
                    (one.shown.start_key_hash, one.shown.end_key_hash) =
                        (tablet.start_key_hash, tablet.end_key_hash);
                    one.shown.source_member = store.member_of(source);
                    if !is_behind {
                        one.shown.waits_for.clear();
                        one.shown.began_ns = store.cluster_time_ns(now);
                        let rate = one.order.bytes_per_second;
                        self.begin(store, tablet, (source, target), rate, one.shown, out);
                        continue;
                    }
                }
                Err(MigrateError::Busy(why)) => one.shown.waits_for = why,
                Err(error @ MigrateError::NotConnected { .. }) if is_waited_for => {
                    one.shown.waits_for = error.to_string();
                }
                Err(error) => {
                    self.end_waiting(store, now, one.shown, &error.to_string());
                    continue;
                }
            }
            awaited.extend([one.shown.source_id, one.shown.target_id]);
            self.balance.queue.0.push_back(one);
        }
    }

    pub(in crate::movement) fn end_waiting(
        &mut self,
        store: &Store,
        now: Time,
        mut shown: Migration,
        failure: &str,
    ) {
        shown.waits_for.clear();
        shown.ended_ns = store.cluster_time_ns(now).max(shown.began_ns + 1);
        shown.failure = failure.to_owned();
        self.migrations.end(shown);
    }
}
