//! A store that is made again from volumes.

use std::time::Duration;

use crate::common::hello;
use base::time::Time;
use coordinator::leader::{LeaderEffect, News};
use coordinator::state::objects::testing::ApiServer;
use coordinator::{Config, Coordinator};
use wire::member::coordinator::Kind;
use wire::member::{CheckpointPart, Hello, Position, ToCoordinator, ToShard, shard};

use super::Bench;

const FORMER: u64 = 0xf0;

/// A checkpoint of a store without servers, of term 3.
fn checkpoint() -> Vec<u8> {
    let header = coordinator::checkpoint::Header {
        cluster_id: FORMER,
        position: Position {
            term: 3,
            nonce: 9,
            sequence: 40,
        },
        number: 2,
        cluster_time_ns: 0,
    };
    let former = Coordinator::new(Config::new(FORMER, 5, "test"), Time(1));
    coordinator::checkpoint::encode(&header, former.pairs())
}

impl Bench {
    /// A server with a volume comes, and is asked for what that holds.
    fn volume_comes(&mut self, connection: u64) {
        let hello = Hello {
            volume_cluster_id: FORMER,
            ..hello("m", connection, 0, 1)
        };
        self.hears(connection, shard::Kind::Hello(hello));
        for _ in 0..5 {
            self.now += Duration::from_secs(1);
            self.tick();
            for effect in std::mem::take(&mut self.left) {
                let LeaderEffect::SendMember(
                    on,
                    ToShard {
                        kind: Some(Kind::ReadCheckpoint(read)),
                        ..
                    },
                ) = &effect
                else {
                    continue;
                };
                let bytes = checkpoint();
                let rest = &bytes[read.offset as usize..];
                let part = CheckpointPart {
                    cluster_id: FORMER,
                    total_bytes: bytes.len() as u64,
                    offset: read.offset,
                    data: rest[..rest.len().min(read.bytes as usize)].to_vec(),
                };
                self.hears(*on, shard::Kind::CheckpointPart(part));
            }
        }
    }

    fn hears(&mut self, connection: u64, kind: shard::Kind) {
        let message = ToCoordinator::from(kind);
        self.leader.member_message(self.now, connection, message);
        self.tick();
    }

    fn cluster_id(&self) -> u64 {
        let coordinator = self.leader.coordinator().expect("it leads");
        coordinator.cluster_status(self.now).cluster_id
    }
}

#[test]
fn a_store_without_objects_is_made_again_from_volumes() {
    let mut server = ApiServer::new(1 << 20);
    let mut first = Bench::rebuilding(1);
    first.serve(&mut server);
    assert!(
        first
            .left
            .iter()
            .any(|it| matches!(it, LeaderEffect::State(News::Leads { is_new: false, .. })))
    );
    assert!(
        server.root().is_none(),
        "nothing is noted before it is known what"
    );
    let status = first.leader.status(first.now).unwrap();
    assert!(status.refusal.contains("Rebuilding"), "{}", status.refusal);
    first.volume_comes(7);
    assert_eq!(first.cluster_id(), FORMER);
    assert!(first.left.is_empty(), "nothing leaves before it is noted");
    first.serve(&mut server);
    let root = server.root().unwrap();
    assert_eq!(root.cluster_id, FORMER);
    assert!(root.position.term > 1000);
    assert_eq!(
        root.past.last().map(|past| (past.term, past.nonce)),
        Some((3, 9))
    );
    assert!(
        first
            .left
            .iter()
            .any(|it| matches!(it, LeaderEffect::CloseMember(7)))
    );

    // Whoever comes next finds it, and has nothing to make again.
    let mut second = Bench::rebuilding(2);
    second.serve(&mut server);
    let status = second.leader.status(second.now).unwrap();
    assert_eq!((status.cluster_id, status.refusal.as_str()), (FORMER, ""));
    assert_eq!(status.term, root.position.term + 1);
}

#[test]
fn a_leader_that_dies_before_all_is_noted_leaves_no_empty_store() {
    let mut server = ApiServer::new(1 << 20);
    let mut first = Bench::rebuilding(1);
    first.serve(&mut server);
    first.volume_comes(7);
    // The root is written, and the leader dies.
    let (_, request) = first.under_way.pop().expect("the root");
    server.execute(&request, 0);
    assert!(server.root().is_some());

    // Even if nobody tells it to: there is no store without what the volumes have.
    let mut second = Bench::new(2);
    second.serve(&mut server);
    let status = second.leader.status(second.now).unwrap();
    assert!(status.refusal.contains("Rebuilding"), "{}", status.refusal);
    second.volume_comes(8);
    second.serve(&mut server);
    let status = second.leader.status(second.now).unwrap();
    assert_eq!((status.cluster_id, status.refusal.as_str()), (FORMER, ""));
    assert_eq!(status.term, server.root().unwrap().position.term);
    let mut third = Bench::new(3);
    third.serve(&mut server);
    let status = third.leader.status(third.now).unwrap();
    assert_eq!((status.cluster_id, status.refusal.as_str()), (FORMER, ""));
}
