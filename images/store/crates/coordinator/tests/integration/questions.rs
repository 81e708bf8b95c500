//! Server lists, splits, leases, proxied pings and options.

use std::time::Duration;

use crate::common::replicated::with_replicas;
use crate::common::{self, Action, Harness, encode, hello, hex};
use base::bugs::{Bug, plant};
use base::ids::ServerId;
use coordinator::Limits;
use coordinator::reports::{TableEvent, TableLimit};
use coordinator::status::Contact;
use prost::Message;
use wire::member::{self, BackupReport, Hello, coordinator::Kind, shard};
use wire::opcode::Service;
use wire::proto::{MetricList, ServerList};
use wire::rpc::{self, MessageResponse, ProxyPingResponse, RenewLeaseResponse};
use wire::status::Status;

fn server_list(harness: &mut Harness, service_mask: u32) -> ServerList {
    let request = rpc::GetServerListRequest { service_mask };
    let answer = harness.answer(&encode(|out| request.encode(out)));
    let response = MessageResponse::decode(&answer).unwrap();
    assert_eq!(response.status, Status::Ok);
    ServerList::decode(response.message).unwrap()
}

#[test]
fn the_server_list_equals_the_captured_one() {
    let mut harness = Harness::new();
    let mut message = hello("m", 1, 0, 1);
    message.locator = "tcp:host=127.0.0.1,port=11101".to_owned();
    harness.enlist(100, message);
    let answer = harness.answer(&hex("1100020003000000"));
    let captured = "000000004d0000000a400d090000001101000000000000001a1d7463703a686f73743d3132372e302e302e312c706f72743d31313130312d0000000035000000003900000000000000001101000000000000001800";
    assert_eq!(answer, hex(captured));
}

/// Upstream's `ensureServers -b` and its scripts count who offers the backup service.
#[test]
fn the_server_list_names_backups_that_have_opened_their_storage() {
    let mut harness = Harness::new();
    harness.enlist(100, with_replicas("m0", 1));
    harness.enlist(101, with_replicas("m1", 2));
    let only = Hello {
        backup_only: true,
        replicas: 0,
        ..with_replicas("m2", 3)
    };
    harness.enlist(102, only);
    let services = |harness: &mut Harness, mask| {
        let list = server_list(harness, mask).server.into_iter();
        list.map(|server| server.services).collect::<Vec<_>>()
    };
    let [master, backup] = [Service::Master.bit(), Service::Backup.bit()];
    assert_eq!(
        services(&mut harness, backup),
        [],
        "none has opened its storage"
    );
    for connection in [101, 102] {
        let report = BackupReport {
            segment_bytes: 8 << 20,
            frames: 10,
            frames_free: 10,
            ..BackupReport::default()
        };
        harness.shard_says(connection, shard::Kind::BackupReport(report));
    }
    let admin = Service::Admin.bit();
    let [both, backup_only] = [master | backup | admin, backup | admin];
    assert_eq!(services(&mut harness, backup), [both, backup_only]);
    assert_eq!(services(&mut harness, master), [master | admin, both]);
    assert_eq!(services(&mut harness, master | backup).len(), 3);
}

#[test]
fn the_server_list_says_who_is_away_and_grows_in_version() {
    let mut harness = Harness::new();
    assert_eq!(server_list(&mut harness, 3).server, []);
    harness.enlist(100, hello("b", 1, 0, 2));
    let (_, _) = harness.enlist(101, hello("b", 1, 1, 2));
    harness.enlist(102, hello("a", 2, 0, 1));
    let before = server_list(&mut harness, 1);
    let ids: Vec<_> = before
        .server
        .iter()
        .map(|server| server.server_id)
        .collect();
    assert_eq!(ids, [1, 2, 3]);
    assert!(
        before
            .server
            .iter()
            .all(|server| server.status == 0 && server.services == 9)
    );
    harness.close(101);
    let states: Vec<_> = server_list(&mut harness, 3)
        .server
        .iter()
        .map(|server| server.status)
        .collect();
    assert_eq!(states, [0, 1, 0]);
    // Backups were asked for, and there are none.
    assert_eq!(server_list(&mut harness, 2).server, []);
    harness.enlist(103, hello("c", 3, 0, 1));
    assert!(server_list(&mut harness, 3).version_number > before.version_number);
}

fn split(name: &str, split_key_hash: u64) -> Vec<u8> {
    let name = name.as_bytes();
    encode(|out| {
        rpc::SplitTabletRequest {
            name,
            split_key_hash,
        }
        .encode(out)
    })
}

#[test]
fn a_split_waits_for_the_owner() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    let table = harness.create("t", 1);
    assert_eq!(harness.answer(&split("none", 5)), hex("02000000"));
    let half = 1 << 63;
    let actions = harness.request(&split("t", half));
    let [Action::Send(100, Kind::SplitTablet(order))] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!((order.table_id, order.key_hash), (table.0, half));
    let done = harness.done(100, order.sequence);
    assert!(
        matches!(&done[..], [Action::Reply(_, answer)] if *answer == [0; 4]),
        "{done:?}"
    );
    let ranges: Vec<_> = harness
        .config(table)
        .tablet
        .iter()
        .map(|t| (t.start_key_hash, t.end_key_hash))
        .collect();
    assert_eq!(ranges, [(0, half - 1), (half, u64::MAX)]);
    assert_eq!(
        harness.answer(&split("t", half)),
        [0; 4],
        "there is a boundary already"
    );

    // An owner that is away learns of it when it comes back.
    harness.close(100);
    assert_eq!(harness.answer(&split("t", 7)), [0; 4]);
    let mut again = hello("a", 1, 0, 1);
    (again.cluster_id, again.server_id) = (common::CLUSTER, ServerId::new(1, 0).0);
    let (welcome, _) = harness.enlist(101, again);
    let starts: Vec<_> = welcome
        .tablets
        .iter()
        .map(|tablet| tablet.start_key_hash)
        .collect();
    assert_eq!(starts, [0, 7, half]);
}

#[test]
fn splits_are_bounded() {
    let mut harness = Harness::with(|config| config.limits.max_tablets_per_table = 1);
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.create("t", 1);
    let answer = harness.answer(&split("t", 9));
    assert_eq!(rpc::status(&answer), Ok(Status::InvalidParameter));
    let limit = TableLimit::Split {
        of_table: 1,
        most_of_table: 1,
        count: 1,
        most: Limits::default().max_tablets,
    };
    let refused = TableEvent::SplitRefused(limit);
    assert_eq!(harness.out.events.last(), Some(&refused.into()));
}

#[test]
fn lease_info_knows_what_was_given_out() {
    let mut harness = Harness::new();
    let renew = encode(|out| rpc::RenewLeaseRequest { lease_id: 0 }.encode(out));
    let lease = RenewLeaseResponse::decode(&harness.answer(&renew))
        .unwrap()
        .lease;
    let info = |harness: &mut Harness, lease_id| {
        let answer = harness.answer(&encode(|out| {
            rpc::GetLeaseInfoRequest { lease_id }.encode(out)
        }));
        RenewLeaseResponse::decode(&answer).unwrap().lease
    };
    assert_eq!(info(&mut harness, lease.id), lease);
    let unknown = info(&mut harness, lease.id + 1);
    assert_eq!((unknown.id, unknown.expiration_ns), (0, 0));
    harness.advance(Duration::from_nanos(coordinator::LEASE_TERM_NS + 1));
    assert_eq!(info(&mut harness, lease.id).id, 0);
}

fn proxy_ping(server_id: ServerId, timeout: Duration) -> Vec<u8> {
    let timeout_ns = timeout.as_nanos() as u64;
    encode(|out| {
        rpc::ProxyPingRequest {
            server_id,
            timeout_ns,
        }
        .encode(out)
    })
}

#[test]
fn a_proxied_ping_is_timed() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    let id = ServerId::new(1, 0);
    let actions = harness.request(&proxy_ping(id, Duration::from_secs(1)));
    let [Action::Send(100, Kind::Ping(ping))] = &actions[..] else {
        panic!("{actions:?}");
    };
    harness.now += Duration::from_micros(30);
    let pong = member::Pong {
        sequence: ping.sequence,
        ..member::Pong::default()
    };
    let actions = harness.shard_says(100, shard::Kind::Pong(pong.clone()));
    let [Action::Reply(_, answer)] = &actions[..] else {
        panic!("{actions:?}");
    };
    let response = ProxyPingResponse::decode(answer).unwrap();
    assert_eq!((response.status, response.reply_ns), (Status::Ok, 30_000));
    // The same again is an answer to nobody.
    assert_eq!(harness.shard_says(100, shard::Kind::Pong(pong)), []);

    // Nobody of that name, and somebody who says nothing.
    let timed_out = encode(|out| {
        let status = Status::Ok;
        ProxyPingResponse {
            status,
            reply_ns: u64::MAX,
        }
        .encode(out);
    });
    let other = ServerId::new(1, 7);
    assert_eq!(
        harness.answer(&proxy_ping(other, Duration::from_secs(1))),
        timed_out
    );
    harness.request(&proxy_ping(id, Duration::from_millis(50)));
    let replies: Vec<_> = harness
        .advance(Duration::from_millis(51))
        .into_iter()
        .filter(|action| matches!(action, Action::Reply(..)))
        .collect();
    assert!(
        matches!(&replies[..], [Action::Reply(_, answer)] if *answer == timed_out),
        "{replies:?}"
    );
}

#[test]
fn options_that_make_servers_crash_are_not_served() {
    let mut harness = Harness::new();
    for (option, expected) in [
        (&b"crashCoordinator"[..], Status::UnimplementedRequest),
        (b"failRecoveryMasters", Status::UnimplementedRequest),
        (b"nothing", Status::ObjectDoesntExist),
    ] {
        let set = encode(|out| {
            rpc::SetRuntimeOptionRequest {
                option,
                value: b"1",
            }
            .encode(out)
        });
        assert_eq!(rpc::status(&harness.answer(&set)), Ok(expected));
        let get = encode(|out| rpc::GetRuntimeOptionRequest { option }.encode(out));
        assert_eq!(rpc::status(&harness.answer(&get)), Ok(expected));
    }
}

#[test]
fn the_coordinator_tells_about_itself() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.create("t", 1);
    let answer = harness.answer(&hex("1a000300"));
    let message = MessageResponse::decode(&answer).unwrap().message;
    let metrics = MetricList::decode(message).unwrap().metric;
    let value = |name: &str| {
        metrics
            .iter()
            .find(|metric| metric.name == name)
            .unwrap()
            .value
    };
    assert_eq!(
        (value("coordinator.tables"), value("coordinator.membersUp")),
        (1, 1)
    );
    let answer = harness.answer(&hex("3f000300"));
    let response = rpc::GetServerIdResponse::decode(&answer).unwrap();
    assert_eq!(response.server_id, ServerId::INVALID);
    let hint = encode(|out| {
        rpc::HintServerCrashedRequest {
            server_id: ServerId::new(1, 0),
        }
        .encode(out)
    });
    assert_eq!(harness.answer(&hint), [0; 4]);
}

/// Who is dead is found out as ever: others are asked a little sooner, and no more often.
#[test]
fn a_hint_has_others_look_at_a_server_that_has_missed_pings() {
    let mut harness = Harness::new();
    for number in 0..4 {
        harness.enlist(
            100 + number,
            with_replicas(&format!("m{number}"), number + 1),
        );
    }
    let hint_of = |server_id| encode(|out| rpc::HintServerCrashedRequest { server_id }.encode(out));
    let probed = |actions: &[Action]| {
        let probes = actions.iter().filter_map(|action| match action {
            Action::Send(_, Kind::Probe(probe)) => Some(probe.server_id),
            _ => None,
        });
        probes.collect::<Vec<u64>>()
    };
    let (one, former) = (ServerId::new(1, 0), ServerId::new(1, 7));
    assert_eq!(harness.answer(&hint_of(one)), [0; 4], "it is well");
    let actions = harness.advance(Duration::from_millis(450));
    assert_eq!(probed(&actions), []);
    assert_eq!(probed(&harness.request(&hint_of(former))), []);
    // None has answered: all are as silent, and are waited for as long as that asks for.
    assert_eq!(probed(&harness.request(&hint_of(one))).len(), 4 * 3);
    let again = harness.request(&hint_of(one));
    assert_eq!(probed(&again), [], "once in a round");

    // After a restart servers have some time to come back, whatever strangers say.
    harness.restart(Duration::from_millis(100));
    assert_eq!(probed(&harness.request(&hint_of(one))), []);
}

#[test]
fn a_hint_about_a_server_that_is_well_changes_nothing() {
    let is_alive = || {
        let mut harness = Harness::new();
        harness.enlist(100, with_replicas("m0", 1));
        harness.enlist(101, with_replicas("m1", 2));
        let server_id = ServerId::new(1, 0);
        harness.request(&encode(|out| {
            rpc::HintServerCrashedRequest { server_id }.encode(out)
        }));
        let status = harness.coordinator.cluster_status(harness.now);
        status.members[0].contact == Contact::Heard
    };
    assert!(is_alive());
    plant(Some(Bug::BelieveHint));
    let is_missed = is_alive();
    plant(None);
    assert!(!is_missed, "the planted bug is not found");
}
