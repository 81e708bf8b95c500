//! A client process: the shipped client, and an application that makes it work.

use std::collections::BTreeMap;

use client_core::{Client, Error, OperationId, Outcome, Output, Owned, WriteObject};
use transport::rpc::RpcReader;
use wire::ids::TableId;
use wire::rpc::RejectRules;
use wire::status::Status;
use wire::time::Time;

use crate::checker;
use crate::history::{Ending, History, Record, value_bytes, value_number};
use crate::random::Random;
use crate::scenario::{MILLI, Scenario};

/// What the client told its driver to do.
#[derive(Default)]
pub struct ClientActions {
    pub network: Vec<NetworkAction>,
    pub completed: Vec<(OperationId, Result<Owned, Error>)>,
}

pub enum NetworkAction {
    Connect(u64, String),
    Send(u64, u64, Vec<u8>),
    Close(u64),
}

impl Output for ClientActions {
    fn connect(&mut self, session: u64, locator: &str) {
        self.network
            .push(NetworkAction::Connect(session, locator.to_owned()));
    }
    fn send(&mut self, session: u64, nonce: u64, payload: &[u8]) {
        self.network
            .push(NetworkAction::Send(session, nonce, payload.to_vec()));
    }
    fn close(&mut self, session: u64) {
        self.network.push(NetworkAction::Close(session));
    }
    fn complete(&mut self, operation: OperationId, result: Result<Outcome<'_>, Error>) {
        let result = result.map(Owned::from);
        self.completed.push((operation, result));
    }
}

/// What an operation under way is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// Records in the history; one, unless it is a multi-write.
    Keys(Vec<usize>),
    CreateTable(usize),
    DropTable(usize),
    Other,
}

pub struct ClientNode {
    pub number: u32,
    pub core: Client,
    /// Open and opening connections by session.
    pub sessions: BTreeMap<u64, (u64, RpcReader)>,
    /// Highest RPC id that went out, to tell what is sent again.
    pub highest_rpc_id: u64,
    pub remaining: u32,
    pub under_way: BTreeMap<OperationId, Purpose>,
    tables: Vec<Option<TableId>>,
    /// The last version that was seen of a key, for conditions.
    versions: BTreeMap<(TableId, Vec<u8>), u64>,
    random: Random,
    is_creating: bool,
    /// The application waits for something to complete before it does more.
    pub is_waiting: bool,
}

/// What the application is about to do with one key.
enum Plan {
    Read,
    Write,
    Remove,
}

impl ClientNode {
    pub fn new(number: u32, core: Client, scenario: &Scenario, random: Random) -> ClientNode {
        ClientNode {
            number,
            core,
            sessions: BTreeMap::new(),
            highest_rpc_id: 0,
            remaining: scenario.operations_per_client,
            under_way: BTreeMap::new(),
            tables: vec![None; scenario.tables],
            versions: BTreeMap::new(),
            random,
            is_creating: false,
            is_waiting: false,
        }
    }

    /// Whether there is nothing to do until something completes.
    pub fn must_wait(&self, scenario: &Scenario) -> bool {
        self.is_creating || self.under_way.len() >= scenario.concurrency
    }

    /// Time until the application wants to do something more.
    pub fn think(&mut self, scenario: &Scenario) -> u64 {
        self.random.between(1, scenario.max_think.max(2))
    }

    /// Starts one operation of the load.
    pub fn start_one(
        &mut self,
        now: u64,
        clock: Time,
        scenario: &Scenario,
        history: &mut History,
        out: &mut ClientActions,
    ) {
        let at = self.random.below(self.tables.len());
        let Some(table) = self.tables[at] else {
            if !self.is_creating {
                self.is_creating = true;
                let name = table_name(at);
                let span = scenario.span;
                let id = self.core.create_table(clock, name.as_bytes(), span, out);
                self.under_way.insert(id, Purpose::CreateTable(at));
            }
            return;
        };
        self.remaining -= 1;
        let (id, purpose) = match self.random.between(0, 999) {
            0..3 => {
                let name = table_name(at);
                let id = self.core.drop_table(clock, name.as_bytes(), out);
                (id, Purpose::DropTable(at))
            }
            3..8 => (
                self.core.log_message_all(clock, 3, "hello", out),
                Purpose::Other,
            ),
            8..12 => {
                let name = table_name(at);
                let id = self.core.table_id(clock, name.as_bytes(), out);
                (id, Purpose::Other)
            }
            12..90 => self.start_multi_write(now, clock, table, scenario, history, out),
            _ => self.start_on_key(now, clock, table, scenario, history, out),
        };
        self.under_way.insert(id, purpose);
        if self.random.chance(30) {
            let after = self.random.between(1, 50 * MILLI);
            self.core.set_deadline(id, Time(clock.0 + after));
        }
    }

    fn key(&mut self, scenario: &Scenario) -> Vec<u8> {
        if scenario.fills_memory && self.random.chance(700) {
            return format!("fill-{}", self.random.between(0, 400)).into_bytes();
        }
        format!("k{}", self.random.below(scenario.keys)).into_bytes()
    }

    fn rules(&mut self, table: TableId, key: &[u8]) -> RejectRules {
        let mut rules = RejectRules::default();
        if !self.random.chance(350) {
            return rules;
        }
        let seen = self.versions.get(&(table, key.to_vec())).copied();
        rules.given_version = seen.unwrap_or(1);
        match self.random.below(5) {
            0 => rules.exists = true,
            1 => rules.doesnt_exist = true,
            2 => rules.version_le_given = true,
            3 => rules.version_ne_given = true,
            _ => {
                rules.version_ne_given = true;
                rules.doesnt_exist = true;
            }
        }
        rules
    }

    fn record(&self, now: u64, table: TableId, key: Vec<u8>, input: checker::Input) -> Record {
        Record {
            client: self.number,
            table,
            key,
            input,
            output: None,
            call: now,
            end: u64::MAX,
            is_multi: false,
            sends: 0,
        }
    }

    fn start_on_key(
        &mut self,
        now: u64,
        clock: Time,
        table: TableId,
        scenario: &Scenario,
        history: &mut History,
        out: &mut ClientActions,
    ) -> (OperationId, Purpose) {
        let key = self.key(scenario);
        let plan = match self.random.between(0, 99) {
            0..40 => Plan::Read,
            40..86 => Plan::Write,
            _ => Plan::Remove,
        };
        let mut rules = self.rules(table, &key);
        if matches!(plan, Plan::Read) && self.random.chance(800) {
            rules = RejectRules::default();
        }
        // The number of a value is that of the record of its write.
        let number = history.records.len() as u64;
        let input = match plan {
            Plan::Read => checker::Input::Read(rules),
            Plan::Write => checker::Input::Write(number, rules),
            Plan::Remove => checker::Input::Remove(rules),
        };
        let at = history.call(self.record(now, table, key.clone(), input));
        let id = match plan {
            Plan::Read => self.core.read(clock, table, &key, &rules, out),
            Plan::Write => {
                let length = self.random.between(8, scenario.max_value_bytes) as usize;
                let value = value_bytes(number, length);
                self.core.write(clock, table, &key, &value, &rules, out)
            }
            Plan::Remove => self.core.remove(clock, table, &key, &rules, out),
        };
        (id, Purpose::Keys(vec![at]))
    }

    fn start_multi_write(
        &mut self,
        now: u64,
        clock: Time,
        table: TableId,
        scenario: &Scenario,
        history: &mut History,
        out: &mut ClientActions,
    ) -> (OperationId, Purpose) {
        let mut records = Vec::new();
        let mut parts = Vec::new();
        let mut keys = std::collections::BTreeSet::new();
        for _ in 0..self.random.between(1, 60) {
            let key = self.key(scenario);
            if !keys.insert(key.clone()) {
                continue;
            }
            let rules = self.rules(table, &key);
            let number = history.records.len() as u64;
            let mut record = self.record(
                now,
                table,
                key.clone(),
                checker::Input::Write(number, rules),
            );
            record.is_multi = true;
            records.push(history.call(record));
            let length = self.random.between(8, scenario.max_value_bytes.min(200)) as usize;
            parts.push((key, value_bytes(number, length), rules));
        }
        let objects: Vec<WriteObject<'_>> = parts
            .iter()
            .map(|(key, value, rules)| WriteObject {
                table,
                key,
                value,
                rules: *rules,
            })
            .collect();
        let id = self.core.multi_write(clock, &objects, out);
        (id, Purpose::Keys(records))
    }

    /// Reads one key for the last time.
    pub fn read_finally(
        &mut self,
        now: u64,
        clock: Time,
        table: TableId,
        key: &[u8],
        history: &mut History,
        out: &mut ClientActions,
    ) {
        let rules = RejectRules::default();
        let record = self.record(now, table, key.to_vec(), checker::Input::Read(rules));
        let at = history.call(record);
        let id = self.core.read(clock, table, key, &rules, out);
        self.under_way.insert(id, Purpose::Keys(vec![at]));
    }

    /// An operation is over. Says what is wrong with how it ended.
    pub fn completed(
        &mut self,
        now: u64,
        id: OperationId,
        result: Result<Owned, Error>,
        history: &mut History,
    ) -> Result<(), String> {
        let Some(purpose) = self.under_way.remove(&id) else {
            return Err(format!("{id:?} completed, but is not under way"));
        };
        match (purpose, result) {
            (Purpose::Keys(records), Ok(Owned::Versions(versions))) => {
                if records.len() != versions.len() {
                    return Err(format!(
                        "a multi-write of {} objects has {} results",
                        records.len(),
                        versions.len()
                    ));
                }
                for (at, result) in records.into_iter().zip(versions) {
                    let result = result.map(Owned::Version);
                    self.end_record(now, at, result, history)?;
                }
            }
            (Purpose::Keys(records), result) => {
                for at in records {
                    self.end_record(now, at, result.clone(), history)?;
                }
            }
            (Purpose::CreateTable(at), result) => {
                self.is_creating = false;
                match result {
                    Ok(Owned::Table(table)) => self.tables[at] = Some(table),
                    other => return Err(format!("CREATE_TABLE ended with {other:?}")),
                }
            }
            (Purpose::DropTable(at), Ok(Owned::Done)) => self.tables[at] = None,
            (Purpose::DropTable(_) | Purpose::Other, Err(Error::Deadline)) => {}
            (Purpose::Other, Ok(_)) => {}
            (
                Purpose::Other,
                Err(Error::Refused {
                    status: Status::TableDoesntExist,
                    ..
                }),
            ) => {}
            (purpose, result) => return Err(format!("{purpose:?} ended with {result:?}")),
        }
        Ok(())
    }

    fn end_record(
        &mut self,
        now: u64,
        at: usize,
        result: Result<Owned, Error>,
        history: &mut History,
    ) -> Result<(), String> {
        let record = &mut history.records[at];
        let is_read = matches!(record.input, checker::Input::Read(_));
        let is_write = matches!(record.input, checker::Input::Write(..));
        let ending = match result {
            Ok(Owned::Object(version, value)) => match value_number(&value) {
                Some(number) => Ending::Known(checker::Output::Found(version, number)),
                None => {
                    return Err(format!(
                        "a read gave a value that nobody wrote: {:?}",
                        value.escape_ascii().to_string()
                    ));
                }
            },
            Ok(Owned::Version(version)) => Ending::Known(checker::Output::Done(version)),
            Err(Error::Refused { status, version }) => match status {
                Status::ObjectDoesntExist | Status::ObjectExists | Status::WrongVersion => {
                    Ending::Known(checker::Output::Refused(status, version))
                }
                // Multi-writes have no numbers: an older copy of a part may arrive later and find room.
                Status::NoTableSpace if is_write && record.is_multi && record.sends > 1 => {
                    Ending::Unknown
                }
                Status::NoTableSpace if is_write => Ending::Nothing,
                Status::TableDoesntExist => {
                    let table = record.table;
                    for known in &mut self.tables {
                        if *known == Some(table) {
                            *known = None;
                        }
                    }
                    if is_read {
                        Ending::Nothing
                    } else {
                        Ending::Unknown
                    }
                }
                Status::ExpiredLease if !is_read => Ending::Unknown,
                status => return Err(format!("{record:?} ended with {status}")),
            },
            Err(Error::Deadline) => Ending::Unknown,
            other => return Err(format!("{record:?} ended with {other:?}")),
        };
        if let Ending::Known(
            checker::Output::Found(version, _)
            | checker::Output::Done(version)
            | checker::Output::Refused(_, version),
        ) = ending
        {
            self.versions
                .insert((record.table, record.key.clone()), version);
        }
        record.output = Some(ending);
        record.end = if ending == Ending::Unknown {
            u64::MAX
        } else {
            now
        };
        Ok(())
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }
}

fn table_name(at: usize) -> String {
    format!("table-{at}")
}
