//! A shard that owns a table, given any requests: each gets exactly one answer, of at least a status.
#![no_main]

use libfuzzer_sys::fuzz_target;
use master::{Config, Identity, Output, Shard};
use wire::ids::ReplyTo;
use wire::member::{TabletRange, ToCoordinator, ToShard, Welcome, coordinator};
use wire::time::Time;

/// Pings of other servers that a shard has under way for clients.
const MAX_PINGS: usize = 16;

#[derive(Default)]
struct Answers(usize);

impl Output for Answers {
    fn reply(&mut self, _to: ReplyTo, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!((4..=wire::rpc::MAX_RPC_BYTES).contains(&bytes));
        self.0 += 1;
    }
    fn send_coordinator(&mut self, _message: ToCoordinator) {}
    fn log_message(&mut self, _level: u32, _text: &str) {}
}

fn shard(out: &mut Answers) -> Shard {
    // Small, so that making one takes no time.
    let config = Config {
        segment_bytes: 64 << 10,
        log_bytes: 1 << 20,
        hash_table_bytes: 64 << 10,
        ..Config::from_memory(20 << 20, 10).expect("enough for a shard")
    };
    let identity = Identity {
        member: "m0".to_owned(),
        instance: "1".to_owned(),
        process: 1,
        host_id: "host".to_owned(),
        shard_index: 0,
        shard_count: 1,
        locator: "tcp:host=127.0.0.1,port=1".to_owned(),
        coordinator: String::new(),
        build_version: "fuzz".to_owned(),
        backup_locator: String::new(),
        domain: String::new(),
    };
    let mut shard = Shard::new(config, identity, Time::ZERO);
    let everything = TabletRange {
        table_id: 1,
        start_key_hash: 0,
        end_key_hash: u64::MAX,
    };
    let welcome = Welcome {
        cluster_id: 1,
        server_id: 1,
        first_version: 1,
        tablets: vec![everything],
        silence_timeout_ms: 1_000_000,
        ..Welcome::default()
    };
    shard.coordinator_message(
        Time::ZERO,
        ToShard::from(coordinator::Kind::Welcome(welcome)),
        out,
    );
    shard
}

fuzz_target!(|data: &[u8]| {
    let mut out = Answers::default();
    let mut shard = shard(&mut out);
    let mut rest = data;
    let mut requests = 0_usize;
    // Each request has its length in two bytes before it.
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let (payload, tail) = tail.split_at(tail.len().min(u16::from_le_bytes(*length).into()));
        rest = tail;
        requests += 1;
        let to = ReplyTo {
            connection: 1,
            nonce: requests as u64,
        };
        shard.request(Time(requests as u64 * 1000), to, payload, &mut out);
        assert!(
            (requests.saturating_sub(MAX_PINGS)..=requests).contains(&out.0),
            "unreplicated: every request is answered at once, but for pings of other servers"
        );
    }
    shard.tick(Time(1 << 40), &mut out);
    assert_eq!(out.0, requests, "pings are given up in time");
});
