//! The server as its driver sees it.

mod checkpoints;
mod peers;
mod storage;

use backup::{Backup, Storage};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use master::{Channel, Identity, LogPosition, Session, Shard};
use wire::format::Formats;
use wire::member::{self, Refused, RefusedReason, ToCoordinator, coordinator, shard};

use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::effects::ServerEffects;
use crate::end::End;
use crate::event::ServerEvent;
use crate::from_backup::Waiting;
use crate::reads::Reads;
use crate::report::Reports;
use crate::stage::Stage;

/// See the crate's documentation.
pub struct Server<S> {
    shard: Shard,
    stage: Stage<S>,
    /// The cluster that the volume belongs to, as it was found before it is opened; 0: none.
    volume: u64,
    checkpoint: Checkpoint,
    backup_only: bool,
    /// What this build reads.
    formats: Formats,
    /// What this server holds is not only its own: if others have taken over, a new process is of use again.
    restarts: bool,
    /// The coordinator has let the server in on the present session.
    is_welcome: bool,
    report: Reports,
    waiting: Waiting,
    /// Reads that recovery masters have asked for, until the backup begins them.
    reads: Reads,
    /// Room for what is read, used again and again.
    read: Vec<u8>,
    end: Option<End>,
}

impl<S: Storage> Server<S> {
    /// A server that holds nothing and is in no cluster yet.
    ///
    /// # Panics
    /// If the sizes of the master fit no log, or if the server is to be a backup only and there is none.
    pub fn new(config: Config, identity: Identity, now: Time) -> Server<S> {
        assert!(
            !config.backup_only || config.backup.is_some() && config.master.replication.is_none(),
            "a backup only has a backup, and no replicas of its own"
        );
        Server {
            backup_only: config.backup_only,
            formats: config.master.formats,
            restarts: config.backup.is_some() || config.master.replication.is_some(),
            shard: Shard::new(config.master, identity, now),
            stage: config.backup.map_or(Stage::Absent, Stage::Waiting),
            volume: 0,
            checkpoint: Checkpoint::default(),
            is_welcome: false,
            report: Reports::default(),
            waiting: Waiting::new(),
            reads: Reads::default(),
            read: Vec::new(),
            end: None,
        }
    }

    /// The volume that the backup will open belongs to this cluster ([`backup::owner`]): the coordinator is told before it lets the server in.
    pub fn volume_belongs_to(&mut self, cluster_id: u64) {
        self.volume = cluster_id;
    }

    /// See [`Shard::use_memory`].
    pub fn use_memory(&mut self, log: &'static mut [u8], hash_table: &'static mut [u64]) {
        self.shard.use_memory(log, hash_table);
    }

    /// What can be seen of the master.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The backup, once its storage is open.
    pub fn backup(&self) -> Option<&Backup<S>> {
        self.stage.backup()
    }

    /// For the driver's own purposes, as [`Backup::storage_mut`].
    pub fn backup_mut(&mut self) -> Option<&mut Backup<S>> {
        self.stage.backup_mut()
    }

    /// Why this process is of no use any more: the driver says so and ends it, as a failure.
    pub fn must_end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    fn end(&mut self, why: End) {
        self.end.get_or_insert(why);
    }

    // ---- the coordinator ----

    /// What to send first when the driver has connected to the coordinator.
    pub fn hello(&self) -> member::Hello {
        member::Hello {
            backup_only: self.backup_only,
            volume_cluster_id: self.stage.cluster_id().unwrap_or(self.volume),
            ..self.shard.hello()
        }
    }

    /// A message came from the coordinator on the present session.
    pub fn coordinator_message(
        &mut self,
        now: Time,
        message: member::ToShard,
        out: &mut impl ServerEffects,
    ) -> Session {
        use coordinator::Kind;
        match message.kind {
            // What comes before a welcome is out of order, whatever it is: the master says so.
            Some(kind @ (Kind::FenceLog(_) | Kind::ForgetLogs(_) | Kind::KeepCheckpoint(_)))
                if self.is_welcome =>
            {
                let session = self.shard.hear_position(message.position, out);
                if session == Session::Continue {
                    self.backup_order(now, kind, out);
                }
                session
            }
            Some(Kind::ReadCheckpoint(read)) if !self.is_welcome => {
                self.read_checkpoint(read, out);
                Session::Continue
            }
            Some(Kind::TakeTablet(_)) if self.backup_only => refuse_tablets(out),
            Some(Kind::Welcome(welcome)) if self.backup_only && !welcome.tablets.is_empty() => {
                refuse_tablets(out)
            }
            Some(Kind::Welcome(ref welcome)) => {
                let cluster_id = welcome.cluster_id;
                self.welcome(now, cluster_id, message, out)
            }
            Some(Kind::Refused(refused)) if self.is_of_wrong_version(&refused) => {
                self.end(End::WrongVersion(refused.text));
                Session::Close
            }
            Some(Kind::Activate(_)) => {
                let session = self.shard.coordinator_message(now, message, out);
                self.use_format(out);
                session
            }
            _ => self.shard.coordinator_message(now, message, out),
        }
    }

    /// What a shard has no part in.
    fn backup_order(&mut self, now: Time, kind: coordinator::Kind, out: &mut impl ServerEffects) {
        match kind {
            coordinator::Kind::FenceLog(log) => self.fence_log(now, ServerId(log.log), out),
            coordinator::Kind::ForgetLogs(logs) => self.forget_logs(now, &logs.logs, out),
            coordinator::Kind::KeepCheckpoint(part) => self.keep_checkpoint(part, out),
            _ => {}
        }
    }

    /// Whether this build will never be let in. One that holds something goes on asking.
    fn is_of_wrong_version(&self, refused: &Refused) -> bool {
        refused.reason() == RefusedReason::Version && !self.shard.is_enlisted()
    }

    fn welcome(
        &mut self,
        now: Time,
        cluster_id: u64,
        message: member::ToShard,
        out: &mut impl ServerEffects,
    ) -> Session {
        let session = self.shard.coordinator_message(now, message, out);
        if session == Session::Continue {
            self.is_welcome = true;
            self.checkpoint.forget();
            self.report.begin(now);
            self.use_storage(cluster_id, out);
            self.use_format(out);
        }
        session
    }

    /// The backup's storage is of the format of which the master's log is.
    fn use_format(&mut self, out: &mut impl ServerEffects) {
        let format = self.shard.format();
        self.with_backup(out, |backup, _| backup.activate(format));
    }

    /// See [`Shard::report_ports`].
    pub fn report_ports(&mut self, ports: Vec<member::PortReport>) {
        self.shard.report_ports(ports);
    }

    /// The connection to the coordinator is gone. What is there goes on being served.
    pub fn coordinator_lost(&mut self, now: Time) {
        self.is_welcome = false;
        self.checkpoint.forget();
        self.shard.coordinator_lost(now);
    }

    fn fence_log(&mut self, now: Time, log: ServerId, out: &mut impl ServerEffects) {
        // Without an open storage there is nothing to fence yet: the coordinator asks again when it has the backup's report.
        self.with_backup(out, |backup, out| backup.begin_recovery(now, log, out));
    }

    fn forget_logs(&mut self, now: Time, logs: &[u64], out: &mut impl ServerEffects) {
        let own = self.shard.server_id();
        for log in logs.iter().copied().map(ServerId) {
            if log == own {
                out.report_server(ServerEvent::OwnLogKept);
            } else {
                self.with_backup(out, |backup, _| backup.forget_log(now, log));
            }
        }
        self.report.changed();
    }

    // ---- clients, and servers that this one asks ----

    /// See [`Shard::foresee`].
    pub fn foresee<'a>(&mut self, requests: impl Iterator<Item = &'a [u8]>) {
        self.shard.foresee(requests);
    }

    /// See [`Shard::lent`].
    pub fn lent(&self, token: u64, length: usize) -> Option<&[u8]> {
        self.shard.lent(token, length)
    }

    /// See [`Shard::returned`].
    pub fn returned(&mut self, token: u64) {
        self.shard.returned(token);
    }

    /// See [`Shard::request`].
    pub fn request(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl ServerEffects,
    ) {
        self.shard.request(now, to, payload, out);
    }

    /// See [`Shard::advance_durable`].
    pub fn advance_durable(&mut self, position: LogPosition, out: &mut impl ServerEffects) {
        self.shard.advance_durable(position, out);
    }

    /// See [`Shard::server_connected`].
    pub fn server_connected(&mut self, connection: u64, out: &mut impl ServerEffects) {
        self.shard.server_connected(connection, out);
    }

    /// See [`Shard::server_answered`].
    pub fn server_answered(
        &mut self,
        now: Time,
        connection: u64,
        nonce: u64,
        payload: &[u8],
        out: &mut impl ServerEffects,
    ) {
        self.shard
            .server_answered(now, connection, nonce, payload, out);
    }

    /// See [`Shard::server_disconnected`].
    pub fn server_disconnected(&mut self, connection: u64, out: &mut impl ServerEffects) {
        self.shard.server_disconnected(connection, out);
    }

    // ---- backups: of this server's log, and of logs that it recovers ----

    /// See [`Shard::backup_connected`].
    pub fn backup_connected(
        &mut self,
        now: Time,
        channel: Channel,
        backup: ServerId,
        out: &mut impl ServerEffects,
    ) {
        self.shard.backup_connected(now, channel, backup, out);
    }

    /// See [`Shard::backup_disconnected`].
    pub fn backup_disconnected(
        &mut self,
        now: Time,
        channel: Channel,
        backup: ServerId,
        out: &mut impl ServerEffects,
    ) {
        self.shard.backup_disconnected(now, channel, backup, out);
    }

    /// See [`Shard::backup_answer`].
    pub fn backup_answer(
        &mut self,
        now: Time,
        channel: Channel,
        backup: ServerId,
        nonce: u64,
        payload: &[u8],
        out: &mut impl ServerEffects,
    ) {
        self.shard
            .backup_answer(now, channel, backup, nonce, payload, out);
    }

    // ---- time ----

    /// Does what is due. The driver calls this after every batch of events, and no later than at the time that it answers (`now` if there is
    /// more to do, [`Time::NEVER`] if nothing is planned); then it looks at [`Self::must_end`].
    pub fn tick(&mut self, now: Time, out: &mut impl ServerEffects) -> Time {
        let of_master = self.shard.tick(now, out);
        let ailed = self.stage.backup().map(Backup::ails);
        let of_backup = self.with_backup(out, |backup, out| backup.tick(now, out));
        let of_reads = self.begin_reads(now, out);
        if self.stage.backup().map(Backup::ails) != ailed {
            self.report.changed();
        }
        self.tend_checkpoint(now, out);
        let of_report = self.report(now, out);
        self.look_for_successors();
        of_master
            .min(of_reads)
            .min(of_backup.unwrap_or(Time::NEVER))
            .min(of_report)
    }

    fn report(&mut self, now: Time, out: &mut impl ServerEffects) -> Time {
        let Some(backup) = self.stage.backup().filter(|_| self.is_welcome) else {
            return Time::NEVER;
        };
        if self.report.due_at() <= now
            && let Some(report) = self.report.make(now, backup)
        {
            let kind = shard::Kind::BackupReport(report);
            out.send_coordinator(ToCoordinator::from(kind));
        }
        self.report.due_at()
    }

    /// Others have what this server had. A process that holds replicas, or whose own are elsewhere, begins anew as another incarnation.
    fn look_for_successors(&mut self) {
        if self.shard.is_deposed() {
            self.end(End::Deposed);
        } else if self.restarts && self.shard.is_superseded() {
            let refusal = self.shard.refusal().cloned();
            self.end(End::Superseded(refusal));
        }
    }
}

fn refuse_tablets(out: &mut impl ServerEffects) -> Session {
    out.report_server(ServerEvent::TabletRefused);
    Session::Close
}
