//! Connections: who hears what, and what each process then does.

use base::ids::ReplyTo;
use transport::member::MemberReader;
use transport::rpc::RpcReader;
use transport::{StreamReader, member, rpc};

use crate::cluster::leaders::Heard;
use crate::cluster::server::{FIRST_PEER_PORT, FIRST_PORT, MemberConnection};
use crate::cluster::{Cluster, host_name, server_host};
use crate::event::{Event, Party};
use crate::net::network::{Host, NetworkEvent, Packet};
use crate::scenario::{MILLI, SECOND};

const CLIENT_PORT: u16 = 11100;
const MEMBER_PORT: u16 = 11200;
/// How long a shard waits to be let in before it tries another connection, as the server program does.
const WELCOME_TIMEOUT: u64 = 5 * SECOND;

/// Feeds a reader and takes out what is complete.
fn frames(reader: &mut impl StreamReader, mut bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let space = reader.space();
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        reader.received(count);
        bytes = &bytes[count..];
        while let Some(frame) = reader.next_frame().map_err(|error| error.to_string())? {
            found.push((frame.nonce, frame.payload.to_vec()));
        }
    }
    Ok(found)
}

impl Cluster {
    pub fn network_event(&mut self, event: NetworkEvent) {
        match event {
            NetworkEvent::Arrive {
                connection,
                direction,
                sequence,
                packet,
            } => {
                let side = 1 - direction;
                if self
                    .network
                    .arrives(self.now, connection, direction, sequence, &packet)
                {
                    self.arrived(connection, side, packet);
                }
            }
            NetworkEvent::Broken { connection, side } => {
                if self.network.breaks(connection, side) {
                    self.connection_over(connection, side, "broken");
                }
            }
        }
    }

    fn note_connection(&mut self, connection: u64, side: usize, what: &str) {
        let host = self.network.host(connection, side).unwrap_or(u32::MAX);
        let other = self.network.host(connection, 1 - side).unwrap_or(u32::MAX);
        self.trace.event(
            self.now,
            || host_name(host),
            what,
            &[connection, side as u64],
            &[],
            || format!("connection {connection} with {}", host_name(other)),
        );
    }

    fn arrived(&mut self, connection: u64, side: usize, packet: Packet) {
        match packet {
            Packet::Open(port) => self.opening(connection, port),
            Packet::Accepted => self.accepted(connection),
            Packet::Refused => self.connection_over(connection, side, "refused"),
            Packet::Fin => self.connection_over(connection, side, "closed"),
            Packet::Bytes(bytes) => self.bytes(connection, side, &bytes),
        }
    }

    /// Somebody wants to connect.
    fn opening(&mut self, connection: u64, port: u16) {
        let Some(host) = self.network.host(connection, 1) else {
            return;
        };
        let party = self.listener(host, port);
        let Some(party) = party else {
            self.network.send(self.now, connection, 1, Packet::Refused);
            self.network.deafen(connection, 1);
            return;
        };
        self.parties.insert((connection, 1), party);
        self.network.send(self.now, connection, 1, Packet::Accepted);
        match party {
            Party::CoordinatorClient { process } => {
                if let Some(node) = &mut self.coordinators[process].node {
                    node.clients.insert(connection, RpcReader::default());
                }
            }
            Party::CoordinatorMember { process } => {
                if let Some(node) = &mut self.coordinators[process].node {
                    node.members.insert(connection, MemberReader::accepted());
                }
                let preface = Packet::Bytes(member::preface().to_vec());
                self.network.send(self.now, connection, 1, preface);
            }
            Party::ShardClient { server, shard } | Party::ShardPeer { server, shard } => {
                let node = &mut self.servers[server].shards[shard];
                node.clients.insert(connection, RpcReader::default());
            }
            Party::Client { .. } | Party::ShardLink { .. } | Party::ShardToServer { .. } => {}
        }
    }

    fn listener(&self, host: Host, port: u16) -> Option<Party> {
        if let Some(process) = self.coordinator_of(host) {
            // Standbys, and leaders that have yet to load the state, let nobody in.
            self.coordinators[process].node.as_ref()?.state()?;
            return match port {
                CLIENT_PORT => Some(Party::CoordinatorClient { process }),
                MEMBER_PORT => Some(Party::CoordinatorMember { process }),
                _ => None,
            };
        }
        let server = host as usize - 1;
        let node = self.servers.get(server).filter(|node| node.is_up)?;
        let shard = usize::from(port.checked_sub(FIRST_PORT)?);
        if shard < node.shards.len() {
            return Some(Party::ShardClient { server, shard });
        }
        let shard = usize::from(port.checked_sub(FIRST_PEER_PORT)?);
        (shard < node.shards.len()).then_some(Party::ShardPeer { server, shard })
    }

    /// A connection that was asked for is open.
    fn accepted(&mut self, connection: u64) {
        match self.parties.get(&(connection, 0)) {
            Some(&Party::Client { client, session }) => self.client_reaches(client, session),
            Some(&Party::ShardLink { server, shard }) => {
                self.say_hello(server, shard, connection);
            }
            Some(&Party::ShardToServer { server, shard }) => {
                self.reached(server, shard, connection)
            }
            _ => {}
        }
    }

    /// Sends an encoded message of the member protocol.
    pub fn send_encoded(&mut self, connection: u64, side: usize, body: &[u8]) {
        let frame = [&member::header(body.len() as u32)[..], body].concat();
        self.network
            .send(self.now, connection, side, Packet::Bytes(frame));
    }

    /// Sends a request or a response of the client protocol.
    pub fn send_payload(&mut self, connection: u64, side: usize, nonce: u64, payload: &[u8]) {
        let frame = [&rpc::header(nonce, payload.len() as u32)[..], payload].concat();
        self.network
            .send(self.now, connection, side, Packet::Bytes(frame));
    }

    /// The far side is gone, or never was there.
    fn connection_over(&mut self, connection: u64, side: usize, how: &str) {
        self.note_connection(connection, side, how);
        let party = self.parties.remove(&(connection, side));
        self.network.deafen(connection, side);
        match party {
            Some(Party::Client { client, session }) => {
                self.clients[client].sessions.remove(&session);
                self.clients[client].tcp_ports.remove(&connection);
                self.clients[client].attempts.session_over(session);
                self.with_client(client, |node, now, _, out| {
                    node.core.disconnected(now, session, out);
                });
            }
            Some(Party::CoordinatorClient { process }) => {
                if let Some(node) = &mut self.coordinators[process].node {
                    node.clients.remove(&connection);
                }
                self.coordinator_hears(process, Heard::ClientGone(connection));
            }
            Some(Party::CoordinatorMember { process }) => {
                self.member_connection_over(process, connection);
            }
            Some(Party::ShardClient { server, shard }) => {
                self.servers[server].shards[shard]
                    .clients
                    .remove(&connection);
            }
            Some(Party::ShardPeer { server, shard }) => {
                let node = &mut self.servers[server].shards[shard];
                node.clients.remove(&connection);
                node.core.peer_closed(connection);
            }
            Some(Party::ShardToServer { server, shard }) => {
                self.target_lost(server, shard, connection);
            }
            Some(Party::ShardLink { server, shard }) => self.link_over(server, shard),
            None => {}
        }
    }

    /// A shard's connection to the coordinator is over; it tries again in a while.
    pub fn link_over(&mut self, server: usize, shard: usize) {
        let now = self.clock(server_host(server));
        let node = &mut self.servers[server];
        let incarnation = node.incarnation;
        let node = &mut node.shards[shard];
        let was_welcomed = node.link.take().is_some_and(|link| link.is_welcomed);
        let goes_on = node.session.disconnected();
        if !goes_on {
            node.core.coordinator_lost(now);
        }
        node.failed_links = if was_welcomed {
            0
        } else {
            node.failed_links + 1
        };
        let patience = 1 << node.failed_links.min(3);
        let enlist = Event::Enlist {
            server,
            incarnation,
            shard,
        };
        let least = if goes_on && was_welcomed {
            0
        } else {
            20 * MILLI
        };
        let delay = self
            .streams
            .of("enlisting")
            .between(least, least + 60 * MILLI)
            * patience;
        self.schedule_in(delay, enlist);
    }

    /// A shard connects to the coordinator.
    pub fn enlist(&mut self, server: usize, incarnation: u64, shard: usize) {
        let host = server_host(server);
        let node = &mut self.servers[server];
        if node.incarnation != incarnation || !node.is_up || node.shards[shard].link.is_some() {
            return;
        }
        if node.shards[shard].core.shard().is_superseded() {
            let text = format!("{} was superseded, but has no successor", node.name);
            return self.fail(text);
        }
        let address = self.coordinator_address();
        let connection = self.network.connect(self.now, host, address, MEMBER_PORT);
        self.servers[server].shards[shard].link = Some(MemberConnection {
            connection,
            reader: MemberReader::default(),
            is_open: false,
            is_welcomed: false,
        });
        let give_up = Event::GiveUpLink { connection };
        self.schedule_in(WELCOME_TIMEOUT, give_up);
        self.parties
            .insert((connection, 0), Party::ShardLink { server, shard });
        self.tick(host);
    }

    /// A connection on which nobody has let the shard in by now is worth nothing.
    pub fn give_up_link(&mut self, connection: u64) {
        if let Some(&Party::ShardLink { server, shard }) = self.parties.get(&(connection, 0))
            && let Some(link) = &self.servers[server].shards[shard].link
            && !link.is_welcomed
        {
            self.close_link(server, shard);
        }
    }

    fn bytes(&mut self, connection: u64, side: usize, bytes: &[u8]) {
        let Some(&party) = self.parties.get(&(connection, side)) else {
            return;
        };
        let frames = match party {
            Party::Client { client, session } => self.clients[client]
                .sessions
                .get_mut(&session)
                .map(|(_, reader)| frames(reader, bytes)),
            Party::CoordinatorClient { process } => self.coordinators[process]
                .node
                .as_mut()
                .and_then(|node| node.clients.get_mut(&connection))
                .map(|reader| frames(reader, bytes)),
            Party::CoordinatorMember { process } => self.coordinators[process]
                .node
                .as_mut()
                .and_then(|node| node.members.get_mut(&connection))
                .map(|reader| frames(reader, bytes)),
            Party::ShardClient { server, shard } | Party::ShardPeer { server, shard } => {
                let node = &mut self.servers[server].shards[shard];
                let reader = node.clients.get_mut(&connection);
                reader.map(|reader| frames(reader, bytes))
            }
            Party::ShardToServer { server, shard } => {
                let node = &mut self.servers[server].shards[shard];
                let reader = node.readers.get_mut(&connection);
                reader.map(|reader| frames(reader, bytes))
            }
            Party::ShardLink { server, shard } => self.servers[server].shards[shard]
                .link
                .as_mut()
                .map(|link| frames(&mut link.reader, bytes)),
        };
        match frames {
            None => {}
            Some(Err(text)) => self.fail(format!("a stream cannot be read: {text}")),
            Some(Ok(frames)) => {
                for (nonce, payload) in frames {
                    // What one frame led to may have ended the connection.
                    if self.parties.get(&(connection, side)) != Some(&party) {
                        break;
                    }
                    self.frame(connection, party, nonce, &payload);
                }
            }
        }
    }

    fn frame(&mut self, connection: u64, party: Party, nonce: u64, payload: &[u8]) {
        let to = ReplyTo { connection, nonce };
        match party {
            Party::Client { client, session } => {
                self.client_received(client, session, nonce, payload)
            }
            Party::CoordinatorClient { process } => self.coordinator_request(process, to, payload),
            Party::CoordinatorMember { process } => {
                self.coordinator_message(process, connection, payload);
            }
            Party::ShardClient { server, shard } => self.shard_request(server, shard, to, payload),
            Party::ShardPeer { server, shard } => self.peer_request(server, shard, to, payload),
            Party::ShardToServer { server, shard } => {
                self.target_answers(server, shard, to, payload);
            }
            Party::ShardLink { server, shard } => self.shard_message(server, shard, payload),
        }
    }
}
