//! Taking a member out of the store for good, and what speaks against it.

use std::collections::BTreeSet;

use wire::ids::ServerId;
use wire::member::{OnDraining, Pong, RefusedReason};
use wire::time::Time;

use crate::members::{Link, Server};
use crate::orders::{OtherStore, Removal, RemoveMemberError};
use crate::sessions::refuse;
use crate::{Coordinator, Output, level};

/// Reasons that a refusal lists.
const MAX_REASONS: usize = 4;

impl Coordinator {
    /// Takes a member out of the store for good; refused while it serves tablets, and, unless copies are given up, while those that it keeps for
    /// others may be the last.
    pub fn remove_member(
        &mut self,
        now: Time,
        removal: &Removal,
        out: &mut impl Output,
    ) -> Result<(), RemoveMemberError> {
        self.gated(out, |it, out| it.remove_now(now, removal, out))
    }

    fn remove_now(
        &mut self,
        now: Time,
        removal: &Removal,
        out: &mut impl Output,
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
        out.log_message(
            level::NOTICE,
            &format!("member {name:?} was removed from the store"),
        );
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
        let (tables, _, tablet_count) = self.list_owned(&owners);
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
            let mut reasons = self.why_copies_are_needed(&member);
            if self.other_masters(&member).next().is_some() {
                reasons.extend(self.why_drain_goes_on(&member));
            }
            reasons.truncate(MAX_REASONS);
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

    /// Why what the backups of a member keep for others may be the last of it; nothing for one that keeps nothing.
    pub(crate) fn why_copies_are_needed(&self, name: &str) -> Vec<String> {
        let Some(member) = self.store.members.get(name) else {
            return Vec::new();
        };
        let servers = member.servers().iter();
        let servers: Vec<&Server> = servers
            .filter_map(|index| self.store.members.server(*index))
            .collect();
        // Of a dead process it is not known any more whether it had a backup; its disk may have what is needed.
        let has_backup = |server: &&Server| !server.backup_locator.is_empty();
        if !member.is_dead && !servers.iter().any(has_backup) {
            return Vec::new();
        }
        let mut reasons: Vec<String> = self.why_logs_are_needed();
        for (index, server) in self.other_masters(name) {
            reasons.extend(self.why_master_needs(name, index, server));
        }
        reasons
    }

    /// Masters with replicas, those of this member left out.
    pub(crate) fn other_masters(&self, name: &str) -> impl Iterator<Item = (u32, &Server)> {
        let enlisted = self.store.members.enlisted().map(|(server, _)| server);
        let masters = enlisted.filter(move |server| server.member != name && server.replicas > 0);
        masters.map(|server| (server.id.index(), server))
    }

    /// Logs of dead servers that tablets need.
    fn why_logs_are_needed(&self) -> Vec<String> {
        let recoveries = &self.recoveries;
        let reasons = recoveries.needed_logs().map(|(log, dead)| {
            let member = &dead.member;
            if let Some(recovery) = recoveries.misses(log) {
                format!(
                    "the recovery of server {recovery} misses parts of the log of server {log} (member {member:?}), and this member's \
                     disk may have them: bring it back, or, if that cannot be, accept the loss first \
                     (rcbox recovery accept-loss {recovery})"
                )
            } else if recoveries.under_way(log).is_some() {
                format!(
                    "the log of server {log} (member {member:?}) is being read to recover what that server held: wait until the status \
                     shows no recovery of it"
                )
            } else {
                format!(
                    "what was recovered from the log of server {log} (member {member:?}) has not all got new copies yet: wait some seconds"
                )
            }
        });
        reasons.collect()
    }

    fn why_master_needs(&self, name: &str, index: u32, server: &Server) -> Option<String> {
        let (id, member) = (server.id, &server.member);
        let Some(link) = &server.link else {
            return Some(format!(
                "server {id} (member {member:?}) is not connected, and whether it is dead is not decided: its log would be read from \
                 copies; wait until it is back or recovered"
            ));
        };
        if !self.is_up_to_date(link, &server.pong) {
            return Some(format!(
                "server {id} (member {member:?}) has not said yet what it is short of since the backups of the store have changed: \
                 ask again in a second"
            ));
        }
        let is_draining = self.leaves(name);
        if is_draining && let Some(why) = self.why_master_needs_drained(name, (index, server)) {
            return Some(why);
        }
        if is_draining && self.is_announced(name) {
            return None;
        }
        let (short, segments) = (server.pong.segments_short, server.pong.segments);
        if short > 0 {
            return Some(format!(
                "{short} of {segments} segments of the log of server {id} (member {member:?}) have fewer copies than they should: wait \
                 until they are made again (the status counts them)"
            ));
        }
        let leaves = |member: &str| member == name || self.leaves(member);
        self.why_too_few_hosts(index, server, leaves)
    }

    /// Whether what a master said last takes into account which backups there are, and which of them are drained.
    fn is_up_to_date(&self, link: &Link, pong: &Pong) -> bool {
        let knows_list =
            |on_draining: &OnDraining| on_draining.list_number == self.announced.number;
        // Older builds do not say so. A ping that overtakes the list deceives these.
        link.is_up_to_date(pong.sequence) && pong.on_draining.as_ref().is_none_or(knows_list)
    }

    /// Whether masters were told of all backups of this member, so that they know what is there.
    fn is_announced(&self, name: &str) -> bool {
        let member = self.store.members.get(name);
        let servers = member.map_or(&[][..], |member| member.servers());
        let is_announced = |id: ServerId| {
            let mut backups = self.announced.list.iter();
            backups.any(|backup| backup.server_id == id.0)
        };
        servers.iter().all(|&index| {
            let server = self.store.members.server(index);
            server.is_some_and(|server| {
                let has_none = server.has_enlisted() && server.backup_locator.is_empty();
                has_none || is_announced(server.id)
            })
        })
    }

    /// Why a master could not have as many copies as it wants without some members, if it could with them.
    pub(crate) fn why_too_few_hosts(
        &self,
        index: u32,
        server: &Server,
        leaves: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let (id, member) = (server.id, &server.member);
        let (before, after) = (
            self.hosts_for_copies(index, |_| false),
            self.hosts_for_copies(index, leaves),
        );
        let wanted = server.replicas as usize;
        let machines = if after == 1 { "machine" } else { "machines" };
        (after < wanted && after < before).then(|| {
            format!(
                "server {id} (member {member:?}) wants {wanted} copies on other machines, and there would be {after} {machines} left for \
                 them: start another member first"
            )
        })
    }

    /// On how many machines, leaving some members out, a master's log can have copies. Backups that have yet to say what they have, as after a
    /// restart of the coordinator, count.
    fn hosts_for_copies(&self, index: u32, is_left_out: impl Fn(&str) -> bool) -> usize {
        let members = &self.store.members;
        let host_of = |server: &Server| Some(members.get(&server.member)?.host_id.as_str());
        let own_host = members.server(index).and_then(host_of);
        let retired = self.announced.list.iter();
        let retired = retired.filter(|backup| backup.is_retired);
        let retired: BTreeSet<u64> = retired.map(|backup| backup.server_id).collect();
        let backups = members.enlisted().map(|(server, _)| server);
        let hosts: BTreeSet<&str> = backups
            .filter(|server| !server.backup_locator.is_empty() && !retired.contains(&server.id.0))
            .filter(|server| !is_left_out(&server.member))
            .filter_map(host_of)
            .filter(|host| Some(*host) != own_host)
            .collect();
        hosts.len()
    }
}
