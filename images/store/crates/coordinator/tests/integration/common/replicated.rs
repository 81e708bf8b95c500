//! A store of servers with replicas and backups, as its coordinator sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use base::ids::{ServerId, TableId};
use coordinator::status::Recovery;
use wire::member::{
    BackupReport, Hello, LogInventory, OpenFloor, Pong, Probed, Recover, Recovered, RecoveryId,
    ReplicaFound, coordinator::Kind, shard,
};

use super::{Action, Harness, hello};

/// A store of servers with replicas and backups: member `m<n>` is process `n`, on connection `100 + n`.
pub struct Store {
    pub harness: Harness,
    pub ids: BTreeMap<u64, ServerId>,
    /// How many of 14 segments server 1 says to be short of copies.
    pub short: u64,
}

pub fn with_replicas(member: &str, process: u64) -> Hello {
    Hello {
        backup_locator: format!("tcp:host={member},port=12200"),
        host_id: format!("host of {member}"),
        replicas: 2,
        log_capacity_bytes: 256 << 20,
        merges_tablets: true,
        ..hello(member, process, 0, 1)
    }
}

pub fn closed(segment_id: u64) -> ReplicaFound {
    ReplicaFound {
        segment_id,
        bytes: 1000,
        ..ReplicaFound::default()
    }
}

pub fn open_head(segment_id: u64, bytes: u32, digest: &[u64]) -> ReplicaFound {
    ReplicaFound {
        segment_id,
        bytes,
        is_open: true,
        digest: digest.to_vec(),
        ..ReplicaFound::default()
    }
}

impl Store {
    pub fn new(members: u64) -> Store {
        let mut store = Store {
            harness: Harness::new(),
            ids: BTreeMap::new(),
            short: 0,
        };
        for number in 1..=members {
            store.start(number, &format!("m{number}"), &[]);
        }
        store
    }

    /// A process starts whose backup holds replicas of these logs.
    pub fn start(&mut self, number: u64, member: &str, logs: &[ServerId]) -> Vec<Action> {
        let connection = 100 + number;
        let hello = with_replicas(member, number);
        let (welcome, mut actions) = self.harness.enlist(connection, hello);
        self.ids.insert(number, ServerId(welcome.server_id));
        let report = BackupReport {
            logs: logs.iter().map(|log| log.0).collect(),
            segment_bytes: 8 << 20,
            frames: 1000,
            frames_free: 1000,
            ..BackupReport::default()
        };
        actions.extend(self.says(number, shard::Kind::BackupReport(report)));
        let floor = OpenFloor { segment_id: 1 };
        actions.extend(self.says(number, shard::Kind::RaiseOpenFloor(floor)));
        actions
    }

    pub fn says(&mut self, number: u64, kind: shard::Kind) -> Vec<Action> {
        self.harness.shard_says(100 + number, kind)
    }

    pub fn finds(&mut self, number: u64, log: ServerId, replicas: Vec<ReplicaFound>) {
        let inventory = LogInventory {
            log: log.0,
            replicas,
        };
        let actions = self.says(number, shard::Kind::LogInventory(inventory));
        assert_eq!(actions, [], "all that follows is done by ticks");
    }

    /// The connection of a server breaks, and all that are asked say that it is dead. Returns what happens then.
    pub fn kill(&mut self, number: u64) -> Vec<Action> {
        let actions = self.harness.close(100 + number);
        let mut last = Vec::new();
        for (prober, sequence) in probes(&actions) {
            let is_alive = false;
            let probed = Probed { sequence, is_alive };
            last = self.harness.shard_says(prober, shard::Kind::Probed(probed));
        }
        last
    }

    pub fn wait(&mut self, ms: u64) -> Vec<Action> {
        let mut all = Vec::new();
        // Everybody who is connected answers pings.
        for _ in 0..ms.div_ceil(100) {
            let actions = self.harness.advance(Duration::from_millis(100));
            for action in &actions {
                if let Action::Send(connection, Kind::Ping(ping)) = action {
                    let is_short = *connection == 101;
                    let pong = Pong {
                        sequence: ping.sequence,
                        segments: 14,
                        segments_short: if is_short { self.short } else { 0 },
                        ..Pong::default()
                    };
                    self.harness
                        .shard_says(*connection, shard::Kind::Pong(pong));
                }
            }
            let is_ping = |action: &Action| matches!(action, Action::Send(_, Kind::Ping(_)));
            all.extend(actions.into_iter().filter(|action| !is_ping(action)));
        }
        all
    }

    /// A process that was here before the coordinator restarted comes back.
    pub fn resume(&mut self, number: u64) {
        let same = Hello {
            cluster_id: super::CLUSTER,
            server_id: self.ids[&number].0,
            ..with_replicas(&format!("m{number}"), number)
        };
        self.harness.enlist(100 + number, same);
        let report = BackupReport {
            segment_bytes: 8 << 20,
            frames: 1000,
            frames_free: 1000,
            ..BackupReport::default()
        };
        self.says(number, shard::Kind::BackupReport(report));
    }

    /// This server is silent until it is declared dead; what it is told then.
    pub fn deposed(&mut self, frozen: u64) -> String {
        for _ in 0..100 {
            for action in self.harness.advance(Duration::from_millis(100)) {
                match action {
                    Action::Send(on, Kind::Ping(ping)) if on != frozen => {
                        let pong = Pong {
                            sequence: ping.sequence,
                            ..Pong::default()
                        };
                        self.harness.shard_says(on, shard::Kind::Pong(pong));
                    }
                    Action::Send(on, Kind::Probe(probe)) => {
                        let probed = Probed {
                            sequence: probe.sequence,
                            is_alive: false,
                        };
                        let said = self.harness.shard_says(on, shard::Kind::Probed(probed));
                        for action in said {
                            if let Action::Send(on, Kind::Refused(refused)) = action {
                                assert_eq!(on, frozen);
                                return refused.text;
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        panic!("nobody was declared dead");
    }

    pub fn recoveries(&self) -> Vec<Recovery> {
        let status = self.harness.coordinator.cluster_status(self.harness.now);
        status.recoveries
    }

    pub fn done(&mut self, connection: u64, recover: &Recover, from_segment: u64) -> Vec<Action> {
        let recovered = Recovered {
            recovery_id: recover.recovery_id,
            from_segment,
            bytes: 1000,
            objects: 10,
            replay_ns: 1_000_000,
            ..Recovered::default()
        };
        let kind = shard::Kind::Recovered(recovered);
        self.harness.shard_says(connection, kind)
    }

    /// A master could not carry an order out.
    pub fn fail(&mut self, connection: u64, recover: &Recover) {
        let recovered = Recovered {
            recovery_id: recover.recovery_id,
            failure: "no backup answers".to_owned(),
            ..Recovered::default()
        };
        let kind = shard::Kind::Recovered(recovered);
        self.harness.shard_says(connection, kind);
    }

    /// The objects that came back with an order have copies of their own.
    pub fn durable(&mut self, connection: u64, recover: &Recover) {
        let recovery_id = recover.recovery_id;
        let kind = shard::Kind::RecoveryDurable(RecoveryId { recovery_id });
        self.harness.shard_says(connection, kind);
    }
}

pub fn probes(actions: &[Action]) -> Vec<(u64, u64)> {
    let probes = actions.iter().filter_map(|action| match action {
        Action::Send(connection, Kind::Probe(probe)) => Some((*connection, probe.sequence)),
        _ => None,
    });
    probes.collect()
}

pub fn fenced(actions: &[Action]) -> Vec<(u64, ServerId)> {
    let fences = actions.iter().filter_map(|action| match action {
        Action::Send(connection, Kind::FenceLog(log)) => Some((*connection, ServerId(log.log))),
        _ => None,
    });
    fences.collect()
}

pub fn orders(actions: &[Action]) -> Vec<(u64, Recover)> {
    let orders = actions.iter().filter_map(|action| match action {
        Action::Send(connection, Kind::Recover(recover)) => Some((*connection, recover.clone())),
        _ => None,
    });
    orders.collect()
}

pub fn forgotten(actions: &[Action]) -> Vec<(u64, Vec<u64>)> {
    let forgotten = actions.iter().filter_map(|action| match action {
        Action::Send(connection, Kind::ForgetLogs(logs)) => Some((*connection, logs.logs.clone())),
        _ => None,
    });
    forgotten.collect()
}

pub fn segments(recover: &Recover) -> Vec<(u64, Vec<u64>)> {
    let segments = recover.segments.iter();
    segments
        .map(|segment| (segment.segment_id, segment.backups.clone()))
        .collect()
}

/// A table whose one tablet server 1 owns, which then dies.
pub fn one_dead_of_four() -> (Store, TableId, ServerId) {
    one_dead_with_floor(1)
}

/// The same; its heads below this segment had been given up.
pub fn one_dead_with_floor(segment_id: u64) -> (Store, TableId, ServerId) {
    let mut store = Store::new(4);
    let table = store.harness.create("t", 1);
    let dead = store.ids[&1];
    assert_eq!(store.harness.owners(table), [dead]);
    store.says(1, shard::Kind::RaiseOpenFloor(OpenFloor { segment_id }));
    store.kill(1);
    (store, table, dead)
}
