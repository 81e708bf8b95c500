//! What administrators and benchmarks ask of running processes.

use std::time::{Duration, Instant};

use crate::common::{Coordinator, DEADLINE, Rpc, Server, Store, wait_for};
use base::ids::{ServerId, TableId};
use prost::Message;
use wire::opcode::{Opcode, Service};
use wire::proto::{MetricList, ServerList};
use wire::rpc::{
    self, ControlTarget, GetServerListRequest, MessageResponse, PerfStats, ProxyPingRequest,
    ProxyPingResponse, ServerControlAllRequest, ServerControlAllResponse, ServerControlRequest,
    ServerControlResponse, control_op,
};
use wire::status::Status;

const TIMED_OUT: u64 = ProxyPingResponse::TIMED_OUT;

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

fn bare(opcode: Opcode, service: Service) -> Vec<u8> {
    encoded(|bytes| rpc::encode_bare_request(opcode, service, bytes))
}

/// The time that the answer tells, in nanoseconds.
fn proxy_ping(through: &mut Rpc, server_id: ServerId, timeout: Duration) -> u64 {
    let request = ProxyPingRequest {
        server_id,
        timeout_ns: u64::try_from(timeout.as_nanos()).unwrap(),
    };
    let answer = through.call(&encoded(|bytes| request.encode(bytes)));
    let response = ProxyPingResponse::decode(&answer).unwrap();
    assert_eq!(response.status, Status::Ok);
    response.reply_ns
}

#[test]
fn servers_and_the_coordinator_ping_others() {
    let store = Store::start(2, &[]);
    let other = ServerId::new(2, 0);
    for mut through in [store.master(), store.client()] {
        let took = proxy_ping(&mut through, other, DEADLINE);
        assert!(took < 10_000_000_000, "{took} ns");
        // Nobody, and somebody who was there before.
        for nobody in [ServerId::new(3, 0), ServerId::new(2, 1), ServerId::INVALID] {
            assert_eq!(proxy_ping(&mut through, nobody, DEADLINE), TIMED_OUT);
        }
    }

    store.servers[1].process.stop();
    for mut through in [store.master(), store.client()] {
        let asked = Instant::now();
        let timeout = Duration::from_millis(300);
        assert_eq!(proxy_ping(&mut through, other, timeout), TIMED_OUT);
        assert!(asked.elapsed() >= timeout);
    }
    // Others were served all the while, and it comes back.
    store.servers[1].process.signal("CONT");
    let mut through = store.master();
    wait_for("a ping that is answered again", || {
        (proxy_ping(&mut through, other, Duration::from_secs(5)) != TIMED_OUT).then_some(())
    });
}

#[test]
fn a_server_that_waits_for_a_ping_serves_others() {
    let store = Store::start(2, &[]);
    store.servers[1].process.stop();
    let (mut waiting, mut other) = (store.master(), store.master());
    let request = ProxyPingRequest {
        server_id: ServerId::new(2, 0),
        timeout_ns: 2_000_000_000,
    };
    waiting.send(1, &encoded(|bytes| request.encode(bytes)));
    let ping = encoded(|bytes| {
        let caller = ServerId::INVALID;
        rpc::PingRequest { caller }.encode(bytes);
    });
    let asked = Instant::now();
    assert_eq!(other.status(&ping), 0);
    assert!(asked.elapsed() < Duration::from_secs(2));
    let (_, answer) = waiting.receive();
    let reply_ns = ProxyPingResponse::decode(&answer).unwrap().reply_ns;
    assert_eq!(reply_ns, TIMED_OUT);
}

#[test]
fn kill_ends_a_process_only_where_it_is_allowed() {
    let kill = bare(Opcode::Kill, Service::Admin);
    let store = Store::start(1, &[]);
    assert_eq!(store.master().call(&kill), [8, 0, 0, 0]);
    assert_eq!(store.client().call(&kill), [8, 0, 0, 0]);
    for process in [&store.servers[0].process, &store.coordinator.process] {
        process.line(&["refused KILL", "--allowTestRpcs"]);
    }
    store.coordinator.wait_for_members(1);

    let mut coordinator = Coordinator::start(&["--allowTestRpcs"]);
    let mut server = Server::start(&coordinator, "m0", &["--allowTestRpcs"]);
    server.wait_ready();
    Rpc::connect(server.shards[0]).send(1, &kill);
    assert_eq!(server.process.wait().code(), Some(1));
    Rpc::connect(coordinator.client).send(1, &kill);
    assert_eq!(coordinator.process.wait().code(), Some(1));
}

fn perf_stats(master: &mut Rpc, table_id: u64) -> PerfStats {
    let request = ServerControlRequest {
        target: ControlTarget::Object,
        control_op: control_op::GET_PERF_STATS,
        table_id: TableId(table_id),
        index_id: 0,
        key: b"key",
        input: b"",
    };
    let answer = master.call(&encoded(|bytes| request.encode(bytes)));
    let response = ServerControlResponse::decode(&answer).unwrap();
    assert_eq!(response.status, Status::Ok);
    PerfStats::decode(response.output).unwrap()
}

#[test]
fn performance_counters_grow_with_what_is_done() {
    let store = Store::start(1, &[]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("t", 1).unwrap();
    let mut master = store.master();
    let before = perf_stats(&mut master, table.0);
    for _ in 0..100 {
        cluster.write(table, b"key", &[7; 1000]).unwrap();
        assert_eq!(cluster.read(table, b"key").unwrap().value.len(), 1000);
    }
    let after = perf_stats(&mut master, table.0);
    let grown = |field: fn(&PerfStats) -> u64| field(&after) - field(&before);
    assert_eq!(grown(|stats| stats.read_count), 100);
    assert_eq!(grown(|stats| stats.read_object_bytes), 100_000);
    assert_eq!(grown(|stats| stats.read_key_bytes), 300);
    assert_eq!(grown(|stats| stats.write_count), 100);
    assert_eq!(grown(|stats| stats.write_object_bytes), 100_000);
    assert!(grown(|stats| stats.log_bytes_appended) > 100_000);
    assert!(grown(|stats| stats.network_input_bytes) > 100_000);
    assert!(grown(|stats| stats.network_output_bytes) > 100_000);
    let busy = grown(|stats| stats.dispatch_active_cycles);
    let passed = grown(|stats| stats.collection_time);
    assert!(busy > 0 && busy <= passed, "busy for {busy} of {passed} ns");
}

#[test]
fn control_operations_reach_every_shard_of_every_server() {
    let store = Store::start(3, &["--cores", "2"]);
    let mut client = store.client();
    let mut outputs = |op: u32, input: &[u8]| {
        let request = ServerControlAllRequest {
            control_op: op,
            input,
        };
        let answer = client.call(&encoded(|bytes| request.encode(bytes)));
        let all = ServerControlAllResponse::decode(&answer).unwrap();
        assert_eq!(all.status, Status::Ok);
        assert_eq!((all.server_count, all.response_count), (6, 6));
        let mut rest = all.responses;
        let mut found = Vec::new();
        while !rest.is_empty() {
            let one = ServerControlResponse::decode(rest).unwrap();
            assert_eq!(one.status, Status::Ok);
            found.push((one.server_id, one.output.to_vec()));
            rest = &rest[ServerControlResponse::FIXED_BYTES + one.output.len()..];
        }
        found
    };
    let stats = outputs(control_op::GET_PERF_STATS, b"");
    let expected: Vec<_> = (1..=6).map(|index| ServerId::new(index, 0)).collect();
    let servers: Vec<_> = stats.iter().map(|(id, _)| *id).collect();
    assert_eq!(servers, expected);
    for (index, (_, output)) in stats.iter().enumerate() {
        let stats = PerfStats::decode(output).unwrap();
        assert_eq!(stats.thread_id as usize, index % 2);
        assert!(stats.log_size_bytes > 0);
    }
    let text = [&2u32.to_le_bytes()[..], b"the test was here"].concat();
    outputs(control_op::LOG_MESSAGE, &text);
    for server in &store.servers {
        server.process.line(&["the test was here"]);
    }
    let unknown = [62u8, 0, 2, 0, 0xe8, 3, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        store.client().status(&unknown),
        8,
        "1000, the dispatch profiler"
    );
}

fn message<M: Message + Default>(connection: &mut Rpc, request: &[u8]) -> M {
    let answer = connection.call(request);
    let response = MessageResponse::decode(&answer).unwrap();
    assert_eq!(response.status, Status::Ok);
    M::decode(response.message).unwrap()
}

#[test]
fn the_server_list_tells_who_is_there_and_who_is_away() {
    let store = Store::start(2, &[]);
    let list = |service_mask: u32| -> Vec<(u64, u32)> {
        let request = encoded(|bytes| GetServerListRequest { service_mask }.encode(bytes));
        let list: ServerList = message(&mut store.client(), &request);
        let entries = list.server.iter();
        entries
            .map(|entry| (entry.server_id, entry.status))
            .collect()
    };
    assert_eq!(list(3), [(1, 0), (2, 0)]);
    assert_eq!(list(2), [], "no backups");
    store.servers[1].process.stop();
    wait_for("the silence of a server", || {
        (list(1) == [(1, 0), (2, 1)]).then_some(())
    });
    store.servers[1].process.signal("CONT");
    wait_for("its return", || (list(1) == [(1, 0), (2, 0)]).then_some(()));

    let request = bare(Opcode::GetMetrics, Service::Admin);
    let coordinator: MetricList = message(&mut store.client(), &request);
    let master: MetricList = message(&mut store.master(), &request);
    for (list, name) in [
        (coordinator, "coordinator.members"),
        (master, "master.readCount"),
    ] {
        assert!(
            list.metric.iter().any(|metric| metric.name == name),
            "{name}"
        );
    }
}

/// A coordinator tells those who watch the status of a server that comes, and of one that dies.
#[tokio::test]
async fn the_coordinator_tells_of_changes() {
    let coordinator = Coordinator::start(&[]);
    let address = format!("http://{}", coordinator.admin);
    let mut client = admin::admin_client::AdminClient::connect(address)
        .await
        .unwrap();
    let request = admin::WatchClusterStatusRequest {};
    let changes = client.watch_cluster_status(request).await.unwrap();
    let mut changes = changes.into_inner();
    assert_eq!(changes.message().await.unwrap().unwrap().change, 1);
    let mut server = Server::start(&coordinator, "m0", &[]);
    let mut told = 1;
    for state in [admin::MemberState::Up, admin::MemberState::Unreachable] {
        let is_so = async {
            loop {
                let change = changes.message().await.unwrap().unwrap().change;
                let status = admin::GetClusterStatusRequest {};
                let status = client.get_cluster_status(status).await.unwrap();
                let members = status.into_inner().members;
                if change > told && members.iter().any(|member| member.state() == state) {
                    return change;
                }
            }
        };
        told = tokio::time::timeout(DEADLINE, is_so).await.unwrap();
        if state == admin::MemberState::Up {
            server.process.signal("KILL");
            server.process.wait();
        }
    }
}
