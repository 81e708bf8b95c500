//! Memory for the buffers of connections: a bound for all of them together, and a smaller one for those of one address. It counts; who has
//! to wait or to end is for [`crate::Io`] to carry out.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

/// What one of the longest messages takes while it arrives: so much any address may have, however little there is.
const MESSAGE_ROOM_BYTES: usize = wire::rpc::MAX_RPC_BYTES + (1 << 20);

/// For whom a listener or a port is. Each audience has a budget of its own, so that clients cannot take memory from other servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    Clients,
    /// Servers of the store, and the connections that this program itself opens.
    Peers,
}

/// A connection that waits until its message may arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub connection: u64,
    pub slot: usize,
    pub message_bytes: usize,
}

/// What the connections of one address have.
#[derive(Default)]
struct Holder {
    connections: usize,
    held_bytes: usize,
    /// Announced lengths of long messages that are arriving.
    admitted_bytes: usize,
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
}

impl Holder {
    /// One message is let in always: else the longest would never be.
    fn has_room_for(&self, message_bytes: usize, share_bytes: usize) -> bool {
        self.admitted_bytes == 0 || self.admitted_bytes + message_bytes <= share_bytes
    }
}

/// What sessions over datagrams hold, or may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Datagrams {
    pub of_others: usize,
    /// Of sessions that this program opened.
    pub own: usize,
}

impl Datagrams {
    fn total(self) -> usize {
        self.of_others + self.own
    }
}

pub(crate) struct Budget {
    limit_bytes: usize,
    /// For connections of one address.
    share_bytes: usize,
    held_bytes: usize,
    /// Of them, connections that this program opened.
    own_bytes: usize,
    /// What sessions over datagrams hold beside them.
    datagrams: Datagrams,
    /// Of what there is, this much is always for what this program opened: others can neither fill nor end it.
    reserve_bytes: usize,
    holders: BTreeMap<Ipv4Addr, Holder>,
}

impl Budget {
    /// For one address there is one part of so many, and one is for what this program opens.
    pub fn new(limit_bytes: usize, parts: usize) -> Budget {
        Budget {
            limit_bytes,
            share_bytes: (limit_bytes / parts)
                .max(MESSAGE_ROOM_BYTES)
                .min(limit_bytes),
            held_bytes: 0,
            own_bytes: 0,
            datagrams: Datagrams::default(),
            reserve_bytes: limit_bytes / parts,
            holders: BTreeMap::new(),
        }
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// By which the bound is passed.
    pub fn excess_bytes(&self) -> usize {
        (self.held_bytes + self.datagrams.total()).saturating_sub(self.limit_bytes)
    }

    /// Whether what this program opened has more than is reserved for it, so that some of it may have to end.
    pub fn is_own_too_large(&self) -> bool {
        self.own_bytes + self.datagrams.own > self.reserve_bytes
    }

    /// By which an address has more than its share.
    pub fn share_excess_bytes(&self, peer: Option<Ipv4Addr>) -> usize {
        self.held_by(peer).saturating_sub(self.share_bytes)
    }

    /// Whether buffers that nobody needs at the moment have to be given back: they may take half of what there is, so that the other half is
    /// always there for messages that are under way.
    pub fn is_short(&self, peer: Option<Ipv4Addr>) -> bool {
        self.held_bytes + self.datagrams.total() > self.limit_bytes / 2
            || self.held_by(peer) > self.share_bytes / 2
    }

    /// Whether the idle buffers of an address have to go before a message of it may arrive.
    pub fn is_tight(&self, peer: Option<Ipv4Addr>, message_bytes: usize) -> bool {
        self.held_by(peer) + message_bytes > self.share_bytes
    }

    fn held_by(&self, peer: Option<Ipv4Addr>) -> usize {
        let holder = peer.and_then(|peer| self.holders.get(&peer));
        holder.map_or(0, |holder| holder.held_bytes)
    }

    /// Counts what sessions over datagrams hold now; gives what is left for them in all. For those of others this is at least one part in so many,
    /// so that no connections keep them out, and never what is left to these and to what this program opens.
    pub fn share_with_datagrams(&mut self, held: Datagrams) -> Datagrams {
        const PARTS: usize = 4;
        self.datagrams = held;
        let part = self.limit_bytes / PARTS;
        let beside = self.held_bytes + held.own;
        let left_to_connections = self.reserve_bytes.max(part);
        let of_others = self
            .limit_bytes
            .saturating_sub(beside.max(left_to_connections));
        Datagrams {
            of_others: of_others.max(part),
            own: self
                .limit_bytes
                .saturating_sub(self.held_bytes + held.of_others)
                .max(self.reserve_bytes),
        }
    }

    pub fn opened(&mut self, peer: Option<Ipv4Addr>) {
        if let Some(peer) = peer {
            self.holders.entry(peer).or_default().connections += 1;
        }
    }

    /// A connection has ended, which had nothing any more.
    pub fn ended(&mut self, peer: Option<Ipv4Addr>, connection: u64) {
        let Some((peer, holder)) = peer.and_then(|peer| Some((peer, self.holders.get_mut(&peer)?)))
        else {
            return;
        };
        holder
            .waiting
            .retain(|waiting| waiting.connection != connection);
        holder.connections -= 1;
        if holder.connections == 0 {
            assert_eq!(
                (holder.held_bytes, holder.admitted_bytes),
                (0, 0),
                "buffers of nobody"
            );
            self.holders.remove(&peer);
        }
    }

    /// A connection holds as much now, instead of as much before.
    pub fn changed(&mut self, peer: Option<Ipv4Addr>, before: usize, now: usize) {
        self.held_bytes = self.held_bytes - before + now;
        let Some(peer) = peer else {
            self.own_bytes = self.own_bytes - before + now;
            return;
        };
        if let Some(holder) = self.holders.get_mut(&peer) {
            holder.held_bytes = holder.held_bytes - before + now;
        }
    }

    /// Lets a long message arrive, or has its connection wait for others of its address. Connections that this program opened wait for nobody.
    pub fn admit(&mut self, peer: Option<Ipv4Addr>, waiting: Waiting) -> bool {
        let Some(holder) = peer.and_then(|peer| self.holders.get_mut(&peer)) else {
            return true;
        };
        let is_first = holder.waiting.is_empty();
        if is_first && holder.has_room_for(waiting.message_bytes, self.share_bytes) {
            holder.admitted_bytes += waiting.message_bytes;
            return true;
        }
        holder.waiting.push_back(waiting);
        false
    }

    /// A message that was let in is here, or will not come.
    pub fn dismiss(&mut self, peer: Option<Ipv4Addr>, message_bytes: usize) {
        if let Some(holder) = peer.and_then(|peer| self.holders.get_mut(&peer)) {
            holder.admitted_bytes -= message_bytes;
        }
    }

    /// The next connection of an address whose message may arrive now.
    pub fn next_admitted(&mut self, peer: Option<Ipv4Addr>) -> Option<Waiting> {
        let holder = self.holders.get_mut(&peer?)?;
        let first = *holder.waiting.front()?;
        if !holder.has_room_for(first.message_bytes, self.share_bytes) {
            return None;
        }
        holder.admitted_bytes += first.message_bytes;
        holder.waiting.pop_front()
    }

    /// The address whose connections hold the most; `None` if no other side holds anything.
    pub fn greediest(&self) -> Option<Ipv4Addr> {
        let holders = self
            .holders
            .iter()
            .filter(|(_, holder)| holder.held_bytes > 0);
        let (peer, _) = holders.max_by_key(|(_, holder)| holder.held_bytes)?;
        Some(*peer)
    }

    /// The address with the most connections, if these are more than one part in four of `all`.
    pub fn most_connected(&self, all: usize) -> Option<Ipv4Addr> {
        let (peer, holder) = self
            .holders
            .iter()
            .max_by_key(|(_, holder)| holder.connections)?;
        (holder.connections > all / 4).then_some(*peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<Ipv4Addr> = Some(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: Option<Ipv4Addr> = Some(Ipv4Addr::new(10, 0, 0, 2));

    fn message(connection: u64, message_bytes: usize) -> Waiting {
        Waiting {
            connection,
            slot: connection as usize,
            message_bytes,
        }
    }

    fn of_two() -> Budget {
        let mut budget = Budget::new(64 << 20, 4);
        for _ in 0..4 {
            budget.opened(ONE);
        }
        budget.opened(OTHER);
        budget
    }

    #[test]
    fn messages_of_one_address_wait_for_each_other_and_for_nobody_else() {
        let mut budget = of_two();
        assert!(budget.admit(ONE, message(1, 8 << 20)));
        assert!(budget.admit(ONE, message(2, 8 << 20)));
        assert!(!budget.admit(ONE, message(3, 1 << 20)));
        // Who comes later waits, too, though there might be room.
        assert!(!budget.admit(ONE, message(4, 1)));
        assert!(budget.admit(OTHER, message(5, 8 << 20)));
        assert!(budget.admit(None, message(6, 1 << 30)));
        budget.dismiss(ONE, 8 << 20);
        let next = |budget: &mut Budget| budget.next_admitted(ONE).map(|next| next.connection);
        assert_eq!(next(&mut budget), Some(3));
        assert_eq!(next(&mut budget), Some(4));
        assert_eq!(next(&mut budget), None);
    }

    #[test]
    fn a_connection_that_ends_waits_no_more() {
        let mut budget = of_two();
        assert!(budget.admit(ONE, message(1, 16 << 20)));
        assert!(!budget.admit(ONE, message(2, 9 << 20)));
        assert!(!budget.admit(ONE, message(3, 1 << 20)));
        budget.ended(ONE, 2);
        budget.dismiss(ONE, 16 << 20);
        assert_eq!(
            budget.next_admitted(ONE).map(|next| next.connection),
            Some(3)
        );
    }

    #[test]
    fn the_longest_message_is_let_in_however_little_there_is() {
        let mut budget = Budget::new(1 << 20, 4);
        budget.opened(ONE);
        assert!(budget.admit(ONE, message(1, 8 << 20)));
        assert_eq!(Budget::new(32 << 20, 4).share_bytes, MESSAGE_ROOM_BYTES);
        assert_eq!(Budget::new(64 << 20, 4).share_bytes, 16 << 20);
    }

    #[test]
    fn what_is_held_counts_for_all_and_for_its_address() {
        let mut budget = of_two();
        budget.changed(ONE, 0, 10 << 20);
        budget.changed(OTHER, 0, 1 << 20);
        assert_eq!(budget.greediest(), ONE);
        assert!(budget.is_short(ONE) && !budget.is_short(OTHER));
        budget.changed(ONE, 10 << 20, 20 << 20);
        assert_eq!(budget.share_excess_bytes(ONE), 4 << 20);
        assert_eq!(
            (budget.share_excess_bytes(OTHER), budget.excess_bytes()),
            (0, 0)
        );
        // Sessions over datagrams have the same memory ...
        let of_others = |of_others| Datagrams { of_others, own: 0 };
        let share =
            |budget: &mut Budget, bytes| budget.share_with_datagrams(of_others(bytes)).of_others;
        assert_eq!(share(&mut budget, 44 << 20), 43 << 20);
        assert_eq!(budget.excess_bytes(), 1 << 20);
        // ... of which a part is theirs whatever connections hold, and a part is not, whatever these leave: else every byte that comes from
        // the coordinator, or from any peer, would end a connection.
        budget.changed(ONE, 20 << 20, 63 << 20);
        assert_eq!(share(&mut budget, 0), 16 << 20);
        budget.changed(ONE, 63 << 20, 0);
        let most = share(&mut budget, 0);
        assert_eq!(most, 48 << 20);
        share(&mut budget, most);
        budget.changed(ONE, 0, 15 << 20);
        assert_eq!(budget.excess_bytes(), 0);
        assert_eq!(budget.most_connected(15), ONE);
        assert_eq!(budget.most_connected(16), None);
    }

    /// Half of a budget for servers is for what this program opened, however much others hold by connections or datagrams.
    #[test]
    fn nobody_fills_what_is_reserved_for_own_connections() {
        let limit = 40 << 20;
        let mut budget = Budget::new(limit, 2);
        budget.opened(ONE);
        budget.changed(ONE, 0, limit);
        let share = budget.share_with_datagrams(Datagrams::default());
        assert_eq!((share.of_others, share.own), (limit / 4, limit / 2));
        budget.changed(ONE, limit, 0);
        let share = budget.share_with_datagrams(Datagrams::default());
        assert_eq!((share.of_others, share.own), (limit / 2, limit));
        let mut held = Datagrams {
            of_others: share.of_others,
            own: 0,
        };
        assert_eq!(budget.share_with_datagrams(held).own, limit / 2);
        // Connections and sessions of its own together.
        budget.changed(None, 0, limit / 4);
        held.own = limit / 4;
        budget.share_with_datagrams(held);
        assert_eq!(
            (budget.excess_bytes(), budget.is_own_too_large()),
            (0, false)
        );
        budget.changed(None, limit / 4, limit / 4 + 1);
        assert_eq!(
            (budget.excess_bytes(), budget.is_own_too_large()),
            (1, true)
        );
        assert_eq!(budget.greediest(), None);
    }
}
