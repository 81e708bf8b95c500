//! Tablets that a coordinator cuts to move them, between real processes.

use serde_json::Value;

use crate::common::frames::FRAMES;
use crate::common::{Coordinator, DEADLINE, Server, http_get, wait_for};

/// As much as 64 MB of memory are uneven by, and as takes seconds to move at 1 MB in a second.
const OBJECTS: u32 = 800;
const OBJECT_BYTES: usize = 10_000;

fn tablets(coordinator: &Coordinator) -> Vec<Value> {
    let tables = coordinator.tables();
    tables[0]["tablets"].as_array().expect("a list").clone()
}

/// A number that the coordinator shows.
fn metric(coordinator: &Coordinator, name: &str) -> u64 {
    let (_, text) = http_get(coordinator.http, "/metrics");
    let start = format!("rcbox_{name} ");
    let line = text.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// A tablet is cut, and the server that is to get a part of it is killed on the way: both parts become one again, with all that is in them, and stay one
/// when another coordinator goes on.
#[test]
fn a_tablet_that_was_cut_to_be_moved_becomes_one_again_when_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let state = format!("file:{}", folder.path().join("state").display());
    let options = ["--state", &state, "--rebalanceMBps", "1"];
    let mut coordinator = Coordinator::start(&options);
    let start = |coordinator: &Coordinator, name: &str| {
        let file = folder.path().join(name);
        let (file, frames) = (file.to_str().unwrap(), FRAMES.to_string());
        let own = ["--hostId", name, "-f", file, "--segmentFrames", &frames];
        let server = Server::start(coordinator, name, &own);
        server.wait_ready();
        server
    };
    let _first = start(&coordinator, "m0");
    let options_of_client = client::Options {
        timeout: DEADLINE,
        ..client::Options::default()
    };
    let mut cluster =
        client::Cluster::with_options(&coordinator.locator, options_of_client).unwrap();
    let table = cluster.create_table("fruit", 1).unwrap();
    for number in 0..OBJECTS {
        let value = vec![number as u8; OBJECT_BYTES];
        cluster.write(table, &number.to_le_bytes(), &value).unwrap();
    }
    assert_eq!(tablets(&coordinator).len(), 1);

    let mut second = start(&coordinator, "m1");
    wait_for("a part of the tablet on its way", || {
        let status = coordinator.status();
        let migrations = status["migrations"].as_array().unwrap();
        let is_under_way = |one: &Value| one["endedNs"] == 0 && one["targetMember"] == "m1";
        migrations.iter().any(is_under_way).then_some(())
    });
    assert_eq!(tablets(&coordinator).len(), 2);
    second.process.signal("KILL");
    second.process.wait();
    wait_for("one tablet of both parts", || {
        (tablets(&coordinator).len() == 1).then_some(())
    });
    assert_eq!(metric(&coordinator, "balance_merges_total"), 1);
    let status = coordinator.status();
    assert_eq!(status["balance"]["merges"], 1);
    assert_eq!(tablets(&coordinator)[0]["member"], "m0");

    coordinator.process.signal("KILL");
    coordinator.process.wait();
    coordinator = coordinator.start_again_with(&options);
    wait_for("the first server to say what it has", || {
        (tablets(&coordinator)[0]["objects"] == OBJECTS).then_some(())
    });
    assert_eq!(tablets(&coordinator).len(), 1);
    for number in 0..OBJECTS {
        let value = cluster.read(table, &number.to_le_bytes()).unwrap().value;
        assert_eq!(value, vec![number as u8; OBJECT_BYTES], "object {number}");
    }
}
