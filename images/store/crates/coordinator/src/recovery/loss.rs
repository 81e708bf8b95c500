//! Losses: somebody gives up what no backup has any more; or a process ends whose log had no copies.
//!
//! A recovery that misses parts of a log waits for ever. Somebody who knows that these are gone says so, and repeats what the status showed to be missing
//! (its token). From then on the log *is* what was left of it at that moment: exactly these segments, of these lengths, noted durably, so that every
//! later recovery of the same log reads the same, even if a lost disk turns up again. docs/recovery.md, "When disks are gone for ever".

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;
use base::time::Time;

use crate::CoordinatorEffects;
use crate::directory::tables::{NOBODY, Tablet};
use crate::orders::AcceptLossError;
use crate::recovery::Recoveries;
use crate::recovery::dead::Left;
use crate::recovery::missing::{MissingLogs, describe, token};
use crate::registry::members::{Death, Server};
use crate::reports::RecoveryEvent;
use crate::status::{EventKind, Loss};
use crate::store::Store;

impl Recoveries {
    /// Lets a recovery go on without what is missing, if `token` repeats what the status showed of that.
    ///
    /// # Errors
    /// Nothing was accepted; the text says why, and what to do.
    pub(crate) fn accept_loss(
        &mut self,
        store: &mut Store,
        now: Time,
        server: ServerId,
        expected_token: &str,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Loss, AcceptLossError> {
        // Backups may have said more since the last look.
        self.look_at_once();
        self.look(store, now, out);
        let logs = self.take_missing(store, now, server, expected_token)?;
        let member = self.under_way[&server].member.clone();
        let missing = describe(&logs);
        let given_up: BTreeSet<ServerId> = logs.keys().copied().collect();
        for (log, missing) in logs {
            if let Some(dead) = self.dead.get_mut(&log) {
                dead.left = Some(Left {
                    segments: missing.left,
                    after_recovery: store.ledger.last_id,
                });
            }
        }
        store.ledger.leave_versions_out();
        let is_hit = |tablet: &Tablet| {
            let mut sources = tablet.sources.iter();
            tablet.owner == NOBODY && sources.any(|source| given_up.contains(&source.log))
        };
        let loss = loss_of(store, now, &member, &given_up, missing, is_hit);
        let event = RecoveryEvent::LossAccepted {
            server,
            member,
            missing: loss.missing.clone(),
            tablet_count: loss.tablet_count,
        };
        store.record_event(now, EventKind::LossAccepted, event.to_string());
        out.report(event.into());
        self.record_loss(store, loss.clone());
        self.look_at_once();
        Ok(loss)
    }

    /// Takes what a recovery misses out of what is shown, for somebody who has seen it.
    fn take_missing(
        &mut self,
        store: &Store,
        now: Time,
        server: ServerId,
        expected_token: &str,
    ) -> Result<MissingLogs, AcceptLossError> {
        let Some(recovery) = self.under_way.get(&server) else {
            return Err(AcceptLossError::NoRecovery { server });
        };
        let Entry::Occupied(logs) = self.missing.entry(server) else {
            let silent = self.still_asked(store, now, server);
            let waits_for = recovery.waits_for.clone();
            return Err(if silent.is_empty() {
                AcceptLossError::NothingMissing { server, waits_for }
            } else {
                AcceptLossError::StillAsked { server, silent }
            });
        };
        let token = token(logs.get());
        if token != expected_token {
            return Err(AcceptLossError::OtherLoss { server, token });
        }
        Ok(logs.remove())
    }

    /// A server is dead that had brought tablets back from logs while these were whole; parts of them were given up since, so that the next recovery
    /// finds less.
    pub(crate) fn lose_given_up(
        &mut self,
        store: &Store,
        now: Time,
        member: &str,
        index: u32,
        out: &mut impl CoordinatorEffects,
    ) {
        let given_up = |tablet: &Tablet| {
            let came_with = tablet.sources.last().map_or(0, |last| last.recovery_id);
            let logs = tablet.sources.iter().map(|source| source.log);
            let given_up: Vec<ServerId> = logs
                .filter(|log| {
                    let left = self.dead.get(log).and_then(|dead| dead.left.as_ref());
                    left.is_some_and(|left| came_with <= left.after_recovery)
                })
                .collect();
            given_up
        };
        let is_hit = |tablet: &Tablet| tablet.owner == index && !given_up(tablet).is_empty();
        let owned = store.tables.owned_by(&BTreeSet::from([index]));
        let owned = owned.map(|(_, tablet)| tablet);
        let hit = owned.filter(|tablet| is_hit(tablet));
        let logs: BTreeSet<ServerId> = hit.flat_map(given_up).collect();
        if logs.is_empty() {
            return;
        }
        let named: Vec<String> = logs.iter().map(ServerId::to_string).collect();
        let missing = format!(
            "of the logs of servers {}, of which parts were given up before what had been read of them was on backups again",
            named.join(", ")
        );
        let loss = loss_of(store, now, member, &logs, missing, is_hit);
        let event = RecoveryEvent::MayHaveLost {
            tablet_count: loss.tablet_count,
            missing: loss.missing.clone(),
        };
        out.report(event.into());
        self.record_loss(store, loss);
    }

    /// A process without replicas is dead: what it held is lost, and its tablets go on, empty, at its successor.
    pub(crate) fn lose(
        &mut self,
        store: &mut Store,
        now: Time,
        death: Death,
        out: &mut impl CoordinatorEffects,
    ) {
        let owners = death.servers.iter().map(|server| server.id.index());
        let owners: BTreeSet<u32> = owners.collect();
        let (tables, tables_dropped, tablet_count) = store.list_owned(&owners);
        // A coordinator that took over after the process had ended, or one before its first report, knows of no objects.
        let uncounted = death.servers.iter().any(|server| {
            server.pong_heard.is_none() && store.tables.tablets_of(server.id.index()) > 0
        });
        let homeless: BTreeSet<u32> = owners
            .iter()
            .copied()
            .filter(|owner| !death.successors.contains(owner))
            .collect();
        store.tables.reassign(&homeless, &death.successors);
        if tablet_count == 0 {
            return;
        }
        store.tables.empty(&owners);
        // A tablet may have come from a server that had given out higher versions than this one's next process would begin with.
        if !is_planted(Bug::ReuseVersionAfterLoss) {
            store.ledger.first_version = store.ledger.version_bound;
            store.ledger.note_versions(store.ledger.first_version);
        }
        let reported = |number: fn(&Server) -> u64| match uncounted {
            true => 0,
            false => death.servers.iter().map(number).sum(),
        };
        let object_count: u64 = reported(|server| server.pong.object_count);
        let live_bytes = reported(|server| server.pong.log_live_bytes);
        let event = RecoveryEvent::TabletsLost {
            member: death.member.clone(),
            objects: (!uncounted).then_some(object_count),
            tablet_count,
        };
        out.report(event.into());
        self.record_loss(
            store,
            Loss {
                cluster_time_ns: store.cluster_time_ns(now),
                member: death.member,
                server_ids: death.servers.iter().map(|server| server.id.0).collect(),
                tables,
                tables_dropped,
                tablet_count,
                object_count,
                live_bytes,
                missing: String::new(),
                uncounted,
                instance: death.instance,
            },
        );
    }
}

/// Tablets may have lost objects, for parts of these logs are missing.
fn loss_of(
    store: &Store,
    now: Time,
    member: &str,
    logs: &BTreeSet<ServerId>,
    missing: String,
    is_hit: impl Fn(&Tablet) -> bool,
) -> Loss {
    let hit = store.tables.tablets().filter(|(_, tablet)| is_hit(tablet));
    let (tables, tables_dropped, tablet_count) = store.name_tables(hit);
    Loss {
        cluster_time_ns: store.cluster_time_ns(now),
        member: member.to_owned(),
        server_ids: logs.iter().map(|log| log.0).collect(),
        tables,
        tables_dropped,
        tablet_count,
        object_count: 0,
        live_bytes: 0,
        missing,
        uncounted: false,
        instance: String::new(),
    }
}
