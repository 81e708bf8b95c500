//! What applications do: operations drawn at random, on few keys.

use base::ids::TableId;
use base::time::Time;
use client_core::{IncrementObject, KeyObject, Multi, OperationId, WriteObject};
use wire::hash::key_hash;
use wire::rpc::{Increment, MultiKind, RejectRules};

use crate::cluster::client::ClientNode;
use crate::cluster::client_actions::{ClientActions, Purpose};
use crate::cluster::scan::Scan;
use crate::oracles::checker::{Addend, Input};
use crate::oracles::history::{History, Record};
use crate::oracles::values::{more_keys, value_bytes, written};
use crate::scenario::{MILLI, Scenario};

/// What the application is about to do with one key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    Read,
    ReadWhole,
    Write,
    WriteKeys,
    Increment,
    Remove,
}

/// A part of a multi-op, before it is sent.
struct Part {
    table: TableId,
    key: Vec<u8>,
    /// Of a write.
    value: Vec<u8>,
    /// Of an increment.
    by: Increment,
    rules: RejectRules,
}

impl ClientNode {
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
        let name = table_name(at);
        let Some(table) = self.tables[at] else {
            if !self.is_creating {
                self.is_creating = true;
                let span = scenario.span;
                let id = self.core.create_table(clock, name.as_bytes(), span, out);
                self.under_way.insert(id, Purpose::CreateTable(at));
            }
            return;
        };
        self.remaining -= 1;
        if self.only_reads {
            let (id, purpose) = self.start_on_key(now, clock, table, scenario, history, out);
            self.under_way.insert(id, purpose);
            return;
        }
        let first_split = 1000 - scenario.splits;
        let first_scan = first_split - scenario.scans;
        let core = &mut self.core;
        let (id, purpose) = match self.random.between(0, 999) {
            0..3 => (
                core.drop_table(clock, name.as_bytes(), out),
                Purpose::DropTable(at),
            ),
            3..8 => (core.log_message_all(clock, 3, "hello", out), Purpose::Other),
            8..12 => (core.table_id(clock, name.as_bytes(), out), Purpose::Other),
            12..90 => self.start_multi(now, clock, scenario, history, out),
            die if die >= first_split => {
                let hash = self.some_hash(table, scenario);
                let id = self.core.split_tablet(clock, name.as_bytes(), hash, out);
                (id, Purpose::SplitTablet)
            }
            die if die >= first_scan => {
                let scan = Scan::new(now, table, self.random.chance(250), false);
                return self.start_scan(now, clock, scan, out);
            }
            _ => self.start_on_key(now, clock, table, scenario, history, out),
        };
        self.under_way.insert(id, purpose);
        if self.random.chance(30) {
            let after = self.random.between(1, 50 * MILLI);
            self.core.set_deadline(id, Time(clock.0 + after));
        }
    }

    /// Where a tablet is split: anywhere, at a key, or at the ends.
    fn some_hash(&mut self, table: TableId, scenario: &Scenario) -> u64 {
        let key = self.key(scenario);
        let hash = key_hash(table, &key);
        match self.random.below(8) {
            0 => hash,
            1 => hash.wrapping_add(1),
            2 => *self.random.pick(&[0, 1, u64::MAX]),
            _ => self.random.next(),
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

    /// Conditions of a read are the exception.
    fn rules_of_read(&mut self, table: TableId, key: &[u8]) -> RejectRules {
        match self.random.chance(800) {
            true => RejectRules::default(),
            false => self.rules(table, key),
        }
    }

    /// The length of a value; some are numbers of 8 bytes.
    fn length(&mut self, most: u64) -> usize {
        match self.random.chance(400) {
            true => 8,
            false => self.random.between(8, most) as usize,
        }
    }

    /// Keys of odd names are also added to as doubles, and then never less than nothing as integers: no sum is "not a number".
    fn addend(&mut self, key: &[u8]) -> Increment {
        let is_mixed = key.last().is_some_and(|last| last % 2 == 1);
        let amount = self.random.between(1, 1 << 40) as i64;
        let (mut int64, mut double) = (amount, 0.0);
        if is_mixed && self.random.chance(300) {
            (int64, double) = (0, amount as f64 / 16.0);
            if self.random.chance(100) {
                int64 = 1;
            }
        } else if !is_mixed && self.random.chance(500) {
            int64 = -amount;
        }
        Increment { int64, double }
    }

    fn record(&self, now: u64, table: TableId, key: &[u8], input: Input) -> Record {
        Record {
            client: self.number,
            table,
            key: key.to_vec(),
            input,
            output: None,
            call: now,
            end: u64::MAX,
            is_whole: false,
            is_multi: false,
            attempts: 0,
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
        let die = self.random.between(0, 99);
        let plan = match if self.only_reads { die % 40 } else { die } {
            0..33 => Plan::Read,
            33..40 => Plan::ReadWhole,
            40..68 => Plan::Write,
            68..75 => Plan::WriteKeys,
            75..87 => Plan::Increment,
            _ => Plan::Remove,
        };
        let rules = match plan {
            Plan::Read | Plan::ReadWhole => self.rules_of_read(table, &key),
            _ => self.rules(table, &key),
        };
        // The number of a value is that of the record of its write.
        let number = history.records.len() as u64;
        let length = self.length(scenario.max_value_bytes);
        let by = self.addend(&key);
        let input = match plan {
            Plan::Read | Plan::ReadWhole => Input::Read(rules),
            Plan::Write => Input::Write(written(number, length, false), rules),
            Plan::WriteKeys => Input::Write(written(number, length, true), rules),
            Plan::Increment => Input::Increment(addend_of(by), rules),
            Plan::Remove => Input::Remove(rules),
        };
        let mut record = self.record(now, table, &key, input);
        record.is_whole = plan == Plan::ReadWhole;
        let at = history.call(record);
        let core = &mut self.core;
        let id = match plan {
            Plan::Read => core.read(clock, table, &key, &rules, out),
            Plan::ReadWhole => core.read_keys_and_value(clock, table, &key, &rules, out),
            Plan::Write => {
                let value = value_bytes(number, length);
                core.write(clock, table, &key, &value, &rules, out)
            }
            Plan::WriteKeys => {
                let value = value_bytes(number, length);
                let more = more_keys(number);
                let mut keys = vec![&key[..]];
                keys.extend(more.iter().map(Vec::as_slice));
                core.write_keys(clock, table, &keys, &value, &rules, out)
            }
            Plan::Increment => core.increment(clock, table, &key, by, &rules, out),
            Plan::Remove => core.remove(clock, table, &key, &rules, out),
        };
        (id, Purpose::Keys(vec![at]))
    }

    /// Many operations of one kind, in all tables that are known.
    fn start_multi(
        &mut self,
        now: u64,
        clock: Time,
        scenario: &Scenario,
        history: &mut History,
        out: &mut ClientActions,
    ) -> (OperationId, Purpose) {
        let kind = match self.random.between(0, 99) {
            0..40 => MultiKind::Write,
            40..60 => MultiKind::Read,
            60..75 => MultiKind::Remove,
            _ => MultiKind::Increment,
        };
        let tables: Vec<TableId> = self.tables.iter().copied().flatten().collect();
        let (mut records, mut parts) = (Vec::new(), Vec::new());
        for _ in 0..self.random.between(1, 60) {
            let table = *self.random.pick(&tables);
            let key = self.key(scenario);
            let name = (kind, table, key.clone());
            if self.attempts.is_under_way(&name) {
                continue;
            }
            let (part, record) = self.part(now, kind, table, key, scenario, history);
            let at = history.call(record);
            self.attempts.start(name, at);
            records.push(at);
            parts.push(part);
        }
        let multi = multi(kind, &parts).expect("keys and values are short");
        let id = self.core.multi(clock, multi, out);
        (id, Purpose::Keys(records))
    }

    fn part(
        &mut self,
        now: u64,
        kind: MultiKind,
        table: TableId,
        key: Vec<u8>,
        scenario: &Scenario,
        history: &History,
    ) -> (Part, Record) {
        let rules = match kind {
            MultiKind::Read => self.rules_of_read(table, &key),
            _ => self.rules(table, &key),
        };
        let number = history.records.len() as u64;
        let length = self.length(scenario.max_value_bytes.min(200));
        let by = self.addend(&key);
        let input = match kind {
            MultiKind::Write => Input::Write(written(number, length, false), rules),
            MultiKind::Read => Input::Read(rules),
            MultiKind::Remove => Input::Remove(rules),
            MultiKind::Increment => Input::Increment(addend_of(by), rules),
        };
        let mut record = self.record(now, table, &key, input);
        record.is_multi = true;
        record.is_whole = kind == MultiKind::Read;
        let value = value_bytes(number, length);
        let part = Part {
            table,
            key,
            value,
            by,
            rules,
        };
        (part, record)
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
        let at = history.call(self.record(now, table, key, Input::Read(rules)));
        let id = self.core.read(clock, table, key, &rules, out);
        self.under_way.insert(id, Purpose::Keys(vec![at]));
    }
}

fn addend_of(by: Increment) -> Addend {
    Addend {
        int64: by.int64,
        double: by.double.to_bits(),
    }
}

fn multi(kind: MultiKind, parts: &[Part]) -> Result<Multi, client_core::Error> {
    let by_key = |part| {
        let Part {
            table, key, rules, ..
        }: &Part = part;
        KeyObject {
            table: *table,
            key,
            rules: *rules,
        }
    };
    let write = |part| {
        let Part {
            table,
            key,
            value,
            rules,
            ..
        }: &Part = part;
        WriteObject {
            table: *table,
            key,
            value,
            rules: *rules,
        }
    };
    let increment = |part| {
        let Part {
            table,
            key,
            by,
            rules,
            ..
        }: &Part = part;
        IncrementObject {
            table: *table,
            key,
            by: *by,
            rules: *rules,
        }
    };
    let parts = parts.iter();
    match kind {
        MultiKind::Read => Multi::reads(&parts.map(by_key).collect::<Vec<_>>()),
        MultiKind::Remove => Multi::removes(&parts.map(by_key).collect::<Vec<_>>()),
        MultiKind::Write => Multi::writes(&parts.map(write).collect::<Vec<_>>()),
        MultiKind::Increment => Multi::increments(&parts.map(increment).collect::<Vec<_>>()),
    }
}

fn table_name(at: usize) -> String {
    format!("table-{at}")
}
