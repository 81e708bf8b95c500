//! Records and files are what they were.

use wire::member::Settings;

use super::*;
use crate::records::Meta;
use crate::records::{
    Leadership, Lease, Left, Log, Loss, Member, Process, Removed, Segment, Server, Source,
    SpecVersion, Table, Tablet, Value,
};
use crate::state::journal::{Writer, load};

const CLUSTER: u64 = 0x1122_3344_5566_7788;
const TAG: u64 = 7 << 32;

fn process(instance: &str, number: u64) -> Process {
    Process {
        instance: instance.to_owned(),
        number,
    }
}

fn records() -> Vec<(&'static str, Record)> {
    let meta = Meta {
        format_version: 1,
        cluster_id: CLUSTER,
        cluster_tag: 7,
        last_server_index: 300,
        member_changes: 12,
        last_table_number: 3,
        last_used_server: 2,
        next_lease_id: TAG | 5,
        time_bound_ns: 60_000_000_001,
        lease_shift_ns: 120_000_000_000,
        losses_dropped: 1,
        last_recovery_id: 13,
        version_bound: 0,
        version_floor: 0,
        first_version: 0,
        time_ahead_ns: 0,
        term: 0,
        nonce: 0,
        past: Vec::new(),
        rebuilt_term: 0,
        rebuilt: None,
        settings: None,
        copies_asked_by: None,
    };
    let member = Member {
        name: "box-0".to_owned(),
        process: process("uid-2", 9),
        host_id: "host".to_owned(),
        build_version: "0.1.0".to_owned(),
        servers: vec![1, 300],
        shard_count: 1,
        incarnations: 2,
        past: vec![process("uid-1", 8)],
        is_dead: true,
        is_draining: false,
        is_last_resort: false,
        oldest_format: 0,
        newest_format: 0,
    };
    let server = Server {
        id: 1 << 32 | 300,
        member: "box-0".to_owned(),
        shard_index: 1,
        locator: "tcp:host=10.0.0.1,port=12100".to_owned(),
        backup_locator: "tcp:host=10.0.0.1,port=12101".to_owned(),
        domain: "zone-a".to_owned(),
        open_floor: Some(0),
        log_capacity_bytes: 1 << 30,
        replicas: 3,
        backup_only: true,
        peer_locator: String::new(),
    };
    let removed = Removed {
        member: "box-9".to_owned(),
        instance: "uid-7".to_owned(),
    };
    let tablet = |end_key_hash, owner, sources| Tablet {
        end_key_hash,
        owner,
        sources,
        is_cut: false,
    };
    let source = Source {
        log: 1 << 32 | 4,
        from_segment: 17,
        recovery_id: 13,
    };
    let table = Table {
        id: TAG | 3,
        name: b"fr\xffit".to_vec(),
        tablets: vec![
            tablet((1 << 63) - 1, 0, vec![source]),
            tablet(u64::MAX, 300, Vec::new()),
        ],
    };
    let [first, second] = <[Tablet; 2]>::try_from(table.tablets.clone()).expect("two");
    let is_cut = true;
    let table_cut = Table {
        tablets: vec![first, Tablet { is_cut, ..second }],
        ..table.clone()
    };
    let lease = Lease {
        id: TAG | 4,
        expiration_ns: 1_800_000_000_005,
    };
    let loss = Loss {
        number: 1,
        cluster_time_ns: 5,
        member: "box-0".to_owned(),
        server_ids: vec![1],
        tables: vec!["fruit".to_owned()],
        tables_dropped: 2,
        tablet_count: 3,
        object_count: 4,
        live_bytes: 5,
        missing: String::new(),
        uncounted: false,
        instance: String::new(),
    };
    let log = Log {
        id: 1 << 32 | 4,
        member: "box-3".to_owned(),
        open_floor: Some(16),
        head_segment_id: 0,
        head_bytes: 0,
        left: None,
    };
    let given_up = |number, missing: &str| Loss {
        number,
        missing: missing.to_owned(),
        ..loss.clone()
    };
    let uncounted = Loss {
        number: 3,
        object_count: 0,
        live_bytes: 0,
        uncounted: true,
        instance: "pod".to_owned(),
        ..loss.clone()
    };
    let meta_after = Meta {
        version_bound: 3 << 40,
        version_floor: 2 << 40,
        ..meta.clone()
    };
    let meta_with_term = Meta {
        time_ahead_ns: 600_000_000_000,
        term: 3,
        nonce: 0x0102_0304_0506_0708,
        past: vec![Leadership {
            term: 2,
            nonce: 9,
            last_sequence: 400,
        }],
        ..meta.clone()
    };
    let meta_rebuilt = Meta {
        rebuilt_term: 1500,
        rebuilt: None,
        ..meta.clone()
    };
    let meta_with_settings = Meta {
        settings: Some(Settings {
            number: 7,
            replicas: Some(3),
            min_replicas: Some(2),
            repair_mbps: Some(200),
            poll_micros: Some(0),
            cleaner_free_percent: Some(5),
            max_connections: Some(4096),
            log_level: Some(4),
            rebalance_mbps: Some(0),
        }),
        ..meta.clone()
    };
    let meta_with_spec = Meta {
        copies_asked_by: Some(SpecVersion {
            uid: "uid".to_owned(),
            generation: 300,
        }),
        ..meta.clone()
    };
    let log_left = Log {
        id: 5,
        head_segment_id: 9,
        head_bytes: 100,
        left: Some(Left {
            after_recovery: 12,
            segments: vec![Segment { id: 3, bytes: 70 }, Segment { id: 300, bytes: 0 }],
        }),
        ..log.clone()
    };
    let member_draining = Member {
        is_draining: true,
        ..member.clone()
    };
    let member_as_last_resort = Member {
        is_last_resort: true,
        ..member_draining.clone()
    };
    let member_with_formats = Member {
        oldest_format: 1,
        newest_format: 2,
        ..member.clone()
    };
    let loss_given_up = given_up(2, "of a log");
    vec![
        ("meta", Record::Meta(meta)),
        ("member", Record::Member(member)),
        ("server", Record::Server(server)),
        ("removed", Record::Removed(removed)),
        ("table", Record::Table(table)),
        ("lease", Record::Lease(lease)),
        ("loss", Record::Loss(loss)),
        ("log", Record::Log(log)),
        ("meta-after-loss", Record::Meta(meta_after)),
        ("loss-given-up", Record::Loss(loss_given_up)),
        ("log-left", Record::Log(log_left)),
        ("meta-with-term", Record::Meta(meta_with_term)),
        ("member-draining", Record::Member(member_draining)),
        ("member-with-formats", Record::Member(member_with_formats)),
        ("meta-rebuilt", Record::Meta(meta_rebuilt)),
        ("member-last-resort", Record::Member(member_as_last_resort)),
        ("meta-with-settings", Record::Meta(meta_with_settings)),
        ("meta-with-spec", Record::Meta(meta_with_spec)),
        ("loss-uncounted", Record::Loss(uncounted)),
        ("table-cut", Record::Table(table_cut)),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn format_1_is_as_it_was() {
    let golden = include_str!("../../../../testdata/formats/1/coordinator-state.txt");
    let mut lines = golden.lines().filter(|line| !line.starts_with('#'));
    let mut pairs = Vec::new();
    for (name, record) in records() {
        let pair = Pair::from(record.clone());
        let line = format!("{name} {} {}", hex(&pair.key), hex(&pair.value));
        assert_eq!(lines.next(), Some(line.as_str()));
        let value = Value::decode(pair.value.as_slice()).unwrap();
        assert_eq!(value.record, Some(record));
        pairs.push(pair);
    }
    let (removed, lease, loss) = (pairs[3].clone(), pairs[5].clone(), pairs[6].clone());
    let mut writer = Writer::new(CLUSTER);
    let snapshot = [lease.clone(), removed.clone()];
    let mut file = writer.snapshot(snapshot.into_iter()).unwrap();
    let commit = Changes {
        puts: vec![loss.clone()],
        deletes: vec![lease.key],
    };
    file.extend(writer.record(&commit).unwrap());
    assert_eq!(lines.next(), Some(format!("file {}", hex(&file)).as_str()));
    assert_eq!(lines.next(), None);
    let found: Vec<Pair> = load(&file).unwrap().take_pairs().collect();
    assert_eq!(found, [removed, loss]);
}
