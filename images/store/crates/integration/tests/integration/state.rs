//! A coordinator that keeps its state in a directory: killed and started again, nothing is forgotten.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{self, Coordinator, Process, Server, http_get, wait_for};
use client::Status;

struct Store {
    /// Removed at the end.
    root: tempfile::TempDir,
    coordinator: Coordinator,
    servers: Vec<Server>,
}

fn option(path: &Path) -> String {
    format!("file:{}", path.display())
}

impl Store {
    fn start(servers: usize) -> Store {
        let root = tempfile::tempdir().unwrap();
        let state = option(&root.path().join("state"));
        let coordinator = Coordinator::start(&["--state", &state]);
        let mut store = Store {
            root,
            coordinator,
            servers: Vec::new(),
        };
        for number in 0..servers {
            store.start_server(number);
        }
        store
    }

    fn start_server(&mut self, number: usize) {
        let server = Server::start(&self.coordinator, &format!("m{number}"), &[]);
        server.wait_ready();
        self.servers.push(server);
    }

    fn directory(&self) -> PathBuf {
        self.root.path().join("state")
    }

    fn kill(&mut self) {
        self.coordinator.process.signal("KILL");
        self.coordinator.process.wait();
    }

    /// Another coordinator in the place of the one that was killed.
    fn start_again(&mut self) {
        let state = option(&self.directory());
        self.coordinator = self.coordinator.start_again_with(&["--state", &state]);
    }

    fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    fn cluster(&self) -> client::Cluster {
        let options = client::Options {
            timeout: common::DEADLINE,
            ..client::Options::default()
        };
        client::Cluster::with_options(&self.coordinator.locator, options).unwrap()
    }
}

#[test]
fn a_killed_coordinator_comes_back_as_the_same_store() {
    let mut store = Store::start(2);
    let mut cluster = store.cluster();
    let fruit = cluster.create_table("fruit", 2).unwrap();
    let gone = cluster.create_table("gone", 1).unwrap();
    for number in 0..50_u32 {
        let value = number.to_le_bytes();
        cluster.write(fruit, &value, &value).unwrap();
    }
    cluster.drop_table("gone").unwrap();
    let lease = cluster.acquire_lease().unwrap();
    let before = store.coordinator.status();
    let tables = store.coordinator.tables();

    store.restart();
    let after = store.coordinator.wait_for_members(2);
    for same in ["clusterId", "clusterTag", "tableCount", "losses"] {
        assert_eq!(before[same], after[same], "{same}");
    }
    for member in 0..2 {
        let id = |status: &serde_json::Value| {
            let member = &status["members"][member];
            (
                member["shards"][0]["serverId"].clone(),
                member["incarnations"].clone(),
            )
        };
        assert_eq!(id(&before), id(&after));
    }
    assert_eq!(store.coordinator.tables(), tables);
    let line = store.coordinator.process.line(&["going on with store"]);
    assert_eq!(
        (&line["members"], &line["tables"]),
        (&2.into(), &1.into()),
        "{line}"
    );

    // The client that was there all the time, and one that comes now.
    for cluster in [&mut cluster, &mut store.cluster()] {
        for number in 0..50_u32 {
            let value = number.to_le_bytes();
            assert_eq!(cluster.read(fruit, &value).unwrap().value, value[..]);
        }
    }
    let made = cluster.create_table("gone", 1).unwrap();
    assert!(made.0 > gone.0, "ids are not given out again");
    let next = store.cluster().acquire_lease().unwrap();
    assert!(next.id > lease.id && next.timestamp_ns > lease.timestamp_ns);
}

#[test]
fn writes_take_effect_once_while_the_coordinator_is_killed_again_and_again() {
    let mut store = Store::start(2);
    let table = store.cluster().create_table("counters", 2).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..3_u32)
        .map(|worker| {
            let (mut cluster, stop) = (store.cluster(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let key = worker.to_le_bytes();
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    let value = cluster.increment(table, &key, 1).unwrap().value;
                    done += 1;
                    assert_eq!(value, done, "each took effect once");
                    if done % 200 == 0 {
                        // Somebody who needs the coordinator.
                        let name = format!("t{worker}");
                        cluster.create_table(&name, 1).unwrap();
                        cluster.drop_table(&name).unwrap();
                    }
                }
                done
            })
        })
        .collect();
    for _ in 0..5 {
        store.restart();
        store.coordinator.wait_for_members(2);
        // Tables can be made: all servers are there.
        let mut cluster = store.cluster();
        cluster.create_table("probe", 2).unwrap();
        cluster.drop_table("probe").unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        assert!(worker.join().unwrap() > 0);
    }
    let status = store.coordinator.status();
    assert_eq!(status["losses"].as_array().unwrap().len(), 0);
    assert_eq!(status["members"][0]["incarnations"], 1);
}

#[test]
fn what_happened_while_it_was_away_is_found_out() {
    let mut store = Store::start(2);
    let mut cluster = store.cluster();
    let table = cluster.create_table("fruit", 2).unwrap();
    store.kill();
    let mut dead = store.servers.remove(0);
    dead.process.signal("KILL");
    dead.process.wait();
    store.start_again();
    store.coordinator.wait_for_members(1);
    store.start_server(0);
    let status = store.coordinator.wait_for_members(2);
    assert_eq!(status["members"][0]["shards"][0]["serverId"], "1.1");
    assert_eq!(status["losses"][0]["member"], "m0");
    cluster.write(table, b"apple", b"green").unwrap();
}

/// What a program that cannot start says.
fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(common::program("coordinator"))
        .args(["-C", "tcp:host=127.0.0.1,port=0"])
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn a_second_coordinator_on_the_directory_is_refused() {
    let mut store = Store::start(0);
    let state = option(&store.directory());
    let (code, text) = refusal(&["--state", &state]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("another coordinator is running on the state in"),
        "{text}"
    );
    store.kill();
    let (code, text) = refusal(&["--state", &state, "--clusterTag", "0"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("leave --clusterTag out"), "{text}");
    let (code, text) = refusal(&["--state", "disk"]);
    assert_eq!(code, Some(2));
    assert!(
        text.contains("expected memory, kubernetes, or file:DIR"),
        "{text}"
    );
}

#[test]
fn damage_is_refused_and_a_torn_end_is_cut() {
    let mut store = Store::start(1);
    store.cluster().create_table("fruit", 1).unwrap();
    let file = store.directory().join("state");
    let torn = [fs::read(&file).unwrap(), vec![7; 30]].concat();
    store.kill();
    fs::write(&file, &torn).unwrap();
    store.start_again();
    store
        .coordinator
        .process
        .line(&["cut 30 bytes off the end of the state"]);
    assert_eq!(store.coordinator.wait_for_members(1)["tableCount"], 1);
    store.kill();
    let mut damaged = fs::read(&file).unwrap();
    damaged[60] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let (code, text) = refusal(&["--state", &option(&store.directory())]);
    assert_eq!(code, Some(1));
    assert!(text.contains("it is damaged at byte 40"), "{text}");
}

#[test]
fn a_coordinator_that_cannot_note_ends_and_has_not_answered() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("state");
    let state = option(&path);
    // Room for the first commits and no more; the write that does not fit fails, as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let program = common::program("coordinator");
    let arguments = [
        "-c",
        script,
        &program,
        "-C",
        "tcp:host=127.0.0.1,port=0",
        "--state",
        &state,
    ];
    let arguments = arguments.map(str::to_owned);
    let mut process = Process::start("/bin/sh", &arguments);
    let line = process.line(&["serving", "member"]);
    let locator = line["locator"].as_str().unwrap().to_owned();
    let options = client::Options {
        timeout: std::time::Duration::from_secs(2),
        ..client::Options::default()
    };
    let mut leases = Vec::new();
    let failure = loop {
        let mut cluster = client::Cluster::with_options(&locator, options).unwrap();
        match cluster.acquire_lease() {
            Ok(lease) => leases.push(lease.id),
            Err(error) => break error,
        }
        assert!(leases.len() < 10_000, "8 KiB have room for so many leases");
    };
    assert_ne!(failure.status(), Some(Status::Ok));
    assert_eq!(process.wait().code(), Some(1));
    process.line(&["cannot write the coordinator's state", "has room"]);
    assert!(!leases.is_empty());

    // With room again, whatever was answered is there.
    let again = Coordinator::start(&["--state", &state]);
    let line = again.process.line(&["going on with store"]);
    let noted = line["leases"].as_u64().unwrap();
    assert!(noted >= leases.len() as u64, "{noted} of {}", leases.len());
    let (_, metrics) = http_get(again.http, "/metrics");
    for name in [
        "rcbox_state_bytes",
        "rcbox_state_commits_total",
        "rcbox_state_commit_seconds_total",
    ] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
}

#[test]
fn reads_do_not_wait_for_the_disk() {
    let store = Store::start(1);
    let mut cluster = store.cluster();
    cluster.create_table("fruit", 1).unwrap();
    let commits = || {
        let (_, metrics) = http_get(store.coordinator.http, "/metrics");
        let line = metrics
            .lines()
            .find(|line| line.starts_with("rcbox_state_commits_total "));
        line.unwrap()
            .rsplit(' ')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let before = wait_for("a state that is at rest", || {
        let before = commits();
        (commits() == before).then_some(before)
    });
    for _ in 0..100 {
        cluster.table_id("fruit").unwrap();
    }
    // Cluster time is noted once in a minute.
    assert!(commits() <= before + 1);
}
