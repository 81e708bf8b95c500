//! A coordinator, given any requests of clients and any messages of members.
#![no_main]

use base::ids::ReplyTo;
use base::time::Time;
use coordinator::{Config, Coordinator, CoordinatorEffects, CoordinatorEvent};
use fuzz::bounded_target;
use prost::Message;
use wire::member::{Hello, ToCoordinator, ToShard, shard};

#[derive(Default)]
struct Actions {
    closed: bool,
}

impl CoordinatorEffects for Actions {
    fn reply(&mut self, _to: ReplyTo, payload: &[u8]) {
        assert!((4..=wire::rpc::MAX_RPC_BYTES).contains(&payload.len()));
    }
    fn send_member(&mut self, _connection: u64, message: ToShard) {
        assert!(message.encoded_len() <= wire::member::MAX_FRAME_BYTES);
    }
    fn close_member(&mut self, _connection: u64) {
        self.closed = true;
    }
    fn report(&mut self, event: CoordinatorEvent) {
        // Any event can be written; a client's own text may be empty.
        let _line = event.to_string();
    }
}

/// Connections of members that a run has.
const MEMBERS: u64 = 4;

bounded_target!(fuzz::Bound::machine(16 << 20), |data: &[u8]| {
    let mut out = Actions::default();
    let mut coordinator = Coordinator::new(Config::new(1, 0, "fuzz"), Time::ZERO);
    let mut now = Time::ZERO;
    for connection in 0..MEMBERS {
        let hello = Hello {
            server_id: base::ids::ServerId::INVALID.0,
            member: format!("m{connection}"),
            instance: "1".to_owned(),
            process: connection + 1,
            shard_count: 1,
            locator: format!("tcp:host=127.0.0.1,port={}", connection + 1),
            ..Hello::default()
        };
        let message = ToCoordinator::from(shard::Kind::Hello(hello));
        coordinator.member_message(now, 100 + connection, message, &mut out);
    }
    let mut rest = data;
    // Each event: who sends it, its length in two bytes, its bytes. The largest length means all that is left.
    while let Some((&[who, low, high], tail)) = rest.split_first_chunk::<3>() {
        let length = match u16::from_le_bytes([low, high]) {
            u16::MAX => tail.len(),
            length => tail.len().min(length.into()),
        };
        let (payload, tail) = tail.split_at(length);
        rest = tail;
        now = Time(now.0 + 1_000_000 * u64::from(who));
        let connection = 100 + u64::from(who) % (2 * MEMBERS);
        match who % 4 {
            0 | 1 => coordinator.request(
                now,
                ReplyTo {
                    connection: who.into(),
                    nonce: 1,
                },
                payload,
                &mut out,
            ),
            2 => {
                if let Ok(message) = ToCoordinator::decode_bounded(payload) {
                    coordinator.member_message(now, connection, message, &mut out);
                }
            }
            _ => coordinator.member_closed(now, connection, &mut out),
        }
        coordinator.tick(now, &mut out);
    }
    let status = coordinator.cluster_status(now);
    let tablets: u64 = status
        .members
        .iter()
        .flat_map(|member| &member.shards)
        .map(|shard| shard.tablet_count)
        .sum();
    let listed: usize = coordinator
        .tables(0, 1000)
        .tables
        .iter()
        .map(|table| table.tablets.len())
        .sum();
    assert!(
        status.table_count > 1000 || tablets == listed as u64,
        "{tablets} tablets of shards, {listed} of tables"
    );
});
