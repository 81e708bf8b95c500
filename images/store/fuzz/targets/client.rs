//! A client, given any answers: it goes on, and completes each operation at most once.
#![no_main]

use std::collections::BTreeSet;

use client_core::{Client, Config, Error, OperationId, Outcome, Output};
use libfuzzer_sys::fuzz_target;
use wire::ids::TableId;
use wire::rpc::RejectRules;
use wire::time::Time;

#[derive(Default)]
struct Actions {
    /// Sessions that are to be opened, and requests that wait for an answer.
    connects: Vec<u64>,
    sent: Vec<(u64, u64)>,
    completed: BTreeSet<OperationId>,
}

impl Output for Actions {
    fn connect(&mut self, session: u64, locator: &str) {
        assert!(!locator.is_empty());
        self.connects.push(session);
    }
    fn send(&mut self, session: u64, nonce: u64, payload: &[u8]) {
        assert!((4..=wire::rpc::MAX_RPC_BYTES).contains(&payload.len()));
        self.sent.push((session, nonce));
    }
    fn close(&mut self, _session: u64) {}
    fn complete(&mut self, operation: OperationId, _result: Result<Outcome<'_>, Error>) {
        assert!(self.completed.insert(operation), "completed twice");
    }
}

fuzz_target!(|data: &[u8]| {
    let mut out = Actions::default();
    let config = Config::new("tcp:host=127.0.0.1,port=1", 1).expect("a locator");
    let mut client = Client::new(config, Time::ZERO);
    let mut now = Time(1);
    let table = TableId(1);
    client.create_table(now, b"t", 1, &mut out);
    client.read(now, table, b"key", &RejectRules::default(), &mut out);
    client.write(
        now,
        table,
        b"key",
        b"value",
        &RejectRules::default(),
        &mut out,
    );
    client.remove(now, table, b"key", &RejectRules::default(), &mut out);
    let object = client_core::WriteObject {
        table,
        key: b"key",
        value: b"value",
        rules: RejectRules::default(),
    };
    client.multi_write(now, &[object; 30], &mut out);
    client.log_message_all(now, 3, "text", &mut out);
    let mut rest = data;
    // Each event: what it is and how long it takes, the length of an answer in two bytes, the answer.
    while let Some((&[what, low, high], tail)) = rest.split_first_chunk::<3>() {
        let (payload, tail) = tail.split_at(tail.len().min(u16::from_le_bytes([low, high]).into()));
        rest = tail;
        now = Time(now.0 + 1_000_000 * u64::from(what >> 2));
        for session in std::mem::take(&mut out.connects) {
            match what % 4 {
                3 => client.disconnected(now, session, &mut out),
                _ => client.connected(now, session, &mut out),
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
                2 => client.disconnected(now, session, &mut out),
                _ => client.received(now, session, nonce, payload, &mut out),
            }
        }
        client.tick(now, &mut out);
    }
});
