//! The coordinator's side of the member protocol.

use std::collections::BTreeSet;

use base::ids::ServerId;
use base::time::Time;
use wire::member::{
    Hello, LeaseAnswer, Ping, RefusedReason, TabletRange, ToCoordinator, Welcome, coordinator,
    shard,
};

use crate::effects::{CoordinatorEffects, refuse, send};
use crate::pending::{Goal, note_control_response};
use crate::recovery::logs;
use crate::registry::members::{Death, MemberSession, NotAdmitted, Server};
use crate::reports::{ForeignVolume, MemberEvent};
use crate::root::Coordinator;

impl Coordinator {
    /// A message from a member connection. The first on each must be a Hello.
    pub fn member_message(
        &mut self,
        now: Time,
        connection: u64,
        message: ToCoordinator,
        out: &mut impl CoordinatorEffects,
    ) {
        if self.rebuild_hears(now, connection, &message, out) {
            return;
        }
        self.gated(out, |it, out| it.hear(now, connection, message, out));
    }

    fn hear(
        &mut self,
        now: Time,
        connection: u64,
        mut message: ToCoordinator,
        out: &mut impl CoordinatorEffects,
    ) {
        if let Some(why) = self.refusal() {
            let text = why.to_owned();
            return refuse(connection, RefusedReason::Invalid, text, out);
        }
        let Some(index) = self.store.members.server_of(connection) else {
            return match (message.kind, self.newcomers.take(connection)) {
                (Some(shard::Kind::Hello(hello)), None) => {
                    self.hello(now, connection, hello, false, out);
                }
                (Some(shard::Kind::Pong(_)), Some(hello)) => {
                    self.hello(now, connection, hello, true, out);
                }
                _ => out.close_member(connection),
            };
        };
        if let Some(link) = self.link_mut(index) {
            link.last_heard = now;
        }
        self.bound_message(index, &mut message);
        match message.kind {
            Some(shard::Kind::Pong(mut pong)) => {
                self.suspicions.is_well(index);
                self.pinged(now, index, pong.sequence, out);
                self.store.ledger.note_versions(pong.next_version);
                self.store.members.note_replicas(index, pong.replicas);
                if let Some(progress) = &pong.migration {
                    self.movement.progress(index, progress);
                }
                let loads = std::mem::take(&mut pong.loads);
                if let Some(server) = self.store.members.server_mut(index) {
                    self.movement.told(now, server.id, &loads);
                    server.ports.hear(now, std::mem::take(&mut pong.ports));
                    server.pong = pong;
                    server.pong_heard = Some(now);
                }
            }
            Some(shard::Kind::TabletDone(done)) => {
                self.shard_answered(index, done.sequence, None, out);
            }
            Some(shard::Kind::ControlDone(done)) => {
                self.shard_answered(index, done.sequence, Some(done.response), out);
            }
            Some(shard::Kind::LeaseQuery(query)) => {
                let cluster_time_ns = self.store.cluster_time_ns(now);
                // That it has ended is said after that is noted: another coordinator may have prolonged it, and then this cannot be noted any more.
                self.store.leases.expire(cluster_time_ns);
                let answer = LeaseAnswer {
                    lease_id: query.lease_id,
                    expiration_ns: self
                        .store
                        .leases
                        .expiration(query.lease_id, cluster_time_ns),
                    cluster_time_ns,
                };
                send(connection, coordinator::Kind::LeaseAnswer(answer), out);
            }
            Some(shard::Kind::LocateServer(question)) => {
                let location = self.location(question.server_id);
                send(connection, coordinator::Kind::ServerLocation(location), out);
            }
            Some(shard::Kind::RaiseOpenFloor(floor)) => {
                self.store.members.raise_open_floor(index, floor, out);
            }
            Some(shard::Kind::BackupReport(report)) => {
                let (store, announced) = (&mut self.store, &mut self.announced);
                if let Some(logs) = announced.report(store, index, report, out) {
                    logs::forget_at(store, connection, &logs, out);
                    announced.look_for_full(store, out);
                }
            }
            Some(shard::Kind::CheckpointKept(kept)) => {
                self.keeping.kept(now, index, connection, kept, out);
            }
            // What was asked for before this coordinator led the store.
            Some(shard::Kind::CheckpointPart(_)) => {}
            Some(shard::Kind::LogInventory(inventory)) => {
                self.recoveries.inventory(&self.store, index, inventory)
            }
            Some(shard::Kind::Recovered(recovered)) => {
                self.recoveries
                    .recovered(&mut self.store, now, index, connection, &recovered, out);
            }
            Some(shard::Kind::RecoveryDurable(recovery)) => {
                self.recoveries
                    .durable(&mut self.store, index, connection, recovery, out);
            }
            Some(shard::Kind::Probed(probed)) => {
                let (store, suspicions) = (&mut self.store, &mut self.suspicions);
                if let Some(member) = suspicions.probed(store, now, index, probed, out) {
                    self.declare_dead(now, &member, out);
                }
            }
            Some(shard::Kind::SuspectServer(suspect)) => {
                let suspect = ServerId(suspect.server_id);
                let server = self.store.members.server(suspect.index());
                if server.is_some_and(|server| server.id == suspect) {
                    self.suspicions
                        .suspect(&mut self.store, now, suspect.index(), true, out);
                }
            }
            Some(shard::Kind::Migrated(migrated)) => {
                self.movement
                    .migrated(&mut self.store, now, index, &migrated, out)
            }
            Some(shard::Kind::Stopped(stopped)) => {
                let logs = self
                    .movement
                    .stopped(&mut self.store, now, index, stopped, out);
                self.recoveries.forget_logs(&self.store, logs, out);
            }
            Some(shard::Kind::MigrationWanted(wanted)) => {
                self.movement
                    .wanted(&mut self.store, now, index, connection, &wanted, out);
            }
            Some(shard::Kind::Hello(_)) | None => {
                out.report(MemberEvent::OddMessage.into());
                out.close_member(connection);
                self.session_ended(now, connection, false, out);
            }
        }
    }

    /// The connection of a session is gone, and the session may go on with another one: nothing is given up for that. Whether the shard's process is
    /// alive is looked at; if nothing is heard for too long, the session ends.
    pub fn member_interrupted(
        &mut self,
        now: Time,
        connection: u64,
        out: &mut impl CoordinatorEffects,
    ) {
        if let Some(index) = self.store.members.server_of(connection) {
            if let Some(link) = self.link_mut(index) {
                link.is_interrupted = true;
            }
            self.gated(out, |it, out| {
                it.suspicions.suspect(&mut it.store, now, index, false, out);
            });
        }
    }

    /// The session goes on.
    pub fn member_resumed(&mut self, now: Time, connection: u64) {
        let Some(index) = self.store.members.server_of(connection) else {
            return;
        };
        self.suspicions.is_well(index);
        if let Some(link) = self.link_mut(index) {
            link.is_interrupted = false;
            link.last_heard = now;
        }
    }

    /// A session is over. Its shard's tablets stay with it: it may come back.
    pub fn member_closed(&mut self, now: Time, connection: u64, out: &mut impl CoordinatorEffects) {
        if let Some(rebuild) = &mut self.rebuild {
            return rebuild.closed(connection);
        }
        self.keeping.forget(connection);
        self.gated(out, |it, out| it.session_ended(now, connection, false, out));
    }

    /// Its process has ended for the store, whatever it believes itself.
    pub(super) fn declare_dead(
        &mut self,
        now: Time,
        member: &str,
        out: &mut impl CoordinatorEffects,
    ) {
        if let Some(death) = self.store.members.end_process(member) {
            self.bury(now, death, out);
            self.announced.announce(&mut self.store, None, out);
        }
    }

    fn session_ended(
        &mut self,
        now: Time,
        connection: u64,
        is_silent: bool,
        out: &mut impl CoordinatorEffects,
    ) {
        self.newcomers.take(connection);
        let index = self.store.members.server_of(connection);
        if let Some(link) = self.store.members.disconnect(connection) {
            self.give_up_answers(link, out);
        }
        if let Some(index) = index {
            self.recoveries.give_up_orders_of(index);
            self.movement.give_up_of(&self.store, now, index, out);
            self.suspicions
                .suspect(&mut self.store, now, index, is_silent, out);
        }
    }

    fn hello(
        &mut self,
        now: Time,
        connection: u64,
        hello: Hello,
        is_alive: bool,
        out: &mut impl CoordinatorEffects,
    ) {
        let cluster_id = self.store.config.cluster_id;
        let heard = hello.position.filter(|_| hello.cluster_id == cluster_id);
        if let Some(heard) = heard
            && let Err(text) = self.leading.may_have_been_at(&heard)
        {
            self.refuse_to_lead(text.clone(), out);
            return refuse(connection, RefusedReason::Invalid, text, out);
        }
        let volume = hello.volume_cluster_id;
        if volume != 0 && volume != cluster_id {
            let foreign = ForeignVolume {
                member: hello.member,
                found: volume,
                own: cluster_id,
            };
            let text = foreign.to_string();
            out.report(MemberEvent::VolumeRefused(foreign).into());
            return refuse(connection, RefusedReason::Invalid, text, out);
        }
        let admitted = match self.upgrades.check(cluster_id, &hello) {
            Ok(()) => self
                .store
                .members
                .admit(now, cluster_id, connection, &hello, is_alive),
            Err(refusal) => Err(NotAdmitted::Refused(refusal)),
        };
        let admission = match admitted {
            Ok(admission) => admission,
            Err(NotAdmitted::MustShowLife) => return self.challenge(now, connection, hello, out),
            Err(NotAdmitted::Refused(refusal)) => {
                let (reason, text) = (refusal.reason(), refusal.to_string());
                let event = MemberEvent::ShardRefused {
                    shard: hello.shard_index,
                    member: hello.member,
                    refusal,
                };
                out.report(event.into());
                return refuse(connection, reason, text, out);
            }
        };
        if let Some(link) = admission.replaced {
            out.close_member(link.connection);
            self.give_up_answers(link, out);
        }
        if let Some(death) = admission.death {
            self.bury(now, death, out);
        }
        self.suspicions.is_well(admission.index);
        self.recoveries.give_up_orders_of(admission.index);
        self.movement
            .give_up_of(&self.store, now, admission.index, out);
        self.movement
            .session_begins(self.store.id_of(admission.index));
        self.welcome(now, admission.index, connection, out);
        self.announced
            .announce(&mut self.store, Some(connection), out);
    }

    /// For people: this store must not take the volume of another one.
    /// Asks a process that would take the place of another whether it is alive: its Hello may have been long on its way.
    fn challenge(
        &mut self,
        now: Time,
        connection: u64,
        hello: Hello,
        out: &mut impl CoordinatorEffects,
    ) {
        if self.newcomers.count() >= self.store.config.limits.max_members {
            let text = "too many processes want to take the place of others; try again".to_owned();
            return refuse(connection, RefusedReason::Invalid, text, out);
        }
        let ping = Ping {
            sequence: 0,
            cluster_time_ns: self.store.cluster_time_ns(now),
            position: self.position(),
        };
        self.newcomers.asked(now, connection, hello);
        send(connection, coordinator::Kind::Ping(ping), out);
    }

    /// A process is dead. What its log's replicas hold is brought back; what only it held is lost, and its tablets go on, empty, at its
    /// successor.
    pub(crate) fn bury(&mut self, now: Time, mut death: Death, out: &mut impl CoordinatorEffects) {
        self.record_death(now, &death);
        for server in &mut death.servers {
            self.movement
                .give_up_of(&self.store, now, server.id.index(), out);
            let Some(link) = server.link.take() else {
                continue;
            };
            let text = format!(
                "member {:?} did not answer and was declared dead; {}: start this process again",
                death.member,
                server.what_becomes()
            );
            refuse(link.connection, RefusedReason::Superseded, text, out);
            self.give_up_answers(link, out);
        }
        let is_replicated = |server: &mut Server| server.replicas > 0;
        let replicated: Vec<Server> = death.servers.extract_if(.., is_replicated).collect();
        self.recoveries
            .begin(&mut self.store, now, &death.member, &replicated, out);
        self.recoveries.lose(&mut self.store, now, death, out);
    }

    fn welcome(
        &mut self,
        now: Time,
        index: u32,
        connection: u64,
        out: &mut impl CoordinatorEffects,
    ) {
        let Some(server) = self.store.members.server(index) else {
            return;
        };
        let first_version = first_version(server.id).max(self.store.ledger.first_version);
        self.store.ledger.note_versions(first_version);
        let Some(server) = self.store.members.server(index) else {
            return;
        };
        let tablets = self
            .store
            .tables
            .owned_by(&BTreeSet::from([index]))
            .map(|(table, tablet)| TabletRange {
                table_id: table.id,
                start_key_hash: tablet.start_key_hash,
                end_key_hash: tablet.end_key_hash,
            })
            .collect();
        let welcome = Welcome {
            cluster_id: self.store.config.cluster_id,
            server_id: server.id.0,
            cluster_time_ns: self.store.cluster_time_ns(now),
            first_version,
            tablets,
            silence_timeout_ms: u32::try_from(self.store.config.silence_timeout.as_millis())
                .unwrap_or(u32::MAX),
            recoveries: logs::committed(&self.store, index),
            version_floor: self.store.ledger.version_floor,
            position: self.position(),
            format: self.upgrades.format(),
            settings: self.settings.in_force(),
        };
        let event = MemberEvent::Enlisted {
            server: server.id,
            member: server.member.clone(),
            locator: server.locator.clone(),
        };
        out.report(event.into());
        send(connection, coordinator::Kind::Welcome(welcome), out);
    }

    /// If somebody asked for this ping, it is told how long it took.
    fn pinged(&mut self, now: Time, index: u32, sequence: u64, out: &mut impl CoordinatorEffects) {
        let link = self.link_mut(index);
        let Some(number) = link.and_then(|link| link.unanswered.remove(&sequence)) else {
            return;
        };
        let operation = self.pending.answered(number, |goal| {
            if let Goal::ProxyPing { sent, reply_ns } = goal {
                let took = now.since(*sent).as_nanos();
                *reply_ns = u64::try_from(took).unwrap_or(u64::MAX);
            }
        });
        if let Some(operation) = operation {
            self.conclude(operation, out);
        }
    }

    fn link_mut(&mut self, index: u32) -> Option<&mut MemberSession> {
        self.store.members.server_mut(index)?.link.as_mut()
    }

    /// A shard has carried out an order (no response) or a control operation.
    fn shard_answered(
        &mut self,
        index: u32,
        sequence: u64,
        response: Option<Vec<u8>>,
        out: &mut impl CoordinatorEffects,
    ) {
        let Some(server) = self.store.members.server_mut(index) else {
            return;
        };
        let id = server.id;
        let Some(number) = server
            .link
            .as_mut()
            .and_then(|link| link.unanswered.remove(&sequence))
        else {
            return;
        };
        let limit = self.store.config.limits.max_control_bytes;
        let room = limit.saturating_sub(self.pending.control_bytes());
        let finished = self.pending.answered(number, |goal| {
            if let Some(response) = response {
                note_control_response(goal, id, response, room);
            }
        });
        if let Some(operation) = finished {
            self.conclude(operation, out);
        }
    }

    /// What was asked on this connection will not be answered any more.
    pub(crate) fn give_up_answers(
        &mut self,
        link: MemberSession,
        out: &mut impl CoordinatorEffects,
    ) {
        for number in link.unanswered.into_values() {
            if let Some(operation) = self.pending.answered(number, |_| {}) {
                self.conclude(operation, out);
            }
        }
    }

    pub(crate) fn ping_shards(&mut self, now: Time, out: &mut impl CoordinatorEffects) {
        let cluster_time_ns = self.store.cluster_time_ns(now);
        let position = self.position();
        for (_, _, link) in self.store.members.linked() {
            let ping = Ping {
                sequence: link.sequence(),
                cluster_time_ns,
                position,
            };
            send(link.connection, coordinator::Kind::Ping(ping), out);
        }
    }

    /// Ends sessions on which nothing was heard for too long. If it was this process that was away, nobody is blamed: what
    /// shards said meanwhile has yet to be read.
    pub(crate) fn end_silent_sessions(&mut self, now: Time, out: &mut impl CoordinatorEffects) {
        let timeout = self.store.config.silence_timeout;
        let was_away = now.since(self.last_tick) >= timeout / 2;
        if was_away {
            self.suspicions.begin_anew();
        }
        let mut silent = Vec::new();
        for (_, id, link) in self.store.members.linked() {
            if was_away {
                link.last_heard = now;
            } else if now.since(link.last_heard) >= timeout {
                silent.push((link.connection, *id));
            }
        }
        if !was_away {
            for connection in self.newcomers.take_late(now, timeout) {
                out.close_member(connection);
            }
        }
        for (connection, id) in silent {
            let event = MemberEvent::SessionSilent {
                server: id,
                silent_ms: timeout.as_millis(),
            };
            out.report(event.into());
            out.close_member(connection);
            self.session_ended(now, connection, true, out);
        }
    }
}

/// Versions of a new incarnation start above all that its predecessors gave out by themselves; those of tablets that had come from elsewhere may
/// be higher.
fn first_version(id: ServerId) -> u64 {
    (u64::from(id.generation()) << 40) + 1
}
