//! The generic checks, and what administration asks.

use base::ids::{ServerId, TableId};
use base::level::Level;
use base::time::Time;
use prost::Message;
use wire::hash::key_hash;
use wire::member::{Control, TabletSplit, coordinator, shard};
use wire::opcode::{Opcode, Service};
use wire::proto::{LogMetrics, MetricList, ServerConfig, ServerStatistics};
use wire::rpc::{
    self, ControlTarget, GetServerIdResponse, MessageResponse, PerfStats, RejectRules,
    ServerControlRequest, ServerControlResponse, control_op,
};
use wire::status::Status;

use super::harness::*;
use crate::*;

const PLAIN: Durability = Durability::Unreplicated;

/// Everything that a master serves, with the length of the request's fixed part.
const SERVED: &[(Service, Opcode, usize)] = &[
    (Service::Master, Opcode::Read, 26),
    (Service::Master, Opcode::ReadKeysAndValue, 26),
    (Service::Master, Opcode::Write, 69),
    (Service::Master, Opcode::Remove, 66),
    (Service::Master, Opcode::Increment, 82),
    (Service::Master, Opcode::MultiOp, 12),
    (Service::Master, Opcode::Enumerate, 25),
    (Service::Master, Opcode::Echo, 12),
    (Service::Master, Opcode::MigrateTablet, 36),
    (Service::Master, Opcode::GetServerStatistics, 4),
    (Service::Master, Opcode::GetLogMetrics, 4),
    (Service::Admin, Opcode::Ping, 12),
    (Service::Admin, Opcode::ProxyPing, 20),
    (Service::Admin, Opcode::GetMetrics, 4),
    (Service::Admin, Opcode::GetServerConfig, 4),
    (Service::Admin, Opcode::GetServerId, 4),
    (Service::Admin, Opcode::ServerControl, 27),
];
/// Served only where tests are allowed; they have tests of their own.
const FOR_TESTS: [u16; 2] = [Opcode::Kill as u16, Opcode::FillWithTestData as u16];

fn fixed_bytes(opcode: u16, service: u16) -> Option<usize> {
    let served = SERVED.iter();
    served
        .filter(|(known, number, _)| *known as u16 == service && *number as u16 == opcode)
        .map(|(_, _, bytes)| *bytes)
        .next()
}

/// What a request of `length` bytes with this header is answered before its handler sees it.
fn refusal(opcode: u16, service: u16, length: usize) -> Option<Status> {
    if length < 4 {
        return Some(Status::MessageTooShort);
    }
    if opcode >= 81 {
        return Some(Status::UnimplementedRequest);
    }
    if service != 0 && service != 3 {
        return Some(Status::ServiceNotAvailable);
    }
    match fixed_bytes(opcode, service) {
        None => Some(Status::UnimplementedRequest),
        Some(bytes) if length < bytes => Some(Status::MessageTooShort),
        Some(_) => None,
    }
}

#[test]
fn every_opcode_and_service_is_checked_in_the_protocols_order() {
    let mut fresh = Driver::new(small(PLAIN));
    let mut enlisted = Driver::enlisted(small(PLAIN));
    for driver in [&mut fresh, &mut enlisted] {
        for opcode in (0..=90).filter(|opcode| !FOR_TESTS.contains(opcode)) {
            for service in 0..=4u16 {
                let whole = fixed_bytes(opcode, service).unwrap_or(4);
                for length in [0, 3, 4, whole - 1, whole] {
                    let mut payload = vec![0; whole.max(4)];
                    payload[..2].copy_from_slice(&opcode.to_le_bytes());
                    payload[2..4].copy_from_slice(&service.to_le_bytes());
                    payload.truncate(length);
                    let Some(expected) = refusal(opcode, service, length) else {
                        continue;
                    };
                    let what = format!("opcode {opcode}, service {service}, {length} bytes");
                    let reply = driver.call(&payload);
                    assert_eq!(reply, rpc::status_bytes(expected), "{what}");
                }
            }
        }
    }
}

#[test]
fn the_master_service_waits_to_be_let_in_and_the_admin_service_does_not() {
    for (service, opcode, bytes) in SERVED {
        let mut driver = Driver::new(small(PLAIN));
        let mut payload = vec![0; *bytes];
        payload[0] = *opcode as u8;
        payload[2] = *service as u8;
        driver.send(&payload);
        if *opcode == Opcode::ProxyPing {
            // With no time to wait.
            driver.settle();
        }
        let status = rpc::status(&driver.said.replies[0].1).unwrap();
        let at_once = *service == Service::Admin || *opcode == Opcode::Echo;
        assert_eq!(status == Status::Retry, !at_once, "{opcode}: {status}");
    }
}

fn bare(opcode: Opcode, service: Service) -> Vec<u8> {
    let mut payload = Vec::new();
    rpc::encode_bare_request(opcode, service, &mut payload);
    payload
}

#[test]
fn kill_ends_the_process_where_tests_are_allowed_and_nowhere_else() {
    let payload = bare(Opcode::Kill, Service::Admin);
    let mut driver = Driver::enlisted(small(PLAIN));
    for _ in 0..3 {
        assert_eq!(driver.call(&payload), [8, 0, 0, 0]);
    }
    assert!(!driver.said.ended);
    let refused = ClientEvent::TestRequestRefused { name: "KILL" };
    assert_eq!(driver.said.events, [refused.into()], "reported once");

    let mut driver = Driver::new(Config {
        allow_test_rpcs: true,
        ..small(PLAIN)
    });
    let nonce = driver.send(&payload);
    assert!(driver.said.ended);
    assert_eq!(driver.reply_to(nonce), None);
}

#[test]
fn the_server_id_is_told_once_there_is_one() {
    let mut driver = Driver::new(small(PLAIN));
    let id = |driver: &mut Driver| {
        let reply = driver.call(&bare(Opcode::GetServerId, Service::Admin));
        let response = GetServerIdResponse::decode(&reply).unwrap();
        assert_eq!(response.status, Status::Ok);
        response.server_id
    };
    assert_eq!(id(&mut driver), ServerId::INVALID);
    driver.welcome(CLUSTER, ServerId::new(3, 1), 1, &[]);
    assert_eq!(id(&mut driver), ServerId::new(3, 1));
}

fn control(target: ControlTarget, table_id: u64, op: u32, input: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    ServerControlRequest {
        target,
        control_op: op,
        table_id: TableId(table_id),
        index_id: 0,
        key: b"abc",
        input,
    }
    .encode(&mut payload);
    payload
}

/// Status, and the output if that is OK.
fn controlled(driver: &mut Driver, payload: &[u8]) -> (Status, Vec<u8>) {
    let reply = driver.call(payload);
    let response = ServerControlResponse::decode(&reply).unwrap();
    assert_eq!(reply.len(), 16 + response.output.len());
    (response.status, response.output.to_vec())
}

#[test]
fn control_operations_find_their_server() {
    let mut driver = Driver::enlisted(small(PLAIN));
    let op = control_op::GET_TIME_TRACE;
    let trace = b"no time trace is recorded here".to_vec();
    for (target, table, expected) in [
        (ControlTarget::Object, TABLE.0, Status::Ok),
        (ControlTarget::Object, TABLE.0 + 1, Status::UnknownTablet),
        (ControlTarget::Index, TABLE.0, Status::UnknownIndexlet),
        (ControlTarget::ServerId, 99, Status::Ok),
    ] {
        let (status, output) = controlled(&mut driver, &control(target, table, op, b""));
        assert_eq!(status, expected, "{target:?}");
        assert_eq!(
            output,
            if status == Status::Ok {
                trace.clone()
            } else {
                Vec::new()
            }
        );
    }
    let mut unknown = control(ControlTarget::ServerId, 0, op, b"");
    unknown[4] = 3;
    assert_eq!(
        controlled(&mut driver, &unknown).0,
        Status::RequestFormatError
    );
    let cut = control(ControlTarget::ServerId, 0, op, b"input");
    let (status, _) = controlled(&mut driver, &cut[..cut.len() - 1]);
    assert_eq!(status, Status::MessageTooShort);
}

#[test]
fn every_control_operation_has_its_answer_however_it_comes() {
    let mut driver = Driver::enlisted(small(PLAIN));
    for op in 999..=1013 {
        let expected = match op {
            1003..=1009 | 1011 | 1012 => Status::Ok,
            // Without the level that its input starts with.
            1010 => Status::MessageTooShort,
            _ => Status::UnimplementedRequest,
        };
        let payload = control(ControlTarget::ServerId, 0, op, b"");
        assert_eq!(controlled(&mut driver, &payload).0, expected, "{op}");

        driver.said.messages.clear();
        driver.order(coordinator::Kind::Control(Control {
            sequence: 5,
            op,
            input: Vec::new(),
        }));
        let [shard::Kind::ControlDone(done)] = &driver.said.messages[..] else {
            panic!("{:?}", driver.said.messages);
        };
        let response = ServerControlResponse::decode(&done.response).unwrap();
        assert_eq!((done.sequence, response.status), (5, expected), "{op}");
        assert_eq!(response.server_id, ServerId::new(1, 0));
        let has_output = matches!(op, 1003 | 1005 | 1007);
        assert_eq!(!response.output.is_empty(), has_output, "{op}");
    }
    let hello = [&2u32.to_le_bytes()[..], b"hello"].concat();
    let payload = control(ControlTarget::ServerId, 0, control_op::LOG_MESSAGE, &hello);
    assert_eq!(controlled(&mut driver, &payload).0, Status::Ok);
    let text = ClientEvent::Text {
        level: Level::Warning,
        text: "hello".to_owned(),
    };
    assert_eq!(driver.said.events.last(), Some(&text.into()));
}

fn perf_stats(driver: &mut Driver) -> PerfStats {
    let op = control_op::GET_PERF_STATS;
    let payload = control(ControlTarget::Object, TABLE.0, op, b"");
    PerfStats::decode(&controlled(driver, &payload).1).unwrap()
}

#[test]
fn performance_counters_count_what_was_done_and_never_go_back() {
    let mut driver = Driver::enlisted(small(PLAIN));
    driver.now = Time(5_000);
    let before = perf_stats(&mut driver);
    assert_eq!((before.read_count, before.write_count), (0, 0));
    assert_eq!(
        (before.collection_time, before.cycles_per_second),
        (5_000, 1e9)
    );

    driver.write(1, b"key", b"value");
    driver.call(&multi_write(&[
        (TABLE, b"k1", b"v1"),
        (TABLE, b"k2", b"v2"),
    ]));
    driver.read(b"key");
    driver.read(b"absent");
    driver.now = Time(9_000);
    driver.said.counters = DriverCounters {
        input_bytes: 11,
        output_bytes: 12,
        busy_ns: 13,
        cleaner_ns: 4,
    };
    let after = perf_stats(&mut driver);
    assert_eq!((after.read_count, after.write_count), (2, 3));
    assert_eq!((after.read_object_bytes, after.read_key_bytes), (5, 9));
    // Keys with their number and lengths: 3 + 3 and twice 3 + 2.
    assert_eq!((after.write_object_bytes, after.write_key_bytes), (9, 16));
    assert_eq!(
        (after.network_input_bytes, after.network_output_bytes),
        (11, 12)
    );
    assert_eq!(
        (after.dispatch_active_cycles, after.collection_time),
        (13, 9_000)
    );
    assert_eq!(
        (after.worker_active_cycles, after.cleaner_active_cycles),
        (13, 4)
    );
    assert_eq!(after.log_sync_cycles, 0, "nothing waits without copies");
    assert_eq!(
        after.log_size_bytes,
        after.log_used_bytes + after.log_free_bytes
    );
    assert!(after.log_bytes_appended > 16 + 9 && after.log_live_bytes > 16 + 9);
    assert!(after.log_appendable_bytes < before.log_appendable_bytes);

    // Another store: the log is empty, what was done was done.
    driver.welcome(CLUSTER + 1, ServerId::new(1, 0), 1, &[WHOLE_TABLE]);
    let later = perf_stats(&mut driver);
    assert_eq!(later.log_bytes_appended, after.log_bytes_appended);
    assert_eq!((later.write_count, later.log_live_bytes), (3, 0));
}

#[test]
fn the_time_in_which_answers_wait_for_backups_is_counted() {
    let mut driver = Driver::enlisted(small(Durability::External));
    driver.send(&write(lease(1), 1, 0, b"key", b"1", RejectRules::default()));
    driver.settle();
    driver.now = Time(driver.now.0 + 700);
    assert_eq!(perf_stats(&mut driver).log_sync_cycles, 700);
    let head = driver.shard.head_position();
    driver.shard.advance_durable(head, &mut driver.said);
    driver.settle();
    driver.now = Time(driver.now.0 + 5_000);
    assert_eq!(perf_stats(&mut driver).log_sync_cycles, 700);
}

fn message<M: Message + Default>(driver: &mut Driver, opcode: Opcode, service: Service) -> M {
    let reply = driver.call(&bare(opcode, service));
    let response = MessageResponse::decode(&reply).unwrap();
    assert_eq!(response.status, Status::Ok);
    M::decode(response.message).unwrap()
}

#[test]
fn statistics_count_uses_by_tablet_over_a_split() {
    let mut driver = Driver::enlisted(small(PLAIN));
    driver.write(1, b"key", b"value");
    driver.read(b"key");
    driver.read(b"absent");
    let tablets = |driver: &mut Driver| {
        let all: ServerStatistics = message(driver, Opcode::GetServerStatistics, Service::Master);
        let entries = all.tabletentry.into_iter();
        entries
            .map(|entry| {
                assert_eq!(entry.table_id, TABLE.0);
                let uses = entry.number_read_and_writes.unwrap();
                (entry.start_key_hash, entry.end_key_hash, uses)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(tablets(&mut driver), [(0, u64::MAX, 3)]);
    let hash = key_hash(TABLE, b"key");
    driver.order(coordinator::Kind::SplitTablet(TabletSplit {
        sequence: 1,
        table_id: TABLE.0,
        key_hash: hash,
    }));
    driver.read(b"key");
    assert_eq!(
        tablets(&mut driver),
        [(0, hash - 1, 2), (hash, u64::MAX, 1 + 1)],
        "half of what was counted before, and one use since"
    );
}

#[test]
fn metrics_log_metrics_and_configuration_are_those_of_the_shard() {
    let mut driver = Driver::enlisted(small(PLAIN));
    let log: LogMetrics = message(&mut driver, Opcode::GetLogMetrics, Service::Master);
    assert_eq!((log.total_append_calls, log.ticks_per_second), (0, 1e9));
    driver.write(1, b"key", b"value");
    let log: LogMetrics = message(&mut driver, Opcode::GetLogMetrics, Service::Master);
    // The object, and the result of the RPC.
    assert_eq!(log.total_append_calls, 2);
    let list: MetricList = message(&mut driver, Opcode::GetMetrics, Service::Admin);
    let metric = |name: &str| {
        let mut found = list.metric.iter().filter(|metric| metric.name == name);
        found.next().unwrap_or_else(|| panic!("no {name}")).value
    };
    assert_eq!((metric("master.writeCount"), metric("serverId")), (1, 1));
    assert_eq!(metric("master.log.appendedBytes"), log.total_bytes_appended);
    let config: ServerConfig = message(&mut driver, Opcode::GetServerConfig, Service::Admin);
    assert_eq!(config.local_locator, identity().locator);
    assert_eq!(config.coordinator_locator, identity().coordinator);
    assert_eq!(
        (config.segment_size, config.max_object_data_size),
        (1 << 14, 1 << 20)
    );
    assert_eq!(config.master.unwrap().log_bytes, 64 << 14);
}
