//! What shards do with what they hear, and with time.

use base::ids::{ReplyTo, ServerId, TableId};
use base::time::Time;
use master::{LogPosition, Session};
use server::{PeerError, ServerEvent};
use wire::member::{ToCoordinator, ToShard};
use wire::opcode::Opcode;
use wire::rpc::{IncrementRequest, RemoveRequest, WriteRequest};
use wire::status::Status;
use wire::{member, rpc};

use crate::cluster::ports::is_session;
use crate::cluster::server::{ShardActions, ShardNode};
use crate::cluster::{Cluster, FIRST_CLIENT, host_name, server_host, told};
use crate::event::{Event, Owner};
use crate::net::network::Host;
use crate::oracles::history::Change;
use crate::scenario::Durable;

/// Background work that takes so many steps without a pause goes round in circles: the logs here have a few segments.
const MAX_BUSY_TICKS: u32 = 5000;

impl Cluster {
    /// Lets a shard do something, and then what is due.
    pub fn with_shard(
        &mut self,
        server: usize,
        shard: usize,
        act: impl FnOnce(&mut ShardNode, Time, &mut ShardActions),
    ) {
        let host = server_host(server);
        let now = self.clock(host);
        let Some(node) = self.servers[server].shards.get_mut(shard) else {
            return;
        };
        let was = whose(node);
        let written = self.disk_writes(server, shard);
        let look_at = self.tend_links(server, shard);
        let node = &mut self.servers[server].shards[shard];
        let mut out = ShardActions::begin(node);
        act(node, now, &mut out);
        let lent = out.note_lent(&node.core);
        node.tell_links(now, &mut out);
        let next = node.core.tick(now, &mut out).min(look_at);
        out.end(node);
        if let Some(dies) = self.servers[server].dies_writing
            && self.disk_writes(server, shard) > written
        {
            // Nobody hears of what it has just done.
            return self.die_writing(server, shard, dies);
        }
        let node = &mut self.servers[server].shards[shard];
        node.busy_ticks = if next <= now { node.busy_ticks + 1 } else { 0 };
        if node.busy_ticks > MAX_BUSY_TICKS {
            let text = format!(
                "{}, shard {shard}, does not come to rest: {:?}",
                host_name(host),
                node.core.shard().stats()
            );
            self.fail(text);
            return;
        }
        if whose(node) != was {
            node.epoch += 1;
            node.oracle.clear();
            node.flushing = LogPosition::START;
            node.durable = LogPosition::START;
        }
        let session = node.core.shard().session(now);
        let ends = node.core.must_end().cloned();
        for (to, payload) in lent {
            self.shard_replies(server, shard, to, &payload);
        }
        self.stir(Owner::Shard { server, shard });
        self.apply_shard(server, shard, out);
        if let Some(why) = ends {
            return self.ends_itself(server, &why);
        }
        if session == Session::Close {
            self.close_session(server, shard);
        }
        self.flush(server, shard);
        self.schedule_syncs(server, shard);
        self.schedule_disk(server, shard);
        self.tick_when(host, next);
    }

    fn apply_shard(&mut self, server: usize, shard: usize, out: ShardActions) {
        for message in &out.to_coordinator {
            self.look_at_inventory(server, shard, message);
        }
        for (to, payload) in out.replies {
            self.shard_replied(server, shard, to, &payload);
        }
        for message in out.to_coordinator {
            self.send_to_coordinator(server, shard, message);
        }
        for event in out.events {
            if event == ServerEvent::PeerClosed(PeerError::TooMuchUnderWay) {
                self.coverage.hit("appends for which there was no memory");
            }
            self.note_log(server_host(server), &event);
        }
        self.apply_peers(server, shard, out.peers);
        if let Some(config) = out.opens {
            self.want_disk(server, shard, config);
        }
    }

    fn look_at_inventory(&mut self, server: usize, shard: usize, message: &ToCoordinator) {
        if let Some(member::shard::Kind::LogInventory(told)) = &message.kind
            && let Some(backup) = self.servers[server].shards[shard].core.backup()
            && let Err(text) = told::outlives_power(backup, told)
        {
            let name = host_name(server_host(server));
            self.fail(format!("the backup of {name}, shard {shard}, {text}"));
        }
    }

    /// When to look for faster ways again.
    fn tend_links(&mut self, server: usize, shard: usize) -> Time {
        if self.scenario.fast.is_none() {
            return Time::NEVER;
        }
        self.with_links(server, shard, |links, now, dialer| {
            links.look_for_faster(now, dialer)
        })
    }

    /// A reply leaves.
    fn shard_replied(&mut self, server: usize, shard: usize, to: ReplyTo, payload: &[u8]) {
        self.shard_replies(server, shard, to, payload);
        if is_session(to.connection) || self.parties.contains_key(&(to.connection, 1)) {
            self.answer_from_shard(server, shard, to, payload);
        }
    }

    /// Looks at a reply.
    fn shard_replies(&mut self, server: usize, shard: usize, to: ReplyTo, payload: &[u8]) {
        self.note_reply(server_host(server), to, payload);
        let node = &mut self.servers[server].shards[shard];
        if self.scenario.is_gated() {
            let durable = node.durable;
            if let Err(text) = node.oracle.replied(to, payload, durable) {
                let name = host_name(server_host(server));
                return self.fail(format!("{name}, shard {shard}: {text}"));
            }
        }
        let replied = self.deposed.replied(to, payload);
        if let Err(text) = replied.and(self.moved.replied(to, payload)) {
            let name = host_name(server_host(server));
            return self.fail(format!("{name}, shard {shard}: {text}"));
        }
        match rpc::status(payload) {
            Ok(Status::StaleRpc) => self.coverage.hit("STALE_RPC"),
            Ok(Status::ExpiredLease) if self.scenario.fail_over.is_some() => {
                self.fail(
                    "a client's lease ended although it could be renewed all the time".to_owned(),
                );
            }
            Ok(Status::ExpiredLease) => self.coverage.hit("EXPIRED_LEASE"),
            Ok(Status::UnknownTablet) => self.coverage.hit("UNKNOWN_TABLET"),
            Ok(Status::Retry) => self.coverage.hit("RETRY"),
            Ok(Status::NoTableSpace) => self.coverage.hit("memory full"),
            _ => {}
        }
    }

    pub fn shard_request(&mut self, server: usize, shard: usize, to: ReplyTo, payload: &[u8]) {
        self.note_request(server_host(server), to, payload);
        // Its session may be over when it is answered.
        let asking = self.asking_host(server, shard, to.connection);
        let master = self.servers[server].shards[shard].core.shard().server_id();
        if self.deposed.requested(master, to, payload) {
            self.coverage.hit("requests to deposed masters");
        }
        if self.moved.requested(master, to, payload) {
            self.coverage.hit("requests for tablets that have moved");
        }
        let (mut held, mut is_put_off) = (0, false);
        let is_gated = self.scenario.is_gated();
        self.with_shard(server, shard, |node, now, out| {
            let before = node.core.shard().head_position();
            let held_before = node.core.shard().stats().held_replies;
            // The entries that the request itself appends are seen afterwards: its reply is looked at then.
            let mut replies = out.fresh();
            node.core.request(now, to, payload, &mut replies);
            if is_gated {
                let after = node.core.shard().head_position();
                node.oracle.requested(to, payload, before, after);
            }
            let held_after = node.core.shard().stats().held_replies;
            held = held_after.saturating_sub(held_before);
            is_put_off = replies.replies.iter().any(|(other, reply)| {
                *other == to && rpc::status(reply).is_ok_and(is_without_effect)
            });
            out.append(replies);
        });
        self.coverage.add("replies held by the gate", held);
        if !is_put_off {
            self.note_arrival(asking, payload);
        }
    }

    /// A server may have carried this request out.
    fn note_arrival(&mut self, asking: Option<Host>, payload: &[u8]) {
        let (Some(host), Some((change, table, key))) = (asking, numbered(payload)) else {
            return;
        };
        self.history
            .arrive(self.now, host - FIRST_CLIENT, table, &key, change);
    }

    pub fn shard_message(&mut self, server: usize, shard: usize, payload: &[u8]) {
        let message = match ToShard::decode_bounded(payload) {
            Ok(message) => message,
            Err(error) => return self.fail(format!("an order is malformed: {error}")),
        };
        if !self.session_hears(server, shard, &message) {
            return;
        }
        let mut session = Session::Continue;
        let is_welcome = matches!(message.kind, Some(member::coordinator::Kind::Welcome(_)));
        let term = match &message.kind {
            Some(member::coordinator::Kind::Welcome(welcome)) => welcome.position,
            _ => None,
        };
        self.hold_format(server, &message);
        let obeyed = self.servers[server].shards[shard].obeyed_term;
        self.with_shard(server, shard, |node, now, out| {
            if let Some(link) = &mut node.link {
                link.is_welcomed |= is_welcome;
            }
            session = node.core.coordinator_message(now, message, out);
        });
        if let Some(term) = term.map(|position| position.term) {
            self.hold_term(server, shard, obeyed, term, session);
        }
        if session == Session::Close {
            self.close_session(server, shard);
        }
    }

    /// A coordinator of this term has welcomed a shard that has obeyed one of another before: terms go up.
    fn hold_term(&mut self, server: usize, shard: usize, obeyed: u64, term: u64, session: Session) {
        if self.scenario.fail_over.is_none() {
            return;
        }
        match session {
            Session::Continue if term < obeyed => {
                let name = host_name(server_host(server));
                self.fail(format!(
                    "{name}, shard {shard}, obeys a coordinator of term {term}, after one of term {obeyed}"
                ));
            }
            Session::Continue => {
                // Its process may have died of what it was told.
                if let Some(node) = self.servers[server].shards.get_mut(shard) {
                    node.obeyed_term = term;
                }
            }
            Session::Close => {}
        }
    }

    /// The session is over, and with it the connection that it has.
    pub fn close_session(&mut self, server: usize, shard: usize) {
        // Its process may just have ended.
        if shard < self.servers[server].shards.len() {
            self.end_session_of(server, shard);
            self.close_link(server, shard);
        }
    }

    pub fn close_link(&mut self, server: usize, shard: usize) {
        let Some(link) = &self.servers[server].shards[shard].link else {
            return;
        };
        let connection = link.connection;
        self.parties.remove(&(connection, 0));
        self.network.close(self.now, connection, 0);
        self.link_over(server, shard);
    }

    /// Puts what a shard has appended on its way to be durable.
    fn flush(&mut self, server: usize, shard: usize) {
        let Durable::Later(max_delay) = self.scenario.durable else {
            return;
        };
        if !self.scenario.is_gated() {
            return;
        }
        let delay = self
            .streams
            .of("durability")
            .between(max_delay / 10, max_delay);
        let node = &mut self.servers[server];
        let incarnation = node.incarnation;
        let Some(node) = node.shards.get_mut(shard) else {
            return;
        };
        let position = node.core.shard().head_position();
        if position <= node.flushing {
            return;
        }
        node.flushing = position;
        node.last_flush_ends = node.last_flush_ends.max(self.now + delay);
        let at = node.last_flush_ends;
        let flushed = Event::Flushed {
            server,
            incarnation,
            shard,
            epoch: node.epoch,
            position: position.0,
        };
        self.schedule(at, flushed);
    }

    pub fn flushed(
        &mut self,
        server: usize,
        incarnation: u64,
        shard: usize,
        epoch: u64,
        position: u64,
    ) {
        let node = &self.servers[server];
        let is_present =
            node.is_up && node.incarnation == incarnation && node.shards[shard].epoch == epoch;
        if is_present {
            self.with_shard(server, shard, |node, _, out| {
                node.durable = LogPosition(position);
                node.core.advance_durable(LogPosition(position), out);
            });
        }
    }

    pub fn tick_server(&mut self, server: usize) {
        if self.servers[server].is_up {
            for shard in 0..self.servers[server].shards.len() {
                self.with_shard(server, shard, |_, _, _| {});
            }
        }
    }
}

/// The store that a shard is in, and its id there.
pub fn whose(node: &ShardNode) -> (u64, ServerId) {
    (node.core.hello().cluster_id, node.core.shard().server_id())
}

/// Whether a reply says that the request had no effect and will have none unless it is sent again.
fn is_without_effect(status: Status) -> bool {
    matches!(
        status,
        Status::Retry | Status::UnknownTablet | Status::ExpiredLease
    )
}

/// What a request that takes effect once changes.
fn numbered(payload: &[u8]) -> Option<(Change, TableId, Vec<u8>)> {
    let opcode = Opcode::from_u16(rpc::header(payload).ok()?.opcode)?;
    let (change, table, key) = match opcode {
        Opcode::Write => {
            let request = WriteRequest::decode(payload).ok()?;
            let key = request.object.primary_key();
            (Change::Write, request.table_id, key)
        }
        Opcode::Increment => {
            let request = IncrementRequest::decode(payload).ok()?;
            (Change::Increment, request.table_id, request.key)
        }
        Opcode::Remove => {
            let request = RemoveRequest::decode(payload).ok()?;
            (Change::Remove, request.table_id, request.key)
        }
        _ => return None,
    };
    Some((change, table, key.to_vec()))
}
