//! Statuses, numbers and tables as people read them.

use super::*;

#[test]
fn numbers_for_people() {
    assert_eq!(
        [bytes(0), bytes(1023), bytes(1536), bytes(5 << 30)],
        ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    );
    assert_eq!(duration(59_999_999_999), "59 s");
    assert_eq!(duration(3_661_000_000_000), "1 h 1 min");
}

#[test]
fn a_status_says_what_is_not_durable_and_what_was_lost() {
    let lost = GetClusterStatusResponse {
        cluster_time_ns: 90_000_000_000,
        durability: Some(admin::Durability {
            mode: DurabilityMode::Unreplicated.into(),
            replicas: 0,
        }),
        members: vec![admin::Member {
            name: "box-master-0".to_owned(),
            state: MemberState::Up.into(),
            shards: vec![admin::Shard {
                server_id: 1,
                connected: true,
                object_count: 7,
                ..Default::default()
            }],
            ..Default::default()
        }],
        losses: vec![admin::Loss {
            cluster_time_ns: 60_000_000_000,
            member: "box-master-0".to_owned(),
            tables: vec!["fruit".to_owned()],
            tablet_count: 2,
            ..Default::default()
        }],
        ..Default::default()
    };
    let shown = status(&lost, false);
    for part in [
        "UNREPLICATED",
        "it is lost",
        "1 up",
        "box-master-0  up",
        "1.0",
        "30 s ago: box-master-0 died with the only copy of 2 tablets",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(is_all_up(&lost));
    let mut uncounted = lost.clone();
    uncounted.losses[0].uncounted = true;
    let shown = status(&uncounted, false);
    assert!(
        shown.contains("nobody knows") && !shown.contains("about 0 objects"),
        "{shown}"
    );
    let nothing = GetClusterStatusResponse::default();
    assert!(!is_all_up(&nothing));
    assert_eq!(status_json(&nothing)["members"], json!([]));
}

#[test]
fn a_status_says_what_has_too_few_copies_and_what_is_being_recovered() {
    let mut replicated = GetClusterStatusResponse {
        cluster_time_ns: 90_000_000_000,
        durability: Some(admin::Durability {
            mode: DurabilityMode::Replicated.into(),
            replicas: 2,
        }),
        members: vec![admin::Member {
            shards: vec![admin::Shard {
                segments: 10,
                ..Default::default()
            }],
            ..Default::default()
        }],
        recoveries: vec![admin::Recovery {
            server_id: 2,
            member: "box-master-1".to_owned(),
            started_ns: 85_000_000_000,
            tablets_left: 4,
            waits_for: "segment 7 of 2.0".to_owned(),
            bytes: 1 << 20,
            ..Default::default()
        }],
        ..Default::default()
    };
    let shown = status(&replicated, false);
    for part in [
        "Durability: REPLICATED (copies on other hosts: 2)",
        "Recovery of box-master-1 (server 2.0), for 5 s: 4 tablets are not served yet, 1.0 MiB of log to read",
        "It waits: segment 7 of 2.0",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    replicated.members[0].shards[0].segments_short = 1;
    replicated.recoveries[0].tablets_left = 0;
    let shown = status(&replicated, false);
    assert!(shown.contains("copies on other hosts: 2; 1 of 10 segments have fewer"));
    assert!(!shown.contains("Recovery"), "one that has ended:\n{shown}");
}

#[test]
fn a_status_says_what_somebody_has_to_decide_and_what_was_decided() {
    let mut waiting = GetClusterStatusResponse {
        cluster_time_ns: 90_000_000_000,
        members: vec![admin::Member {
            name: "b".to_owned(),
            shards: vec![admin::Shard {
                server_id: 3,
                connected: true,
                backup: Some(admin::BackupStorage {
                    frames: 10,
                    frames_free: 4,
                    segment_bytes: 1 << 20,
                    retired_reason: "No space left".to_owned(),
                    ..Default::default()
                }),
                ..Default::default()
            }],
            ..Default::default()
        }],
        recoveries: vec![admin::Recovery {
            server_id: 2,
            member: "m".to_owned(),
            tablets_left: 4,
            waits_for: "nobody has it".to_owned(),
            loss_token: "5f3a9c01".to_owned(),
            missing: vec![admin::MissingLog {
                server_id: 2,
                segments: vec![5, 7],
                segment_count: 3,
                segments_left: 11,
                bytes_left: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let shown = status(&waiting, false);
    for part in [
        "6.0 MiB of 10.0 MiB",
        "The backup of b (3.0) takes no more copies: No space left",
        "If these disks are gone for ever: rcbox recovery accept-loss 2.0",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    waiting.members[0].shards[0].connected = false;
    assert!(status(&waiting, false).contains("b       no process  -"));
    let shown = missing(&waiting.recoveries[0]);
    for part in [
        "of the log of server 2.0: segments 5, 7 and 1 more",
        "left of it: 11 segments, 1.0 MiB",
        "It waits: nobody has it",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    waiting.losses = vec![admin::Loss {
        cluster_time_ns: 60_000_000_000,
        member: "m".to_owned(),
        tables: vec!["fruit".to_owned()],
        tablet_count: 4,
        missing: "of the log of server 2.0: 3 segments".to_owned(),
        ..Default::default()
    }];
    let shown = status(&waiting, false);
    let part = "30 s ago: 4 tablets of tables fruit that m served may lack objects: missing of the log of server 2.0";
    assert!(shown.contains(part), "{part} is not in\n{shown}");
}

#[test]
fn colors_do_not_move_columns_and_names_are_shown_with_escapes() {
    let rows = [["up", "a"], ["unreachable", "\x1b[31m"]].map(|row| row.map(str::to_owned));
    let mut plain = String::new();
    columns(&mut plain, &rows, false);
    assert_eq!(plain, "up           a\nunreachable  \\x1b[31m\n");
    let mut colored = String::new();
    columns(&mut colored, &rows, true);
    let bare = COLORS
        .iter()
        .fold(colored, |text, code| text.replace(code, ""));
    assert_eq!(bare, plain);
}
