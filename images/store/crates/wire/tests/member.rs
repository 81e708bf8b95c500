//! Golden bytes of the member protocol: each kind of message with every field set, as format 1 has them for ever.
//!
//! A field that is added is set here, and its bytes come behind those that were there. Nothing else of a line may ever change.

use prost::Message;
use wire::member::*;

const TABLET: TabletRange = TabletRange {
    table_id: 1,
    start_key_hash: 2,
    end_key_hash: u64::MAX,
};

const POSITION: Position = Position {
    term: 3,
    nonce: 0x0102_0304_0506_0708,
    sequence: 300,
};

fn settings() -> Settings {
    Settings {
        number: 1,
        replicas: Some(2),
        min_replicas: Some(3),
        repair_mbps: Some(4),
        poll_micros: Some(5),
        cleaner_free_percent: Some(6),
        max_connections: Some(7),
        log_level: Some(8),
        rebalance_mbps: Some(9),
    }
}

fn of_shards() -> Vec<(&'static str, shard::Kind)> {
    use shard::Kind;
    vec![
        (
            "hello",
            Kind::Hello(Hello {
                cluster_id: 1,
                server_id: 2,
                credentials: vec![3, 0, 255],
                member: "member".to_owned(),
                instance: "instance".to_owned(),
                process: 4,
                host_id: "host_id".to_owned(),
                shard_index: 5,
                shard_count: 6,
                locator: "locator".to_owned(),
                log_capacity_bytes: 7,
                build_version: "build_version".to_owned(),
                backup_locator: "backup_locator".to_owned(),
                domain: "domain".to_owned(),
                replicas: 8,
                backup_only: true,
                position: Some(POSITION),
                oldest_format: 9,
                newest_format: 10,
                volume_cluster_id: 11,
                takes_settings: true,
                merges_tablets: true,
                peer_locator: "peer_locator".to_owned(),
            }),
        ),
        (
            "pong",
            Kind::Pong(Pong {
                sequence: 1,
                log_live_bytes: 2,
                object_count: 3,
                segments: 4,
                segments_short: 5,
                backups: 6,
                serving: true,
                next_version: 7,
                migration: Some(MigrationProgress {
                    migration_id: 8,
                    bytes: 9,
                    objects: 10,
                    is_frozen: true,
                }),
                on_draining: Some(OnDraining {
                    list_number: 11,
                    backups: vec![CopiesAt {
                        backup: 12,
                        segments: 13,
                    }],
                }),
                loads: vec![TabletLoad {
                    tablet: TABLET,
                    bytes: 14,
                    objects: 15,
                    uses: 16,
                }],
                settings: 17,
                replicas: Some(18),
                ports: vec![port()],
                room: Some(LogRoom {
                    max_live_bytes: 19,
                    tombstone_bytes: 20,
                    full_rejections: 21,
                    full: Some(MemoryFull {
                        for_ms: 22,
                        last_ms: 23,
                    }),
                }),
            }),
        ),
        ("tablet-done", Kind::TabletDone(TabletDone { sequence: 1 })),
        ("lease-query", Kind::LeaseQuery(LeaseQuery { lease_id: 1 })),
        (
            "control-done",
            Kind::ControlDone(ControlDone {
                sequence: 1,
                response: vec![2, 0, 255],
            }),
        ),
        (
            "locate-server",
            Kind::LocateServer(LocateServer { server_id: 1 }),
        ),
        (
            "raise-open-floor",
            Kind::RaiseOpenFloor(OpenFloor { segment_id: 1 }),
        ),
        (
            "backup-report",
            Kind::BackupReport(BackupReport {
                logs: vec![1, 300],
                segment_bytes: 2,
                frames: 3,
                frames_free: 4,
                frames_damaged: 5,
                retired: "retired".to_owned(),
                keeps_checkpoints: true,
                // Said while it lasts.
                stalled: String::new(),
            }),
        ),
        (
            "log-inventory",
            Kind::LogInventory(LogInventory {
                log: 1,
                replicas: vec![ReplicaFound {
                    segment_id: 2,
                    is_side: true,
                    is_open: true,
                    bytes: 3,
                    crc: 4,
                    damage: "damage".to_owned(),
                    digest: vec![5, 300],
                }],
            }),
        ),
        (
            "recovered",
            Kind::Recovered(Recovered {
                recovery_id: 1,
                from_segment: 2,
                failure: "failure".to_owned(),
                is_full: true,
                bytes: 3,
                objects: 4,
                replay_ns: 5,
            }),
        ),
        (
            "recovery-durable",
            Kind::RecoveryDurable(RecoveryId { recovery_id: 1 }),
        ),
        (
            "probed",
            Kind::Probed(Probed {
                sequence: 1,
                is_alive: true,
            }),
        ),
        (
            "suspect-server",
            Kind::SuspectServer(SuspectServer { server_id: 1 }),
        ),
        (
            "migrated",
            Kind::Migrated(Migrated {
                migration_id: 1,
                from_segment: 2,
                failure: "failure".to_owned(),
                is_full: true,
                bytes: 3,
                objects: 4,
                duration_ns: 5,
            }),
        ),
        ("stopped", Kind::Stopped(MigrationId { migration_id: 1 })),
        (
            "migration-wanted",
            Kind::MigrationWanted(MigrationWanted {
                sequence: 1,
                tablet: TABLET,
                target: 2,
            }),
        ),
        (
            "checkpoint-kept",
            Kind::CheckpointKept(CheckpointKept {
                number: 1,
                bytes: 2,
                is_kept: true,
                failure: "failure".to_owned(),
            }),
        ),
        (
            "checkpoint-part",
            Kind::CheckpointPart(CheckpointPart {
                cluster_id: 1,
                total_bytes: 2,
                offset: 3,
                data: vec![4, 0, 255],
            }),
        ),
    ]
}

fn of_coordinators() -> Vec<(&'static str, coordinator::Kind)> {
    use coordinator::Kind;
    vec![
        (
            "welcome",
            Kind::Welcome(Welcome {
                cluster_id: 1,
                server_id: 2,
                cluster_time_ns: 3,
                first_version: 4,
                tablets: vec![TABLET],
                silence_timeout_ms: 5,
                recoveries: vec![6, 300],
                version_floor: 7,
                position: Some(POSITION),
                format: 8,
                settings: Some(Settings {
                    number: 9,
                    replicas: Some(10),
                    min_replicas: Some(11),
                    repair_mbps: Some(12),
                    poll_micros: Some(13),
                    cleaner_free_percent: Some(14),
                    max_connections: Some(15),
                    log_level: Some(16),
                    rebalance_mbps: Some(17),
                }),
            }),
        ),
        (
            "refused",
            Kind::Refused(Refused {
                reason: 1,
                text: "text".to_owned(),
            }),
        ),
        (
            "ping",
            Kind::Ping(Ping {
                sequence: 1,
                cluster_time_ns: 2,
                position: Some(POSITION),
            }),
        ),
        (
            "take-tablet",
            Kind::TakeTablet(TabletOrder {
                sequence: 1,
                tablet: TABLET,
            }),
        ),
        (
            "drop-tablet",
            Kind::DropTablet(TabletOrder {
                sequence: 1,
                tablet: TABLET,
            }),
        ),
        (
            "lease-answer",
            Kind::LeaseAnswer(LeaseAnswer {
                lease_id: 1,
                expiration_ns: 2,
                cluster_time_ns: 3,
            }),
        ),
        (
            "control",
            Kind::Control(Control {
                sequence: 1,
                op: 2,
                input: vec![3, 0, 255],
            }),
        ),
        (
            "split-tablet",
            Kind::SplitTablet(TabletSplit {
                sequence: 1,
                table_id: 2,
                key_hash: 3,
            }),
        ),
        (
            "server-location",
            Kind::ServerLocation(ServerLocation {
                server_id: 1,
                locator: "locator".to_owned(),
            }),
        ),
        (
            "backups",
            Kind::Backups(Backups {
                backups: vec![Backup {
                    server_id: 1,
                    host_id: "host_id".to_owned(),
                    domain: "domain".to_owned(),
                    locator: "locator".to_owned(),
                    segment_bytes: 2,
                    is_retired: true,
                    is_draining: true,
                    is_last_resort: true,
                }],
                number: 3,
            }),
        ),
        (
            "open-floor-raised",
            Kind::OpenFloorRaised(OpenFloor { segment_id: 1 }),
        ),
        ("fence-log", Kind::FenceLog(Log { log: 1 })),
        ("forget-logs", Kind::ForgetLogs(Logs { logs: vec![1, 300] })),
        (
            "recover",
            Kind::Recover(Recover {
                recovery_id: 1,
                tablets: vec![TABLET],
                segments: vec![SegmentSource {
                    log: 2,
                    segment_id: 3,
                    backups: vec![4, 300],
                    bytes: 5,
                }],
                version_floor: 6,
            }),
        ),
        (
            "commit-recovery",
            Kind::CommitRecovery(RecoveryId { recovery_id: 1 }),
        ),
        (
            "give-up-recovery",
            Kind::GiveUpRecovery(RecoveryId { recovery_id: 1 }),
        ),
        (
            "sources-released",
            Kind::SourcesReleased(RecoveryId { recovery_id: 1 }),
        ),
        (
            "probe",
            Kind::Probe(Probe {
                sequence: 1,
                server_id: 2,
                locator: "locator".to_owned(),
                timeout_ms: 3,
            }),
        ),
        (
            "migrate",
            Kind::Migrate(Migrate {
                migration_id: 1,
                tablet: TABLET,
                source: 2,
                locator: "locator".to_owned(),
                bytes_per_second: 3,
                version_floor: 4,
            }),
        ),
        (
            "migrate-out",
            Kind::MigrateOut(MigrateOut {
                migration_id: 1,
                tablet: TABLET,
                target: 2,
            }),
        ),
        (
            "give-up-migration",
            Kind::GiveUpMigration(MigrationId { migration_id: 1 }),
        ),
        (
            "stop-tablet",
            Kind::StopTablet(MigrationId { migration_id: 1 }),
        ),
        (
            "commit-migration",
            Kind::CommitMigration(MigrationId { migration_id: 1 }),
        ),
        (
            "migration-ended",
            Kind::MigrationEnded(MigrationEnded {
                sequence: 1,
                status: 2,
            }),
        ),
        ("settings", Kind::Settings(settings())),
        (
            "merge-tablets",
            Kind::MergeTablets(TabletMerge {
                sequence: 1,
                tablet: TABLET,
            }),
        ),
        ("activate", Kind::Activate(Format { format: 1 })),
        (
            "keep-checkpoint",
            Kind::KeepCheckpoint(KeepCheckpoint {
                number: 1,
                offset: 2,
                total_bytes: 3,
                data: vec![4, 0, 255],
            }),
        ),
        (
            "read-checkpoint",
            Kind::ReadCheckpoint(ReadCheckpoint {
                offset: 1,
                bytes: 2,
            }),
        ),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(line: &str) -> Vec<u8> {
    let hex = line.split_whitespace().nth(1).expect("a name, and bytes");
    let pairs = hex.as_bytes().chunks(2);
    let text = pairs.map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    text.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal digits"))
        .collect()
}

fn port() -> PortReport {
    PortReport {
        interface: "interface".to_owned(),
        pci: "pci".to_owned(),
        mac: "mac".to_owned(),
        ip: "ip".to_owned(),
        driver: "driver".to_owned(),
        link_up: Some(true),
        link_mbps: 1,
        mtu: 2,
        numa_node: Some(3),
        cores_numa_node: Some(4),
        pings: vec![PortPing {
            server_id: 5,
            ip: "peer".to_owned(),
            round_trip_ns: 6,
            age_ms: 7,
        }],
    }
}

/// Of builds that know of no ports; the same without its ports is what a server without any sends.
const PONG_BEFORE_PORTS: &str = "080110021803200428053006380140074a0808081009180a2001520f080b120b090c00000000000000100d5a1c0a14080111020000000000000019ffffffffffffffff100e180f201060116812";

#[test]
fn a_pong_without_ports_is_as_it_was_before_there_were_any() {
    let pongs = of_shards().into_iter().filter_map(|(_, kind)| match kind {
        shard::Kind::Pong(pong) => Some(pong),
        _ => None,
    });
    let [mut pong] = <[Pong; 1]>::try_from(pongs.collect::<Vec<_>>()).expect("one");
    assert!(hex(&pong.encode_to_vec()).starts_with(PONG_BEFORE_PORTS));
    pong.ports.clear();
    pong.room = None;
    assert_eq!(hex(&pong.encode_to_vec()), PONG_BEFORE_PORTS);
}

#[test]
fn messages_of_format_1_are_as_they_were() {
    let golden = include_str!("../../../testdata/formats/1/member-messages.txt");
    let golden = golden.lines().filter(|line| !line.starts_with('#'));
    let mut golden = golden.collect::<Vec<_>>().into_iter();
    for (name, kind) in of_shards() {
        let message = ToCoordinator::from(kind);
        let line = golden.next().expect("a line for each message");
        assert_eq!(format!("{name} {}", hex(&message.encode_to_vec())), line);
        assert_eq!(ToCoordinator::decode(&*bytes(line)), Ok(message), "{name}");
    }
    for (name, kind) in of_coordinators() {
        let message = ToShard {
            kind: Some(kind),
            position: Some(POSITION),
            numbers: None,
        };
        let line = golden.next().expect("a line for each message");
        assert_eq!(format!("{name} {}", hex(&message.encode_to_vec())), line);
        assert_eq!(ToShard::decode(&*bytes(line)), Ok(message), "{name}");
    }
    assert_eq!(golden.next(), None);
}
