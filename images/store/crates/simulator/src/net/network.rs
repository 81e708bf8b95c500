//! The simulated network: connections that are ordered byte streams, each with its own delays, and what can go wrong.

use std::collections::BTreeMap;

use crate::random::{Random, Streams};
use crate::scenario::conditions::Conditions;

/// A machine: 0 is the coordinator's; see the world for the others.
pub type Host = u32;

/// What travels in one direction of a connection, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Asks for the connection; the port that is wanted.
    Open(u16),
    Accepted,
    Refused,
    Bytes(Vec<u8>),
    /// Nothing more will come from this side.
    Fin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkEvent {
    /// A packet reaches the far end of this direction (0: from the side that opened the connection).
    Arrive {
        connection: u64,
        direction: usize,
        sequence: u64,
        packet: Packet,
    },
    /// A side learns that the connection is broken.
    Broken { connection: u64, side: usize },
}

#[derive(Debug, Default)]
struct Direction {
    next_sequence: u64,
    last_arrival: u64,
    /// The packet that is to be heard next.
    next_heard: u64,
    /// Packets held by a partition, or behind one that is.
    stalled: BTreeMap<u64, Packet>,
    /// Nothing is heard for a while, as when packets were lost and are sent again late.
    is_stalled: bool,
    /// Packets from this sequence number on never arrive.
    cut_from: Option<u64>,
}

#[derive(Debug)]
struct Connection {
    hosts: [Host; 2],
    directions: [Direction; 2],
    /// This side hears nothing any more: it closed, broke, or its process is gone.
    is_deaf: [bool; 2],
    delays: (u64, u64),
}

impl Direction {
    /// The packet to be heard next, if it is one that was held.
    fn release(
        &mut self,
        time: u64,
        connection: u64,
        direction: usize,
    ) -> Option<(u64, NetworkEvent)> {
        let sequence = self.next_heard;
        let packet = self.stalled.remove(&sequence)?;
        let event = NetworkEvent::Arrive {
            connection,
            direction,
            sequence,
            packet,
        };
        Some((time, event))
    }
}

#[derive(Debug)]
pub struct Network {
    connections: BTreeMap<u64, Connection>,
    last_connection: u64,
    conditions: Conditions,
    /// Of what happens to all packets.
    transit: Random,
    /// Of connections that break, and partitions that end.
    faults: Random,
    /// Pairs (from, to) between which packets wait, and until when.
    cuts: BTreeMap<(Host, Host), u64>,
    /// Events to be scheduled by the world.
    pub due: Vec<(u64, NetworkEvent)>,
}

impl Network {
    pub fn new(conditions: Conditions, streams: &mut Streams) -> Network {
        Network {
            connections: BTreeMap::new(),
            last_connection: 0,
            conditions,
            transit: streams.of("packets").fork(),
            faults: streams.of("broken connections").fork(),
            cuts: BTreeMap::new(),
            due: Vec::new(),
        }
    }

    /// Begins a connection; the answer arrives as [`Packet::Accepted`] or [`Packet::Refused`], or the connection breaks.
    pub fn connect(&mut self, now: u64, from: Host, to: Host, port: u16) -> u64 {
        self.last_connection += 1;
        let id = self.last_connection;
        // Each connection has its own pace: that is what puts things out of order between connections.
        let least = self
            .transit
            .between(self.conditions.min_delay, self.conditions.max_delay);
        let most = least + self.transit.between(0, self.conditions.max_delay);
        let connection = Connection {
            hosts: [from, to],
            directions: Default::default(),
            is_deaf: [false, false],
            delays: (least, most),
        };
        self.connections.insert(id, connection);
        self.send(now, id, 0, Packet::Open(port));
        id
    }

    pub fn host(&self, connection: u64, side: usize) -> Option<Host> {
        Some(self.connections.get(&connection)?.hosts[side])
    }

    /// Sends in the direction away from `side`.
    pub fn send(&mut self, now: u64, connection: u64, side: usize, packet: Packet) {
        if let Packet::Bytes(bytes) = &packet
            && bytes.len() > 1
            && self.transit.chance(self.conditions.split_per_mille)
        {
            let at = 1 + self.transit.below(bytes.len() - 1);
            let (head, tail) = bytes.split_at(at);
            let (head, tail) = (head.to_vec(), tail.to_vec());
            self.send_whole(now, connection, side, Packet::Bytes(head));
            self.send_whole(now, connection, side, Packet::Bytes(tail));
        } else {
            self.send_whole(now, connection, side, packet);
        }
    }

    fn send_whole(&mut self, now: u64, id: u64, side: usize, packet: Packet) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let (least, most) = connection.delays;
        let direction = &mut connection.directions[side];
        let sequence = direction.next_sequence;
        direction.next_sequence += 1;
        let at = (now + self.transit.between(least, most)).max(direction.last_arrival + 1);
        direction.last_arrival = at;
        let event = NetworkEvent::Arrive {
            connection: id,
            direction: side,
            sequence,
            packet,
        };
        self.due.push((at, event));
    }

    /// Whether a packet that arrives now is heard. What a partition holds, or what is behind such a packet, is kept for
    /// later.
    pub fn arrives(
        &mut self,
        now: u64,
        id: u64,
        at: usize,
        sequence: u64,
        packet: &Packet,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let way = (connection.hosts[at], connection.hosts[1 - at]);
        let is_cut = self.cuts.contains_key(&way);
        let direction = &mut connection.directions[at];
        if direction.cut_from.is_some_and(|first| sequence >= first) || connection.is_deaf[1 - at] {
            return false;
        }
        if is_cut || direction.is_stalled || sequence != direction.next_heard {
            direction.stalled.insert(sequence, packet.clone());
            return false;
        }
        direction.next_heard += 1;
        if let Some((at_time, event)) = direction.release(now + 1, id, at) {
            self.due.push((at_time, event));
        }
        true
    }

    /// Whether a side learns now that its connection is broken; not through a partition.
    pub fn breaks(&mut self, id: u64, side: usize) -> bool {
        let Some(connection) = self.connections.get(&id) else {
            return false;
        };
        let way = (connection.hosts[1 - side], connection.hosts[side]);
        !connection.is_deaf[side] && !self.cuts.contains_key(&way)
    }

    /// This side closes: it hears nothing more, the other side reads what was sent, then the end.
    pub fn close(&mut self, now: u64, id: u64, side: usize) {
        self.send(now, id, side, Packet::Fin);
        self.deafen(id, side);
    }

    /// This side hears nothing any more; when neither does, the connection is forgotten once all has arrived.
    pub fn deafen(&mut self, id: u64, side: usize) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_deaf[side] = true;
            if connection.is_deaf == [true, true] {
                self.connections.remove(&id);
            }
        }
    }

    /// Breaks a connection: of what is under way in each direction, some arrives and the rest does not; then each side
    /// that is not deaf learns of it.
    pub fn reset(&mut self, now: u64, id: u64) {
        for direction in 0..2 {
            self.lose_tail(id, direction);
        }
        for side in 0..2 {
            self.tell_broken(now, id, side);
        }
    }

    /// Loses the last part (perhaps all, perhaps none) of what is under way in this direction, and all that follows.
    pub fn lose_tail(&mut self, id: u64, direction: usize) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let stream = &mut connection.directions[direction];
        let lost = self.faults.between(0, stream.next_sequence.min(3));
        stream.cut_from = Some(stream.next_sequence - lost);
    }

    /// From now on nothing arrives in this direction, and nobody learns of it.
    pub fn silence(&mut self, id: u64, direction: usize) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let stream = &mut connection.directions[direction];
            stream.cut_from = Some(stream.next_sequence);
        }
    }

    /// Lets a side know, after all that still arrives there, that the connection is broken.
    pub fn tell_broken(&mut self, now: u64, id: u64, side: usize) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let after = connection.directions[1 - side].last_arrival;
        let at = after.max(now) + self.faults.between(1, 1 + connection.delays.1);
        let event = NetworkEvent::Broken {
            connection: id,
            side,
        };
        self.due.push((at, event));
    }

    /// Holds what travels in this direction of a connection until [`Network::go_on`].
    pub fn stall(&mut self, id: u64, direction: usize) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.directions[direction].is_stalled = true;
        }
    }

    /// Ends a stall.
    pub fn go_on(&mut self, now: u64, id: u64, at: usize) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let direction = &mut connection.directions[at];
            direction.is_stalled = false;
            self.due.extend(direction.release(now + 1, id, at));
        }
    }

    /// Holds packets from one host to another, at least until then and to the next [`Network::heal`].
    pub fn cut(&mut self, from: Host, to: Host, until: u64) {
        let cut = self.cuts.entry((from, to)).or_default();
        *cut = until.max(*cut);
    }

    /// Whether nothing gets from one host to another.
    pub fn is_cut(&self, from: Host, to: Host) -> bool {
        self.cuts.contains_key(&(from, to))
    }

    /// Ends all cuts, whatever their time.
    pub fn heal_all(&mut self, now: u64) {
        self.cuts.clear();
        self.heal(now);
    }

    /// Ends the cuts whose time is over, and lets go on what no other cut holds.
    pub fn heal(&mut self, now: u64) {
        self.cuts.retain(|_, until| *until > now);
        for (&id, connection) in &mut self.connections {
            for (at, direction) in connection.directions.iter_mut().enumerate() {
                let delay = self.faults.between(1, connection.delays.1);
                self.due.extend(direction.release(now + delay, id, at));
            }
        }
    }

    /// Open connections, for faults to choose from.
    pub fn ids(&self) -> Vec<u64> {
        self.connections.keys().copied().collect()
    }
}
