//! What the shard and the coordinator say to each other.

use core::time::Duration;

use base::ids::{ServerId, TableId};
use base::time::Time;
use log::Origin;
use wire::format::FIRST_FORMAT;
use wire::member::{self, PortReport, Position, TabletRange, ToCoordinator, coordinator, shard};

use crate::data::leases::Leases;
use crate::effects::{Session, ShardEffects};
use crate::loads::Loads;
use crate::membership::{CoordinatorSession, Enlisted};
use crate::reports::{MembershipEvent, Refusal};
use crate::shard::Shard;

/// The coordinator can ask for a shorter silence than this, but will not get it: a scheduler's hiccup is no failure.
const MIN_SILENCE: Duration = Duration::from_millis(100);

fn message(kind: shard::Kind) -> ToCoordinator {
    ToCoordinator::from(kind)
}

impl Shard {
    /// A message came from the coordinator on the present session.
    pub fn coordinator_message(
        &mut self,
        now: Time,
        message: member::ToShard,
        out: &mut impl ShardEffects,
    ) -> Session {
        use coordinator::Kind;
        let Some(kind) = message.kind else {
            out.report(MembershipEvent::UnknownMessage.into());
            return Session::Close;
        };
        if let Some(link) = &mut self.membership.link {
            link.heard = now;
            if self.hear_position(message.position, out) == Session::Close {
                return Session::Close;
            }
        } else if let Kind::Ping(ping) = &kind {
            // Asked of a process that is about to take the place of another: is it alive itself?
            self.pong(now, ping.sequence, out);
            return Session::Continue;
        } else if !matches!(kind, Kind::Welcome(_) | Kind::Refused(_)) {
            out.report(MembershipEvent::OrderBeforeWelcome.into());
            return Session::Close;
        }
        match kind {
            Kind::Welcome(welcome) => match self.welcome(now, welcome, out) {
                Session::Continue => self.hear_position(message.position, out),
                Session::Close => Session::Close,
            },
            Kind::Refused(refused) => self.refused(refused, out),
            Kind::Ping(ping) => self.pinged(now, &ping, out),
            Kind::TakeTablet(order) => self.take_tablet(Some(order.sequence), order.tablet, out),
            Kind::DropTablet(order) => {
                self.drop_tablets(&[order.tablet], out);
                done(order.sequence, out);
                Session::Continue
            }
            Kind::SplitTablet(split) => {
                self.split_tablet(TableId(split.table_id), split.key_hash, out);
                done(split.sequence, out);
                Session::Continue
            }
            Kind::MergeTablets(merge) => {
                self.merge_tablets(&merge.tablet, out);
                done(merge.sequence, out);
                Session::Continue
            }
            Kind::LeaseAnswer(answer) => {
                self.lease_answer(now, &answer);
                Session::Continue
            }
            Kind::ServerLocation(location) => {
                self.proxies.located(&location, out);
                Session::Continue
            }
            Kind::Control(control) => {
                self.control_order(now, &control, out);
                Session::Continue
            }
            Kind::Backups(backups) => {
                self.note_draining(&backups);
                self.set_backups(now, backups, out);
                Session::Continue
            }
            Kind::OpenFloorRaised(floor) => {
                self.replicas.open_floor_raised(floor);
                Session::Continue
            }
            Kind::Recover(order) => {
                self.recover(now, order, out);
                Session::Continue
            }
            Kind::CommitRecovery(recovery) => self.commit_recovery(recovery.recovery_id, out),
            Kind::GiveUpRecovery(recovery) => {
                self.recoveries
                    .give_up(&mut self.store, recovery.recovery_id, out);
                Session::Continue
            }
            Kind::SourcesReleased(recovery) => {
                self.recoveries
                    .sources_released(&mut self.store, recovery.recovery_id);
                Session::Continue
            }
            Kind::Probe(probe) => {
                self.proxies.probe(now, &probe, out);
                Session::Continue
            }
            Kind::Migrate(order) => {
                self.migrate_in(now, order, out);
                Session::Continue
            }
            Kind::MigrateOut(order) => {
                self.migrations.migrate_out(&mut self.store, order, out);
                Session::Continue
            }
            Kind::GiveUpMigration(migration) => {
                self.migrations
                    .give_up(&mut self.store, migration.migration_id, out);
                Session::Continue
            }
            Kind::StopTablet(migration) => {
                self.migrations
                    .stop_tablet(&mut self.store, migration.migration_id, out);
                Session::Continue
            }
            Kind::MigrationEnded(ended) => {
                self.migration_ended(ended, out);
                Session::Continue
            }
            Kind::CommitMigration(migration) => self.commit_migration(migration.migration_id, out),
            Kind::Settings(settings) => {
                self.use_settings(settings, out);
                Session::Continue
            }
            Kind::Activate(order) => self.activate(order.format, out),
            // To a backup.
            Kind::FenceLog(_)
            | Kind::ForgetLogs(_)
            | Kind::KeepCheckpoint(_)
            | Kind::ReadCheckpoint(_) => {
                out.report(MembershipEvent::OrderForBackup.into());
                Session::Close
            }
        }
    }

    /// The connection to the coordinator is gone. The shard goes on serving what it owns.
    pub fn coordinator_lost(&mut self, _now: Time) {
        self.membership.link = None;
        // Orders that had no effect yet are given again by the next welcome.
        self.membership.waiting.clear();
        self.leases.forget_questions();
        self.proxies.forget_probes();
    }

    fn welcome(
        &mut self,
        now: Time,
        welcome: member::Welcome,
        out: &mut impl ShardEffects,
    ) -> Session {
        let enlisted = Enlisted {
            cluster_id: welcome.cluster_id,
            server_id: ServerId(welcome.server_id),
        };
        if !enlisted.server_id.is_valid() || self.membership.superseded {
            out.report(MembershipEvent::SenselessWelcome.into());
            return Session::Close;
        }
        let (cluster_id, position) = (welcome.cluster_id, welcome.position);
        if let Some(refusal) = self.membership.outdated(cluster_id, position) {
            return self.refuse(refusal, out);
        }
        if self.activate(welcome.format.max(FIRST_FORMAT), out) == Session::Close {
            return Session::Close;
        }
        let silence = Duration::from_millis(welcome.silence_timeout_ms.into());
        self.membership.link = Some(CoordinatorSession {
            leader: position,
            heard: now,
            silence: silence.max(MIN_SILENCE),
            list_number: 0,
            draining: Vec::new(),
        });
        self.membership.refusal = None;
        self.give_up_awaited(out);
        self.loads = Loads::default();
        if self.membership.enlisted != Some(enlisted) {
            self.start_over(Some(enlisted), welcome.first_version, out);
        }
        self.membership.learn_position(position);
        self.store.raise_version_floor(welcome.version_floor);
        self.leases.learn_time(now, welcome.cluster_time_ns);
        self.use_settings(welcome.settings.unwrap_or_default(), out);
        self.replicas.ask_for_open_floor(out);
        for question in self.proxies.questions() {
            out.send_coordinator(message(shard::Kind::LocateServer(question)));
        }
        match self.resume_movers(&welcome.recoveries, &welcome.tablets, out) {
            Session::Continue => self.resynchronize(&welcome.tablets, out),
            Session::Close => Session::Close,
        }
    }

    /// Segments from the next one on are of this format.
    fn activate(&mut self, format: u32, out: &mut impl ShardEffects) -> Session {
        let known = self.config.formats;
        if !known.reads(format) {
            return self.refuse(Refusal::UnknownFormat { format, known }, out);
        }
        self.store.log.set_format(format);
        Session::Continue
    }

    /// The shard does not obey this coordinator.
    fn refuse(&mut self, refusal: Refusal, out: &mut impl ShardEffects) -> Session {
        out.report(MembershipEvent::Refused(refusal.clone()).into());
        self.membership.refusal = Some(refusal);
        Session::Close
    }

    /// Drops everything, for another incarnation or for none.
    fn start_over(
        &mut self,
        enlisted: Option<Enlisted>,
        first_version: u64,
        out: &mut impl ShardEffects,
    ) {
        let origin = Origin {
            cluster_id: enlisted.map_or(0, |enlisted| enlisted.cluster_id),
            server_id: enlisted.map_or(ServerId::INVALID, |enlisted| enlisted.server_id),
        };
        match self.config.replication {
            None => self.gate.give_up(out),
            Some(_) => self.gate.forget(),
        }
        for fill in self.fills.end_all() {
            out.reply(fill.to, &[&wire::rpc::RetryResponse::to_bytes(100, 200)]);
        }
        self.recoveries.clear(out);
        self.migrations.clear(out);
        self.store.reset(origin, first_version);
        let log = enlisted.map(|enlisted| enlisted.server_id);
        let (config, identity) = (&self.config, &self.identity);
        self.replicas
            .replace(config.replication, config.segment_bytes, log, identity, out);
        self.leases = Leases::default();
        self.membership.waiting.clear();
        if enlisted.map(|enlisted| enlisted.cluster_id) != Some(self.membership.cluster_id()) {
            self.membership.position = None;
        }
        self.membership.enlisted = enlisted;
    }

    fn pinged(&mut self, now: Time, ping: &member::Ping, out: &mut impl ShardEffects) -> Session {
        if self.hear_position(ping.position, out) == Session::Close {
            return Session::Close;
        }
        self.leases.learn_time(now, ping.cluster_time_ns);
        self.pong(now, ping.sequence, out);
        Session::Continue
    }

    /// The coordinator that let this server in says how far it is, with a ping or an order. Before anything is done that comes of it: whoever leads with an
    /// older state is told of this one.
    pub fn hear_position(
        &mut self,
        told: Option<Position>,
        out: &mut impl ShardEffects,
    ) -> Session {
        let leader = self.membership.link.as_ref().and_then(|link| link.leader);
        if let (Some(leader), Some(told)) = (leader, told)
            && !told.is_of_same_leader(&leader)
        {
            let event = MembershipEvent::TermChanged {
                welcomed_in: leader.term,
                told: told.term,
            };
            out.report(event.into());
            return Session::Close;
        }
        self.membership.learn_position(told);
        Session::Continue
    }

    /// Makes the shard own exactly these tablets.
    fn resynchronize(&mut self, tablets: &[TabletRange], out: &mut impl ShardEffects) -> Session {
        let mut wanted = tablets.to_vec();
        wanted.sort_unstable();
        // A tablet that was split while the coordinator was out of reach is the same data in more tablets. A state from before a split knows the parts
        // by one name: it is the same data, too.
        for whole in self.store.tablets.reshape(&wanted) {
            self.migrations.forget_outgoing(&mut self.store, &whole);
        }
        let mut surplus = self.store.tablets.all().to_vec();
        surplus.retain(|owned| wanted.binary_search(owned).is_err());
        self.drop_tablets(&surplus, out);
        self.take_tablets(wanted, out)
    }

    /// Takes all tablets of a welcome; see [`Self::take_tablet`].
    fn take_tablets(&mut self, wanted: Vec<TabletRange>, out: &mut impl ShardEffects) -> Session {
        let (later, now): (Vec<_>, Vec<_>) = wanted
            .into_iter()
            .filter(|tablet| !self.store.tablets.has(tablet))
            .partition(|tablet| self.store.is_purging(tablet));
        let is_free = |tablet: &TabletRange| {
            !self.recoveries.overlap(tablet) && !self.migrations.overlap(tablet)
        };
        if !now.iter().all(is_free) || !self.store.tablets.take_all(&now) {
            return refuse_overlap(out);
        }
        let waiting = &mut self.membership.waiting;
        waiting.extend(later.into_iter().map(|tablet| (None, tablet)));
        Session::Continue
    }

    fn refused(&mut self, refused: member::Refused, out: &mut impl ShardEffects) -> Session {
        if refused.reason() == member::RefusedReason::Superseded || self.membership.superseded {
            return self.end_service(Refusal::Told(refused.text), out);
        }
        self.membership.refusal = Some(Refusal::Told(refused.text));
        self.membership.link = None;
        Session::Close
    }

    /// Others are trusted with what this process had: it holds nothing and serves nothing from now on.
    pub(crate) fn end_service(&mut self, why: Refusal, out: &mut impl ShardEffects) -> Session {
        self.membership.superseded = true;
        self.start_over(None, 1, out);
        self.membership.refusal = Some(why);
        self.membership.link = None;
        Session::Close
    }

    /// Which backups are to leave the store.
    fn note_draining(&mut self, list: &member::Backups) {
        if let Some(link) = &mut self.membership.link {
            link.list_number = list.number;
            let draining = list.backups.iter().filter(|backup| backup.is_draining);
            link.draining = draining.map(|backup| ServerId(backup.server_id)).collect();
        }
    }

    /// What is on these; of no list before this session had one.
    fn on_draining(&self) -> member::OnDraining {
        let Some(link) = &self.membership.link else {
            return member::OnDraining::default();
        };
        let at = link.draining.iter().map(|&backup| member::CopiesAt {
            backup: backup.0,
            segments: self.replicas.segments_at(backup),
        });
        member::OnDraining {
            list_number: link.list_number,
            backups: at.collect(),
        }
    }

    /// The driver has found something out about the process's ports: the coordinator is told soon.
    pub fn report_ports(&mut self, ports: Vec<PortReport>) {
        self.membership.ports = ports;
    }

    fn pong(&mut self, now: Time, sequence: u64, out: &mut impl ShardEffects) {
        let (loads, ports) = match self.membership.is_connected() {
            true => (
                self.loads.pinged(&self.store),
                std::mem::take(&mut self.membership.ports),
            ),
            false => Default::default(),
        };
        let replication = self.replication_report().unwrap_or_default();
        let usage = self.store.log.usage();
        let room = member::LogRoom {
            max_live_bytes: usage.max_live_bytes,
            tombstone_bytes: usage.tombstone_bytes,
            full_rejections: self.counters.rejected_full,
            full: self.fullness.report(now),
        };
        let pong = member::Pong {
            sequence,
            log_live_bytes: usage.live_bytes,
            object_count: self.store.object_count,
            segments: replication.segments,
            segments_short: replication.segments_short,
            backups: replication.backups,
            serving: self.membership.is_enlisted() && self.is_serving(now),
            next_version: self.store.next_version(),
            migration: self.migrations.progress(),
            on_draining: Some(self.on_draining()),
            loads,
            settings: self.membership.settings,
            replicas: Some(self.config.replication.map_or(0, |it| it.replicas.into())),
            ports,
            room: Some(room),
        };
        out.send_coordinator(message(shard::Kind::Pong(pong)));
    }

    /// Takes a tablet, empty; later, if objects of it are still here from before.
    fn take_tablet(
        &mut self,
        sequence: Option<u64>,
        tablet: TabletRange,
        out: &mut impl ShardEffects,
    ) -> Session {
        if self.store.tablets.has(&tablet) {
            // Owned since the last session.
        } else if self.store.is_purging(&tablet) {
            self.membership.waiting.push((sequence, tablet));
            return Session::Continue;
        } else if self.recoveries.overlap(&tablet)
            || self.migrations.overlap(&tablet)
            || !self.store.tablets.take(tablet)
        {
            return refuse_overlap(out);
        }
        if let Some(sequence) = sequence {
            done(sequence, out);
        }
        Session::Continue
    }

    /// Gives up tablets, which are in order.
    fn drop_tablets(&mut self, tablets: &[TabletRange], out: &mut impl ShardEffects) {
        if tablets.is_empty() {
            return;
        }
        for tablet in tablets {
            self.migrations.forget_outgoing(&mut self.store, tablet);
        }
        self.store.drop_tablets(tablets);
        let waiting = &mut self.membership.waiting;
        waiting.retain(|(sequence, waits)| {
            let given_up = tablets.binary_search(waits).is_ok();
            if let (true, Some(sequence)) = (given_up, *sequence) {
                done(sequence, out);
            }
            !given_up
        });
    }

    /// Makes two of a tablet that is owned, or is about to be. One that is not any more was dropped meanwhile.
    fn split_tablet(&mut self, table_id: TableId, key_hash: u64, out: &mut impl ShardEffects) {
        self.migrations
            .split(&mut self.store, table_id, key_hash, out);
        if self.store.tablets.split(table_id, key_hash) || self.recoveries.split(table_id, key_hash)
        {
            return;
        }
        let waiting = &mut self.membership.waiting;
        let inside = |tablet: &TabletRange| {
            tablet.table_id == table_id.0
                && tablet.start_key_hash < key_hash
                && key_hash <= tablet.end_key_hash
        };
        if let Some((_, first)) = waiting.iter_mut().find(|(_, tablet)| inside(tablet)) {
            let second = TabletRange {
                start_key_hash: key_hash,
                ..*first
            };
            first.end_key_hash = key_hash - 1;
            waiting.push((None, second));
        }
    }

    /// Makes one tablet of several that are owned. A welcome that names the whole does the same.
    fn merge_tablets(&mut self, whole: &TabletRange, out: &mut impl ShardEffects) {
        if self.store.tablets.merge(whole) {
            self.migrations.forget_outgoing(&mut self.store, whole);
            self.loads.were_merged(whole);
        } else if !self.store.tablets.has(whole) {
            let table_id = TableId(whole.table_id);
            out.report(MembershipEvent::CannotMerge { table_id }.into());
        }
    }

    /// The objects of dropped tablets are gone: takes what waited for that.
    pub(crate) fn take_waiting_tablets(&mut self, out: &mut impl ShardEffects) {
        for (sequence, tablet) in std::mem::take(&mut self.membership.waiting) {
            // An overlap was reported in the log; the next welcome puts it right.
            let _ = self.take_tablet(sequence, tablet, out);
        }
    }

    fn lease_answer(&mut self, now: Time, answer: &member::LeaseAnswer) {
        self.leases.learn_time(now, answer.cluster_time_ns);
        if !self.leases.answered(answer.lease_id) {
            return;
        }
        let max_clients = self.config.max_clients;
        let results = &mut self.store.keeper.results;
        if answer.expiration_ns > answer.cluster_time_ns {
            results.admit(answer.lease_id, answer.expiration_ns, max_clients);
        } else {
            self.leases.remember_ended(answer.lease_id);
            results.forget(answer.lease_id, |record| self.store.log.kill(record));
        }
    }

    fn control_order(&mut self, now: Time, control: &member::Control, out: &mut impl ShardEffects) {
        let response = self.control(now, control.op, &control.input, out);
        out.send_coordinator(message(shard::Kind::ControlDone(member::ControlDone {
            sequence: control.sequence,
            response,
        })));
    }

    /// Whether a coordinator would hear what is said to it.
    pub(crate) fn has_coordinator(&self) -> bool {
        self.membership.link.is_some()
    }

    /// Asks the coordinator where a server is; once it is back, if it is away.
    pub(crate) fn locate_server(&self, server_id: ServerId, out: &mut impl ShardEffects) {
        if self.membership.link.is_some() {
            let question = member::LocateServer {
                server_id: server_id.0,
            };
            out.send_coordinator(message(shard::Kind::LocateServer(question)));
        }
    }
}

fn refuse_overlap(out: &mut impl ShardEffects) -> Session {
    out.report(MembershipEvent::Overlap.into());
    Session::Close
}

fn done(sequence: u64, out: &mut impl ShardEffects) {
    let done = member::TabletDone { sequence };
    out.send_coordinator(message(shard::Kind::TabletDone(done)));
}
