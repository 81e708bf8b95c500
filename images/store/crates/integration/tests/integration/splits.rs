//! Tables that are split into even parts from a command line, with a coordinator that keeps its state and is killed.

use std::process::Output;

use serde_json::{Value, json};

use crate::common::{Coordinator, DEADLINE, Server, rcbox, wait_for};

const KEYS: u32 = 200;

fn said(output: &Output) -> (Option<i32>, String) {
    let text = match output.status.success() {
        true => &output.stdout,
        false => &output.stderr,
    };
    let text = String::from_utf8_lossy(text).into_owned();
    (output.status.code(), text)
}

fn call(coordinator: &Coordinator, line: &str) -> (Option<i32>, String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    said(&rcbox(&coordinator.locator, &words, b""))
}

fn good_json(coordinator: &Coordinator, line: &str) -> Value {
    let (code, text) = call(coordinator, line);
    assert_eq!(code, Some(0), "{line}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// First key hashes of the tablets of the only table.
fn starts(coordinator: &Coordinator) -> Vec<Value> {
    let tables = coordinator.tables();
    let tablets = tables[0]["tablets"].as_array().unwrap();
    let starts = tablets.iter().map(|tablet| tablet["startKeyHash"].clone());
    starts.collect()
}

fn cluster(coordinator: &Coordinator) -> client::Cluster {
    let options = client::Options {
        timeout: DEADLINE,
        ..client::Options::default()
    };
    client::Cluster::with_options(&coordinator.locator, options).unwrap()
}

#[test]
fn a_split_outlives_the_coordinator_and_clients_find_their_objects() {
    let root = tempfile::tempdir().unwrap();
    let state = format!("file:{}", root.path().join("state").display());
    let options = ["--state", &state];
    let mut coordinator = Coordinator::start(&options);
    let servers = ["m0", "m1"].map(|name| Server::start(&coordinator, name, &[]));
    for server in &servers {
        server.wait_ready();
    }
    let mut before = cluster(&coordinator);
    let fruit = before.create_table("fruit", 1).unwrap();
    for number in 0..KEYS {
        let key = number.to_le_bytes();
        before.write(fruit, &key, &key).unwrap();
    }

    let (code, text) = call(&coordinator, "split fruit --parts 4");
    let now = "table \"fruit\" has 4 tablets, which `rcbox tables` shows with their servers.\n";
    assert_eq!((code, text), (Some(0), format!("3 new boundaries: {now}")));
    let quarters = [
        json!("0x0000000000000000"),
        json!("0x4000000000000000"),
        json!("0x8000000000000000"),
        json!("0xc000000000000000"),
    ];
    assert_eq!(starts(&coordinator), quarters);
    // The disk has all that the order promises.
    coordinator.process.signal("KILL");
    coordinator.process.wait();
    coordinator = coordinator.start_again_with(&options);
    coordinator.wait_for_members(2);
    assert_eq!(starts(&coordinator), quarters);

    let (code, text) = call(&coordinator, "split fruit --parts 4");
    assert_eq!((code, text), (Some(0), format!("Nothing to do: {now}")));
    let again = good_json(&coordinator, "split fruit --parts 2 --json");
    assert_eq!(
        (&again["tablets"], &again["boundariesMade"]),
        (&json!(4), &json!(0))
    );
    let eight = good_json(&coordinator, "split fruit --parts 8 --json");
    assert_eq!(
        (&eight["tablets"], &eight["boundariesMade"]),
        (&json!(8), &json!(4))
    );

    // A client that knew one tablet, and one that asks anew.
    for mut cluster in [before, cluster(&coordinator)] {
        for number in 0..KEYS {
            let key = number.to_le_bytes();
            assert_eq!(cluster.read(fruit, &key).unwrap().value, key[..]);
        }
    }
}

#[test]
fn what_cannot_be_split_is_refused_with_the_reason() {
    let coordinator = Coordinator::start(&[]);
    let server = Server::start(&coordinator, "m0", &[]);
    server.wait_ready();
    cluster(&coordinator).create_table("fruit", 1).unwrap();
    for (line, code, part) in [
        (
            "split vegetables --parts 4",
            1,
            "there is no table \"vegetables\"",
        ),
        ("split fruit --parts 1", 2, "2..=4096"),
        ("split fruit --parts 4097", 2, "2..=4096"),
        ("split fruit", 2, "--parts"),
        ("split fruit 7 --parts 2", 2, "cannot be used with"),
    ] {
        let (ended, text) = call(&coordinator, line);
        assert_eq!(ended, Some(code), "{line}: {text}");
        assert!(text.contains(part), "{line}: {text}");
    }
    // In parts that fit, until the table has as many as it may have.
    let (code, text) = call(&coordinator, "split fruit --parts 4096");
    assert_eq!(code, Some(0), "{text}");
    for parts in ["4095", "4093", "4091"] {
        call(&coordinator, &format!("split fruit --parts {parts}"));
    }
    let (code, text) = call(&coordinator, "split fruit --parts 4089");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("of at most 16384"), "{text}");
    // The server has all of them, and goes on.
    let is_told = || {
        let status = coordinator.status();
        let shard = &status["members"][0]["shards"][0];
        (shard["connected"] == true && shard["tabletCount"].as_u64() > Some(16_000)).then_some(())
    };
    wait_for("the server to serve all tablets", is_told);
}
