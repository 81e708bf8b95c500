//! Between sockets and one shard's state machine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use master::{DriverCounters, Output, Session as Verdict, Shard, Stats};
use net::{Address, CloseReason, Counters, Handler, Io, Protocol};
use prost::Message;
use tokio::sync::oneshot;
use wire::ids::ReplyTo;
use wire::locator::parse_list;
use wire::member::{ToCoordinator, ToShard, coordinator, shard};
use wire::time::Time;

use super::probe::State;
use super::session::{Due, Session};
use crate::logging::log_message;
use crate::runtime::end_process;

/// What other threads ask.
pub enum Question {
    Numbers(oneshot::Sender<(Stats, Counters)>),
}

pub struct Driver {
    shard: Shard,
    session: Session,
    inbox: Receiver<Question>,
    state: Arc<State>,
    /// Connections to other servers.
    servers: BTreeSet<u64>,
    /// Room for messages, used again and again.
    encoded: Vec<u8>,
}

impl Driver {
    pub fn new(
        shard: Shard,
        session: Session,
        inbox: Receiver<Question>,
        state: Arc<State>,
    ) -> Driver {
        Driver {
            shard,
            session,
            inbox,
            state,
            servers: BTreeSet::new(),
            encoded: Vec::new(),
        }
    }

    /// The state machine, and what carries out its actions.
    fn split<'a>(&'a mut self, io: &'a mut Io) -> (&'a mut Shard, Actions<'a>) {
        let Driver {
            shard,
            session,
            servers,
            encoded,
            ..
        } = self;
        (
            shard,
            Actions {
                io,
                coordinator: session.open_connection(),
                servers,
                encoded,
            },
        )
    }

    fn member_frame(&mut self, now: Time, connection: u64, payload: &[u8], io: &mut Io) {
        let message = match ToShard::decode(payload) {
            Ok(message) => message,
            Err(error) => {
                tracing::warn!("the coordinator sent a message that cannot be read: {error}");
                io.close(connection);
                return self.lost(now);
            }
        };
        if let Some(coordinator::Kind::Welcome(_)) = &message.kind {
            self.session.welcomed();
        }
        let (shard, mut out) = self.split(io);
        let verdict = shard.coordinator_message(now, message, &mut out);
        if verdict == Verdict::Close {
            io.close(connection);
            self.lost(now);
        }
        self.publish();
    }

    fn lost(&mut self, now: Time) {
        self.session.lost(now);
        self.shard.coordinator_lost(now);
        if self.shard.is_superseded() {
            self.session.end();
        }
        self.publish();
    }

    fn publish(&self) {
        self.state
            .set(self.shard.is_enlisted(), self.shard.refusal());
    }

    fn tend_session(&mut self, now: Time, io: &mut Io) {
        let silent = self
            .session
            .open_connection()
            .filter(|_| self.shard.session(now) == Verdict::Close);
        let due = silent.map_or_else(|| self.session.due(now), Due::GiveUp);
        match due {
            Due::Nothing => {}
            Due::Connect(address) => {
                let connection = io.connect(&address, Protocol::Member);
                self.session.connecting(connection);
            }
            Due::GiveUp(connection) => {
                tracing::warn!("the coordinator is silent; connecting again");
                io.close(connection);
                self.lost(now);
            }
        }
    }
}

impl Handler for Driver {
    fn opened(&mut self, now: Time, connection: u64, listener: Option<usize>, io: &mut Io) {
        if listener.is_none() && self.session.is(connection) {
            self.session.opened(now, connection);
            let hello = shard::Kind::Hello(self.shard.hello());
            let (_, mut out) = self.split(io);
            out.send_coordinator(ToCoordinator { kind: Some(hello) });
        } else if self.servers.contains(&connection) {
            let (shard, mut out) = self.split(io);
            shard.server_connected(connection, &mut out);
        }
    }

    fn frame(&mut self, now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        if self.session.is(connection) {
            return self.member_frame(now, connection, payload, io);
        }
        let is_server = self.servers.contains(&connection);
        let (shard, mut out) = self.split(io);
        if is_server {
            return shard.server_answered(now, connection, nonce, payload, &mut out);
        }
        shard.request(now, ReplyTo { connection, nonce }, payload, &mut out);
    }

    fn closed(&mut self, now: Time, connection: u64, reason: CloseReason, io: &mut Io) {
        if self.session.is(connection) {
            // At length only once: a coordinator that is away for a while is reported when it goes.
            if self.session.open_connection().is_some() {
                tracing::warn!("connection to the coordinator lost: {reason}; connecting again");
            } else {
                tracing::debug!("coordinator: {reason}");
            }
            self.lost(now);
        } else if self.servers.remove(&connection) {
            let (shard, mut out) = self.split(io);
            shard.server_disconnected(connection, &mut out);
        }
    }

    fn woken(&mut self, _now: Time, io: &mut Io) {
        while let Ok(Question::Numbers(answer)) = self.inbox.try_recv() {
            // Whoever asked may have given up.
            let _ = answer.send((self.shard.stats(), io.counters()));
        }
    }

    fn tick(&mut self, now: Time, io: &mut Io) -> Time {
        self.tend_session(now, io);
        let (shard, mut out) = self.split(io);
        let next = shard.tick(now, &mut out);
        next.min(self.session.next_deadline())
    }
}

struct Actions<'a> {
    io: &'a mut Io,
    coordinator: Option<u64>,
    servers: &'a mut BTreeSet<u64>,
    encoded: &'a mut Vec<u8>,
}

impl Output for Actions<'_> {
    fn reply(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.io.send(to.connection, to.nonce, parts);
    }

    fn send_coordinator(&mut self, message: ToCoordinator) {
        let Some(connection) = self.coordinator else {
            return;
        };
        self.encoded.clear();
        // A vector takes any message.
        if message.encode(self.encoded).is_ok() {
            self.io.send(connection, 0, &[self.encoded]);
        }
    }

    fn log_message(&mut self, level: u32, text: &str) {
        log_message(level, text);
    }

    fn driver_counters(&self) -> DriverCounters {
        let counters = self.io.counters();
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let used_ns = used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64;
        DriverCounters {
            input_bytes: counters.bytes_in,
            output_bytes: counters.bytes_out,
            busy_ns: used_ns.saturating_sub(counters.spin_ns),
        }
    }

    fn connect_server(&mut self, locator: &str) -> Option<u64> {
        let locators = parse_list(locator).ok()?;
        let (host, port) = locators.iter().find_map(|locator| locator.tcp().ok())?;
        let connection = self.io.connect(&Address::new(host, port), Protocol::Rpc);
        self.servers.insert(connection);
        Some(connection)
    }

    fn send_server(&mut self, connection: u64, nonce: u64, payload: &[u8]) {
        // If the connection is gone, `closed` says so.
        self.io.send(connection, nonce, &[payload]);
    }

    fn close_server(&mut self, connection: u64) {
        if self.servers.remove(&connection) {
            self.io.close(connection);
        }
    }

    fn end_process(&mut self) {
        end_process();
    }
}
