//! Between sockets, threads and one shard's state machine.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use base::ids::ReplyTo;
use base::time::Time;
use daemon::runtime::end_process;
use daemon::security::Security;
use master::{Session as Verdict, Stats};
use net::{CloseReason, Counters, Handler, Io, Options, PortKind, Protocol};
use prost::Message;
use server::Server;
use server::links::{ConnectionRole, Links};
use thiserror::Error;
use tls::Admits;
use tokio::sync::oneshot;
use transport::session::{Heard, ShardSession};
use wire::member::{PortReport, ToCoordinator, ToShard, coordinator, shard};

use super::actions::{Actions, Dialer, Unopened};
use super::port_report::{self, Ways};
use super::probe::State;
use super::processor::Processor;
use super::session::{Due, Session};
use super::storage::{AnyStorage, Event, Lane, Reporter};

/// Other threads learn until when the shard serves no later than this after it does.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(10);

/// What other threads ask.
pub enum Question {
    Numbers(oneshot::Sender<Numbers>),
    /// The process's ports are so: the coordinator is to be told, with whom this shard reaches by them.
    Ports(Vec<PortReport>),
}

/// What a shard has counted.
pub struct Numbers {
    pub stats: Stats,
    pub counters: Counters,
    /// All zeros until the shard is enlisted.
    pub replication: replication::Report,
    /// All zeros until its storage is open.
    pub backup: backup::Stats,
    pub ways: Ways,
}

#[derive(Debug, Error)]
#[error("the backup cannot be closed in order, and is checked when it is opened again: {0}")]
pub struct NotClosed(#[from] backup::StorageError);

/// What a driver is made of.
pub struct Parts {
    pub server: Server<AnyStorage>,
    pub session: Session,
    pub inbox: Receiver<Question>,
    pub state: Arc<State>,
    /// The listeners for other servers.
    pub peers: Vec<usize>,
    /// What this shard has beside TCP.
    pub ports: Vec<PortKind>,
    pub unopened: Option<Unopened>,
    /// The storage, as an error names it.
    pub place: String,
    pub events: Receiver<Event>,
    pub reporter: Reporter,
    /// How this thread polls, and whom it serves, where settings say nothing else.
    pub started_with: Options,
    pub security: Security,
}

/// A connection may end for other reasons as one does at a coordinator that speaks no TLS, and then it is not to be plain.
const PLAIN_ENDINGS: u32 = 3;

pub struct Driver {
    parts: Parts,
    links: Links,
    publish_at: Time,
    /// Time of ticks in which the cleaner was at work.
    cleaner_ns: u64,
    /// The storage cannot be used.
    is_unusable: bool,
    /// With the coordinator, over one connection after another.
    member: ShardSession,
    processor: Processor,
    /// So many handshakes with a coordinator, one after the other, have ended as with one that speaks no TLS.
    plain_endings: u32,
    /// Something has come on the present connection with the coordinator. Who opens an encrypted one hears only then that it is let in.
    is_heard: bool,
    /// Why the last one failed that was told of.
    handshake_failed: String,
}

impl Driver {
    pub fn new(parts: Parts) -> Driver {
        Driver {
            // No two shards begin at the same moment.
            links: Links::new(net::protocols(parts.ports.clone()), net::now().0),
            parts,
            publish_at: Time::ZERO,
            cleaner_ns: 0,
            is_unusable: false,
            member: ShardSession::default(),
            processor: Processor::default(),
            plain_endings: 0,
            is_heard: false,
            handshake_failed: String::new(),
        }
    }

    /// The process was told to end.
    ///
    /// # Errors
    /// The storage fails.
    pub fn finish(mut self) -> Result<(), NotClosed> {
        Ok(self.parts.server.close_in_order()?)
    }

    /// The state machine, and what carries out its actions.
    fn split<'a>(&'a mut self, io: &'a mut Io) -> (&'a mut Server<AnyStorage>, Actions<'a>) {
        let Parts {
            server,
            session,
            unopened,
            reporter,
            started_with,
            security,
            ..
        } = &mut self.parts;
        (
            server,
            Actions {
                io,
                coordinator: session.open_connection(),
                links: &mut self.links,
                cleaner_ns: self.cleaner_ns,
                processor: &self.processor,
                unopened,
                reporter,
                started_with,
                member: &mut self.member,
                security,
            },
        )
    }

    fn member_frame(&mut self, now: Time, connection: u64, payload: &[u8], io: &mut Io) {
        let message = match ToShard::decode_bounded(payload) {
            Ok(message) => message,
            Err(error) => {
                tracing::warn!("the coordinator sent a message that cannot be read: {error}");
                io.close(connection);
                return self.lost(now);
            }
        };
        self.is_heard = true;
        match self.member.heard(&message) {
            Heard::Message => {}
            Heard::Anew => self.parts.server.coordinator_lost(now),
            Heard::Resumed(again) => {
                self.parts.session.welcomed();
                tracing::info!("the session with the coordinator goes on, on another connection");
                for message in again {
                    io.send(connection, 0, &[&message]);
                }
                return;
            }
            Heard::Wrong => {
                tracing::warn!("the coordinator sent a message that is out of turn");
                io.close(connection);
                return self.lost(now);
            }
        }
        match &message.kind {
            Some(coordinator::Kind::Welcome(_)) => self.parts.session.welcomed(),
            Some(coordinator::Kind::ReadCheckpoint(_)) => self.parts.session.heard(now),
            _ => {}
        }
        let (server, mut out) = self.split(io);
        let verdict = server.coordinator_message(now, message, &mut out);
        if verdict == Verdict::Close {
            io.close(connection);
            self.lost(now);
        }
        self.publish();
    }

    /// The connection to the coordinator is gone, or could not be made. The session waits for the next one.
    fn disconnected(&mut self, now: Time) {
        let was_open = self.parts.session.open_connection().is_some();
        if !self.member.disconnected() {
            return self.lost(now);
        }
        match was_open && (self.is_heard || self.parts.security.allows_plain()) {
            true => self.parts.session.interrupted(now),
            false => self.parts.session.lost(now),
        }
    }

    /// A connection to the coordinator has ended. While a store changes to encryption, one that does not speak TLS is tried without; each other
    /// reason is said once, for nothing but another certificate helps.
    fn note_handshake(&mut self, reason: &CloseReason) {
        let CloseReason::Handshake(error) = reason else {
            self.plain_endings = 0;
            return;
        };
        self.plain_endings = match error.may_be_plain() {
            true => self.plain_endings + 1,
            false => 0,
        };
        let text = error.to_string();
        if text != self.handshake_failed
            && !(error.may_be_plain() && self.parts.security.allows_plain())
        {
            tracing::warn!("the coordinator cannot be reached: {text}");
            self.handshake_failed = text;
        }
    }

    /// The session with the coordinator is over.
    fn lost(&mut self, now: Time) {
        let Parts {
            server, session, ..
        } = &mut self.parts;
        session.lost(now);
        self.member.end();
        server.coordinator_lost(now);
        if server.shard().is_superseded() {
            session.end();
        }
        self.publish();
    }

    fn publish(&self) {
        let shard = self.parts.server.shard();
        let state = &self.parts.state;
        state.set(shard.is_enlisted(), shard.refusal());
        state.set_serving(shard.serving_until());
    }

    fn tend_session(&mut self, now: Time, io: &mut Io) {
        let Parts {
            server,
            session,
            security,
            ..
        } = &mut self.parts;
        if server.shard().session(now) == Verdict::Close {
            tracing::warn!("the coordinator is silent; connecting again");
            if let Some(connection) = session.connection() {
                io.close(connection);
            }
            return self.lost(now);
        }
        match session.due(now) {
            Due::Nothing => {}
            Due::Connect(address) => {
                self.is_heard = false;
                let is_plain = self.plain_endings >= PLAIN_ENDINGS;
                let secure = security.dial(Admits::Coordinator, !is_plain);
                let connection = match secure {
                    Some(secure) => io.connect_securely(&address, Protocol::Member, secure),
                    None => io.connect(&address, Protocol::Member),
                };
                session.connecting(connection);
            }
            Due::GiveUp(connection) => {
                tracing::warn!("the coordinator does not answer; connecting again");
                io.close(connection);
                self.disconnected(now);
            }
        }
    }

    fn storage_event(&mut self, now: Time, event: Event) {
        let Event::Opened(opened) = event;
        self.is_unusable = opened.is_err();
        self.parts.server.backup_opened(now, *opened);
        self.say_what_is_open();
    }

    /// Where the thread that has the shard is to carry out writes now.
    pub fn lane_to_carry_out(&mut self) -> Option<Arc<Lane>> {
        let backup = self.parts.server.backup_mut()?;
        backup.storage_mut().lane_to_carry_out()
    }

    /// It has.
    pub fn written(&mut self, now: Time, io: &mut Io) {
        let (server, mut out) = self.split(io);
        server.storage_completed(now, &mut out);
    }

    /// Another thread has the shard from now on: the calling one.
    pub fn thread_changed(&mut self) {
        self.processor.change_thread();
    }

    fn say_what_is_open(&self) {
        if let Some(backup) = self.parts.server.backup() {
            let (stats, logs) = (backup.stats(), backup.logs().count());
            let (free, damaged) = (stats.frames_free, stats.frames_damaged);
            tracing::info!(
                storage = self.parts.place,
                logs,
                free,
                damaged,
                "backup is open"
            );
        }
    }

    fn numbers(&self, io: &Io) -> Numbers {
        let server = &self.parts.server;
        Numbers {
            stats: server.shard().stats(),
            counters: io.counters(),
            replication: server.shard().replication_report().unwrap_or_default(),
            backup: server
                .backup()
                .map(|backup| backup.stats())
                .unwrap_or_default(),
            ways: Ways::count(&self.links, io),
        }
    }
}

impl Handler for Driver {
    fn opened(&mut self, now: Time, connection: u64, listener: Option<usize>, io: &mut Io) {
        if let Some(listener) = listener {
            if self.parts.peers.contains(&listener) {
                self.links.add(connection, ConnectionRole::Peer);
            }
        } else if self.parts.session.is(connection) {
            self.parts.session.opened(now, connection);
            let kind = shard::Kind::Hello(self.parts.server.hello());
            let hello = ToCoordinator {
                numbers: Some(self.member.hello()),
                ..ToCoordinator::from(kind)
            };
            io.send(connection, 0, &[&hello.encode_to_vec()]);
        } else {
            let link = self.links.get(connection);
            let security = &self.parts.security;
            let mut dialer = Dialer { io, security };
            if let Some(ConnectionRole::Backup(channel, backup)) = link {
                self.links.backup_opened(now, connection, channel, backup);
            }
            if let Some(ConnectionRole::Trial(channel, backup)) = link
                && !self
                    .links
                    .faster_opened(now, connection, channel, backup, &mut dialer)
            {
                return;
            }
            let (server, mut out) = self.split(io);
            match link {
                Some(ConnectionRole::Server) => server.server_connected(connection, &mut out),
                Some(ConnectionRole::Backup(channel, backup)) => {
                    server.backup_connected(now, channel, backup, &mut out);
                }
                // Its master asks for another connection, and gets this one.
                Some(ConnectionRole::Trial(channel, backup)) => {
                    server.backup_disconnected(now, channel, backup, &mut out);
                }
                Some(ConnectionRole::Peer) | None => {}
            }
        }
    }

    fn foresee(&mut self, messages: &mut dyn Iterator<Item = &[u8]>) {
        self.parts.server.foresee(messages);
    }

    fn lent(&self, token: u64, length: usize) -> Option<&[u8]> {
        self.parts.server.lent(token, length)
    }

    fn returned(&mut self, token: u64) {
        self.parts.server.returned(token);
    }

    fn frame(&mut self, now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        if self.parts.session.is(connection) {
            return self.member_frame(now, connection, payload, io);
        }
        let link = self.links.get(connection);
        let (server, mut out) = self.split(io);
        let to = ReplyTo { connection, nonce };
        match link {
            None => server.request(now, to, payload, &mut out),
            Some(ConnectionRole::Peer) => server.peer_request(now, to, payload, &mut out),
            Some(ConnectionRole::Backup(channel, backup)) => {
                server.backup_answer(now, channel, backup, nonce, payload, &mut out);
            }
            Some(ConnectionRole::Server) => {
                server.server_answered(now, connection, nonce, payload, &mut out);
            }
            // Nothing was asked there yet.
            Some(ConnectionRole::Trial(..)) => {}
        }
    }

    fn closed(&mut self, now: Time, connection: u64, reason: CloseReason, io: &mut Io) {
        if self.parts.session.is(connection) {
            // At length only once: a coordinator that is away for a while is reported when it goes.
            if self.parts.session.open_connection().is_some() {
                tracing::warn!("connection to the coordinator lost: {reason}; connecting again");
            } else {
                tracing::debug!("coordinator: {reason}");
            }
            self.note_handshake(&reason);
            return self.disconnected(now);
        }
        let known = self.links.get(connection);
        if let Some(link) = known {
            tracing::debug!("{link:?}: {reason}");
        }
        if let Some(link @ (ConnectionRole::Backup(..) | ConnectionRole::Trial(..))) = known
            && self.links.try_next(
                now,
                connection,
                link,
                &mut Dialer {
                    io,
                    security: &self.parts.security,
                },
            )
        {
            self.links.remove(connection);
            return;
        }
        let link = self.links.remove(connection);
        if let Some(ConnectionRole::Trial(channel, backup)) = link {
            return self.links.faster_failed(now, channel, backup);
        }
        let (server, mut out) = self.split(io);
        match link {
            Some(ConnectionRole::Server) => server.server_disconnected(connection, &mut out),
            Some(ConnectionRole::Backup(channel, backup)) => {
                server.backup_disconnected(now, channel, backup, &mut out);
            }
            Some(ConnectionRole::Peer) => server.peer_closed(connection),
            Some(ConnectionRole::Trial(..)) | None => {}
        }
    }

    fn woken(&mut self, now: Time, io: &mut Io) {
        while let Ok(question) = self.parts.inbox.try_recv() {
            match question {
                Question::Numbers(answer) => {
                    // Whoever asked may have given up.
                    let _ = answer.send(self.numbers(io));
                }
                Question::Ports(mut ports) => {
                    port_report::add_pings(now, &mut ports, &self.links, io);
                    self.parts.server.report_ports(ports);
                }
            }
        }
        while let Ok(event) = self.parts.events.try_recv() {
            self.storage_event(now, event);
        }
    }

    fn tick(&mut self, now: Time, io: &mut Io) -> Time {
        self.tend_session(now, io);
        for (channel, backup) in std::mem::take(&mut self.links.unreachable) {
            let (server, mut out) = self.split(io);
            server.backup_disconnected(now, channel, backup, &mut out);
        }
        for (channel, backup) in self.links.take_opened() {
            let (server, mut out) = self.split(io);
            server.backup_connected(now, channel, backup, &mut out);
        }
        let security = &self.parts.security;
        let look_at = self
            .links
            .look_for_faster(now, &mut Dialer { io, security });
        let (server, mut out) = self.split(io);
        let cleans_from = server.shard().is_cleaning().then(net::now);
        let next = server.tick(now, &mut out).min(look_at);
        if let Some(begun) = cleans_from {
            self.cleaner_ns += net::now().0.saturating_sub(begun.0);
        }
        if let Some(why) = self.parts.server.must_end() {
            match self.is_unusable {
                true => tracing::error!("{}: {why}", self.parts.place),
                false => tracing::error!("{why}"),
            }
            end_process();
        }
        if !self.links.unreachable.is_empty() || !self.links.opened.is_empty() {
            return now;
        }
        if now >= self.publish_at {
            self.publish_at = now + PUBLISH_INTERVAL;
            self.publish();
        }
        next.min(self.parts.session.next_deadline())
    }
}
