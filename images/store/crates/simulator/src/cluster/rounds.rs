//! Rounds of ports: what a reactor does with datagrams, and what processes do with what these bring.

use core::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use base::ids::ReplyTo;
use base::time::Time;
use fast::Reason;
use fast::packet::{Glimpse, glimpse};
use server::links::{ConnectionRole, Dial, Links};
use transport::rpc::RpcReader;
use wire::locator::Locator;

use crate::cluster::hosts::machine_of;
use crate::cluster::ports::{PUMP_PACKETS, Ports, connection, is_session};
use crate::cluster::server::FIRST_PORT;
use crate::cluster::{COORDINATOR, Cluster, FIRST_CLIENT, host_name, server_host};
use crate::event::{Event, Owner, Party};
use crate::net::network::{Host, Network};

/// Datagrams that are looked at together.
const BURST: usize = 32;
/// Datagrams that wait to be looked at; more are lost, as at a socket that nobody reads.
const INBOX: usize = 1024;

/// Opens and closes what a shard wants to have to backups.
pub struct Dialer<'a> {
    moment: u64,
    clock: Time,
    host: Host,
    party: Party,
    network: &'a mut Network,
    parties: &'a mut BTreeMap<(u64, usize), Party>,
    readers: &'a mut BTreeMap<u64, RpcReader>,
    ports: Option<&'a mut Box<Ports>>,
}

impl Dial for Dialer<'_> {
    fn dial(&mut self, locator: &str) -> Option<u64> {
        let locator = Locator::parse(locator).ok()?;
        let Ok((host, port)) = locator.tcp() else {
            return self.ports.as_mut()?.connect(self.clock, &locator, true);
        };
        let to = host_of(host)?;
        let connection = self.network.connect(self.moment, self.host, to, port);
        self.readers.insert(connection, RpcReader::default());
        self.parties.insert((connection, 0), self.party);
        Some(connection)
    }

    fn hang_up(&mut self, connection: u64) {
        match &mut self.ports {
            Some(ports) if is_session(connection) => ports.close(connection),
            _ => {
                self.readers.remove(&connection);
                self.parties.remove(&(connection, 0));
                self.network.close(self.moment, connection, 0);
            }
        }
    }
}

/// The host that a locator names.
pub fn host_of(name: &str) -> Option<Host> {
    match name {
        "coordinator" => Some(COORDINATOR),
        _ => name.strip_prefix('m')?.parse().ok(),
    }
}

impl Cluster {
    pub fn ports(&mut self, owner: Owner) -> Option<&mut Ports> {
        let ports = match owner {
            Owner::Client(client) => &mut self.clients[client].ports,
            Owner::Shard { server, shard } => {
                &mut self.servers[server].shards.get_mut(shard)?.ports
            }
        };
        ports.as_deref_mut()
    }

    fn owner_of(&self, address: SocketAddrV4) -> Option<Owner> {
        let (_, host) = crate::net::datagrams::place(address);
        if host >= FIRST_CLIENT {
            return Some(Owner::Client((host - FIRST_CLIENT) as usize));
        }
        let shard = address.port().checked_sub(FIRST_PORT)?;
        Some(Owner::Shard {
            server: host as usize - 1,
            shard: shard.into(),
        })
    }

    /// Lets a shard's links do something.
    pub fn with_links<R>(
        &mut self,
        server: usize,
        shard: usize,
        act: impl FnOnce(&mut Links, Time, &mut Dialer<'_>) -> R,
    ) -> R {
        let host = server_host(server);
        let clock = self.clock(host);
        let node = &mut self.servers[server].shards[shard];
        let mut dialer = Dialer {
            moment: self.now,
            clock,
            host,
            party: Party::ShardToServer { server, shard },
            network: &mut self.network,
            parties: &mut self.parties,
            readers: &mut node.readers,
            ports: node.ports.as_mut(),
        };
        let result = act(&mut node.links, clock, &mut dialer);
        let is_due = !node.links.unreachable.is_empty() || !node.links.opened.is_empty();
        self.stir(Owner::Shard { server, shard });
        if is_due {
            self.tick_when(host, clock);
        }
        result
    }

    /// A datagram is there.
    pub fn datagram(&mut self, from: SocketAddrV4, to: SocketAddrV4, bytes: Vec<u8>) {
        if !self.is_heard(from, to) {
            return self.coverage.hit("datagrams lost");
        }
        let Some(owner) = self.owner_of(to) else {
            return;
        };
        let host = machine_of(owner);
        self.trace.event(
            self.now,
            || host_name(host),
            "datagram",
            &[bytes.len() as u64],
            &bytes[..bytes.len().min(fast::packet::HEADER_BYTES)],
            || match fast::packet::decode(&bytes) {
                Ok((header, _)) => format!("from {from}: {header:?}"),
                Err(malformed) => format!("from {from}: {malformed:?}"),
            },
        );
        if let Some(port) = self.ports(owner).and_then(|ports| ports.at(to))
            && port.inbox.len() < INBOX
        {
            port.inbox.push_back((from, bytes));
            self.stir(owner);
        }
    }

    /// Plans a round of a process's ports, at once.
    pub fn stir(&mut self, owner: Owner) {
        self.poll_at(owner, self.now);
    }

    fn poll_at(&mut self, owner: Owner, at: u64) {
        let incarnation = self.incarnation(owner);
        if let Some(ports) = self.ports(owner)
            && at < ports.poll_at
        {
            ports.poll_at = at;
            self.schedule(at, Event::Poll { owner, incarnation });
        }
    }

    fn incarnation(&self, owner: Owner) -> u64 {
        match owner {
            Owner::Client(_) => 0,
            Owner::Shard { server, .. } => self.servers[server].incarnation,
        }
    }

    /// A round: what has come is handed over, what is due is done, and what is to be sent leaves.
    pub fn poll(&mut self, owner: Owner, incarnation: u64) {
        if self.incarnation(owner) != incarnation {
            return;
        }
        let now = self.now;
        let Some(ports) = self.ports(owner) else {
            return;
        };
        if ports.poll_at <= now {
            ports.poll_at = u64::MAX;
        }
        for port in 0..ports.ports.len() {
            self.read_burst(owner, port);
            self.tend_port(owner, port);
        }
        self.send_datagrams(owner);
        let clock = self.clock(machine_of(owner));
        let Some(ports) = self.ports(owner) else {
            return;
        };
        let next = match ports.has_more() {
            true => clock,
            false => ports.next_tick(),
        };
        let moment = self.machines[&machine_of(owner)].clock.moment(next);
        if moment < u64::MAX {
            self.poll_at(owner, moment.max(self.now + 1000));
        }
    }

    fn send_datagrams(&mut self, owner: Owner) {
        let Some(ports) = self.ports(owner) else {
            return;
        };
        let mut sent = Vec::new();
        for port in &mut ports.ports {
            let from = transport::datagram::Transmit::address(&port.outbox);
            let datagrams = port.outbox.sent.drain(..);
            sent.extend(datagrams.map(|(to, bytes)| (from, to, bytes)));
        }
        for (from, to, bytes) in sent {
            self.carry(from, to, bytes);
        }
    }

    /// What is short goes before pieces of what is long.
    fn read_burst(&mut self, owner: Owner, port: usize) {
        let Some(ports) = self.ports(owner) else {
            return;
        };
        let inbox = &mut ports.ports[port].inbox;
        let count = inbox.len().min(BURST);
        if count == 0 {
            return;
        }
        let burst = inbox.drain(..count);
        let (pieces, others): (Vec<_>, Vec<_>) =
            burst.partition(|(_, bytes)| glimpse(bytes) == Glimpse::Piece);
        for (from, bytes) in others.into_iter().chain(pieces) {
            let now = self.clock(machine_of(owner));
            let Some(ports) = self.ports(owner) else {
                return;
            };
            let port_here = &mut ports.ports[port];
            port_here.next_tick = Time::ZERO;
            let event = port_here
                .endpoint
                .receive(now, from, &bytes, &mut port_here.outbox);
            let is_within_bounds = port_here.endpoint.is_within_bounds();
            if let Some(event) = event {
                self.fast_event(owner, port, event);
            }
            self.hand_over_waiting(owner, port);
            if !is_within_bounds {
                return self
                    .fail("requests that arrive have more memory than is for them".to_owned());
            }
        }
    }

    fn hand_over_waiting(&mut self, owner: Owner, port: usize) {
        while let Some(event) = self
            .ports(owner)
            .and_then(|ports| ports.ports[port].endpoint.next_event())
        {
            self.fast_event(owner, port, event);
        }
    }

    fn tend_port(&mut self, owner: Owner, port: usize) {
        let now = self.clock(machine_of(owner));
        let Some(ports) = self.ports(owner) else {
            return;
        };
        let here = &mut ports.ports[port];
        if now >= here.next_tick {
            here.next_tick = here.endpoint.tick(now, &mut here.outbox);
        }
        self.hand_over_waiting(owner, port);
        self.pump(owner, port);
        self.hand_over_waiting(owner, port);
    }

    /// Sends some of long messages; what is lent must be what it was.
    fn pump(&mut self, owner: Owner, port: usize) {
        let is_changed = Cell::new(false);
        match owner {
            Owner::Client(_) => {
                if let Some(ports) = self.ports(owner) {
                    let port = &mut ports.ports[port];
                    let nothing = |_: u64, _: usize| None;
                    port.endpoint.pump(PUMP_PACKETS, &nothing, &mut port.outbox);
                }
            }
            Owner::Shard { server, shard } => {
                let Some(node) = self.servers[server].shards.get_mut(shard) else {
                    return;
                };
                let (core, Some(ports)) = (&node.core, &mut node.ports) else {
                    return;
                };
                let Ports { ports, lent, .. } = &mut **ports;
                let lend = |token, length| {
                    let bytes = core.lent(token, length)?;
                    if !lent.is_as_lent(token, bytes) {
                        is_changed.set(true);
                    }
                    Some(bytes)
                };
                let port = &mut ports[port];
                port.endpoint.pump(PUMP_PACKETS, &lend, &mut port.outbox);
            }
        }
        if is_changed.get() {
            self.fail("what was lent has changed before it was sent".to_owned());
        }
    }

    fn fast_event(&mut self, owner: Owner, port: usize, event: fast::Event<'_>) {
        match event {
            fast::Event::Opened {
                session,
                is_accepted,
                is_ordered,
            } => {
                let connection = connection(port, session);
                self.note_session(owner, connection, "opened", None);
                match is_accepted {
                    true => self.session_accepted(owner, connection, is_ordered),
                    false => self.session_opened(owner, connection),
                }
            }
            fast::Event::Message {
                session,
                nonce,
                payload,
            } => {
                let to = ReplyTo {
                    connection: connection(port, session),
                    nonce,
                };
                self.session_message(owner, to, &payload);
            }
            fast::Event::Closed { session, reason } => {
                let connection = connection(port, session);
                self.note_session(owner, connection, "session over", Some(reason));
                self.session_over(owner, connection);
            }
            fast::Event::Returned { token } => {
                if let Some(ports) = self.ports(owner) {
                    ports.lent.remove(token);
                }
                if let Owner::Shard { server, shard } = owner {
                    self.with_shard(server, shard, |node, _, _| node.core.returned(token));
                }
            }
        }
    }

    fn note_session(&mut self, owner: Owner, connection: u64, what: &str, reason: Option<Reason>) {
        match reason {
            None => self.coverage.hit("sessions opened"),
            Some(Reason::Forgotten | Reason::Restarted) => {
                self.coverage.hit("sessions whose peer was started anew");
            }
            Some(Reason::Silent | Reason::Unreachable) => {
                self.coverage.hit("sessions given up for silence");
            }
            Some(Reason::Refused(_) | Reason::Displaced) => {
                self.coverage.hit("sessions refused or displaced");
            }
            Some(Reason::Nonsense) => {
                self.fail("a session ended because a peer made no sense".to_owned());
            }
            Some(_) => {}
        }
        let host = machine_of(owner);
        self.trace.event(
            self.now,
            || host_name(host),
            what,
            &[connection],
            &[],
            || format!("session {connection} {reason:?}"),
        );
    }

    fn session_accepted(&mut self, owner: Owner, connection: u64, is_ordered: bool) {
        if let Owner::Shard { server, shard } = owner
            && is_ordered
        {
            let node = &mut self.servers[server].shards[shard];
            node.links.add(connection, ConnectionRole::Peer);
            if let Some(ports) = &mut node.ports {
                ports.handed_over.opened_in_order(connection);
            }
        }
    }

    fn session_opened(&mut self, owner: Owner, connection: u64) {
        match owner {
            Owner::Client(client) => {
                if let Some(session) = self.clients[client].session_of(connection) {
                    self.client_reaches(client, session);
                }
            }
            Owner::Shard { server, shard } => self.reached(server, shard, connection),
        }
    }

    fn session_message(&mut self, owner: Owner, to: ReplyTo, payload: &[u8]) {
        let (server, shard) = match owner {
            Owner::Shard { server, shard } => (server, shard),
            Owner::Client(client) => {
                if let Some(session) = self.clients[client].session_of(to.connection) {
                    self.client_received(client, session, to.nonce, payload);
                }
                return;
            }
        };
        let node = &mut self.servers[server].shards[shard];
        let link = node.links.get(to.connection);
        if let (None | Some(ConnectionRole::Peer), Some(ports)) = (link, &mut node.ports)
            && let Err(text) = ports.handed_over.add(to.connection, to.nonce)
        {
            return self.fail(text);
        }
        match link {
            None => self.shard_request(server, shard, to, payload),
            Some(ConnectionRole::Peer) => self.peer_request(server, shard, to, payload),
            Some(_) => self.target_answers(server, shard, to, payload),
        }
    }

    fn session_over(&mut self, owner: Owner, connection: u64) {
        match owner {
            Owner::Client(client) => {
                if let Some(session) = self.clients[client].session_of(connection) {
                    self.clients[client].sessions.remove(&session);
                    self.clients[client].attempts.session_over(session);
                    self.with_client(client, |node, now, _, out| {
                        node.core.disconnected(now, session, out);
                    });
                }
            }
            Owner::Shard { server, shard } => self.target_lost(server, shard, connection),
        }
    }

    /// A client's connection is open.
    pub fn client_reaches(&mut self, client: usize, session: u64) {
        let known = self.clients[client].sessions.get(&session);
        let whom = known.map(|(connection, _)| (*connection, self.far_side(client, *connection)));
        if let Some((connection, Some(whom))) = whom {
            self.note_way(Owner::Client(client), whom, connection);
        }
        self.with_client(client, |node, now, _, out| {
            node.core.connected(now, session, out);
        });
    }

    /// The server that a client's connection leads to, by its port; no coordinator.
    fn far_side(&self, client: usize, connection: u64) -> Option<String> {
        if is_session(connection) {
            let peer = self.clients[client].ports.as_ref()?.peer(connection)?;
            let (_, host) = crate::net::datagrams::place(peer);
            return Some(format!("{host}/{}", peer.port()));
        }
        let host = self.network.host(connection, 1)?;
        let port = self.clients[client].tcp_ports.get(&connection)?;
        Some(format!("{host}/{port}"))
    }

    /// Counts who falls back to byte streams, and who comes back.
    pub fn note_way(&mut self, owner: Owner, whom: String, connection: u64) {
        let Some(ports) = self.ports(owner) else {
            return;
        };
        let (is_back, fell_back) = ports.opened_way(whom, connection);
        match owner {
            Owner::Client(_) => {
                self.coverage
                    .add("clients that fell back to streams", fell_back.into());
                self.coverage
                    .add("clients that came back to datagrams", is_back.into());
            }
            Owner::Shard { .. } => {
                self.coverage
                    .add("servers that fell back to streams", fell_back.into());
                self.coverage
                    .add("servers that came back to datagrams", is_back.into());
            }
        }
    }

    /// The host at the other side of a client's connection to a shard.
    pub fn asking_host(&self, server: usize, shard: usize, connection: u64) -> Option<Host> {
        if !is_session(connection) {
            return self.network.host(connection, 0);
        }
        let node = self.servers[server].shards.get(shard)?;
        let peer = node.ports.as_ref()?.peer(connection)?;
        Some(crate::net::datagrams::place(peer).1)
    }

    /// Whoever could speak by datagrams and does not, now that nothing keeps him from it.
    pub fn still_over_streams(&self) -> Option<String> {
        let fast = self.scenario.fast.as_ref()?;
        if fast.config.sessions < self.scenario.clients + 4 * self.scenario.members {
            return None; // Not everybody finds a place.
        }
        for client in &self.clients {
            let mut connections = client.sessions.values().map(|(connection, _)| connection);
            if connections.any(|connection| client.tcp_ports.contains_key(connection)) {
                return Some(format!(
                    "client {} still speaks over a stream",
                    client.number
                ));
            }
        }
        for server in &self.servers {
            for shard in &server.shards {
                let mut reached = shard.links.reached();
                if reached.any(|reached| !is_session(reached.connection)) {
                    return Some(format!("{} still replicates over a stream", server.name));
                }
            }
        }
        None
    }
}
