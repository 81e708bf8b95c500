//! Between sockets and the coordinator's state machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use coordinator::status::{ClusterStatus, Removal, RemoveMemberError, TablePage};
use coordinator::{Config, Coordinator, Output};
use net::{CloseReason, Counters, Handler, Io};
use prost::Message;
use tokio::sync::oneshot;
use wire::ids::ReplyTo;
use wire::member::{ToCoordinator, ToShard};
use wire::time::Time;

use crate::logging::log_message;
use crate::runtime::end_process;

/// A member connection that has not said who it is by then is closed.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// What other threads ask.
pub enum Question {
    Status(oneshot::Sender<(ClusterStatus, Counters)>),
    Tables {
        after_table_id: u64,
        page_size: u32,
        answer: oneshot::Sender<TablePage>,
    },
    RemoveMember {
        removal: Removal,
        answer: oneshot::Sender<Result<(), RemoveMemberError>>,
    },
}

pub struct Driver {
    coordinator: Coordinator,
    client_listener: usize,
    /// Member connections.
    members: BTreeSet<u64>,
    /// Those of which nothing was heard yet, with the time by which it must be.
    strangers: BTreeMap<u64, Time>,
    inbox: Receiver<Question>,
    /// Room for messages, used again and again.
    encoded: Vec<u8>,
}

impl Driver {
    pub fn new(config: Config, client_listener: usize, inbox: Receiver<Question>) -> Driver {
        Driver {
            coordinator: Coordinator::new(config, net::now()),
            client_listener,
            members: BTreeSet::new(),
            strangers: BTreeMap::new(),
            inbox,
            encoded: Vec::new(),
        }
    }

    /// The state machine, and what carries out its actions.
    fn split<'a>(&'a mut self, io: &'a mut Io) -> (&'a mut Coordinator, Actions<'a>) {
        let Driver {
            coordinator,
            members,
            encoded,
            ..
        } = self;
        (
            coordinator,
            Actions {
                io,
                members,
                encoded,
            },
        )
    }

    fn member_frame(&mut self, now: Time, connection: u64, payload: &[u8], io: &mut Io) {
        self.strangers.remove(&connection);
        match ToCoordinator::decode(payload) {
            Ok(message) => {
                let (coordinator, mut out) = self.split(io);
                coordinator.member_message(now, connection, message, &mut out);
            }
            Err(error) => {
                tracing::warn!(
                    "closed a member connection: a message that cannot be read: {error}"
                );
                self.member_gone(now, connection, io);
                io.close(connection);
            }
        }
    }

    fn member_gone(&mut self, now: Time, connection: u64, io: &mut Io) {
        self.strangers.remove(&connection);
        self.members.remove(&connection);
        let (coordinator, mut out) = self.split(io);
        coordinator.member_closed(now, connection, &mut out);
    }

    fn answer(&mut self, now: Time, question: Question, io: &mut Io) {
        let counters = io.counters();
        let (coordinator, mut out) = self.split(io);
        // Whoever asked may have given up: then nobody reads the answer.
        match question {
            Question::Status(answer) => {
                drop(answer.send((coordinator.cluster_status(now), counters)))
            }
            Question::Tables {
                after_table_id,
                page_size,
                answer,
            } => {
                drop(answer.send(coordinator.tables(after_table_id, page_size)));
            }
            Question::RemoveMember { removal, answer } => {
                drop(answer.send(coordinator.remove_member(now, &removal, &mut out)));
            }
        }
    }
}

impl Handler for Driver {
    fn opened(&mut self, now: Time, connection: u64, listener: Option<usize>, _io: &mut Io) {
        if listener != Some(self.client_listener) {
            self.members.insert(connection);
            self.strangers.insert(connection, now + HELLO_TIMEOUT);
        }
    }

    fn frame(&mut self, now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        if self.members.contains(&connection) {
            return self.member_frame(now, connection, payload, io);
        }
        let (coordinator, mut out) = self.split(io);
        coordinator.request(now, ReplyTo { connection, nonce }, payload, &mut out);
    }

    fn closed(&mut self, now: Time, connection: u64, reason: CloseReason, io: &mut Io) {
        if self.members.contains(&connection) {
            match reason {
                CloseReason::EndOfStream => tracing::debug!("a member connection ended"),
                reason => tracing::warn!("a member connection ended: {reason}"),
            }
            self.member_gone(now, connection, io);
        } else {
            self.coordinator.connection_closed(connection);
        }
    }

    fn woken(&mut self, now: Time, io: &mut Io) {
        while let Ok(question) = self.inbox.try_recv() {
            self.answer(now, question, io);
        }
    }

    fn tick(&mut self, now: Time, io: &mut Io) -> Time {
        let overdue: Vec<u64> = self
            .strangers
            .iter()
            .filter(|(_, by)| now >= **by)
            .map(|(connection, _)| *connection)
            .collect();
        for connection in overdue {
            tracing::warn!("closed a member connection that did not say who it is");
            self.member_gone(now, connection, io);
            io.close(connection);
        }
        let next_stranger = self
            .strangers
            .values()
            .min()
            .copied()
            .unwrap_or(Time::NEVER);
        let (coordinator, mut out) = self.split(io);
        let next = coordinator.tick(now, &mut out).min(next_stranger);
        // Nothing keeps them yet.
        drop(coordinator.take_changes(now));
        next
    }
}

struct Actions<'a> {
    io: &'a mut Io,
    members: &'a mut BTreeSet<u64>,
    encoded: &'a mut Vec<u8>,
}

impl Output for Actions<'_> {
    fn reply(&mut self, to: ReplyTo, payload: &[u8]) {
        self.io.send(to.connection, to.nonce, &[payload]);
    }

    fn send_member(&mut self, connection: u64, message: ToShard) {
        self.encoded.clear();
        // A vector takes any message.
        if message.encode(self.encoded).is_ok() {
            self.io.send(connection, 0, &[self.encoded]);
        }
    }

    fn close_member(&mut self, connection: u64) {
        self.members.remove(&connection);
        self.io.close(connection);
    }

    fn log_message(&mut self, level: u32, text: &str) {
        log_message(level, text);
    }

    fn end_process(&mut self) {
        end_process();
    }
}
