//! What clients do with what they hear, and with time.

use base::ids::TableId;
use base::time::Time;
use wire::locator::{Locator, parse_list};

use crate::cluster::client::ClientNode;
use crate::cluster::client_actions::{ClientActions, NetworkAction};
use crate::cluster::ports::is_session;
use crate::cluster::rounds::host_of;
use crate::cluster::scan::Scan;
use crate::cluster::{COORDINATOR, Cluster, client_host, host_name};
use crate::event::{Event, Owner, Party, Phase};
use crate::oracles::history::History;

impl Cluster {
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
}
