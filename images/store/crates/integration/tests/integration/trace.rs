//! Time traces of real processes: read out in every way there is, and broken down. Never how fast anything was.

use std::process::Command;

use crate::common::{Coordinator, Server, Store, program, rcbox};
use client::{control_op, trace::Trace};
use serde_json::Value;

fn clusterperf(store: &Store, arguments: &str) -> std::process::Output {
    Command::new(program("clusterperf"))
        .args(["-C", &store.coordinator.locator])
        .args(arguments.split(' '))
        .env_clear()
        .output()
        .unwrap()
}

fn traced(store: &Store, arguments: &[&str]) -> Value {
    let arguments = [&["trace", "--json"], arguments].concat();
    let output = rcbox(&store.coordinator.locator, &arguments, b"");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The events of a shard, as the names of one line each.
fn names(shard: &Value) -> Vec<&str> {
    let events = shard["events"].as_array().unwrap().iter();
    events
        .map(|event| event["name"].as_str().unwrap())
        .collect()
}

#[test]
fn rcbox_trace_shows_what_a_request_was() {
    let store = Store::start(1, &[]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("t", 1).unwrap();
    cluster.write(table, b"k", b"v").unwrap();
    cluster.read(table, b"k").unwrap();
    let all = traced(&store, &[]);
    assert_eq!(all["asked"], 1);
    let shard = &all["shards"][0];
    let events = shard["events"].as_array().unwrap();
    let is_read = |event: &Value| {
        let description = event["description"].as_str().unwrap();
        description.starts_with("request READ, key ")
    };
    let at = events.iter().position(is_read).expect("the read");
    // From the bytes to the answer, one behind the other, in one thread.
    assert_eq!(
        names(shard)[at - 2..at + 4],
        [
            "Received", "FrameIn", "Request", "LookedUp", "FrameOut", "Flushed"
        ]
    );
    let key = &events[at]["argument"];
    assert_eq!(
        (&events[at - 1]["argument"], &events[at + 2]["argument"]),
        (key, key)
    );
    let times: Vec<u64> = events
        .iter()
        .map(|event| event["timeNs"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted());

    let member = shard["member"].as_str().unwrap();
    let last = traced(&store, &[member, "--last", "3"]);
    assert_eq!(last["shards"][0]["events"].as_array().unwrap().len(), 3);
    let text = rcbox(&store.coordinator.locator, &["trace", member], b"");
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("request WRITE, key "), "{text}");
    let nobody = rcbox(&store.coordinator.locator, &["trace", "nobody"], b"");
    assert_eq!(nobody.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&nobody.stderr).contains("no member"),
        "{nobody:?}"
    );
}

#[test]
fn a_server_that_records_nothing_says_so() {
    let store = Store::start(1, &["--timeTrace", "off"]);
    let all = traced(&store, &[]);
    let refusal = all["shards"][0]["refusal"].as_str().unwrap();
    assert!(refusal.contains("--timeTrace off"), "{all}");
    let output = clusterperf(&store, "--count 10 --breakdown readDist");
    assert!(!output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("--timeTrace off"),
        "{output:?}"
    );
}

#[test]
fn control_operations_give_ramclouds_lines_and_whole_traces() {
    let store = Store::start(1, &[]);
    let mut cluster = store.cluster();
    let table = cluster.create_table("t", 1).unwrap();
    cluster.write(table, b"k", b"v").unwrap();
    let mut get = |input: &[u8]| {
        let op = control_op::GET_TIME_TRACE;
        cluster
            .server_control(table, b"k", op, input)
            .unwrap()
            .output
    };
    let text = String::from_utf8(get(b"last=20")).unwrap();
    assert_eq!(text.lines().count(), 20, "{text}");
    assert!(text.lines().all(|line| line.contains(" ns (+")), "{text}");
    let trace = Trace::from_bytes(&get(b"format=raw")).unwrap();
    let count = trace.events.len();
    assert!(count > 20 && trace.events.is_sorted_by_key(|event| event.ticks));
    cluster
        .control_all(control_op::LOG_TIME_TRACE, &[])
        .unwrap();
    let server: &Server = &store.servers[0];
    server.process.line(&[" ns (+", "request WRITE, key "]);
}

/// Averages sum up, since each operation's segments do.
fn check(test: &Value, count: u64) -> Vec<&str> {
    let result = &test["results"][0];
    let breakdown = &result["breakdown"];
    let found = breakdown["operations"].as_u64().unwrap();
    let left_out = breakdown["left_out"].as_u64().unwrap();
    assert_eq!(found + left_out, count, "{breakdown}");
    assert!(found > count / 2, "{breakdown}");
    let segments = breakdown["segments"].as_array().unwrap();
    let average = |segment: &Value| segment["average_us"].as_f64().unwrap();
    let sum: f64 = segments.iter().map(average).sum();
    let whole = average(&breakdown["whole"]);
    // Each is rounded to a tenth of a nanosecond.
    assert!((sum - whole).abs() < 0.001, "{breakdown}");
    for segment in segments {
        let order = ["best_us", "median_us", "p90_us", "p99_us"];
        let times = order.map(|name| segment[name].as_f64().unwrap());
        assert!(times[0] >= 0.0 && times.is_sorted(), "{segment}");
    }
    segments
        .iter()
        .map(|segment| segment["name"].as_str().unwrap())
        .collect()
}

/// Three servers, each on a host of its own as far as they know: each object has a copy at both others.
fn replicated() -> Store {
    let coordinator = Coordinator::start(&["--clusterTag", "0"]);
    let hosts = ["h0", "h1", "h2"];
    let start = |host| Server::start(&coordinator, host, &["-r", "2", "--hostId", host]);
    let servers: Vec<Server> = hosts.into_iter().map(start).collect();
    servers.iter().for_each(Server::wait_ready);
    Store {
        coordinator,
        servers,
    }
}

#[test]
fn clusterperf_breaks_operations_down() {
    let store = replicated();
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("where.svg");
    // More than are read in one go.
    let common = "--count 1200 --numObjects 300 --json";
    let arguments = format!("{common} --plot {} --breakdown readDist", plot.display());
    let document = |arguments: &str| -> Value {
        let output = clusterperf(&store, arguments);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let reads = document(&arguments);
    let way = ["client out", "wire out", "server", "wire in", "client in"];
    assert_eq!(check(&reads["tests"][0], 1200), way);
    let plot = std::fs::read_to_string(plot).unwrap();
    assert!(way.iter().all(|name| plot.contains(name)), "{plot}");

    let writes = document(&format!("{common} --breakdown=server writeDistRandom"));
    let steps = check(&writes["tests"][0], 1200);
    for step in [
        "handed over",
        "appended",
        "held",
        "backups answered",
        "released",
        "given to driver",
    ] {
        assert!(steps.contains(&step), "{step} is not in {steps:?}");
    }
    let basic = "--seconds 0.1 --fillMB 1 --size 100 --json --breakdown basic";
    let basic = document(basic);
    let results = basic["tests"][0]["results"].as_array().unwrap();
    assert!(
        results
            .iter()
            .all(|result| result["breakdown"]["operations"].as_u64() > Some(0))
    );

    let wrong = clusterperf(&store, "--breakdown echo_basic");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("--breakdown is for basic"),
        "{wrong:?}"
    );
}
