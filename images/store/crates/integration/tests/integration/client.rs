//! The client library against real processes: every call, waiting, pipelined and as a future.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common::{self, DEADLINE, Store};
use client::{
    AsyncCluster, Cluster, Error, Increment, IncrementObject, KeyObject, Options, RejectRules,
    ServerId, Status, TableId, WriteObject, control_op, ops,
};
use futures::executor::block_on;
use futures::future::join_all;

const NO_RULES: RejectRules = RejectRules {
    given_version: 0,
    doesnt_exist: false,
    exists: false,
    version_le_given: false,
    version_ne_given: false,
};
const HALF: u64 = 1 << 63;

fn connect(store: &Store) -> Cluster {
    Cluster::connect(&store.coordinator.locator).unwrap()
}

fn keys(count: u32) -> Vec<[u8; 4]> {
    (0..count).map(u32::to_be_bytes).collect()
}

fn objects(table: TableId, keys: &[[u8; 4]]) -> Vec<KeyObject<'_>> {
    let object = |key| KeyObject {
        table,
        key,
        rules: NO_RULES,
    };
    keys.iter().map(|key| object(&key[..])).collect()
}

#[test]
fn objects_one_at_a_time() {
    let store = Store::start(2, &[]);
    let mut cluster = connect(&store);
    let table = cluster.create_table("t", 2).unwrap();
    assert_eq!(cluster.table_id("t").unwrap(), table);

    let counted = cluster.increment(table, b"n", 5).unwrap();
    assert_eq!(counted.value, 5);
    assert_eq!(cluster.increment(table, b"n", -7).unwrap().value, -2);
    let only_new = RejectRules {
        exists: true,
        ..NO_RULES
    };
    let refused = cluster.increment_if(table, b"n", 1, &only_new).unwrap_err();
    assert_eq!(refused.status(), Some(Status::ObjectExists));
    assert_eq!(
        cluster.increment_f64(table, b"x", 0.25).unwrap().value,
        0.25
    );
    cluster.write(table, b"word", b"hello").unwrap();
    let refused = cluster.increment(table, b"word", 1).unwrap_err();
    assert_eq!(refused.status(), Some(Status::InvalidObject));

    let version = cluster
        .write_keys(table, &[b"primary", b"", b"third"], b"value", &NO_RULES)
        .unwrap();
    let object = cluster.read_keys_and_value(table, b"primary").unwrap();
    assert_eq!(object.version, version);
    assert_eq!(object.keys, [&b"primary"[..], b"", b"third"]);
    assert_eq!(object.value, b"value"[..]);
    assert_eq!(cluster.read(table, b"primary").unwrap().value, b"value"[..]);
    assert_eq!(cluster.remove(table, b"primary").unwrap(), version);
    assert!(cluster.read(table, b"primary").unwrap_err().is_absent());

    cluster.drop_table("t").unwrap();
    assert!(cluster.read(table, b"word").unwrap_err().is_absent());
}

#[test]
fn many_objects_at_a_time_over_several_servers() {
    let store = Store::start(3, &[]);
    let mut cluster = connect(&store);
    let table = cluster.create_table("t", 3).unwrap();
    let keys = keys(500);
    let writes: Vec<_> = keys
        .iter()
        .map(|key| WriteObject {
            table,
            key,
            value: &key[2..],
            rules: NO_RULES,
        })
        .collect();
    let versions = cluster.multi_write(&writes).unwrap();
    assert!(versions.iter().all(Result::is_ok));

    // One that is not there, and one in a table that is not there, beside the others.
    let mut wanted = objects(table, &keys);
    wanted[7].key = b"ghost";
    wanted[8].table = TableId(table.0 + 1000);
    let read = cluster.multi_read(&wanted).unwrap();
    assert!(read[7].as_ref().unwrap_err().is_absent());
    let no_table = read[8].as_ref().unwrap_err().status();
    assert_eq!(no_table, Some(Status::TableDoesntExist));
    for at in (0..keys.len()).filter(|at| ![7, 8].contains(at)) {
        let object = read[at].as_ref().unwrap();
        assert_eq!(object.value, keys[at][2..]);
        assert_eq!(object.version, *versions[at].as_ref().unwrap());
    }
    let whole = cluster.multi_read_keys(&wanted[..3]).unwrap();
    assert_eq!(whole[2].as_ref().unwrap().key(), keys[2]);

    let by = Increment {
        int64: 3,
        double: 0.0,
    };
    let counters: Vec<_> = (0..40_u8).map(|number| [b'c', number]).collect::<Vec<_>>();
    let increments: Vec<_> = counters
        .iter()
        .map(|key| IncrementObject {
            table,
            key,
            by,
            rules: NO_RULES,
        })
        .collect();
    for expected in [3_i64, 6] {
        for one in cluster.multi_increment(&increments).unwrap() {
            assert_eq!(one.unwrap().value, expected.to_le_bytes());
        }
    }
    let removed = cluster.multi_remove(&objects(table, &keys)).unwrap();
    for (removed, written) in removed.into_iter().zip(versions) {
        assert_eq!(removed.unwrap(), written.unwrap());
    }
    let left: Vec<_> = cluster
        .scan(table)
        .keys_only()
        .map(Result::unwrap)
        .collect();
    assert_eq!(left.len(), counters.len());
}

#[test]
fn a_scan_gives_every_object_while_tablets_are_split() {
    let store = Store::start(2, &[]);
    let (mut cluster, mut other) = (connect(&store), connect(&store));
    let table = cluster.create_table("t", 2).unwrap();
    let empty = cluster.create_table("empty", 2).unwrap();
    let keys = keys(3000);
    let value = [7; 300];
    for chunk in keys.chunks(500) {
        let writes: Vec<_> = chunk
            .iter()
            .map(|key| WriteObject {
                table,
                key,
                value: &value,
                rules: NO_RULES,
            })
            .collect();
        assert!(
            cluster
                .multi_write(&writes)
                .unwrap()
                .iter()
                .all(Result::is_ok)
        );
    }
    let mut seen: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for (number, object) in cluster.scan(table).enumerate() {
        let object = object.unwrap();
        assert_eq!(object.value, value);
        *seen.entry(object.key().to_vec()).or_default() += 1;
        if number % 300 == 0 {
            other
                .split_tablet("t", HALF / 16 * (number as u64 / 300 + 1))
                .unwrap();
        }
    }
    assert_eq!(seen.len(), keys.len());
    assert!(cluster.table_config(table).unwrap().len() > 10);
    assert_eq!(cluster.scan(empty).count(), 0);
    let missing = cluster
        .scan(TableId(empty.0 + 9))
        .next()
        .unwrap()
        .unwrap_err();
    assert_eq!(missing.status(), Some(Status::TableDoesntExist));
    assert_eq!(
        other.split_tablet("nothing", 5).unwrap_err().status(),
        Some(Status::TableDoesntExist)
    );
}

#[test]
fn operations_can_be_pipelined() {
    let store = Store::start(2, &[]);
    let mut cluster = connect(&store);
    let table = cluster.create_table("t", 2).unwrap();
    let keys = keys(1000);
    let writes: Vec<_> = keys
        .iter()
        .map(|key| {
            cluster.submit(ops::Write {
                table,
                key,
                value: key,
                rules: NO_RULES,
            })
        })
        .collect::<Result<_, _>>()
        .unwrap();
    let reads: Vec<_> = keys
        .iter()
        .map(|key| {
            cluster.submit(ops::Read {
                table,
                key,
                rules: NO_RULES,
            })
        })
        .collect::<Result<_, _>>()
        .unwrap();
    // Out of order, and one is not waited for at all.
    let mut reads: Vec<_> = reads.into_iter().rev().collect();
    cluster.cancel(reads.pop().unwrap());
    for (write, key) in writes.into_iter().zip(&keys) {
        assert!(cluster.wait(write).unwrap() > 0, "{key:?}");
    }
    // Operations on one key may overtake each other: a read was sent before its write was answered.
    for read in reads {
        match cluster.wait(read) {
            Ok(object) => assert_eq!(object.value.len(), 4),
            Err(error) => assert!(error.is_absent(), "{error}"),
        }
    }
    let ticket = cluster
        .submit(ops::Read {
            table,
            key: keys[0],
            rules: NO_RULES,
        })
        .unwrap();
    let start = Instant::now();
    while !cluster.is_ready(&ticket).unwrap() {
        assert!(start.elapsed() < DEADLINE);
    }
    assert_eq!(cluster.wait(ticket).unwrap().value, keys[0][..]);

    // As many as may be under way.
    let mut tickets = Vec::new();
    let refused = loop {
        let operation = ops::Read {
            table,
            key: keys[1],
            rules: NO_RULES,
        };
        match cluster.submit(operation) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
        assert!(tickets.len() < 100_000);
    };
    assert!(matches!(refused, Error::TooManyOperations), "{refused}");
    let results = tickets.into_iter().map(|ticket| cluster.wait(ticket));
    let failed = results.filter(|result| !matches!(result, Ok(_) | Err(Error::TooManyOperations)));
    assert_eq!(failed.count(), 0);
}

#[test]
fn operations_can_be_futures() {
    let store = Store::start(2, &[]);
    let cluster = AsyncCluster::connect(&store.coordinator.locator).unwrap();
    block_on(async {
        let table = cluster.create_table("t", 2).await.unwrap();
        let keys = keys(500);
        let writes = keys.iter().map(|key| cluster.write(table, key, key));
        let versions = join_all(writes).await;
        assert!(versions.iter().all(Result::is_ok));
        let reads = join_all(keys.iter().map(|key| cluster.read(table, key))).await;
        for (object, key) in reads.into_iter().zip(&keys) {
            assert_eq!(object.unwrap().value, key[..]);
        }
        // Nobody waits for this one.
        drop(cluster.start(ops::Read {
            table,
            key: keys[0].to_vec(),
            rules: NO_RULES,
        }));

        assert_eq!(cluster.increment(table, b"n", 2).await.unwrap().value, 2);
        assert_eq!(
            cluster.increment_f64(table, b"x", 0.5).await.unwrap().value,
            0.5
        );
        let some = objects(table, &keys[..50]);
        assert_eq!(cluster.multi_read(&some).await.unwrap().len(), 50);
        assert_eq!(cluster.multi_remove(&some).await.unwrap().len(), 50);
        let mut position = Some(ops::Position::default());
        let mut count = 0;
        while let Some(at) = position {
            let page = cluster.scan_page(table, true, at).await.unwrap();
            count += page.objects.len();
            position = page.next;
        }
        assert_eq!(count, 450 + 2);
        let missing = cluster.read(table, b"nothing").await.unwrap_err();
        assert!(missing.is_absent());
        assert_eq!(cluster.server_list().await.unwrap().len(), 2);
    });

    // From several threads; the work goes on while handles come and go.
    let table = block_on(cluster.table_id("t")).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|number: u8| {
            let cluster = cluster.clone();
            std::thread::spawn(move || {
                for _ in 0..50 {
                    block_on(cluster.increment(table, &[number], 1)).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(
        block_on(cluster.increment(table, &[3], 0)).unwrap().value,
        50
    );
}

#[test]
fn futures_that_are_dropped_make_room_for_others() {
    let store = Store::start(1, &[]);
    let cluster = AsyncCluster::connect(&store.coordinator.locator).unwrap();
    let table = block_on(cluster.create_table("t", 1)).unwrap();
    store.servers[0].process.stop();
    // Together more than may be under way.
    for _ in 0..3 {
        let reads: Vec<_> = (0..2000_u32)
            .map(|number| {
                let (key, rules) = (number.to_le_bytes(), NO_RULES);
                cluster.start(ops::Read { table, key, rules })
            })
            .collect();
        // It was started after them, so that they are under way once it is answered.
        assert_eq!(block_on(cluster.table_id("t")).unwrap(), table);
        drop(reads);
    }
}

#[test]
fn the_last_handle_ends_what_is_under_way() {
    let store = Store::start(1, &[]);
    let cluster = AsyncCluster::connect(&store.coordinator.locator).unwrap();
    let table = block_on(cluster.create_table("t", 1)).unwrap();
    store.servers[0].process.stop();
    let pending = cluster.start(ops::Read {
        table,
        key: b"k".to_vec(),
        rules: NO_RULES,
    });
    drop(cluster);
    let error = block_on(pending).unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
}

#[test]
fn a_timeout_says_what_was_met_last() {
    let store = Store::start(1, &[]);
    let options = Options {
        timeout: Duration::from_millis(300),
        ..Options::default()
    };
    let locator = &store.coordinator.locator;
    let mut cluster = Cluster::with_options(locator, options).unwrap();
    let futures = AsyncCluster::with_options(locator, options).unwrap();
    let table = cluster.create_table("t", 1).unwrap();
    cluster.write(table, b"k", b"v").unwrap();
    block_on(futures.read(table, b"k")).unwrap();
    store.servers[0].process.stop();
    let ticket = cluster
        .submit(ops::Read {
            table,
            key: b"k",
            rules: NO_RULES,
        })
        .unwrap();
    for error in [
        cluster.read(table, b"k").unwrap_err(),
        cluster.wait(ticket).unwrap_err(),
        block_on(futures.read(table, b"k")).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(
            error.to_string().contains("no answer within 300ms"),
            "{error}"
        );
    }
    store.servers[0].process.signal("CONT");
    common::wait_for("an answer", || cluster.read(table, b"k").ok());
}

#[test]
fn the_store_and_its_servers_answer_questions() {
    let store = Store::start(2, &[]);
    let mut cluster = connect(&store);
    let table = cluster.create_table("t", 1).unwrap();
    cluster.write(table, b"k", b"v").unwrap();
    let servers = cluster.server_list().unwrap();
    assert_eq!(servers.len(), 2);
    assert!(servers.iter().all(|server| server.status == 0));
    let (one, other) = (&servers[0], &servers[1]);
    cluster.ping(&one.locator).unwrap();
    assert_eq!(cluster.server_id(&one.locator).unwrap(), one.id);
    let took = cluster.proxy_ping(&one.locator, other.id, Duration::from_secs(5));
    assert!(took.unwrap().unwrap() < Duration::from_secs(5));
    let nobody = cluster.proxy_ping(
        &one.locator,
        ServerId::new(99, 0),
        Duration::from_millis(50),
    );
    assert_eq!(nobody.unwrap(), None);
    assert_eq!(
        cluster.echo(&one.locator, b"there", 1000).unwrap().len(),
        1000
    );
    let config = cluster.server_config(&one.locator).unwrap();
    assert_eq!(config.max_object_data_size, 1 << 20);
    let metrics = cluster.metrics(&one.locator).unwrap();
    assert!(metrics.iter().any(|(name, _)| name == "master.writeCount"));
    assert!(cluster.log_metrics(&one.locator).unwrap().ticks_per_second > 0.0);
    let owner = cluster.table_config(table).unwrap()[0].server_id;
    let owner = servers
        .iter()
        .find(|server| Some(server.id) == owner)
        .unwrap();
    let statistics = cluster.server_statistics(&owner.locator).unwrap();
    assert_eq!(statistics.tabletentry.len(), 1);

    let before = cluster.perf_stats(table, b"k").unwrap();
    for _ in 0..10 {
        cluster.read(table, b"k").unwrap();
    }
    let after = cluster.perf_stats(table, b"k").unwrap();
    assert_eq!(after.read_count - before.read_count, 10);
    assert_eq!(cluster.perf_stats_all().unwrap().len(), 2);
    let trace = cluster
        .server_control(table, b"k", control_op::GET_TIME_TRACE, &[])
        .unwrap();
    let trace = String::from_utf8(trace.output).unwrap();
    assert!(trace.contains(" ns): request READ, key "), "{trace}");
    assert_eq!(
        cluster
            .control_all(control_op::LOG_TIME_TRACE, &[])
            .unwrap()
            .len(),
        2
    );

    let lease = cluster.acquire_lease().unwrap();
    assert_eq!(cluster.lease_info(lease.id).unwrap().id, lease.id);
    assert_eq!(cluster.lease_info(lease.id + 99).unwrap().id, 0);
    cluster.hint_server_crashed(one.id).unwrap();
    let option = cluster.runtime_option("nothing").unwrap_err();
    assert_eq!(option.status(), Some(Status::ObjectDoesntExist));
    let refused = cluster.kill(&one.locator).unwrap_err();
    assert_eq!(refused.status(), Some(Status::UnimplementedRequest));
    let nowhere = cluster.ping("tcp:host=127.0.0.1,port=1").unwrap_err();
    assert!(matches!(nowhere, Error::Unreachable(Some(_))), "{nowhere}");
    let nonsense = cluster.ping("nonsense").unwrap_err();
    assert!(nonsense.to_string().contains("locator"), "{nonsense}");
}

#[test]
fn operations_go_on_when_a_server_comes_back() {
    let mut store = Store::start(1, &["--allowTestRpcs"]);
    let mut cluster = connect(&store);
    let table = cluster.create_table("t", 1).unwrap();
    cluster.fill_with_test_data(table, 100, 50).unwrap();
    assert_eq!(cluster.scan(table).count(), 100);
    let locator = cluster.server_list().unwrap()[0].locator.clone();
    cluster.kill(&locator).unwrap();
    store.servers[0].process.wait();
    store.servers.clear();
    let server = common::Server::start(&store.coordinator, "m0", &[]);
    server.wait_ready();
    // Empty, as this version promises; and the same client goes on.
    let scanned = common::wait_for("the table at its new server", || {
        cluster.scan(table).collect::<Result<Vec<_>, _>>().ok()
    });
    assert_eq!(scanned, []);
    assert!(cluster.write(table, b"k", b"v").unwrap() > 0);
}
