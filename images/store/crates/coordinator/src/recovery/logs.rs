//! Logs of dead servers that nobody needs any more.

use std::collections::BTreeSet;

use base::ids::ServerId;
use wire::member::{Logs, ToShard, coordinator};

use crate::CoordinatorEffects;
use crate::recovery::Recoveries;
use crate::store::Store;

impl Recoveries {
    /// Tells all backups which of these logs nobody needs any more.
    pub(crate) fn forget_logs(
        &mut self,
        store: &Store,
        mut logs: Vec<ServerId>,
        out: &mut impl CoordinatorEffects,
    ) {
        if logs.is_empty() {
            return;
        }
        let needed = needed_logs(store);
        logs.retain(|log| !needed.contains(log));
        for log in &logs {
            self.dead.remove(log);
        }
        let connections: Vec<u64> = store.members.linked_backups().map(|(_, on)| on).collect();
        for connection in connections {
            send_forget_logs(connection, &logs, out);
        }
    }
}

/// Whether a log may be asked for: its server lives, or tablets have content there.
fn needed_logs(store: &Store) -> BTreeSet<ServerId> {
    let sources = store
        .tables
        .tablets()
        .flat_map(|(_, tablet)| &tablet.sources);
    let living = store.members.servers().map(|server| server.id);
    sources.map(|source| source.log).chain(living).collect()
}

/// Recoveries that brought tablets to this server and whose sources are still needed.
pub(crate) fn committed(store: &Store, index: u32) -> Vec<u64> {
    let owned = store.tables.owned_by(&BTreeSet::from([index]));
    let last = owned.filter_map(|(_, tablet)| tablet.sources.last());
    let ids: BTreeSet<u64> = last.map(|source| source.recovery_id).collect();
    ids.into_iter().filter(|&id| id != 0).collect()
}

fn send_forget_logs(connection: u64, logs: &[ServerId], out: &mut impl CoordinatorEffects) {
    if logs.is_empty() {
        return;
    }
    let logs = logs.iter().map(|log| log.0).collect();
    let kind = coordinator::Kind::ForgetLogs(Logs { logs });
    out.send_member(connection, ToShard::from(kind));
}

/// A backup came with replicas of these logs.
pub(crate) fn forget_at(
    store: &Store,
    connection: u64,
    held: &[u64],
    out: &mut impl CoordinatorEffects,
) {
    let needed = needed_logs(store);
    let held = held.iter().map(|&log| ServerId(log));
    let logs: Vec<ServerId> = held.filter(|log| !needed.contains(log)).collect();
    send_forget_logs(connection, &logs, out);
}
