//! What members tell of their ports.

use std::time::Duration;

use crate::common::{Harness, hello};
use base::ids::ServerId;
use coordinator::status::{Ping, Port};
use wire::member::{Pong, PortPing, PortReport, shard};

/// A port that reaches these, as (server, round trip).
fn port(ip: &str, pings: &[(u64, u64)]) -> PortReport {
    let ping = |&(server_id, round_trip_ns): &(u64, u64)| PortPing {
        server_id,
        ip: format!("{ip}0"),
        round_trip_ns,
        age_ms: 3,
    };
    PortReport {
        ip: ip.to_owned(),
        driver: "kernel".to_owned(),
        link_up: Some(true),
        mtu: 1500,
        pings: pings.iter().map(ping).collect(),
        ..PortReport::default()
    }
}

fn tells(harness: &mut Harness, connection: u64, ports: Vec<PortReport>) {
    let pong = Pong {
        ports,
        ..Pong::default()
    };
    harness.shard_says(connection, shard::Kind::Pong(pong));
}

fn ports_of(harness: &Harness, member: &str) -> Vec<Port> {
    let status = harness.coordinator.cluster_status(harness.now);
    let mut members = status.members.into_iter();
    members.find(|one| one.name == member).unwrap().ports
}

fn ping(member: &str, ip: &str, round_trip_ns: u64, age_ms: u64) -> Ping {
    Ping {
        member: member.to_owned(),
        ip: ip.to_owned(),
        round_trip_ns,
        age_ms,
    }
}

/// Member a with two shards, b and c with one.
fn store() -> (Harness, [u64; 2]) {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 2));
    harness.enlist(101, hello("a", 1, 1, 2));
    let (b, _) = harness.enlist(102, hello("b", 2, 0, 1));
    let (c, _) = harness.enlist(103, hello("c", 3, 0, 1));
    (harness, [b.server_id, c.server_id])
}

#[test]
fn a_member_has_the_ports_that_its_shards_tell_of_and_reaches_others_as_the_worst_of_them() {
    let (mut harness, [b, c]) = store();
    assert_eq!(ports_of(&harness, "a"), []);
    let two = vec![
        port("10.0.0.1", &[(b, 900), (c, 700)]),
        port("10.1.0.1", &[]),
    ];
    tells(&mut harness, 100, two);
    tells(
        &mut harness,
        101,
        vec![port("10.0.0.1", &[(b, 1100), (c, 0)])],
    );
    let ports = ports_of(&harness, "a");
    let ips: Vec<_> = ports.iter().map(|port| port.ip.as_str()).collect();
    assert_eq!(ips, ["10.0.0.1", "10.1.0.1"]);
    assert_eq!(
        (ports[0].driver.as_str(), ports[0].link_up, ports[0].mtu),
        ("kernel", Some(true), 1500)
    );
    let reached = [
        ping("b", "10.0.0.10", 1100, 3),
        ping("c", "10.0.0.10", 0, 3),
    ];
    assert_eq!(ports[0].pings, reached);
    assert_eq!(ports[1].pings, []);
    assert_eq!(ports_of(&harness, "b"), []);
}

#[test]
fn what_was_told_stays_and_ages_until_something_else_is_told() {
    let (mut harness, [b, _]) = store();
    tells(&mut harness, 100, vec![port("10.0.0.1", &[(b, 900)])]);
    harness.now += Duration::from_millis(40);
    // There is nothing new.
    tells(&mut harness, 100, Vec::new());
    let ports = ports_of(&harness, "a");
    assert_eq!(ports[0].pings, [ping("b", "10.0.0.10", 900, 43)]);
    let down = PortReport {
        link_up: Some(false),
        ..port("10.0.0.1", &[])
    };
    tells(&mut harness, 100, vec![down]);
    let ports = ports_of(&harness, "a");
    assert_eq!(
        (ports[0].link_up, &ports[0].pings[..]),
        (Some(false), &[][..])
    );
}

#[test]
fn ports_go_with_their_process_and_nobody_reaches_one_that_is_gone() {
    let (mut harness, [b, _]) = store();
    tells(&mut harness, 100, vec![port("10.0.0.1", &[(b, 900)])]);
    tells(&mut harness, 102, vec![port("10.0.0.2", &[])]);
    harness.close(102);
    assert_eq!(ports_of(&harness, "b").len(), 1, "it may come back");
    let (next, _) = harness.enlist(104, hello("b", 4, 0, 1));
    assert_eq!(ServerId(next.server_id).index(), ServerId(b).index());
    assert_eq!(ports_of(&harness, "b"), []);
    assert_eq!(ports_of(&harness, "a")[0].pings, []);
}

#[test]
fn a_coordinator_that_starts_is_told_anew() {
    let (mut harness, _) = store();
    tells(&mut harness, 100, vec![port("10.0.0.1", &[])]);
    harness.restart(Duration::from_millis(100));
    assert_eq!(ports_of(&harness, "a"), []);
}

#[test]
fn nobody_makes_the_coordinator_keep_more_than_there_can_be() {
    let (mut harness, [b, _]) = store();
    let mut ports: Vec<PortReport> = (0..100)
        .map(|number| port(&format!("10.0.0.{number}"), &[]))
        .collect();
    ports[0] = PortReport {
        pings: (0..100)
            .map(|number| PortPing {
                server_id: b,
                ip: format!("10.0.1.{number}"),
                ..PortPing::default()
            })
            .collect(),
        ..port("10.0.0.0", &[])
    };
    tells(&mut harness, 100, ports);
    let ports = ports_of(&harness, "a");
    assert_eq!((ports.len(), ports[0].pings.len()), (8, 16));
}

/// What is told is kept for every shard: of whatever is longer than it can be, a part is.
#[test]
fn what_a_member_tells_is_cut_to_what_it_can_be() {
    let (mut harness, [b, _]) = store();
    let mut endless = port("192.0.2.1", &vec![(b, 5); 1000]);
    endless.interface = "x".repeat(1 << 20);
    endless.pings[0].ip = "y".repeat(1 << 20);
    tells(&mut harness, 100, vec![endless; 100]);
    let ports = ports_of(&harness, "a");
    assert!(ports.len() <= 8);
    assert_eq!(ports[0].interface, "x".repeat(253));
    let longest = ports[0].pings.iter().map(|ping| ping.ip.len()).max();
    assert_eq!(longest, Some(253));
}
