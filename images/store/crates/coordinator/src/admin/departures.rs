//! What speaks against a member's leaving the store: whether it can be drained, how far it is, and who still needs what it has.
//! docs/drain.md says what counts as drained, and why.

use std::collections::BTreeSet;

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;
use wire::member::{OnDraining, Pong};

use crate::hindrance::{Hindrance, Master, Tablets, TooFewMachines};
use crate::liveness::backups::Announced;
use crate::movement::why_cannot_give;
use crate::recovery::Recoveries;
use crate::registry::members::{MemberSession, Server};
use crate::status::Draining;
use crate::store::Store;

/// Reasons that are listed.
const MAX_REASONS: usize = 4;

/// Members that may leave, as the machines know them at this moment.
#[derive(Clone, Copy)]
pub(crate) struct Departures<'a> {
    pub store: &'a Store,
    pub recoveries: &'a Recoveries,
    pub announced: &'a Announced,
}

impl<'a> Departures<'a> {
    pub fn servers_of(&self, name: &str) -> Vec<u32> {
        let member = self.store.members.get(name);
        member.map_or_else(Vec::new, |member| member.servers().to_vec())
    }

    // ---- whether it can end ----

    /// Why its drain would never end.
    pub fn why_drain_cannot_end(&self, name: &str) -> Vec<Hindrance> {
        let servers = self.servers_of(name);
        let owners = servers.iter().filter_map(|&index| {
            let has_tablets = self.store.tables.tablets_of(index) > 0;
            self.store.members.server(index).filter(|_| has_tablets)
        });
        let mut reasons: Vec<Hindrance> = owners
            .filter_map(|owner| self.why_tablets_stay(name, owner))
            .collect();
        let leaves = |member: &str| member == name || self.leaves(member);
        let masters = self.other_masters(name);
        let staying = masters.filter(|(_, server)| !self.leaves(&server.member));
        reasons.extend(
            staying
                .filter_map(|(index, server)| self.why_too_few_hosts(index, server, leaves))
                .map(Hindrance::TooFewMachines),
        );
        reasons.truncate(MAX_REASONS);
        reasons
    }

    /// Why nobody could take this server's tablets.
    fn why_tablets_stay(&self, name: &str, owner: &Server) -> Option<Hindrance> {
        let tablets = self.tablets_of(&[owner.id.index()].into());
        if owner.has_enlisted()
            && let Some(why) = why_cannot_give(self.store, owner)
        {
            return Some(Hindrance::CannotGive { why, tablets });
        }
        let mut others = self.store.members.enlisted().map(|(server, _)| server);
        let takes_tablets = |server: &Server| {
            server.member != name
                && !server.backup_only
                && (server.replicas > 0 || owner.replicas == 0)
                && !self.leaves(&server.member)
        };
        let server = owner.id;
        (!others.any(takes_tablets)).then_some(Hindrance::NobodyTakesTablets { server, tablets })
    }

    fn tablets_of(&self, servers: &BTreeSet<u32>) -> Tablets {
        let (tables, more_tables, count) = self.store.list_owned(servers);
        Tablets {
            count,
            tables,
            more_tables,
        }
    }

    /// Whether a member is being drained.
    fn leaves(&self, name: &str) -> bool {
        let member = self.store.members.get(name);
        member.is_some_and(|member| member.is_draining)
    }

    /// Why a member that is to leave and that nobody seems to need is not drained yet.
    fn why_drain_goes_on(&self, name: &str) -> Option<Hindrance> {
        let member = self.store.members.get(name)?;
        if member.is_last_resort {
            return Some(Hindrance::LastResort);
        }
        self.other_masters(name).next()?;
        // A status that was shown before all masters know the backup would change when they are told of it.
        let mut servers = member.servers().iter();
        servers
            .find_map(|&index| {
                self.store
                    .members
                    .server(index)
                    .filter(|it| it.is_opening())
            })
            .map(|server| Hindrance::BackupOpens { server: server.id })
    }

    pub fn tablets_at(&self, name: &str) -> u64 {
        let servers = self.servers_of(name);
        let tablets = servers
            .iter()
            .map(|&index| self.store.tables.tablets_of(index));
        tablets.sum()
    }

    // ---- how far it is ----

    /// How far a member that is being drained is.
    pub fn draining(&self, name: &str) -> Draining {
        let servers = self.servers_of(name);
        let tablets = self.tablets_at(name);
        let mut waits_for = Vec::new();
        if tablets > 0 {
            let tablets = self.tablets_of(&servers.iter().copied().collect());
            waits_for.push(Hindrance::TabletsMove { tablets });
        }
        waits_for.extend(self.why_copies_are_needed(name));
        if waits_for.is_empty() {
            waits_for.extend(self.why_drain_goes_on(name));
        }
        waits_for.truncate(MAX_REASONS);
        let masters = self.other_masters(name);
        let copies = masters.map(|(_, server)| self.copies_at(server, name));
        Draining {
            is_drained: waits_for.is_empty(),
            tablets,
            copies: copies.sum(),
            waits_for,
        }
    }

    /// Segments of a master's log with a copy on a member that is being drained, as it said last.
    fn copies_at(&self, master: &Server, name: &str) -> u64 {
        let counts = master.pong.on_draining.iter();
        let counts = counts.flat_map(|on_draining| &on_draining.backups);
        let is_there = |backup: u64| {
            let server = self.store.members.server(ServerId(backup).index());
            server.is_some_and(|server| server.member == name)
        };
        let there = counts.filter(|at| is_there(at.backup));
        there.map(|at| at.segments).sum()
    }

    /// Why a master needs what a member that is being drained, and whose backups it knows, keeps for it.
    fn why_master_needs_drained(
        &self,
        name: &str,
        (index, master): (u32, &Server),
    ) -> Option<Hindrance> {
        let copies = self.copies_at(master, name);
        if copies > 0 {
            let leaves = |member: &str| self.leaves(member);
            return Some(Hindrance::CopiesMove {
                master: named(master),
                copies,
                stays: self.why_too_few_hosts(index, master, leaves),
            });
        }
        let known = master.pong.on_draining.iter();
        let known = known.flat_map(|on_draining| &on_draining.backups);
        let known: Vec<u64> = known.map(|at| at.backup).collect();
        let mut announced = self.announced.list().iter();
        let is_unknown = |backup: &&wire::member::Backup| {
            let server = self
                .store
                .members
                .server(ServerId(backup.server_id).index());
            server.is_some_and(|server| server.member == name) && !known.contains(&backup.server_id)
        };
        let master = named(master);
        let is_silent = announced.any(|backup| is_unknown(&backup));
        is_silent.then_some(Hindrance::KnowsNoDraining { master })
    }

    /// Why a member must not be removed yet.
    pub fn why_member_is_needed(&self, name: &str) -> Vec<Hindrance> {
        let mut reasons = self.why_copies_are_needed(name);
        if self.other_masters(name).next().is_some() {
            reasons.extend(self.why_drain_goes_on(name));
        }
        reasons.truncate(MAX_REASONS);
        reasons
    }

    /// Why what the backups of a member keep for others may be the last of it; nothing for one that keeps nothing.
    pub fn why_copies_are_needed(&self, name: &str) -> Vec<Hindrance> {
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
        let mut reasons = self.why_logs_are_needed();
        for (index, server) in self.other_masters(name) {
            reasons.extend(self.why_master_needs(name, index, server));
        }
        reasons
    }

    /// Masters with replicas, those of this member left out.
    fn other_masters(&self, name: &str) -> impl Iterator<Item = (u32, &'a Server)> {
        let enlisted = self.store.members.enlisted().map(|(server, _)| server);
        let masters = enlisted.filter(move |server| server.member != name && server.replicas > 0);
        masters.map(|server| (server.id.index(), server))
    }

    /// Logs of dead servers that tablets need.
    fn why_logs_are_needed(&self) -> Vec<Hindrance> {
        let recoveries = self.recoveries;
        let reasons = recoveries.needed_logs().map(|(id, dead)| {
            let log = Master {
                id,
                member: dead.member.clone(),
            };
            if let Some(recovery) = recoveries.misses(id) {
                Hindrance::LogIncomplete { recovery, log }
            } else if recoveries.under_way(id).is_some() {
                Hindrance::LogIsRead { log }
            } else {
                Hindrance::LogNotCopied { log }
            }
        });
        reasons.collect()
    }

    fn why_master_needs(&self, name: &str, index: u32, server: &Server) -> Option<Hindrance> {
        let master = named(server);
        let Some(link) = &server.link else {
            return Some(Hindrance::NotConnected { master });
        };
        if !self.is_up_to_date(link, &server.pong) {
            return Some(Hindrance::NotUpToDate { master });
        }
        let is_draining = self.leaves(name);
        if is_draining && let Some(why) = self.why_master_needs_drained(name, (index, server)) {
            return Some(why);
        }
        if is_draining && self.is_announced(name) {
            return None;
        }
        let (segments_short, segments) = (server.pong.segments_short, server.pong.segments);
        if segments_short > 0 && !is_planted(Bug::LeaveWithTheLastCopy) {
            return Some(Hindrance::CopiesMissing {
                master,
                segments_short,
                segments,
            });
        }
        let leaves = |member: &str| member == name || self.leaves(member);
        let too_few = self.why_too_few_hosts(index, server, leaves);
        too_few.map(Hindrance::TooFewMachines)
    }

    /// Whether what a master said last takes into account which backups there are, and which of them are drained.
    fn is_up_to_date(&self, link: &MemberSession, pong: &Pong) -> bool {
        let knows_list =
            |on_draining: &OnDraining| on_draining.list_number == self.announced.number();
        // Older builds do not say so. A ping that overtakes the list deceives these.
        link.is_up_to_date(pong.sequence) && pong.on_draining.as_ref().is_none_or(knows_list)
    }

    /// Whether masters were told of all backups of this member, so that they know what is there.
    fn is_announced(&self, name: &str) -> bool {
        let member = self.store.members.get(name);
        let servers = member.map_or(&[][..], |member| member.servers());
        let is_announced = |id: ServerId| {
            let mut backups = self.announced.list().iter();
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
    fn why_too_few_hosts(
        &self,
        index: u32,
        server: &Server,
        leaves: impl Fn(&str) -> bool,
    ) -> Option<TooFewMachines> {
        let (before, left) = (
            self.hosts_for_copies(index, |_| false),
            self.hosts_for_copies(index, leaves),
        );
        let wanted = server.replicas as usize;
        (left < wanted && left < before).then(|| TooFewMachines {
            master: named(server),
            wanted,
            left,
        })
    }

    /// On how many machines, leaving some members out, a master's log can have copies. Backups that have yet to say what they have, as after a
    /// restart of the coordinator, count.
    fn hosts_for_copies(&self, index: u32, is_left_out: impl Fn(&str) -> bool) -> usize {
        let members = &self.store.members;
        let host_of = |server: &Server| Some(members.get(&server.member)?.host_id.as_str());
        let own_host = members.server(index).and_then(host_of);
        let retired = self.announced.list().iter();
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

fn named(server: &Server) -> Master {
    Master {
        id: server.id,
        member: server.member.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{self, Said, index};
    use base::bugs::plant;

    /// Four members, of which the first has told how many segments of its log have too few copies; all know the backups.
    fn why_the_second_is_needed(segments_short: u64) -> Vec<Hindrance> {
        let (mut store, _) = alone::store(4);
        let mut announced = Announced::default();
        announced.announce(&mut store, None, &mut Said::default());
        for number in 1..=4 {
            let index = index(&store, number);
            let server = store.members.server_mut(index).unwrap();
            let sequence = server.link.as_mut().unwrap().sequence();
            let short = if number == 1 { segments_short } else { 0 };
            server.pong = Pong {
                sequence,
                segments: 5,
                segments_short: short,
                ..Pong::default()
            };
        }
        let departures = Departures {
            store: &store,
            recoveries: &Recoveries::default(),
            announced: &announced,
        };
        departures.why_copies_are_needed("m2")
    }

    #[test]
    fn nobody_leaves_with_the_last_copy() {
        assert_eq!(why_the_second_is_needed(0), []);
        let is_named = |reasons: Vec<Hindrance>| {
            let mut reasons = reasons.iter().map(Hindrance::to_string);
            reasons.any(|reason| reason.starts_with("2 of 5 segments of the log of server 1.0"))
        };
        assert!(is_named(why_the_second_is_needed(2)));

        plant(Some(Bug::LeaveWithTheLastCopy));
        let is_missed = is_named(why_the_second_is_needed(2));
        plant(None);
        assert!(!is_missed, "the planted bug is not found");
    }
}
