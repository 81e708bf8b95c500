//! Somebody says that what a recovery misses is gone for good.

use std::collections::BTreeSet;

use wire::ids::ServerId;
use wire::time::Time;

use crate::orders::{AcceptLossError, Acceptance};
use crate::recovery::loss::{Left, describe, token};
use crate::status::Loss;
use crate::tables::{NOBODY, Tablet};
use crate::{Coordinator, Output, level};

impl Coordinator {
    /// Lets a recovery go on without what is missing: see [`Acceptance`].
    ///
    /// # Errors
    /// Nothing was accepted; the text says why, and what to do.
    pub fn accept_loss(
        &mut self,
        now: Time,
        acceptance: &Acceptance,
        out: &mut impl Output,
    ) -> Result<Loss, AcceptLossError> {
        self.gated(out, |it, out| it.accept_now(now, acceptance, out))
    }

    fn accept_now(
        &mut self,
        now: Time,
        acceptance: &Acceptance,
        out: &mut impl Output,
    ) -> Result<Loss, AcceptLossError> {
        if let Some(why) = self.refusal() {
            return Err(AcceptLossError::DoesNotLead(why.to_owned()));
        }
        self.check_store(acceptance.expected_cluster_id)
            .map_err(AcceptLossError::OtherStore)?;
        let server = ServerId(acceptance.server_id);
        // What a backup has said a moment ago counts.
        self.recoveries.look_at_once();
        self.recoveries.look(&mut self.store, now, out);
        let Some(recovery) = self.recoveries.under_way(server) else {
            return Err(AcceptLossError::NoRecovery { server });
        };
        let (member, waits_for) = (recovery.member.clone(), recovery.waits_for.clone());
        let Some(logs) = self.recoveries.missing.remove(&server) else {
            let silent = self.recoveries.still_asked(&self.store, now, server);
            return Err(if silent.is_empty() {
                AcceptLossError::NothingMissing { server, waits_for }
            } else {
                AcceptLossError::StillAsked { server, silent }
            });
        };
        let token = token(&logs);
        if token != acceptance.token {
            self.recoveries.missing.insert(server, logs);
            return Err(AcceptLossError::OtherLoss { server, token });
        }
        let missing = describe(&logs);
        let after_recovery = self.store.ledger.last_id;
        let given_up: BTreeSet<ServerId> = logs.keys().copied().collect();
        for (log, missing) in logs {
            if let Some(dead) = self.recoveries.dead.get_mut(&log) {
                dead.left = Some(Left {
                    segments: missing.left,
                    after_recovery,
                });
            }
        }
        self.store.ledger.leave_versions_out();
        let is_hit = |tablet: &Tablet| {
            let mut sources = tablet.sources.iter();
            tablet.owner == NOBODY && sources.any(|source| given_up.contains(&source.log))
        };
        let hit = self
            .store
            .tables
            .tablets()
            .filter(|(_, tablet)| is_hit(tablet));
        let (tables, tables_dropped, tablet_count) = self.store.name_tables(hit);
        let text = format!(
            "accepted by an operator: the recovery of server {server} of member {member:?} goes on without what is missing {missing}; tablets that may have lost objects: {tablet_count}"
        );
        out.log_message(level::ERROR, &text);
        let loss = Loss {
            cluster_time_ns: self.store.cluster_time_ns(now),
            member,
            server_ids: given_up.iter().map(|log| log.0).collect(),
            tables,
            tables_dropped,
            tablet_count,
            object_count: 0,
            live_bytes: 0,
            missing,
            uncounted: false,
            instance: String::new(),
        };
        self.recoveries
            .losses
            .record(self.store.config.limits.max_losses, loss.clone());
        self.recoveries.look_at_once();
        Ok(loss)
    }
}
