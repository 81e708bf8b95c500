//! Checkpoints in volumes, and a store that is made again from them: a test for each rule of docs/rebuild.md.

mod again;
mod given_up;
mod keeping;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::replicated::{Store, with_replicas};
use crate::common::{self, Action, Recorder, create_table};
use base::ids::TableId;
use base::time::Time;
use coordinator::status::Checkpoint;
use coordinator::{Config, Coordinator};
use wire::member::coordinator::Kind;
use wire::member::{
    BackupReport, CheckpointKept, CheckpointPart, Hello, KeepCheckpoint, OpenFloor, Pong,
    ToCoordinator, shard,
};
use wire::rpc;

const CLUSTER: u64 = common::CLUSTER;

/// A store whose backups keep checkpoints, and what each of them keeps.
struct Kept {
    store: Store,
    volumes: BTreeMap<u64, Vec<u8>>,
    coming: BTreeMap<u64, Vec<u8>>,
    /// Who does not answer.
    silent: BTreeSet<u64>,
    /// Who has no room.
    full: BTreeSet<u64>,
}

impl Kept {
    /// With `members` members, each with a table's worth of tablets.
    fn new(members: u64) -> Kept {
        let mut kept = Kept {
            store: Store::new(members),
            volumes: BTreeMap::new(),
            coming: BTreeMap::new(),
            silent: BTreeSet::new(),
            full: BTreeSet::new(),
        };
        kept.store.harness.coordinator.begin_term(5, 0);
        for number in 1..=members {
            let report = BackupReport {
                segment_bytes: 8 << 20,
                frames: 1000,
                frames_free: 1000,
                keeps_checkpoints: true,
                ..BackupReport::default()
            };
            kept.store.says(number, shard::Kind::BackupReport(report));
        }
        kept.settle();
        kept
    }

    fn advance(&mut self, ms: u64) -> Vec<Action> {
        self.store.harness.advance(Duration::from_millis(ms))
    }

    /// One round: what is due, with what backups answer; everything that is said but checkpoints and pings.
    fn round(&mut self, ms: u64) -> Vec<Action> {
        let mut rest = Vec::new();
        let mut actions = self.advance(ms);
        while !actions.is_empty() {
            let mut next = Vec::new();
            for action in actions {
                match action {
                    Action::Send(connection, Kind::KeepCheckpoint(part)) => {
                        next.extend(self.keep(connection - 100, &part));
                    }
                    Action::Send(connection, Kind::Ping(ping)) => {
                        let pong = Pong {
                            sequence: ping.sequence,
                            ..Pong::default()
                        };
                        let kind = shard::Kind::Pong(pong);
                        next.extend(self.store.harness.shard_says(connection, kind));
                    }
                    other => rest.push(other),
                }
            }
            next.extend(self.advance(0));
            actions = next;
        }
        rest
    }

    fn keep(&mut self, number: u64, part: &KeepCheckpoint) -> Vec<Action> {
        if self.silent.contains(&number) {
            return Vec::new();
        }
        let bytes = self.coming.entry(number).or_default();
        if part.offset == 0 {
            bytes.clear();
        }
        assert_eq!(bytes.len() as u64, part.offset, "parts come in order");
        bytes.extend_from_slice(&part.data);
        let mut kept = CheckpointKept {
            number: part.number,
            bytes: bytes.len() as u64,
            ..CheckpointKept::default()
        };
        if self.full.contains(&number) {
            kept.failure = "no frame is free".to_owned();
        } else if bytes.len() as u64 == part.total_bytes {
            kept.is_kept = true;
            self.volumes.insert(number, bytes.clone());
        }
        self.store.says(number, shard::Kind::CheckpointKept(kept))
    }

    /// Until everything is kept that can be.
    fn settle(&mut self) -> Vec<Action> {
        let mut all = Vec::new();
        for _ in 0..30 {
            all.extend(self.round(100));
        }
        all
    }

    /// Makes a table, which takes until its owners have been told.
    fn create(&mut self, name: &str, span: u32) -> TableId {
        let mut actions = self.store.harness.request(&create_table(name, span));
        for _ in 0..20 {
            actions.extend(self.round(100));
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Send(on, Kind::TakeTablet(order)) => {
                        actions.extend(self.store.harness.done(on, order.sequence));
                    }
                    Action::Reply(_, bytes) => {
                        return rpc::TableIdResponse::decode(&bytes).unwrap().table_id;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        panic!("no table");
    }

    fn status(&self) -> Checkpoint {
        let harness = &self.store.harness;
        let status = harness.coordinator.cluster_status(harness.now);
        status.checkpoint.expect("the store has copies")
    }

    fn raise_floor(&mut self, number: u64, segment_id: u64) -> Vec<Action> {
        let floor = OpenFloor { segment_id };
        self.store.says(number, shard::Kind::RaiseOpenFloor(floor))
    }
}

/// A coordinator without any state, and servers with volumes.
struct Rebuild {
    coordinator: Coordinator,
    now: Time,
    out: Recorder,
    volumes: BTreeMap<u64, Vec<u8>>,
    /// Connections that it has ended.
    closed: usize,
}

impl Rebuild {
    fn new(volumes: &BTreeMap<u64, Vec<u8>>) -> Rebuild {
        Rebuild::of(volumes, 77)
    }

    fn of(volumes: &BTreeMap<u64, Vec<u8>>, nonce: u64) -> Rebuild {
        Rebuild::with(Config::new(0xbad, 0xbad, "test"), volumes, nonce)
    }

    fn with(config: Config, volumes: &BTreeMap<u64, Vec<u8>>, nonce: u64) -> Rebuild {
        let now = Time(5_000);
        Rebuild {
            coordinator: Coordinator::rebuilding(config, nonce, true, now),
            now,
            out: Recorder::default(),
            volumes: volumes.clone(),
            closed: 0,
        }
    }

    fn hears(&mut self, connection: u64, kind: shard::Kind) {
        let message = ToCoordinator::from(kind);
        self.coordinator
            .member_message(self.now, connection, message, &mut self.out);
    }

    /// The server of this number starts, with its volume.
    fn starts(&mut self, number: u64) {
        let volume_cluster_id = match self.volumes.contains_key(&number) {
            true => CLUSTER,
            false => 0,
        };
        let hello = Hello {
            volume_cluster_id,
            ..with_replicas(&format!("m{number}"), 1000 + number)
        };
        self.hears(200 + number, shard::Kind::Hello(hello));
    }

    /// Lets servers answer, and time pass.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 100 + 1 {
            for action in std::mem::take(&mut self.out.actions) {
                self.closed += usize::from(matches!(action, Action::Close(_)));
                let Action::Send(connection, Kind::ReadCheckpoint(read)) = action else {
                    continue;
                };
                let bytes = &self.volumes[&(connection - 200)];
                let rest = &bytes[(read.offset as usize).min(bytes.len())..];
                let part = CheckpointPart {
                    cluster_id: CLUSTER,
                    total_bytes: bytes.len() as u64,
                    offset: read.offset,
                    data: rest[..rest.len().min(read.bytes as usize)].to_vec(),
                };
                self.hears(connection, shard::Kind::CheckpointPart(part));
            }
            self.now += Duration::from_millis(100);
            if self.coordinator.is_rebuilding() {
                self.coordinator.tick(self.now, &mut self.out);
            }
        }
    }

    fn waits(&self) -> &str {
        self.coordinator.refusal().expect("it serves nobody yet")
    }
}

/// A store of four with a table, and what its volumes keep.
fn made() -> (Kept, TableId) {
    let mut kept = Kept::new(4);
    let table = kept.create("t", 4);
    kept.settle();
    assert!(kept.status().is_current);
    (kept, table)
}
