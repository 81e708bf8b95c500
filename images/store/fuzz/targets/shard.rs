//! A shard that owns a table, given any requests: each gets exactly one answer, of at least a status. Most get it at once; pings of other
//! servers and migrations wait for others.
#![no_main]

use base::ids::ReplyTo;
use base::time::Time;
use fuzz::bounded_target;
use master::{Config, Identity, Shard, ShardEffects, ShardEvent};
use wire::member::{
    MigrationEnded, TabletRange, ToCoordinator, ToShard, Welcome, coordinator, shard,
};
use wire::status::Status;

/// Pings of other servers that a shard has under way for clients.
const MAX_PINGS: usize = 16;

/// Migrations that clients wait for.
const MAX_MIGRATIONS: usize = 16;

#[derive(Default)]
struct Answers {
    count: usize,
    /// Sequence numbers of the migrations that the coordinator was asked for.
    migrations: Vec<u64>,
}

impl ShardEffects for Answers {
    fn reply(&mut self, _to: ReplyTo, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!((4..=wire::rpc::MAX_RPC_BYTES).contains(&bytes));
        self.count += 1;
    }
    fn send_coordinator(&mut self, message: ToCoordinator) {
        if let Some(shard::Kind::MigrationWanted(wanted)) = message.kind {
            self.migrations.push(wanted.sequence);
        }
    }
    fn report(&mut self, event: ShardEvent) {
        // Any event can be written; a client's own text may be empty.
        let _line = event.to_string();
    }
}

fn new_shard(out: &mut Answers) -> Shard {
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
        peer_locator: String::new(),
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

bounded_target!(fuzz::Bound::machine(32 << 20), |data: &[u8]| {
    let mut out = Answers::default();
    let mut shard = new_shard(&mut out);
    let mut rest = data;
    let mut requests = 0_usize;
    // Each request has its length in two bytes before it. The largest means all that is left, up to what a frame may have.
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let length = match u16::from_le_bytes(*length) {
            u16::MAX => tail.len().min(wire::rpc::MAX_RPC_BYTES),
            length => tail.len().min(length.into()),
        };
        let (payload, tail) = tail.split_at(length);
        rest = tail;
        requests += 1;
        let to = ReplyTo {
            connection: 1,
            nonce: requests as u64,
        };
        shard.request(Time(requests as u64 * 1000), to, payload, &mut out);
        let at_least = requests.saturating_sub(MAX_PINGS + MAX_MIGRATIONS);
        assert!(
            (at_least..=requests).contains(&out.count),
            "unreplicated: every request is answered at once, but for pings of other servers and migrations"
        );
    }
    for sequence in std::mem::take(&mut out.migrations) {
        let status = Status::Ok as u32;
        let ended = MigrationEnded { sequence, status };
        let message = ToShard::from(coordinator::Kind::MigrationEnded(ended));
        shard.coordinator_message(Time(1 << 39), message, &mut out);
    }
    shard.tick(Time(1 << 40), &mut out);
    assert_eq!(
        out.count, requests,
        "migrations have ended, and pings are given up in time"
    );
});
