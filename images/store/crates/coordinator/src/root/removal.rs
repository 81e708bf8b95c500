//! Orders to take a member out of the store for good.

use std::collections::BTreeSet;

use base::time::Time;
use wire::member::RefusedReason;

use crate::effects::refuse;
use crate::orders::{OtherStore, Removal, RemoveMemberError};
use crate::reports::MemberEvent;
use crate::status::EventKind;
use crate::{Coordinator, CoordinatorEffects};

impl Coordinator {
    /// Takes a member out of the store for good; refused while it serves tablets, and, unless copies are given up, while those that it keeps for
    /// others may be the last.
    pub fn remove_member(
        &mut self,
        now: Time,
        removal: &Removal,
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), RemoveMemberError> {
        self.gated(out, |it, out| it.remove_now(now, removal, out))
    }

    fn remove_now(
        &mut self,
        now: Time,
        removal: &Removal,
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), RemoveMemberError> {
        if let Some(why) = self.refusal() {
            return Err(RemoveMemberError::DoesNotLead(why.to_owned()));
        }
        let name = &removal.name;
        self.check_removal(removal)?;
        let member = self.store.members.get(name);
        let servers = member.map_or_else(Vec::new, |member| member.servers().to_vec());
        for index in servers {
            self.movement.give_up_of(&self.store, now, index, out);
        }
        for link in self.store.members.remove(name, &removal.instance) {
            let text = format!("member {name:?} was removed from the store; end this process");
            refuse(link.connection, RefusedReason::Superseded, text, out);
            self.give_up_answers(link, out);
        }
        let event = MemberEvent::Removed {
            member: name.clone(),
        };
        self.record_event(now, EventKind::MemberRemoved, event.to_string());
        out.report(event.into());
        self.announced.announce(&mut self.store, None, out);
        Ok(())
    }

    pub(crate) fn check_store(&self, expected_cluster_id: u64) -> Result<(), OtherStore> {
        let cluster_id = self.store.config.cluster_id;
        if expected_cluster_id == 0 || expected_cluster_id == cluster_id {
            return Ok(());
        }
        Err(OtherStore {
            expected_cluster_id,
            cluster_id,
        })
    }

    fn check_removal(&self, removal: &Removal) -> Result<(), RemoveMemberError> {
        self.check_store(removal.expected_cluster_id)
            .map_err(RemoveMemberError::OtherStore)?;
        let member = removal.name.clone();
        let owners: BTreeSet<u32> = match self.store.members.get(&member) {
            Some(present) => present.servers().iter().copied().collect(),
            None if removal.instance.is_empty() => {
                return Err(RemoveMemberError::NotFound { member });
            }
            None => BTreeSet::new(),
        };
        let (tables, _, tablet_count) = self.store.list_owned(&owners);
        if tablet_count > 0 {
            let servers = owners
                .iter()
                .filter_map(|index| self.store.members.server(*index));
            let is_replicated = servers.into_iter().all(|server| server.replicas > 0);
            return Err(RemoveMemberError::OwnsTablets {
                member,
                tablet_count,
                tables,
                is_replicated,
            });
        }
        if !removal.gives_up_copies {
            let reasons = self.departures().why_member_is_needed(&member);
            if !reasons.is_empty() {
                return Err(RemoveMemberError::CopiesNeeded { member, reasons });
            }
        }
        if !self.store.members.can_remember_removal() {
            return Err(RemoveMemberError::TooManyRemoved {
                limit: self.store.config.limits.max_removed,
            });
        }
        Ok(())
    }
}
