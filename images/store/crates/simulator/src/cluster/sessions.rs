//! Sessions of the member protocol, and the connections that they go over.

use base::time::Time;
use prost::Message;
use transport::session::{Closed, Heard as Verdict, Incoming, What};
use wire::format::Formats;
use wire::member;
use wire::member::{Numbers, ToCoordinator, ToShard};

use crate::cluster::Cluster;
use crate::cluster::hosts::coordinator_host;
use crate::cluster::leaders::Heard;
use crate::cluster::server_host;
use crate::net::network::Packet;

impl Cluster {
    // ---- at the coordinator ----

    pub fn coordinator_message(&mut self, process: usize, connection: u64, payload: &[u8]) {
        let mut message = match ToCoordinator::decode_bounded(payload) {
            Ok(message) => message,
            Err(error) => return self.fail(format!("a shard's message is malformed: {error}")),
        };
        let Some(node) = &mut self.coordinators[process].node else {
            return;
        };
        if !node.numbers_messages {
            message.numbers = None;
        }
        match node.sessions.incoming(connection, &message) {
            Incoming::Message(session) => {
                self.note_message(process, &message);
                self.coordinator_hears(process, Heard::Message(session, Box::new(message)));
            }
            Incoming::Resumed {
                session,
                messages,
                former,
            } => {
                self.coverage.hit("member sessions that went on");
                if let Some(former) = former {
                    self.close_at_coordinator(process, former);
                }
                for encoded in messages {
                    self.send_order(process, (session, connection), &encoded);
                }
                self.coordinator_hears(process, Heard::MemberAgain(session));
            }
            Incoming::Nothing => {}
            Incoming::Wrong => self.fail(format!("a shard's message is out of turn: {message:?}")),
        }
    }

    fn note_message(&mut self, process: usize, message: &ToCoordinator) {
        if let Some(member::shard::Kind::Hello(hello)) = &message.kind
            && hello.cluster_id != 0
            && let Some(state) = self.coordinators[process]
                .node
                .as_ref()
                .and_then(|it| it.state())
            && state.cluster_status(Time::ZERO).cluster_id == hello.cluster_id
        {
            self.coverage.hit("member sessions resumed");
        }
        if let Some(member::shard::Kind::LeaseQuery(_)) = &message.kind {
            self.coverage.hit("lease queries");
        }
    }

    /// A member connection is gone.
    pub fn member_connection_over(&mut self, process: usize, connection: u64) {
        let Some(node) = &mut self.coordinators[process].node else {
            return;
        };
        node.members.remove(&connection);
        match node.sessions.closed(connection) {
            Closed::Interrupted(session) => {
                self.coordinator_hears(process, Heard::MemberInterrupted(session));
            }
            Closed::Over(session) => self.coordinator_hears(process, Heard::MemberGone(session)),
            Closed::Nothing => {}
        }
    }

    /// The coordinator says something on a session.
    pub fn send_on_session(&mut self, process: usize, session: u64, message: ToShard) {
        let Some(node) = &mut self.coordinators[process].node else {
            return;
        };
        let what = What::of(&message);
        let sent = (node.sessions).outgoing(session, what, message.encode_to_vec());
        if let Some((connection, encoded)) = sent {
            self.send_order(process, (session, connection), &encoded);
        }
    }

    pub fn end_session(&mut self, process: usize, session: u64) {
        let Some(node) = &mut self.coordinators[process].node else {
            return;
        };
        if let Some(connection) = node.sessions.end(session) {
            self.close_at_coordinator(process, connection);
        }
    }

    fn close_at_coordinator(&mut self, process: usize, connection: u64) {
        self.parties.remove(&(connection, 1));
        if let Some(node) = &mut self.coordinators[process].node {
            node.members.remove(&connection);
        }
        self.network.close(self.now, connection, 1);
    }

    /// Something leaves on a session, by the connection that it has.
    fn send_order(&mut self, process: usize, on: (u64, u64), encoded: &[u8]) {
        let message = match ToShard::decode(encoded) {
            Ok(message) => message,
            Err(error) => return self.fail(format!("an order is malformed: {error}")),
        };
        self.note_made_again(process, &message);
        self.note_order(coordinator_host(process), on, &message);
        self.send_encoded(on.1, 1, encoded);
    }

    // ---- at a shard ----

    /// Whether a build does. Where builds differ, the older one loses its sessions with their connections, as builds did at first.
    pub fn numbers_messages(&self, formats: Formats) -> bool {
        !self.has_builds() || formats != Formats::CURRENT
    }

    /// A shard's first message on a connection.
    pub fn say_hello(&mut self, server: usize, shard: usize, connection: u64) {
        let numbers_messages = self.numbers_messages(self.servers[server].formats);
        let node = &mut self.servers[server].shards[shard];
        if let Some(link) = &mut node.link {
            link.is_open = true;
        }
        let kind = member::shard::Kind::Hello(node.core.hello());
        let hello = ToCoordinator {
            numbers: numbers_messages.then(|| node.session.hello()),
            ..ToCoordinator::from(kind)
        };
        let preface = Packet::Bytes(transport::member::preface().to_vec());
        self.network.send(self.now, connection, 0, preface);
        self.send_encoded(connection, 0, &hello.encode_to_vec());
    }

    pub fn send_to_coordinator(&mut self, server: usize, shard: usize, message: ToCoordinator) {
        let node = &mut self.servers[server].shards[shard];
        let encoded = node.session.send(message);
        let link = node.link.as_ref().filter(|link| link.is_open);
        if let (Some(encoded), Some(connection)) = (encoded, link.map(|link| link.connection)) {
            self.send_encoded(connection, 0, &encoded);
        }
    }

    /// Whether a shard is to obey this.
    pub fn session_hears(&mut self, server: usize, shard: usize, message: &ToShard) -> bool {
        let now = self.clock(server_host(server));
        let node = &mut self.servers[server].shards[shard];
        match node.session.heard(message) {
            Verdict::Message => true,
            Verdict::Anew => {
                node.core.coordinator_lost(now);
                true
            }
            Verdict::Resumed(messages) => {
                node.failed_links = 0;
                let link = node.link.as_mut();
                let connection = link.map(|link| {
                    link.is_welcomed = true;
                    link.connection
                });
                for encoded in messages {
                    if let Some(connection) = connection {
                        self.send_encoded(connection, 0, &encoded);
                    }
                }
                false
            }
            Verdict::Wrong => {
                self.fail(format!("an order is out of turn: {message:?}"));
                false
            }
        }
    }

    /// Nothing was heard for too long, or what was heard ended the session.
    pub fn end_session_of(&mut self, server: usize, shard: usize) {
        let now = self.clock(server_host(server));
        let node = &mut self.servers[server].shards[shard];
        if node.session.hello() != Numbers::default() {
            node.session.end();
            node.core.coordinator_lost(now);
        }
    }
}
