//! Processes that die, stop and come back.

use std::time::Duration;

use crate::common::{Coordinator, DEADLINE, Server, Store, http_get, rcbox, wait_for};
use client::{Cluster, Error, Options, Status};

#[test]
fn sigterm_and_sigint_end_every_server_program_with_success() {
    for signal in ["TERM", "INT"] {
        let mut store = Store::start(1, &["--cores", "2"]);
        for process in [
            &mut store.servers[0].process,
            &mut store.coordinator.process,
        ] {
            process.signal(signal);
            assert_eq!(process.wait().code(), Some(0), "SIG{signal}");
        }
    }
}

#[test]
fn a_killed_server_comes_back_empty_and_the_loss_is_reported() {
    let mut store = Store::start(1, &[]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("fruit", 1).unwrap();
    let before = cluster.write(table, b"apple", b"green").unwrap();

    let mut killed = store.servers.remove(0);
    killed.process.signal("KILL");
    assert!(!killed.process.wait().success());
    wait_for("the member to be unreachable", || {
        (store.coordinator.status()["members"][0]["state"] == "UNREACHABLE").then_some(())
    });
    assert_eq!(
        store.coordinator.status()["losses"]
            .as_array()
            .unwrap()
            .len(),
        0,
        "it might still come back"
    );

    let again = Server::start(&store.coordinator, "m0", &[]);
    again.wait_ready();
    let status = store.coordinator.status();
    assert_eq!(status["members"][0]["incarnations"], 2);
    assert_eq!(status["members"][0]["shards"][0]["serverId"], "1.1");
    let loss = &status["losses"][0];
    assert_eq!(
        (&loss["member"], &loss["tables"][0]),
        (&"m0".into(), &"fruit".into())
    );
    assert_eq!(
        (&loss["serverIds"][0], &loss["tabletCount"]),
        (&"1.0".into(), &1.into())
    );
    let shown =
        String::from_utf8(rcbox(&store.coordinator.locator, &["status"], b"").stdout).unwrap();
    assert!(shown.contains("of tables fruit"), "{shown}");

    // The same client goes on: it finds the new process by itself.
    assert!(cluster.read(table, b"apple").unwrap_err().is_absent());
    let after = cluster.write(table, b"apple", b"red").unwrap();
    assert!(
        after > before,
        "versions do not go back, even across a loss: {after} after {before}"
    );
}

#[test]
fn a_server_that_was_only_stopped_loses_nothing() {
    let store = Store::start(1, &[]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("fruit", 1).unwrap();
    cluster.write(table, b"apple", b"green").unwrap();
    store.servers[0].process.stop();
    wait_for("the member to be unreachable", || {
        (store.coordinator.status()["members"][0]["state"] == "UNREACHABLE").then_some(())
    });
    store.servers[0].process.signal("CONT");
    store.coordinator.wait_for_members(1);
    assert_eq!(cluster.read(table, b"apple").unwrap().value, b"green"[..]);
    let status = store.coordinator.status();
    assert_eq!(status["losses"].as_array().unwrap().len(), 0);
    assert_eq!(status["members"][0]["incarnations"], 1);
}

#[test]
fn a_new_coordinator_is_a_new_store_and_members_enlist_again() {
    let mut store = Store::start(2, &[]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("fruit", 1).unwrap();
    cluster.write(table, b"apple", b"green").unwrap();
    let before = store.coordinator.status();

    store.coordinator.process.signal("KILL");
    store.coordinator.process.wait();
    let again = store.coordinator.start_again();
    let after = again.wait_for_members(2);
    assert_ne!(before["clusterId"], after["clusterId"]);
    assert_ne!(before["clusterTag"], after["clusterTag"]);
    assert_eq!(after["tableCount"], 0);
    for server in &store.servers {
        server.wait_ready();
    }

    // A client of the old store is told that its table is gone; it never meets another store's table of the same number.
    let error = cluster.read(table, b"apple").unwrap_err();
    assert_eq!(error.status(), Some(Status::TableDoesntExist), "{error}");
    let new = cluster.create_table("fruit", 1).unwrap();
    assert_ne!(new, table);
    assert!(cluster.read(new, b"apple").unwrap_err().is_absent());
}

#[test]
fn a_client_waits_for_a_store_and_gives_up_with_advice() {
    let coordinator = Coordinator::start(&[]);
    let options = Options {
        timeout: Duration::from_millis(300),
        ..Options::default()
    };
    let mut cluster = Cluster::with_options(&coordinator.locator, options).unwrap();
    let error = cluster.create_table("t", 1).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("are servers up?"), "{error}");

    let mut nobody = Cluster::with_options("tcp:host=127.0.0.1,port=1", options).unwrap();
    let error = nobody.create_table("t", 1).unwrap_err();
    assert!(error.to_string().contains("cannot connect"), "{error}");

    // A server arrives while the client waits.
    let options = Options {
        timeout: DEADLINE,
        ..Options::default()
    };
    let mut patient = Cluster::with_options(&coordinator.locator, options).unwrap();
    let waiting = std::thread::spawn(move || patient.create_table("t", 1));
    let _server = Server::start(&coordinator, "m0", &[]);
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_second_process_of_a_member_waits_for_the_end_of_the_first_which_never_comes_back() {
    let store = Store::start(1, &["--instance", "one"]);
    let first = &store.servers[0];
    let second = Server::start(&store.coordinator, "m0", &["--instance", "two"]);
    wait_for("the second process to say why it is not ready", || {
        let (status, text) = http_get(second.http, "/readyz");
        (status == 503 && text.contains("refused")).then_some(())
    });
    assert_eq!(http_get(first.http, "/readyz").0, 200, "the first goes on");

    // Silent, the first counts as gone; awake again, it finds its place taken.
    first.process.stop();
    second.wait_ready();
    assert_eq!(
        store.coordinator.wait_for_members(1)["members"][0]["instance"],
        "two"
    );
    first.process.signal("CONT");
    wait_for("the first process to say that it was refused", || {
        let (status, text) = http_get(first.http, "/readyz");
        (status == 503 && text.contains("refused")).then_some(())
    });
}
