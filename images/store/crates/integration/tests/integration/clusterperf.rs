//! Every test of clusterperf against real processes, tiny: the shape of what comes out, never how fast it was.

use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::common::{Store, http_get, program, wait_for};
use serde_json::Value;

fn start(store: &Store, arguments: &str) -> Command {
    let mut command = Command::new(program("clusterperf"));
    command
        .args(["-C", &store.coordinator.locator])
        .args(arguments.split(' '))
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(store: &Store, arguments: &str) -> Output {
    start(store, arguments).output().unwrap()
}

fn json(store: &Store, arguments: &str) -> Value {
    let output = run(store, &format!("--json {arguments}"));
    assert!(output.status.success(), "{arguments}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names(results: &Value) -> Vec<&str> {
    let entries = results.as_array().unwrap().iter();
    entries
        .map(|entry| entry["name"].as_str().unwrap())
        .collect()
}

#[test]
fn tests_of_one_client() {
    let store = Store::start(2, &[]);
    let tests = "readDist readDistRandom writeDistRandom readNotFound readVaryingKeyLength writeVaryingKeyLength \
                 multiRead_oneMaster multiWrite_oneMaster multiRead_general echo_basic";
    let arguments = format!("--count 5 --warmup 1 --numObjects 600 --numTables 4 {tests}");
    let document = json(&store, &arguments);
    let all = document["tests"].as_array().unwrap();
    assert_eq!(all.len(), 10);
    for test in all {
        for entry in test["results"].as_array().unwrap() {
            assert_eq!(entry["samples"], 5, "{entry}");
            let order = [
                "best_us",
                "median_us",
                "p90_us",
                "p99_us",
                "p999_us",
                "worst_us",
            ];
            let times = order.map(|name| entry[name].as_f64().unwrap());
            assert!(times[0] > 0.0 && times.is_sorted(), "{entry}");
        }
    }
    let of = |name: &str| all.iter().find(|test| test["test"] == name).unwrap();
    assert_eq!(names(&of("readDist")["results"]), ["readDist"]);
    let cdf = of("writeDistRandom")["cdf"].as_array().unwrap();
    assert_eq!(cdf.last().unwrap()[1], 1.0);
    assert_eq!(names(&of("readVaryingKeyLength")["results"]).len(), 10);
    assert!(names(&of("multiRead_general")["results"]).contains(&"multiRead_general.20"));
    assert!(names(&of("echo_basic")["results"]).contains(&"echo_basic.1M"));
}

#[test]
fn distributions_go_by_time_if_a_time_is_given() {
    let store = Store::start(1, &[]);
    let document = json(&store, "--seconds 0.01 --warmup 1 readDist");
    let samples = document["tests"][0]["results"][0]["samples"].as_u64();
    // What is measured if nothing is said; a hundredth of a second has no room for it.
    assert!(samples.is_some_and(|samples| (1..100_000).contains(&samples)));
}

#[test]
fn tests_of_several_clients_in_one_process() {
    let store = Store::start(2, &[]);
    let tests = "readThroughput writeThroughput multiReadThroughput workloadThroughput readInterference writeInterference";
    let arguments = format!(
        "--numClients 3 --seconds 0.2 --warmup 1 --numObjects 500 --workload YCSB-B {tests}"
    );
    let document = json(&store, &arguments);
    let all = document["tests"].as_array().unwrap();
    for (test, (reads, writes)) in
        all.iter()
            .zip([(true, false), (false, true), (true, false), (true, true)])
    {
        let rates = test["rates"].as_array().unwrap();
        let clients: Vec<_> = rates
            .iter()
            .map(|rate| rate["clients"].as_u64().unwrap())
            .collect();
        assert_eq!(clients, [1, 2, 3], "{test}");
        for rate in rates {
            assert!(rate["objects_per_second"].as_f64().unwrap() > 0.0, "{rate}");
            assert_eq!(rate["server_reads"].as_u64().unwrap() > 0, reads, "{rate}");
            // Clients that are told to meet write a few objects, too, but at the other server or not many.
            assert!(
                !writes || rate["server_writes"].as_u64().unwrap() > 0,
                "{rate}"
            );
        }
    }
    assert_eq!(
        names(&all[4]["results"]),
        ["readInterference.alone", "readInterference.loaded"]
    );
    let document = json(&store, "--numClients 3 --count 20 --warmup 1 broadcast");
    assert_eq!(document["tests"][0]["results"][0]["samples"], 20);
}

#[test]
fn clients_in_several_processes_meet() {
    let store = Store::start(1, &[]);
    let client = |index: u32| {
        let arguments = format!(
            "--numClients 3 --clientIndex {index} --seconds 0.2 --numObjects 500 readThroughput broadcast --count 10"
        );
        start(&store, &arguments).spawn().unwrap()
    };
    // In any order.
    let (two, zero, one) = (client(2), client(0), client(1));
    let outputs = [zero, one, two].map(|child| child.wait_with_output().unwrap());
    for output in &outputs {
        assert!(output.status.success(), "{output:?}");
    }
    let text = String::from_utf8_lossy(&outputs[0].stdout);
    assert!(text.contains("readThroughput.3"), "{text}");
    assert!(text.contains("broadcast"), "{text}");
    assert!(outputs[1].stdout.is_empty() && outputs[2].stdout.is_empty());
}

/// A run that is watched over HTTP.
struct Watched {
    child: Child,
    address: SocketAddrV4,
}

impl Watched {
    fn start(store: &Store, arguments: &str) -> Watched {
        let arguments = format!("--httpListen 127.0.0.1:0 --tablePrefix run- {arguments}");
        let mut child = start(store, &arguments).spawn().unwrap();
        let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = notes.find_map(|line| {
            let line = line.unwrap();
            line.strip_prefix("# serving http://")
                .map(|text| text.parse().unwrap())
        });
        // The pipe must not become full.
        std::thread::spawn(move || notes.for_each(drop));
        let address = address.unwrap();
        Watched { child, address }
    }

    fn report(&self) -> Value {
        let (status, text) = http_get(self.address, "/report");
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    fn report_when(&self, state: &str) -> Value {
        wait_for(state, || {
            Some(self.report()).filter(|report| report["state"] == state)
        })
    }

    /// The exit code once it was told to end.
    fn end(mut self) -> Option<i32> {
        let kill = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        assert!(kill.unwrap().success());
        wait_for("the end of clusterperf", || self.child.try_wait().unwrap()).code()
    }
}

fn table_names(store: &Store) -> Vec<String> {
    let tables = store.coordinator.tables();
    let list = tables.as_array().unwrap().iter();
    list.map(|table| table["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_run_is_watched_and_leaves_no_tables() {
    let store = Store::start(1, &[]);
    store.cluster().create_table("test", 1).unwrap();
    let common = "--numClients 2 --seconds 0.1 --count 50 --numObjects 200";
    let tests = "readDist readThroughput writeDistRandom";
    let second = start(
        &store,
        &format!("--tablePrefix run- {common} --clientIndex 1 {tests}"),
    );
    let second = { second }.spawn().unwrap();
    let first = Watched::start(&store, &format!("{common} --clientIndex 0 {tests}"));
    let report = first.report_when("Complete");
    assert_eq!(report["tests_done"], 3);
    let names = names(&report["rows"]);
    let expected = [
        "readDist",
        "writeDistRandom",
        "readThroughput.1",
        "readThroughput.2",
    ];
    assert_eq!(names, expected);
    assert_eq!(report["rows"][3]["unit"], "k/s");
    assert_ne!(report["environment"]["kernel"], "");
    let results = http_get(first.address, "/results.json").1;
    let results: Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["tests"].as_array().unwrap().len(), 3);
    assert!(
        http_get(first.address, "/table.txt")
            .1
            .contains("readThroughput.2")
    );
    assert!(http_get(first.address, "/plot.svg").1.starts_with("<svg"));
    // One's own tables are gone, others' are not.
    assert_eq!(table_names(&store), ["test"]);
    assert!(second.wait_with_output().unwrap().status.success());
    assert_eq!(first.end(), Some(0));
}

#[test]
fn a_run_that_is_ended_leaves_no_tables() {
    let store = Store::start(1, &[]);
    let run = Watched::start(&store, "--seconds 600 readDist");
    wait_for("a table", || {
        table_names(&store)
            .contains(&"run-test".to_owned())
            .then_some(())
    });
    let report = run.report();
    assert_eq!(
        (&report["state"], &report["note"]),
        (&"Running".into(), &"readDist".into())
    );
    assert_eq!(run.end(), Some(0));
    assert_eq!(table_names(&store), [""; 0]);
}

#[test]
fn a_run_that_fails_says_why_and_keeps_what_it_has() {
    let store = Store::start(1, &["-t", "64"]);
    let run = Watched::start(
        &store,
        "--numObjects 2000 --size 1000000 --count 10 readDist writeThroughput",
    );
    let report = run.report_when("Failed");
    let error = report["error"].as_str().unwrap();
    assert!(error.contains("the store is too small"), "{error}");
    assert_eq!(names(&report["rows"]), ["readDist"]);
    assert_eq!(table_names(&store), [""; 0]);
    assert_eq!(run.end(), Some(1));
}

#[test]
fn tables_are_dropped_by_another_process() {
    let store = Store::start(1, &[]);
    for name in ["run-test", "run-test0", "run-control", "other"] {
        store.cluster().create_table(name, 1).unwrap();
    }
    let output = run(
        &store,
        "--tablePrefix run- --dropTables --numTables 2 multiRead_general",
    );
    assert!(output.status.success(), "{output:?}");
    assert_eq!(table_names(&store), ["other"]);
}

#[test]
fn basic_in_all_its_forms() {
    let store = Store::start(1, &["-t", "256"]);
    let folder = tempfile::tempdir().unwrap();
    for ending in ["svg", "png"] {
        let file = folder.path().join("plot").with_extension(ending);
        let plot = file.to_str().unwrap();
        let output = run(
            &store,
            &format!("--seconds 0.05 --fillMB 3 --compare seeds --plot {plot} basic"),
        );
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        for part in [
            "basic.read100 ",
            "basic.readBw1M",
            "basic.write10K.999",
            "Atom, DPDK",
            "InfiniBand",
            "Other machines",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_is_plot(&file, ending);
    }
    let file = folder.path().join("cdf.png");
    let arguments = format!(
        "--count 100 --numObjects 100 --plot {} readDist",
        file.to_str().unwrap()
    );
    let output = run(&store, &arguments);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Cumulative distribution"));
    assert_is_plot(&file, "png");
}

fn assert_is_plot(file: &Path, ending: &str) {
    let bytes = std::fs::read(file).unwrap();
    let start: &[u8] = if ending == "png" { b"\x89PNG" } else { b"<svg" };
    assert!(
        bytes.starts_with(start) && bytes.len() > 2000,
        "{}",
        bytes.len()
    );
}

#[test]
fn wrong_uses_say_what_to_do() {
    let store = Store::start(1, &[]);
    for (arguments, expected) in [
        ("transaction_oneMaster", "there are: basic"),
        ("broadcast", "--numClients 2 or more"),
        ("--numClients 2 basic", "leave --numClients out"),
        (
            "--numClients 2 --clientIndex 2 readThroughput",
            "from 0 to 1",
        ),
        ("--workload YCSB-Z workloadThroughput", "YCSB-A"),
        ("--plot plot.jpg basic", ".svg or .png"),
        ("--size 2000000 readDist", "--size: from 1 to"),
        ("--dropTables readDist", "needs --tablePrefix"),
        ("--count 0 readDist", "--count: at least 1"),
    ] {
        let output = run(&store, arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {error}");
        assert!(error.contains(expected), "{arguments}: {error}");
    }
}
