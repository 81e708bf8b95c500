//! What the sessions of an endpoint share: bounds, queues, counters.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddrV4;

use transport::datagram::Transmit;

use crate::packet::Header;
use crate::session::Slot;
use crate::{Config, Event};

/// Buffers of messages of several packets that are kept for the next ones, at most.
const SPARE_BUFFERS: usize = 8;

/// Counted since the endpoint was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub packets_in: u64,
    pub packets_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Requests and answers, whole, in both directions.
    pub messages_in: u64,
    pub messages_out: u64,
    /// Packets with a wrong sum, of another version, or not of this protocol.
    pub malformed: u64,
    /// Packets that came twice, or too late to be of use.
    pub stale: u64,
    /// Requests that were repeated or asked about, because nothing came.
    pub retries: u64,
    /// Packets of messages that were sent again.
    pub resent: u64,
    /// Messages that were not taken for want of memory, or sessions for want of places.
    pub refused: u64,
    pub sessions: u64,
    /// Memory of messages that are not complete, or not known to have arrived.
    pub held_bytes: u64,
}

/// Where a message lies, in the order of who is to go first: the one of which the least is left.
pub type Rank = (usize, u32, u8);

pub struct Shared {
    pub config: Config,
    /// Messages that have something to send now, by what was not sent of them yet.
    pub sendable: BTreeSet<Rank>,
    /// Messages that arrive and of which not all is granted, by what is not.
    pub grantable: BTreeSet<Rank>,
    /// Something may be granted now.
    pub is_grant_due: bool,
    pub events: VecDeque<Event<'static>>,
    pub counters: Counters,
    /// Memory of messages that arrive: at most half of all.
    pub arriving_bytes: usize,
    /// Memory of messages that are sent, or kept until they are known to have arrived: the other half.
    pub kept_bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Shared {
    pub fn new(config: Config) -> Shared {
        Shared {
            config,
            sendable: BTreeSet::new(),
            grantable: BTreeSet::new(),
            is_grant_due: false,
            events: VecDeque::new(),
            counters: Counters::default(),
            arriving_bytes: 0,
            kept_bytes: 0,
            spare: Vec::new(),
        }
    }

    pub fn transmit(
        &mut self,
        to: SocketAddrV4,
        header: &Header,
        payload: &[u8],
        out: &mut dyn Transmit,
    ) {
        self.transmit_parts(to, header, [payload, &[]], out);
    }

    /// As [`Shared::transmit`], with a payload that lies in two places.
    pub fn transmit_parts(
        &mut self,
        to: SocketAddrV4,
        header: &Header,
        [first, second]: [&[u8]; 2],
        out: &mut dyn Transmit,
    ) {
        let bytes = header.encode_parts([first, second]);
        self.counters.packets_out += 1;
        self.counters.bytes_out += (bytes.len() + first.len() + second.len()) as u64;
        match (first, second) {
            ([], []) => out.send(to, &[&bytes]),
            (payload, []) | ([], payload) => out.send(to, &[&bytes, payload]),
            _ => out.send(to, &[&bytes, first, second]),
        }
    }

    /// Gives back what a message was lent that is of no interest any more.
    pub fn give_back(&mut self, slot: &mut Slot) {
        if let Some(token) = slot.outgoing.give_back() {
            self.events.push_back(Event::Returned { token });
        }
    }

    /// Counts what a slot holds now.
    pub fn settle(&mut self, slot: &mut Slot) {
        let held = (slot.incoming.held_bytes(), slot.outgoing.held_bytes());
        if held != slot.accounted {
            self.arriving_bytes = self.arriving_bytes + held.0 - slot.accounted.0;
            self.kept_bytes = self.kept_bytes + held.1 - slot.accounted.1;
            slot.accounted = held;
        }
    }

    /// Whether a message of several packets may begin to arrive.
    pub fn has_room(&self) -> bool {
        self.arriving_bytes < self.config.buffer_bytes / 2
    }

    /// Room for a message of several packets.
    pub fn take_spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next message that needs one.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.spare.len() < SPARE_BUFFERS {
            self.spare.push(buffer);
        }
    }
}
