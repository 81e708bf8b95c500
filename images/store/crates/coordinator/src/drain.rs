//! Members that are to leave the store: they get nothing new, what they have goes elsewhere, and then nobody needs them.
//! docs/drain.md says what counts as drained, and why.

use wire::ids::ServerId;
use wire::time::Time;

use crate::members::Server;
use crate::movement::why_cannot_give;
use crate::orders::{Drain, DrainError};
use crate::status::Draining;
use crate::{Coordinator, Output, level};

/// Reasons that are listed.
const MAX_REASONS: usize = 4;

impl Coordinator {
    /// A member is to leave the store. Refused where it could not end; done already is no error. What is returned is how far it is.
    pub fn drain_member(
        &mut self,
        now: Time,
        drain: &Drain,
        out: &mut impl Output,
    ) -> Result<Draining, DrainError> {
        self.gated(out, |it, out| it.drain_now(now, drain, out))
    }

    fn drain_now(
        &mut self,
        now: Time,
        drain: &Drain,
        out: &mut impl Output,
    ) -> Result<Draining, DrainError> {
        let name = &drain.name;
        let is_draining = self.check_drain(drain)?;
        if !is_draining {
            let reasons = self.why_drain_cannot_end(name);
            if !reasons.is_empty() {
                let member = name.clone();
                return Err(DrainError::CannotEnd { member, reasons });
            }
            self.set_draining(name, true, out);
            let servers = self.servers_of(name);
            let why = "the server that was to have the tablet is being drained";
            self.movement
                .give_up_to(&self.store, now, &servers, why, out);
        }
        Ok(self.draining(name))
    }

    /// A member stays after all. What has gone elsewhere does not come back by this.
    pub fn undrain_member(
        &mut self,
        drain: &Drain,
        out: &mut impl Output,
    ) -> Result<(), DrainError> {
        if self.check_drain(drain)? {
            self.gated(out, |it, out| it.set_draining(&drain.name, false, out));
        }
        Ok(())
    }

    /// Whether the member is being drained already.
    fn check_drain(&self, drain: &Drain) -> Result<bool, DrainError> {
        if let Some(why) = self.refusal() {
            return Err(DrainError::DoesNotLead(why.to_owned()));
        }
        self.check_store(drain.expected_cluster_id)
            .map_err(DrainError::OtherStore)?;
        match self.store.members.get(&drain.name) {
            Some(member) => Ok(member.is_draining),
            None => Err(DrainError::NotFound {
                member: drain.name.clone(),
            }),
        }
    }

    fn set_draining(&mut self, name: &str, is_draining: bool, out: &mut impl Output) {
        if self.store.members.set_draining(name, is_draining) {
            let text = match is_draining {
                true => "is drained: what it has goes to others",
                false => "is not drained any more",
            };
            out.log_message(level::NOTICE, &format!("member {name:?} {text}"));
            self.announced.announce(&mut self.store, None, out);
        }
    }

    fn servers_of(&self, name: &str) -> Vec<u32> {
        let member = self.store.members.get(name);
        member.map_or_else(Vec::new, |member| member.servers().to_vec())
    }

    // ---- whether it can end ----

    fn why_drain_cannot_end(&self, name: &str) -> Vec<String> {
        let servers = self.servers_of(name);
        let owners = servers.iter().filter_map(|&index| {
            let has_tablets = self.store.tables.tablets_of(index) > 0;
            self.store.members.server(index).filter(|_| has_tablets)
        });
        let mut reasons: Vec<String> = owners
            .filter_map(|owner| self.why_tablets_stay(name, owner))
            .collect();
        let leaves = |member: &str| member == name || self.leaves(member);
        let masters = self.other_masters(name);
        let staying = masters.filter(|(_, server)| !self.leaves(&server.member));
        reasons.extend(
            staying.filter_map(|(index, server)| self.why_too_few_hosts(index, server, leaves)),
        );
        reasons.truncate(MAX_REASONS);
        reasons
    }

    /// Why nobody could take this server's tablets.
    fn why_tablets_stay(&self, name: &str, owner: &Server) -> Option<String> {
        let (tables, more, count) = self.list_owned(&[owner.id.index()].into());
        let tables = listed(&tables, more);
        if owner.has_enlisted()
            && let Some(why) = why_cannot_give(&self.store, owner)
        {
            return Some(format!(
                "{why}, or drop these tables ({count} tablets): {tables}"
            ));
        }
        let mut others = self.store.members.enlisted().map(|(server, _)| server);
        let takes_tablets = |server: &Server| {
            server.member != name
                && !server.backup_only
                && (server.replicas > 0 || owner.replicas == 0)
                && !self.leaves(&server.member)
        };
        (!others.any(takes_tablets)).then(|| {
            format!(
                "server {} serves {count} tablets (tables: {tables}), and no other server that stays could take them: start another one \
                 first",
                owner.id
            )
        })
    }

    /// Whether a member is being drained.
    pub(crate) fn leaves(&self, name: &str) -> bool {
        let member = self.store.members.get(name);
        member.is_some_and(|member| member.is_draining)
    }

    // ---- the end ----

    /// Members that nobody seems to need any more get nothing from now on, not even as the last resort. They are drained when all know that, and nobody
    /// has put anything there before.
    pub(crate) fn end_last_resorts(&mut self, out: &mut impl Output) {
        for name in self.store.members.last_resorts() {
            if self.tablets_at(&name) == 0 && self.why_copies_are_needed(&name).is_empty() {
                self.store.members.end_last_resort(&name);
                let text = format!("member {name:?} gets no copies any more, whatever happens");
                out.log_message(level::NOTICE, &text);
                self.announced.announce(&mut self.store, None, out);
            }
        }
    }

    /// Why a member that is to leave and that nobody seems to need is not drained yet.
    pub(crate) fn why_drain_goes_on(&self, name: &str) -> Option<String> {
        let member = self.store.members.get(name)?;
        if member.is_last_resort {
            return Some(
                "it may still get copies where there are too few others, until all servers know that it gets none: ask again in a second"
                    .to_owned(),
            );
        }
        self.other_masters(name).next()?;
        // What was shown before all masters know the backup would be taken back when they are told of it.
        let mut servers = member.servers().iter();
        servers
            .find_map(|&index| self.store.members.server(index).filter(|it| it.is_opening()))
            .map(|server| {
                format!(
                    "the backup of server {} has not opened its storage yet: ask again in a second; if that lasts, its log says why",
                    server.id
                )
            })
    }

    fn tablets_at(&self, name: &str) -> u64 {
        let servers = self.servers_of(name);
        let tablets = servers
            .iter()
            .map(|&index| self.store.tables.tablets_of(index));
        tablets.sum()
    }

    // ---- how far it is ----

    /// How far a member that is being drained is.
    pub(crate) fn draining(&self, name: &str) -> Draining {
        let servers = self.servers_of(name);
        let tablets = self.tablets_at(name);
        let mut waits_for = Vec::new();
        if tablets > 0 {
            let (tables, more, _) = self.list_owned(&servers.iter().copied().collect());
            let tables = listed(&tables, more);
            waits_for.push(format!(
                "{tablets} tablets are to move to other servers (tables: {tables})"
            ));
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
    pub(crate) fn why_master_needs_drained(
        &self,
        name: &str,
        (index, master): (u32, &Server),
    ) -> Option<String> {
        let (id, member) = (master.id, &master.member);
        let copies = self.copies_at(master, name);
        if copies > 0 {
            let leaves = |member: &str| self.leaves(member);
            let too_few = self.why_too_few_hosts(index, master, leaves);
            let stays = too_few.map_or_else(String::new, |why| format!(", but {why}"));
            return Some(format!(
                "{copies} segments of the log of server {id} (member {member:?}) have copies here that are made again elsewhere{stays}"
            ));
        }
        let known = master.pong.on_draining.iter();
        let known = known.flat_map(|on_draining| &on_draining.backups);
        let known: Vec<u64> = known.map(|at| at.backup).collect();
        let mut announced = self.announced.list.iter();
        let is_unknown = |backup: &&wire::member::Backup| {
            let server = self
                .store
                .members
                .server(ServerId(backup.server_id).index());
            server.is_some_and(|server| server.member == name) && !known.contains(&backup.server_id)
        };
        announced.find(is_unknown).map(|_| {
            format!(
                "server {id} (member {member:?}) does not say what it has here: its build is older and knows nothing of draining"
            )
        })
    }
}

/// Names, and how many there are beyond these.
fn listed(names: &[String], more: u64) -> String {
    match more {
        0 => names.join(", "),
        _ => format!("{} and {more} more", names.join(", ")),
    }
}
