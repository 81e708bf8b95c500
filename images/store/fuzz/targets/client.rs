//! A client with any operations, given any answers: it goes on, and completes each operation at most once, with as many results
//! as it has objects.
#![no_main]

use core::time::Duration;
use std::collections::BTreeMap;

use base::ids::{ServerId, TableId};
use base::time::Time;
use client_core::{
    Client, ClientEffects, Config, Error, IncrementObject, KeyObject, Multi, OperationId, Outcome,
    Question, WriteObject,
};
use fuzz::bounded_target;
use wire::rpc::{Increment, RejectRules};

const TABLE: TableId = TableId(1);
const SERVER: &str = "tcp:host=127.0.0.1,port=11101";
/// More than go into one request, and fewer than are under way at a time.
const OBJECTS: usize = 30;
const KEYS: [&[u8]; 3] = [b"key", b"another", b"third"];

#[derive(Default)]
struct Actions {
    /// Sessions that are to be opened, and requests that wait for an answer.
    connects: Vec<u64>,
    sent: Vec<(u64, u64)>,
    /// What was completed, and how many results it had, if it was a multi-op.
    completed: BTreeMap<OperationId, Option<usize>>,
    /// Where scans go on, and with what.
    pages: Vec<(u64, Vec<u8>)>,
}

impl ClientEffects for Actions {
    fn connect(&mut self, session: u64, locator: &str) {
        assert!(!locator.is_empty());
        self.connects.push(session);
    }
    fn send(&mut self, session: u64, nonce: u64, payload: &[u8]) {
        assert!((4..=wire::rpc::MAX_RPC_BYTES).contains(&payload.len()));
        self.sent.push((session, nonce));
    }
    fn close(&mut self, session: u64) {
        self.connects.retain(|opening| *opening != session);
        self.sent.retain(|(asked, _)| *asked != session);
    }
    fn complete(&mut self, operation: OperationId, result: Result<Outcome<'_>, Error>) {
        let results = match result {
            Ok(Outcome::Versions(all)) => Some(all.len()),
            Ok(Outcome::IncrementedAll(all)) => Some(all.len()),
            Ok(Outcome::Objects(all)) => Some(all.iter().count()),
            Ok(Outcome::Enumerated {
                tablet_first_hash,
                iterator,
                ..
            }) => {
                self.pages.push((tablet_first_hash, iterator.to_vec()));
                None
            }
            _ => None,
        };
        let before = self.completed.insert(operation, results);
        assert_eq!(before, None, "completed twice");
    }
}

struct Application {
    client: Client,
    now: Time,
    out: Actions,
    /// How many results each operation that was started may have.
    started: BTreeMap<OperationId, Option<usize>>,
}

impl Application {
    fn start(&mut self, number: u8) {
        let (now, rules) = (self.now, RejectRules::default());
        let by = Increment {
            int64: 3,
            double: 0.5,
        };
        let key_object = |at: usize| KeyObject {
            table: TableId(1 + at as u64 / 25),
            key: KEYS[at % KEYS.len()],
            rules,
        };
        let write = |at| {
            let KeyObject { table, key, rules } = key_object(at);
            WriteObject {
                table,
                key,
                value: b"value",
                rules,
            }
        };
        let increment = |at| {
            let KeyObject { table, key, rules } = key_object(at);
            IncrementObject {
                table,
                key,
                by,
                rules,
            }
        };
        let objects = 0..OBJECTS;
        let multi = match number {
            4 => Multi::writes(&objects.map(write).collect::<Vec<_>>()),
            6 => Multi::reads(&objects.map(key_object).collect::<Vec<_>>()),
            7 => Multi::removes(&objects.map(key_object).collect::<Vec<_>>()),
            8 => Multi::increments(&objects.map(increment).collect::<Vec<_>>()),
            _ => return self.start_single(number),
        };
        let multi = multi.expect("keys and values are short");
        let id = self.client.multi(now, multi, &mut self.out);
        self.started.insert(id, Some(OBJECTS));
    }

    fn start_single(&mut self, number: u8) {
        let rules = RejectRules::default();
        let by = Increment {
            int64: 3,
            double: 0.5,
        };
        let second = Duration::from_secs(1);
        let Application {
            client, now, out, ..
        } = self;
        let now = *now;
        let id = match number {
            0 => client.create_table(now, b"t", 1, out),
            1 => client.read(now, TABLE, b"key", &rules, out),
            2 => client.write(now, TABLE, b"key", b"value", &rules, out),
            3 => client.remove(now, TABLE, b"key", &rules, out),
            5 => client.log_message_all(now, 3, "text", out),
            9 => client.increment(now, TABLE, b"key", by, &rules, out),
            10 => {
                let (hash, iterator) = out.pages.pop().unwrap_or_default();
                client.enumerate(now, TABLE, false, hash, &iterator, out)
            }
            11 => client.enumerate(now, TABLE, true, u64::MAX, b"state", out),
            12 => client.read_keys_and_value(now, TABLE, b"key", &rules, out),
            13 => client.write_keys(now, TABLE, &KEYS, b"value", &rules, out),
            14 => client.split_tablet(now, b"t", 1 << 63, out),
            15 => client.table_config(now, TABLE, out),
            16 => client.server_list(now, 1, out),
            17 => client.lease_info(now, 1, out),
            18 => client.ask(now, SERVER, Question::ServerId, out),
            19 => client.ask(now, SERVER, Question::Metrics, out),
            20 => client.ask(now, SERVER, Question::Ping, out),
            21 => client.echo(now, SERVER, b"bytes", 10, out),
            22 => client.proxy_ping(now, SERVER, ServerId(1), second, out),
            23 => client.server_control(now, TABLE, b"key", 1007, b"", out),
            24 => client.fill_with_test_data(now, TABLE, 10, 10, out),
            25 => client.drop_table(now, b"t", out),
            26 => client.table_id(now, b"t", out),
            27 => client.runtime_option(now, b"option", out),
            28 => client.set_runtime_option(now, b"option", b"value", out),
            29 => client.hint_server_crashed(now, ServerId(1), out),
            30 => client.acquire_lease(now, out),
            _ => return self.give_one_up(number),
        };
        self.started.insert(id, None);
    }

    /// Cancels the oldest operation that is under way, or gives it a deadline.
    fn give_one_up(&mut self, number: u8) {
        let is_over = |id: &&OperationId| self.out.completed.contains_key(id);
        let Some(&oldest) = self.started.keys().find(|id| !is_over(id)) else {
            return;
        };
        if number.is_multiple_of(2) {
            let at = self.now + Duration::from_millis(u64::from(number));
            self.client.set_deadline(oldest, at);
        } else if self.client.cancel(self.now, oldest, &mut self.out) {
            self.started.remove(&oldest);
        }
    }

    fn check(&self) {
        for (id, results) in &self.out.completed {
            let expected = self.started.get(id).expect("cancelled, or never started");
            assert!(results.is_none() || results == expected);
        }
        let under_way = self.started.len() - self.out.completed.len();
        assert_eq!(self.client.pending(), under_way);
    }
}

bounded_target!(fuzz::Bound::machine(16 << 20), |data: &[u8]| {
    let config = Config::new("tcp:host=127.0.0.1,port=1", 1).expect("a locator");
    let mut application = Application {
        client: Client::new(config, Time::ZERO),
        now: Time(1),
        out: Actions::default(),
        started: BTreeMap::new(),
    };
    let mut rest = data;
    // Each event: what it is and how long it takes, and the length of an answer in two bytes with the answer, or the number of
    // an operation and 0xff.
    while let Some((&[what, low, high], tail)) = rest.split_first_chunk::<3>() {
        application.now = Time(application.now.0 + 1_000_000 * u64::from(what >> 2));
        if high == 0xff {
            rest = tail;
            application.start(low);
            continue;
        }
        let (payload, tail) = tail.split_at(tail.len().min(u16::from_le_bytes([low, high]).into()));
        rest = tail;
        let Application {
            client, now, out, ..
        } = &mut application;
        let now = *now;
        for session in std::mem::take(&mut out.connects) {
            match what % 4 {
                3 => client.disconnected(now, session, out),
                _ => client.connected(now, session, out),
            }
        }
        let waiting = out
            .sent
            .len()
            .checked_sub(1)
            .map(|last| usize::from(what) % (last + 1));
        if let Some(at) = waiting {
            let (session, nonce) = out.sent.swap_remove(at);
            match what % 4 {
                2 => client.disconnected(now, session, out),
                _ => client.received(now, session, nonce, payload, out),
            }
        }
        client.tick(now, out);
        application.check();
    }
});
