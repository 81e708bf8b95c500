//! A client process: the shipped client, and an application that makes it work.

use core::time::Duration;
use std::collections::BTreeMap;

use base::ids::TableId;
use client_core::{Client, Error, OperationId, Owned};
use transport::rpc::RpcReader;
use wire::hash::HashFunction;
use wire::status::Status;

use crate::cluster::client_actions::Purpose;
use crate::cluster::ports::Ports;
use crate::cluster::scan::Scan;
use crate::cluster::server::open_ports;
use crate::coverage::Coverage;
use crate::net::datagrams::Datagrams;
use crate::net::network::Host;
use crate::oracles::attempts::Attempts;
use crate::oracles::history::History;
use crate::random::Random;
use crate::scenario::{SECOND, Scenario};

/// Clients give up opening a session after this: there is another way.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
/// Where clients have their ports.
const UDP_PORT: u16 = 40_000;

pub struct ClientNode {
    pub number: u32,
    pub core: Client,
    /// Open and opening connections by session.
    pub sessions: BTreeMap<u64, (u64, RpcReader)>,
    /// Of those to servers that are byte streams: the port that each leads to.
    pub tcp_ports: BTreeMap<u64, u16>,
    /// If it speaks by datagrams, too.
    pub ports: Option<Box<Ports>>,
    /// Highest RPC id that went out, to tell what is sent again.
    pub highest_rpc_id: u64,
    pub attempts: Attempts,
    pub remaining: u32,
    pub under_way: BTreeMap<OperationId, Purpose>,
    /// Scans between two pages.
    pub scans: Vec<Scan>,
    /// Of these, how many a step is not yet planned for.
    pub new_pages: usize,
    pub(crate) tables: Vec<Option<TableId>>,
    /// The last version that was seen of a key, for conditions.
    pub(crate) versions: BTreeMap<(TableId, Vec<u8>), u64>,
    pub(crate) random: Random,
    pub(crate) is_creating: bool,
    /// Its application writes nothing, once it has the tables.
    pub(crate) only_reads: bool,
    /// The application waits for something to complete before it does more.
    pub is_waiting: bool,
}

impl ClientNode {
    pub fn new(number: u32, core: Client, scenario: &Scenario, random: Random) -> ClientNode {
        ClientNode {
            number,
            core,
            sessions: BTreeMap::new(),
            tcp_ports: BTreeMap::new(),
            ports: None,
            highest_rpc_id: 0,
            attempts: Attempts::default(),
            remaining: scenario.operations_per_client,
            under_way: BTreeMap::new(),
            scans: Vec::new(),
            new_pages: 0,
            tables: vec![None; scenario.tables],
            versions: BTreeMap::new(),
            random,
            is_creating: false,
            only_reads: number as usize + scenario.readers >= scenario.clients,
            is_waiting: false,
        }
    }

    /// If there are datagrams, its process speaks by them, too.
    pub fn open_ports(
        &mut self,
        scenario: &Scenario,
        host: Host,
        datagrams: &mut Option<Datagrams>,
    ) {
        let mut scenario = scenario.clone();
        if let Some(fast) = &mut scenario.fast {
            fast.config.connect_timeout = CONNECT_TIMEOUT;
        }
        self.ports = open_ports(&scenario, host, UDP_PORT, datagrams);
    }

    /// What the client calls a connection.
    pub fn session_of(&self, connection: u64) -> Option<u64> {
        let mut sessions = self.sessions.iter();
        let found = sessions.find(|(_, (known, _))| *known == connection);
        found.map(|(session, _)| *session)
    }

    /// Whether there is nothing to do until something completes.
    pub fn must_wait(&self, scenario: &Scenario) -> bool {
        self.is_creating || self.under_way.len() + self.scans.len() >= scenario.concurrency
    }

    /// Time until the application wants to do something more.
    pub fn think(&mut self, scenario: &Scenario) -> u64 {
        self.random.between(1, scenario.max_think.max(2))
    }

    /// Time until it wants the next page of a scan: some scans take long, and a lot happens meanwhile.
    pub fn browse(&mut self, scenario: &Scenario) -> u64 {
        let most = *self.random.pick(&[2, 10, 200]);
        let most = (scenario.max_think.max(2) * most).min(SECOND);
        self.random.between(1, most)
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.scans.is_empty()
    }

    /// A table is not there any more.
    pub(crate) fn forget(&mut self, table: TableId) {
        for known in &mut self.tables {
            if *known == Some(table) {
                *known = None;
            }
        }
    }

    /// An operation is over. Says what is wrong with how it ended.
    pub fn completed(
        &mut self,
        now: u64,
        id: OperationId,
        result: Result<Owned, Error>,
        history: &mut History,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let Some(purpose) = self.under_way.remove(&id) else {
            return Err(format!("{id:?} completed, but is not under way"));
        };
        match (purpose, result) {
            (Purpose::Keys(records), result) => {
                let table = |at: &usize| history.records[*at].table;
                if records
                    .iter()
                    .map(table)
                    .any(|other| other != table(&records[0]))
                {
                    coverage.hit("multi-ops on several tables");
                }
                self.end_records(now, &records, result, history)?;
            }
            (Purpose::Page(scan), result) => {
                self.page_ended(now, scan, result, history, coverage)?;
            }
            (Purpose::CreateTable(at), Ok(Owned::Table(table))) => {
                self.is_creating = false;
                self.tables[at] = Some(table);
                if table.hash_function() != HashFunction::Murmur3 {
                    coverage.hit("tables made whose keys are hashed in another way");
                }
            }
            (Purpose::DropTable(at), Ok(Owned::Done)) => self.tables[at] = None,
            (Purpose::SplitTablet, Ok(Owned::Done)) => coverage.hit("tablets split"),
            (
                Purpose::DropTable(_) | Purpose::SplitTablet | Purpose::Other,
                Err(Error::Deadline),
            ) => {}
            (Purpose::Other, Ok(_)) => {}
            (
                Purpose::SplitTablet | Purpose::Other,
                Err(Error::Refused {
                    status: Status::TableDoesntExist,
                    ..
                }),
            ) => {}
            (purpose, result) => return Err(format!("{purpose:?} ended with {result:?}")),
        }
        Ok(())
    }
}
