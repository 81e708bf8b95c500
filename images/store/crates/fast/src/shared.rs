//! What the sessions of an endpoint share: bounds, queues, counters.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddrV4;

use base::time::Time;
use transport::datagram::Transmit;

use crate::arrivals::Arrivals;
use crate::grantable::Grantable;
use crate::holders::{Holders, Room, Wish};
use crate::packet::Header;
use crate::rank::Rank;
use crate::role::Role;
use crate::slot::Slot;
use crate::{Config, Event};

/// Buffers of messages of several packets that are kept for the next ones, at most.
const SPARE_BUFFERS: usize = 8;

/// Of all memory, they have one part in so many, and slots for requests another.
const SPARE_PART: usize = 8;
const SLOT_PART: usize = 8;
/// What may be kept besides one of the longest answers.
const KEPT_BESIDE_BYTES: usize = 64 << 10;

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

/// Memory of the sessions of one side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Of messages that arrive.
    pub arriving_bytes: usize,
    /// Of messages that are sent, or kept until they are known to have arrived.
    pub kept_bytes: usize,
}

impl Held {
    pub fn total_bytes(self) -> usize {
        self.arriving_bytes + self.kept_bytes
    }
}

pub struct Shared {
    pub config: Config,
    /// Messages that have something to send now, by what was not sent of them yet.
    pub sendable: BTreeSet<Rank>,
    pub grantable: Grantable,
    /// Something may be granted now.
    pub is_grant_due: bool,
    pub events: VecDeque<Event<'static>>,
    pub counters: Counters,
    /// Sessions that were opened from here: neither their answers nor their requests share what others fill.
    pub own: Held,
    /// Sessions that others opened.
    pub of_others: Held,
    /// Memory of slots for requests.
    pub slot_bytes: usize,
    /// What each address has of the memory for requests that arrive.
    pub holders: Holders,
    /// Requests that arrive, or wait for their predecessors, by when to look whether they still may.
    pub deadlines: BTreeSet<(Time, u32, u8)>,
    pub arrivals: Arrivals,
    /// Somebody's request did not find room, for which others may have to end.
    pub crowded: Option<Wish>,
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
}

impl Shared {
    pub fn new(config: Config) -> Shared {
        Shared {
            config,
            sendable: BTreeSet::new(),
            grantable: Grantable::default(),
            is_grant_due: false,
            events: VecDeque::new(),
            counters: Counters::default(),
            own: Held::default(),
            of_others: Held::default(),
            slot_bytes: 0,
            holders: Holders::default(),
            deadlines: BTreeSet::new(),
            arrivals: Arrivals::default(),
            crowded: None,
            spare: Vec::new(),
            spare_bytes: 0,
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

    /// What the sessions of a side hold.
    pub fn of(&mut self, role: Role) -> &mut Held {
        match role {
            Role::Initiator => &mut self.own,
            Role::Acceptor { .. } => &mut self.of_others,
        }
    }

    /// Counts what a slot holds now.
    pub fn settle(&mut self, role: Role, slot: &mut Slot) {
        let now = (slot.incoming.held_bytes(), slot.outgoing.held_bytes());
        if now != slot.accounted {
            let held = self.of(role);
            held.arriving_bytes = held.arriving_bytes + now.0 - slot.accounted.0;
            held.kept_bytes = held.kept_bytes + now.1 - slot.accounted.1;
            slot.accounted = now;
        }
    }

    /// For requests that arrive.
    pub fn room(&self) -> Room {
        Room {
            bytes: self.config.buffer_bytes / 2,
            tenure: self.config.halted_after,
        }
    }

    /// Memory that sessions of others hold, and that their requests which are arriving may yet take; and what is kept for the next ones.
    pub fn claimed_bytes(&self) -> usize {
        let arriving = self
            .of_others
            .arriving_bytes
            .max(self.holders.admitted_bytes());
        arriving + self.of_others.kept_bytes + self.slot_bytes + self.spare_bytes
    }

    /// Counts memory for slots; false if there is not so much.
    pub fn take_for_slots(&mut self, bytes: usize) -> bool {
        let fits = self.slot_bytes + bytes <= self.config.buffer_bytes / SLOT_PART;
        if fits {
            self.slot_bytes += bytes;
        }
        fits
    }

    /// Whether answers that are sent or kept have more memory than is for them.
    pub fn keeps_too_much(&self) -> bool {
        let limit = self.config.buffer_bytes / 4;
        // The longest answer is kept however little there is.
        self.of_others.kept_bytes > limit.max(self.config.message_bytes + KEPT_BESIDE_BYTES)
    }

    /// Whether an answer of several packets may begin to arrive.
    pub fn has_room_for_answers(&self) -> bool {
        self.own.arriving_bytes < self.config.own_buffer_bytes / 2
    }

    /// Room for a message of several packets that was kept, of this length at most.
    pub fn take_spare(&mut self, most_bytes: usize) -> Vec<u8> {
        let fits = |spare: &Vec<u8>| spare.capacity() <= most_bytes;
        let Some(place) = self.spare.iter().rposition(fits) else {
            return Vec::new();
        };
        let spare = self.spare.swap_remove(place);
        self.spare_bytes -= spare.capacity();
        spare
    }

    /// Keeps a buffer for the next message that needs one.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        let bytes = self.spare_bytes + buffer.capacity();
        let is_wanted = buffer.capacity() > 0 && self.spare.len() < SPARE_BUFFERS;
        if is_wanted && bytes <= self.config.buffer_bytes / SPARE_PART {
            self.spare_bytes = bytes;
            self.spare.push(buffer);
        }
    }
}
