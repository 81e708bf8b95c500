//! What the server does with checkpoints of the coordinator's state.

use backup::{Durability, Scope, owner};
use master::Session;
use wire::member::{
    CheckpointKept, CheckpointPart, KeepCheckpoint, Logs, Position, ReadCheckpoint, Welcome,
    coordinator, shard,
};

use super::harness::*;

/// Of some frames.
fn checkpoint(number: u8) -> Vec<u8> {
    vec![number; 40_000]
}

impl Rig {
    fn keep_part(&mut self, number: u8, offset: usize, bytes: usize) -> Option<CheckpointKept> {
        let whole = checkpoint(number);
        let part = KeepCheckpoint {
            number: number.into(),
            offset: offset as u64,
            total_bytes: whole.len() as u64,
            data: whole[offset..offset + bytes].to_vec(),
        };
        self.order(coordinator::Kind::KeepCheckpoint(part));
        self.tick();
        self.kept()
    }

    fn kept(&mut self) -> Option<CheckpointKept> {
        self.message(|kind| match kind {
            shard::Kind::CheckpointKept(kept) => Some(kept.clone()),
            _ => None,
        })
    }

    /// Before it is let in.
    fn read_part(&mut self, offset: u64, bytes: u32) -> Option<CheckpointPart> {
        let read = ReadCheckpoint { offset, bytes };
        let session = self.order(coordinator::Kind::ReadCheckpoint(read));
        assert_eq!(session, Session::Continue);
        self.tick();
        self.part()
    }

    fn part(&mut self) -> Option<CheckpointPart> {
        self.message(|kind| match kind {
            shard::Kind::CheckpointPart(part) => Some(part.clone()),
            _ => None,
        })
    }
}

#[test]
fn a_checkpoint_comes_in_parts_and_is_kept_when_all_of_it_is_safe() {
    let mut rig = Rig::ready(Durability::Buffered);
    let part = rig.keep_part(1, 0, 30_000).unwrap();
    assert_eq!((part.number, part.bytes, part.is_kept), (1, 30_000, false));
    let kept = rig.keep_part(1, 30_000, 10_000).unwrap();
    assert!(kept.is_kept && kept.failure.is_empty());
    let mut rig = Rig::ready(Durability::Flushed);
    assert_eq!(rig.keep_part(1, 0, 40_000), None);
    rig.finish_sync(Scope::All);
    assert!(rig.kept().unwrap().is_kept);
}

#[test]
fn parts_that_make_no_sense_and_a_full_storage_are_answered() {
    let mut rig = Rig::ready(Durability::Buffered);
    let kept = rig.keep_part(1, 30_000, 10_000).unwrap();
    assert!(kept.failure.contains("out of order"), "{}", kept.failure);
    rig.keep_part(1, 0, 40_000).unwrap();
    for number in 0..u64::from(FRAMES) {
        rig.append(replica(number), b"content");
    }
    let kept = rig.keep_part(2, 0, 40_000).unwrap();
    assert!(
        kept.failure.contains("no frame is free") && !kept.is_kept,
        "{}",
        kept.failure
    );
    let backup = rig.server.backup().unwrap();
    assert!(backup.checkpoint_is_kept(1), "the one before");
    let huge = KeepCheckpoint {
        number: 3,
        total_bytes: 1 << 40,
        ..KeepCheckpoint::default()
    };
    rig.order(coordinator::Kind::KeepCheckpoint(huge));
    assert!(rig.kept().unwrap().failure.contains("drop tables"));
}

#[test]
fn whose_the_volume_is_and_what_it_holds_is_said_before_the_server_is_let_in() {
    let mut first = Rig::ready(Durability::Buffered);
    assert_eq!(first.server.hello().volume_cluster_id, CLUSTER);
    first.keep_part(7, 0, 40_000).unwrap();
    let mut storage = first.server.backup().unwrap().storage().clone();
    let mut second = Rig::new("m", with_backup(Durability::Buffered));
    assert_eq!(second.server.hello().volume_cluster_id, 0);
    second
        .server
        .volume_belongs_to(owner(&mut storage).unwrap());
    assert_eq!(second.server.hello().volume_cluster_id, CLUSTER);
    assert_eq!(
        second.read_part(0, 64),
        None,
        "the storage has to be opened"
    );
    second.open(storage);
    second.tick();
    let head = second.part().unwrap();
    assert_eq!((head.cluster_id, head.total_bytes), (CLUSTER, 40_000));
    assert_eq!((head.offset, head.data), (0, vec![7; 64]));
    let rest = second.read_part(39_000, 5000).unwrap();
    assert_eq!((rest.offset, rest.data), (39_000, vec![7; 1000]));
    assert_eq!(second.read_part(50_000, 10).unwrap().data, Vec::<u8>::new());
    // Then the store is there, and lets it in.
    second.server.coordinator_lost(second.now);
    second.welcome(CLUSTER);
    second.tick();
    assert!(second.report().is_some());
    assert_eq!(second.server.must_end(), None);
}

#[test]
fn an_empty_volume_holds_nothing() {
    let mut rig = Rig::new("m", with_backup(Durability::Buffered));
    let part = rig.read_part(0, 64).unwrap();
    assert_eq!((part.cluster_id, part.total_bytes), (0, 0));
    assert_eq!(
        rig.said.to_open, None,
        "nobody knows yet which store's it will be"
    );
}

#[test]
fn what_a_backup_is_told_tells_how_far_the_coordinator_is() {
    let mut rig = Rig::new("m", with_backup(Durability::Buffered));
    let at = |nonce, sequence| Position {
        term: 1,
        nonce,
        sequence,
    };
    let welcome = Welcome {
        cluster_id: CLUSTER,
        server_id: OWN.0,
        position: Some(at(11, 4)),
        ..Default::default()
    };
    let orders = [
        (coordinator::Kind::Welcome(welcome), 5),
        (coordinator::Kind::ForgetLogs(Logs { logs: Vec::new() }), 6),
        (
            coordinator::Kind::KeepCheckpoint(KeepCheckpoint::default()),
            7,
        ),
    ];
    for (kind, sequence) in orders {
        assert_eq!(rig.order_at(kind, at(11, sequence)), Session::Continue);
        assert_eq!(rig.server.hello().position, Some(at(11, sequence)));
    }
    rig.said.messages.clear();
    let part = coordinator::Kind::KeepCheckpoint(KeepCheckpoint::default());
    assert_eq!(rig.order_at(part, at(12, 8)), Session::Close);
    assert!(rig.kept().is_none(), "of another leader");
}
