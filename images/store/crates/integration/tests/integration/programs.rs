//! The programs as their users meet them: output, exit codes. What they say of wrong command lines, each tests by itself.

use crate::common::{self, Server, Store, rcbox};
use serde_json::Value;
use test_store::command_line;

#[test]
fn objects_can_be_written_read_and_removed() {
    let store = Store::start(1, &[]);
    let call = |arguments: &[&str], input: &[u8]| {
        let output = rcbox(&store.coordinator.locator, arguments, input);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            output.stdout.clone(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, _, _, error) = call(&["get", "fruit", "apple"], b"");
    assert_eq!(code, Some(1));
    assert!(error.contains("rcbox create-table fruit"), "{error}");
    assert_eq!(call(&["create-table", "fruit"], b"").2, "0x1\n");
    assert_eq!(call(&["put", "fruit", "apple", "green"], b"").2, "1\n");
    assert_eq!(call(&["get", "fruit", "apple"], b"").1, b"green");
    assert_eq!(
        call(&["get", "fruit", "--hex", "6170706c65"], b"").1,
        b"green"
    );
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(call(&["put", "fruit", "photo"], &bytes).0, Some(0));
    assert_eq!(call(&["get", "fruit", "photo"], b"").1, bytes);
    let photo: Value =
        serde_json::from_str(&call(&["--json", "get", "fruit", "photo"], b"").2).unwrap();
    assert!(photo["valueHex"].as_str().unwrap().starts_with("000102"));

    let (code, _, _, error) = call(&["put", "fruit", "apple", "red", "--if-absent"], b"");
    assert_eq!(code, Some(1));
    assert!(
        error.contains("OBJECT_EXISTS") && error.contains("version is 1"),
        "{error}"
    );
    assert_eq!(
        call(&["put", "fruit", "apple", "red", "--if-version", "1"], b"").2,
        "2\n"
    );
    let apple: Value =
        serde_json::from_str(&call(&["--json", "get", "fruit", "apple"], b"").2).unwrap();
    assert_eq!(
        (&apple["version"], &apple["value"]),
        (&2.into(), &"red".into())
    );
    assert_eq!(call(&["rm", "fruit", "apple"], b"").2, "2\n");
    let (code, _, _, error) = call(&["rm", "fruit", "apple"], b"");
    assert_eq!(code, Some(1));
    assert!(error.contains("no object"), "{error}");

    let tables = call(&["tables"], b"").2;
    assert!(
        tables.contains("fruit") && tables.contains("NORMAL") && tables.contains("m0"),
        "{tables}"
    );
    assert_eq!(call(&["drop-table", "fruit"], b"").0, Some(0));
    assert!(call(&["tables"], b"").2.contains("no tables"));
    let status = call(&["status"], b"").2;
    assert!(
        status.contains("UNREPLICATED") && status.contains("m0"),
        "{status}"
    );
}

fn clusterperf(store: &Store, arguments: &[&str]) -> (String, String) {
    let usual = ["-C", &store.coordinator.locator, "--seconds", "0.05"];
    let program = common::program("clusterperf");
    let ended = command_line::run(&program, &[&usual, arguments, &["basic"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    (ended.out, ended.error)
}

#[test]
fn clusterperf_measures_every_size() {
    let store = Store::start(1, &[]);
    let (out, _) = clusterperf(&store, &["--fillMB", "5"]);
    for size in ["100", "1K", "10K", "100K", "1M"] {
        for operation in ["read", "readBw", "write", "writeBw"] {
            let start = format!("basic.{operation}{size} ");
            assert!(
                out.lines().any(|line| line.starts_with(&start)),
                "{start} is not in\n{out}"
            );
        }
    }
    store.servers[0]
        .process
        .line(&["Starting basic test for 100-byte objects"]);
    let (out, _) = clusterperf(&store, &["--fillMB", "1", "--size", "100", "--json"]);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["tests"][0]["results"][0]["name"], "basic.read100");
    assert!(value["tests"][0]["results"][1]["samples"].as_u64().unwrap() > 0);
}

#[test]
fn clusterperf_measures_a_store_that_is_too_small_with_less() {
    let store = Store::start(1, &["-t", "32"]);
    let (out, notes) = clusterperf(&store, &["--size", "100000"]);
    assert!(
        notes.contains("NOTE: the store is full"),
        "32 MiB do not hold 200 MB: {notes}"
    );
    assert!(out.contains("basic.write100K "), "{out}");
}

#[test]
fn memory_is_committed_while_a_server_starts_unless_it_shall_not_be() {
    const MEMORY_BYTES: u64 = 192 << 20;
    let coordinator = common::Coordinator::start(&[]);
    let lazy = Server::start(
        &coordinator,
        "lazy",
        &["-t", "192", "--commitAhead", "false"],
    );
    let eager = Server::start(&coordinator, "eager", &["-t", "192"]);
    eager.process.line(&["memory is committed"]);
    lazy.wait_ready();
    // But for the ends that fill no huge page.
    assert!(eager.process.resident_bytes() > MEMORY_BYTES - (16 << 20));
    assert!(lazy.process.resident_bytes() < MEMORY_BYTES / 2);
}
