//! What the processes do with what they hear, and with time.

use coordinator::Coordinator;
use master::{LogPosition, Session};
use wire::ids::{ReplyTo, ServerId, TableId};
use wire::locator::{Locator, parse_list};
use wire::member::{self, ToCoordinator, ToShard};
use wire::opcode::Opcode;
use wire::rpc::{self, IncrementRequest, RemoveRequest, SplitTabletRequest, WriteRequest};
use wire::status::Status;
use wire::time::Time;

use crate::client::{ClientActions, ClientNode, NetworkAction};
use crate::coordinator_node::{CoordinatorAction, CoordinatorActions, Core};
use crate::event::Owner;
use crate::history::{Change, History};
use crate::leaders::{Heard, coordinator_host};
use crate::network::Host;
use crate::ports::is_session;
use crate::rounds::host_of;
use crate::scan::Scan;
use crate::scenario::Durable;
use crate::server::{ShardActions, ShardNode};
use crate::told;
use crate::world::{
    COORDINATOR, Event, FIRST_CLIENT, Party, Phase, World, client_host, host_name, server_host,
};

/// Background work that takes so many steps without a pause goes round in circles: the logs here have a few segments.
const MAX_BUSY_TICKS: u32 = 5000;

impl World {
    // ---- the coordinator ----

    /// Lets the coordinator do something, and then what is due.
    pub fn with_coordinator(
        &mut self,
        act: impl FnOnce(&mut Coordinator, Time, &mut CoordinatorActions),
    ) {
        let now = self.clock(COORDINATOR);
        let Some(Core::Alone(core)) = self.coordinators[0].node.as_mut().map(|it| &mut it.core)
        else {
            return;
        };
        let mut out = CoordinatorActions::default();
        act(core, now, &mut out);
        let next = core.tick(now, &mut out);
        // Before any of its output leaves.
        let changes = core.take_changes(now);
        self.noted_count += u64::from(!changes.is_empty());
        core.noted(self.noted_count);
        for pair in changes.puts {
            self.noted.insert(pair.key, pair.value);
        }
        for key in changes.deletes {
            self.noted.remove(&key);
        }
        for action in &mut out.0 {
            if let CoordinatorAction::SendMember(_, message) = action {
                core.sign(message);
            }
        }
        self.note_rebuilt(0);
        self.note_new_tables(0);
        for action in out.0 {
            self.carry_out(0, action);
        }
        self.tick_when(COORDINATOR, next);
    }

    /// Nobody waits for its replies any more.
    pub fn client_gone(&mut self, connection: u64) {
        if let Some(node) = &mut self.coordinators[0].node
            && let Core::Alone(core) = &mut node.core
        {
            core.connection_closed(connection);
        }
    }

    pub fn carry_out(&mut self, process: usize, action: CoordinatorAction) {
        let host = coordinator_host(process);
        match action {
            CoordinatorAction::Reply(to, payload) => {
                self.note_reply(host, to, &payload);
                if self.parties.contains_key(&(to.connection, 1)) {
                    self.send_payload(to.connection, 1, to.nonce, &payload);
                }
            }
            CoordinatorAction::SendMember(connection, message) => {
                self.note_made_again(process, &message);
                self.note_order(host, connection, &message);
                self.send_message(connection, 1, &message);
            }
            CoordinatorAction::CloseMember(connection) => {
                self.parties.remove(&(connection, 1));
                if let Some(node) = &mut self.coordinators[process].node {
                    node.members.remove(&connection);
                }
                self.network.close(self.now, connection, 1);
            }
            CoordinatorAction::Log(text) => {
                if text.contains("silent for") {
                    self.coverage.hit("connections given up for silence");
                }
                for (mark, what) in [
                    ("are lost", "losses recorded"),
                    ("is dead: neither", "servers declared dead"),
                    ("recovering ", "recoveries begun"),
                    ("recovered server", "recoveries ended"),
                    (": it has ended after", "migrations ended"),
                    (": given up after", "migrations given up"),
                    ("and its share is", "migrations begun for evenness"),
                    ("is cut, to be moved in parts", "tablets cut to be moved"),
                    ("are one again", "tablets made one again"),
                ] {
                    if text.contains(mark) {
                        self.coverage.hit(what);
                    }
                }
                if text.contains("is cut, to be moved in parts") {
                    self.note_cut(process);
                }
                self.note_log(host, &text);
            }
        }
    }

    /// Remembers where each new table's keys live.
    pub fn note_new_tables(&mut self, process: usize) {
        let Some(node) = &mut self.coordinators[process].node else {
            return;
        };
        let Some(state) = node.state() else {
            return;
        };
        for table in state.tables(node.last_table, 16).tables {
            node.last_table = table.table_id;
            let ranges = table
                .tablets
                .iter()
                .map(|tablet| (tablet.end_key_hash, tablet.member.clone()))
                .collect();
            self.history.place(TableId(table.table_id), ranges);
            self.coverage.hit("tables created");
            if !node.table_names.insert(table.name) {
                self.coverage.hit("tables made again");
            }
        }
    }

    /// Remembers that a table is about to have one more tablet.
    fn note_split(&mut self, process: usize, payload: &[u8]) {
        let node = self.coordinators[process].node.as_ref();
        let state = node.and_then(|node| node.state());
        if let (Ok(request), Some(state)) = (SplitTabletRequest::decode(payload), state) {
            for table in state.tables(0, 0).tables {
                if table.name.as_bytes() == request.name {
                    self.history.split(self.now, TableId(table.table_id));
                }
            }
        }
    }

    /// The same when a coordinator splits one by itself, whichever it is.
    fn note_cut(&mut self, process: usize) {
        let node = self.coordinators[process].node.as_ref();
        let state = node.and_then(|node| node.state());
        let tables = state.map(|state| state.tables(0, 0).tables);
        for table in tables.into_iter().flatten() {
            self.history.split(self.now, TableId(table.table_id));
        }
    }

    pub fn coordinator_request(&mut self, process: usize, to: ReplyTo, payload: &[u8]) {
        self.note_request(coordinator_host(process), to, payload);
        if payload.first() == Some(&(Opcode::SplitTablet as u8)) {
            self.note_split(process, payload);
        }
        if payload.first() == Some(&(Opcode::DropTable as u8)) {
            self.coverage.hit("tables dropped");
        }
        self.coordinator_hears(process, Heard::Request(to, payload.to_vec()));
    }

    pub fn coordinator_message(&mut self, process: usize, connection: u64, payload: &[u8]) {
        let message = match ToCoordinator::decode_bounded(payload) {
            Ok(message) => message,
            Err(error) => return self.fail(format!("a shard's message is malformed: {error}")),
        };
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
        self.coordinator_hears(process, Heard::Message(connection, Box::new(message)));
    }

    pub fn tick_coordinator(&mut self, host: u32) {
        if let Some(process) = self.coordinator_of(host) {
            self.coordinator_hears(process, Heard::Tick);
        }
    }

    // ---- shards ----

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
        let ends = node.core.must_end().map(str::to_owned);
        for (to, payload) in lent {
            self.shard_replies(server, shard, to, &payload);
        }
        self.stir(Owner::Shard { server, shard });
        self.apply_shard(server, shard, out);
        if let Some(why) = ends {
            return self.ends_itself(server, &why);
        }
        if session == Session::Close {
            self.close_link(server, shard);
        }
        self.flush(server, shard);
        self.schedule_syncs(server, shard);
        self.tick_when(host, next);
    }

    fn apply_shard(&mut self, server: usize, shard: usize, out: ShardActions) {
        for message in &out.to_coordinator {
            self.look_at_inventory(server, shard, message);
        }
        for (to, payload) in out.replies {
            self.shard_replied(server, shard, to, &payload);
        }
        let link = self.servers[server].shards[shard]
            .link
            .as_ref()
            .filter(|link| link.is_open)
            .map(|link| link.connection);
        if let Some(connection) = link {
            for message in &out.to_coordinator {
                self.send_message(connection, 0, message);
            }
        }
        for text in out.log {
            self.note_log(server_host(server), &text);
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
            // What the request itself appends is only seen afterwards: its reply is looked at then.
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
            self.close_link(server, shard);
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

    pub fn close_link(&mut self, server: usize, shard: usize) {
        // Its process may just have ended.
        let node = self.servers[server].shards.get(shard);
        let Some(link) = node.and_then(|node| node.link.as_ref()) else {
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

    // ---- clients ----

    /// Lets a client do something, and then what is due.
    pub fn with_client(
        &mut self,
        client: usize,
        act: impl FnOnce(&mut ClientNode, Time, &mut History, &mut ClientActions),
    ) {
        let host = client_host(client);
        let now = self.clock(host);
        let mut out = ClientActions::default();
        let node = &mut self.clients[client];
        act(node, now, &mut self.history, &mut out);
        let next = node.core.tick(now, &mut out);
        self.apply_client(client, out);
        self.tick_when(host, next);
    }

    fn apply_client(&mut self, client: usize, out: ClientActions) {
        for action in out.network {
            self.client_acts(client, action);
        }
        for (id, result) in out.completed {
            self.trace.event(
                self.now,
                || host_name(client_host(client)),
                "completed",
                &[id.0],
                &[],
                || format!("operation {} {result:?}", id.0),
            );
            let node = &mut self.clients[client];
            let (history, coverage) = (&mut self.history, &mut self.coverage);
            if let Err(text) = node.completed(self.now, id, result, history, coverage) {
                self.fail(format!("client {client}: {text}"));
            }
            if self.api.as_ref().is_some_and(|api| api.is_away(self.now)) {
                self.coverage
                    .hit("operations completed while the API server was away");
            }
            if self.clients[client].is_waiting {
                self.plan_step(client);
            }
        }
        for _ in 0..std::mem::take(&mut self.clients[client].new_pages) {
            let delay = match self.phase {
                Phase::Load => self.clients[client].browse(&self.scenario),
                _ => 1,
            };
            self.schedule_in(delay, Event::PageStep(client));
        }
    }

    fn client_acts(&mut self, client: usize, action: NetworkAction) {
        match action {
            NetworkAction::Connect(session, locator) => {
                if self.client_opens_session(client, session, &locator) {
                    return;
                }
                let Some((mut host, port)) = self.resolve(&locator) else {
                    return self.fail(format!("a client was given the locator {locator:?}"));
                };
                let is_coordinator = host == COORDINATOR;
                if host == COORDINATOR {
                    host = self.coordinator_address();
                }
                let from = client_host(client);
                let connection = self.network.connect(self.now, from, host, port);
                let reader = transport::rpc::RpcReader::default();
                let node = &mut self.clients[client];
                node.sessions.insert(session, (connection, reader));
                node.tcp_ports
                    .extend((!is_coordinator).then_some((connection, port)));
                self.parties
                    .insert((connection, 0), Party::Client { client, session });
            }
            NetworkAction::Send(session, nonce, payload) => {
                self.note_sent(client, session, nonce, &payload);
                match self.clients[client].sessions.get(&session) {
                    Some(&(connection, _)) if is_session(connection) => {
                        self.send_in_session(Owner::Client(client), connection, nonce, &payload);
                    }
                    Some(&(connection, _)) => self.send_payload(connection, 0, nonce, &payload),
                    None => {}
                }
            }
            NetworkAction::Close(session) => {
                self.coverage.hit("connections given up for silence");
                self.clients[client].attempts.session_over(session);
                if let Some((connection, _)) = self.clients[client].sessions.remove(&session) {
                    if is_session(connection) {
                        let ports = self.clients[client].ports.as_mut();
                        ports.into_iter().for_each(|ports| ports.close(connection));
                        return self.stir(Owner::Client(client));
                    }
                    self.clients[client].tcp_ports.remove(&connection);
                    self.parties.remove(&(connection, 0));
                    self.network.close(self.now, connection, 0);
                }
            }
        }
    }

    /// True if the locator is one for datagrams.
    fn client_opens_session(&mut self, client: usize, session: u64, locator: &str) -> bool {
        let now = self.clock(client_host(client));
        let node = &mut self.clients[client];
        let connection = Locator::parse(locator)
            .ok()
            .filter(|locator| locator.tcp().is_err())
            .and_then(|locator| node.ports.as_mut()?.connect(now, &locator, false));
        let Some(connection) = connection else {
            return false;
        };
        let reader = transport::rpc::RpcReader::default();
        node.sessions.insert(session, (connection, reader));
        self.stir(Owner::Client(client));
        true
    }

    /// Where the byte streams of a list of locators lead.
    pub fn resolve(&self, list: &str) -> Option<(u32, u16)> {
        let list = parse_list(list).ok()?;
        let (host, port) = list.iter().find_map(|locator| locator.tcp().ok())?;
        Some((host_of(host)?, port))
    }

    pub fn client_received(&mut self, client: usize, session: u64, nonce: u64, payload: &[u8]) {
        let attempts = &mut self.clients[client].attempts;
        attempts.answered(session, nonce, payload, &mut self.history);
        self.with_client(client, |node, now, _, out| {
            node.core.received(now, session, nonce, payload, out);
        });
    }

    /// The application goes on with a scan.
    pub fn page_step(&mut self, client: usize) {
        let moment = self.now;
        self.with_client(client, |node, now, _, out| node.next_page(moment, now, out));
    }

    pub fn tick_client(&mut self, client: usize) {
        self.with_client(client, |_, _, _, _| {});
    }

    /// The application thinks of something to do.
    pub fn client_step(&mut self, client: usize) {
        if self.phase != Phase::Load || self.clients[client].remaining == 0 {
            return;
        }
        if !self.clients[client].must_wait(&self.scenario) {
            let scenario = self.scenario.clone();
            let moment = self.now;
            self.with_client(client, |node, now, history, out| {
                node.start_one(moment, now, &scenario, history, out);
            });
        }
        self.plan_step(client);
    }

    /// The next step, or none until something completes.
    fn plan_step(&mut self, client: usize) {
        let node = &mut self.clients[client];
        node.is_waiting = node.must_wait(&self.scenario);
        if !node.is_waiting {
            let delay = node.think(&self.scenario);
            self.schedule_in(delay, Event::ClientStep(client));
        }
    }

    /// Reads every key of every table that is there, and scans all of them.
    pub fn read_everything(&mut self) {
        let Some((_, coordinator)) = self.leading() else {
            return;
        };
        let tables: Vec<TableId> = coordinator
            .tables(0, 0)
            .tables
            .iter()
            .map(|table| TableId(table.table_id))
            .collect();
        let keys: Vec<(TableId, Vec<u8>)> = self
            .history
            .by_key()
            .into_keys()
            .filter(|(table, _)| tables.contains(table))
            .collect();
        let moment = self.now;
        self.with_client(0, |node, now, history, out| {
            for (table, key) in &keys {
                node.read_finally(moment, now, *table, key, history, out);
            }
            for &table in &tables {
                node.start_scan(moment, now, Scan::new(moment, table, false, true), out);
            }
        });
    }

    /// Ends a side of a connection without a word, as a dead process does.
    pub fn drop_party(&mut self, connection: u64, side: usize) {
        self.parties.remove(&(connection, side));
        self.network.lose_tail(connection, side);
        if self.streams.of("ends of processes").chance(750) {
            self.network.tell_broken(self.now, connection, 1 - side);
        }
        self.network.deafen(connection, side);
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
