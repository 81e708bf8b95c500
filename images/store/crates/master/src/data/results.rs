//! What clients were answered to their numbered RPCs, so that a repeated one has its effect once.
//!
//! The answers themselves lie in the log; here is where. Only that there was no room needs no place in the log. Client ids
//! come from outside, so clients are in a tree; the RPCs of a client within its window are in a ring that grows to the
//! window's size at most, and all rings together to a size that the shard's memory has room for.

use std::collections::BTreeMap;
use std::ops::Bound;

use log::Reference;

use crate::config::RESULT_SLOT_BYTES;

/// RPCs that a client may have outstanding beyond the first unfinished one.
pub(crate) const WINDOW: u64 = 512;
/// The highest id of an RPC. Clients count from 1: to come here takes one of them two years, at an RPC in a nanosecond.
pub(crate) const MAX_RPC_ID: u64 = 1 << 56;

const FIRST_RING_SLOTS: usize = 8;
const _: () = assert!(size_of::<(u64, Option<StoredResult>)>() == RESULT_SLOT_BYTES);

/// What is known of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: it is to be executed.
    Nothing,
    /// It was executed, and answered with the record at this place.
    Answered(Reference),
    /// Its client was told that memory is full.
    Refused,
    /// The client said that it is done with it.
    Stale,
    /// It is too far ahead of the client's oldest unfinished RPC.
    Ahead,
}

/// RPC results by client.
#[derive(Default)]
pub(crate) struct Results {
    clients: BTreeMap<u64, Client>,
    count: usize,
    /// Lengths of all rings.
    slots: usize,
}

/// What is known of a client.
pub(crate) struct ClientRecords {
    pub lease_id: u64,
    /// It is done with RPCs up to this one.
    pub ack_id: u64,
    /// Where the answers to others are.
    pub records: Vec<Reference>,
}

struct Client {
    /// Cluster time at which the client's lease ends, as far as is known and worth believing.
    expiration_ns: u64,
    /// The client is done with RPCs up to this one.
    ack_id: u64,
    /// The answer to RPC `n` is at `n` modulo the length, a power of two. Ids are above `ack_id`, and 0 for none.
    ring: Vec<(u64, Option<StoredResult>)>,
}

/// What an RPC was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredResult {
    /// The record at this place.
    Recorded(Reference),
    /// Memory is full. That much is remembered without the log, for which there may be no room either: it is forgotten with
    /// the memory that was full.
    Refused,
}

impl Results {
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Looks an RPC up that comes with this `ack_id`. Takes in nothing of it: see [`Self::acknowledge`].
    pub fn look_up(&self, lease_id: u64, rpc_id: u64, ack_id: u64) -> Known {
        let client = self.clients.get(&lease_id);
        let done = client.map_or(0, |client| client.ack_id).max(ack_id);
        if rpc_id <= done {
            return Known::Stale;
        }
        if rpc_id - done > WINDOW {
            return Known::Ahead;
        }
        match client.and_then(|client| client.get(rpc_id)) {
            None => Known::Nothing,
            Some(StoredResult::Recorded(at)) => Known::Answered(at),
            Some(StoredResult::Refused) => Known::Refused,
        }
    }

    /// A client is done with RPCs up to this one: hands the records that nobody needs any more to `drop_record`.
    pub fn acknowledge(&mut self, lease_id: u64, ack_id: u64, drop_record: impl FnMut(Reference)) {
        if let Some(client) = self.clients.get_mut(&lease_id) {
            self.count -= client.acknowledge(ack_id, drop_record);
        }
    }

    /// Remembers a client's lease, and tells whether there is room for it.
    pub fn admit(&mut self, lease_id: u64, expiration_ns: u64, max_clients: usize) -> bool {
        if let Some(client) = self.clients.get_mut(&lease_id) {
            client.expiration_ns = client.expiration_ns.max(expiration_ns);
            return true;
        }
        let room = self.clients.len() < max_clients;
        if room {
            let client = Client {
                expiration_ns,
                ack_id: 0,
                ring: Vec::new(),
            };
            self.clients.insert(lease_id, client);
        }
        room
    }

    /// Whether an answer to this RPC can be remembered without the rings taking more than `max_slots` together.
    pub fn has_room(&self, lease_id: u64, rpc_id: u64, max_slots: usize) -> bool {
        let more = match self.clients.get(&lease_id) {
            Some(client) if !client.ring.is_empty() => {
                if client.ring[client.place(rpc_id)].1.is_none() {
                    return true;
                }
                WINDOW as usize - client.ring.len()
            }
            _ => FIRST_RING_SLOTS,
        };
        self.slots + more <= max_slots
    }

    pub fn expiration_ns(&self, lease_id: u64) -> Option<u64> {
        self.clients
            .get(&lease_id)
            .map(|client| client.expiration_ns)
    }

    /// Remembers the record of an RPC that [`Self::look_up`] did not know, of a client that was admitted.
    pub fn record(&mut self, lease_id: u64, rpc_id: u64, ack_id: u64, at: Reference) {
        self.remember(lease_id, rpc_id, ack_id, StoredResult::Recorded(at));
    }

    /// Remembers that such an RPC was refused for want of memory: a late copy of it must not take effect, for its client
    /// counts on that.
    pub fn record_refusal(&mut self, lease_id: u64, rpc_id: u64, ack_id: u64) {
        self.remember(lease_id, rpc_id, ack_id, StoredResult::Refused);
    }

    fn remember(&mut self, lease_id: u64, rpc_id: u64, ack_id: u64, answer: StoredResult) {
        assert!(rpc_id > ack_id, "a client is not done with what it asks");
        let client = self.clients.get_mut(&lease_id).expect("admitted before");
        client.ack_id = client.ack_id.max(ack_id);
        let slots = client.ring.len();
        client.insert(rpc_id, answer);
        self.slots += client.ring.len() - slots;
        self.count += 1;
    }

    /// Whether the record of this RPC is the one at `at`.
    pub fn is_at(&self, lease_id: u64, rpc_id: u64, at: Reference) -> bool {
        let client = self.clients.get(&lease_id);
        client.and_then(|client| client.get(rpc_id)) == Some(StoredResult::Recorded(at))
    }

    /// The record of this RPC lies at `to` now.
    pub fn moved(&mut self, lease_id: u64, rpc_id: u64, to: Reference) {
        let client = self.clients.get_mut(&lease_id);
        *client
            .and_then(|client| client.get_mut(rpc_id))
            .expect("live records are known") = StoredResult::Recorded(to);
    }

    /// The first client after `lease_id`, and what is recorded of it.
    pub fn client_after(&self, lease_id: u64) -> Option<ClientRecords> {
        let range = (Bound::Excluded(lease_id), Bound::Unbounded);
        let (&lease_id, client) = self.clients.range(range).next()?;
        let recorded = client.ring.iter().filter_map(|(_, answer)| match answer {
            Some(StoredResult::Recorded(at)) => Some(*at),
            _ => None,
        });
        Some(ClientRecords {
            lease_id,
            ack_id: client.ack_id,
            records: recorded.collect(),
        })
    }

    /// Looks at the records of clients after `lease_id`, about `count` of them, and forgets those that `keep` does not want. Answers where to go
    /// on; `None` after the last client.
    pub fn retain_after(
        &mut self,
        lease_id: u64,
        count: usize,
        mut keep: impl FnMut(Reference) -> bool,
    ) -> Option<u64> {
        let mut looked_at = 0;
        let range = (Bound::Excluded(lease_id), Bound::Unbounded);
        for (&id, client) in self.clients.range_mut(range) {
            for (_, answer) in &mut client.ring {
                if let Some(StoredResult::Recorded(at)) = *answer
                    && !keep(at)
                {
                    *answer = None;
                    self.count -= 1;
                }
            }
            looked_at += 1 + client.ring.len();
            if looked_at >= count {
                return Some(id);
            }
        }
        None
    }

    /// Forgets a client whose lease has ended, and hands its records to `drop_record`.
    pub fn forget(&mut self, lease_id: u64, drop_record: impl FnMut(Reference)) {
        if let Some(mut client) = self.clients.remove(&lease_id) {
            self.count -= client.acknowledge(u64::MAX, drop_record);
            self.slots -= client.ring.len();
        }
    }

    pub fn clear(&mut self) {
        *self = Results::default();
    }

    /// Up to `limit` clients after `lease_id`, with the ends of their leases.
    pub fn clients_after(
        &self,
        lease_id: u64,
        limit: usize,
    ) -> impl Iterator<Item = (u64, u64)> + '_ {
        let range = (Bound::Excluded(lease_id), Bound::Unbounded);
        let clients = self.clients.range(range).take(limit);
        clients.map(|(&id, client)| (id, client.expiration_ns))
    }
}

impl Client {
    fn get(&self, rpc_id: u64) -> Option<StoredResult> {
        let (id, answer) = self.ring.get(self.place(rpc_id))?;
        if *id == rpc_id { *answer } else { None }
    }

    fn get_mut(&mut self, rpc_id: u64) -> Option<&mut StoredResult> {
        let place = self.place(rpc_id);
        let (id, answer) = self.ring.get_mut(place)?;
        if *id == rpc_id { answer.as_mut() } else { None }
    }

    fn place(&self, rpc_id: u64) -> usize {
        rpc_id as usize & self.ring.len().wrapping_sub(1)
    }

    fn insert(&mut self, rpc_id: u64, answer: StoredResult) {
        if self.ring.is_empty() {
            self.ring.resize(FIRST_RING_SLOTS, (0, None));
        }
        // Two ids of one window differ modulo the window, so this ends there.
        while self.ring[self.place(rpc_id)].1.is_some() {
            self.grow();
        }
        let place = self.place(rpc_id);
        self.ring[place] = (rpc_id, Some(answer));
    }

    fn grow(&mut self) {
        assert!((self.ring.len() as u64) < WINDOW, "an id beyond the window");
        let slots = self.ring.len() * 2;
        let old = std::mem::replace(&mut self.ring, vec![(0, None); slots]);
        for (id, answer) in old.into_iter().filter(|(_, answer)| answer.is_some()) {
            let place = self.place(id);
            self.ring[place] = (id, answer);
        }
    }

    /// Drops the records up to `ack_id`; answers how many.
    fn acknowledge(&mut self, ack_id: u64, mut drop_record: impl FnMut(Reference)) -> usize {
        if ack_id <= self.ack_id {
            return 0;
        }
        let slots = self.ring.len() as u64;
        let first = self.ack_id + 1;
        // Each place of the ring once at most.
        let last = ack_id.min(self.ack_id.saturating_add(slots));
        self.ack_id = ack_id;
        let mut dropped = 0;
        for id in first..=last {
            let place = self.place(id);
            let (held, answer) = &mut self.ring[place];
            if *held <= ack_id
                && let Some(answer) = answer.take()
            {
                if let StoredResult::Recorded(at) = answer {
                    drop_record(at);
                }
                dropped += 1;
            }
        }
        dropped
    }
}
