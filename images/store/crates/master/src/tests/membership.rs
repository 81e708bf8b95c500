//! The shard and its coordinator.

use core::time::Duration;

use base::ids::ServerId;
use base::level::Level;
use base::time::Time;
use wire::member::{self, TabletOrder, TabletRange, TabletSplit, coordinator, shard};
use wire::rpc::{ServerControlResponse, control_op};
use wire::status::Status;

use super::harness::*;
use crate::{ClientEvent, Durability, MembershipEvent, Refusal, Session, ShardEvent};

fn take(sequence: u64, table_id: u64) -> coordinator::Kind {
    coordinator::Kind::TakeTablet(TabletOrder {
        sequence,
        tablet: whole(table_id),
    })
}

fn drop_order(sequence: u64, table_id: u64) -> coordinator::Kind {
    coordinator::Kind::DropTablet(TabletOrder {
        sequence,
        tablet: whole(table_id),
    })
}

/// Sequence numbers of orders that were reported done since the last call.
fn done(driver: &mut Driver) -> Vec<u64> {
    let messages = std::mem::take(&mut driver.said.messages);
    let done = messages.into_iter().filter_map(|message| match message {
        shard::Kind::TabletDone(done) => Some(done.sequence),
        _ => None,
    });
    done.collect()
}

#[test]
fn a_shard_that_is_not_in_yet_shows_that_it_is_alive_and_obeys_nobody() {
    let mut driver = Driver::new(small(Durability::Unreplicated));
    let ping = coordinator::Kind::Ping(member::Ping {
        sequence: 7,
        cluster_time_ns: 1,
        ..Default::default()
    });
    assert_eq!(driver.order(ping), Session::Continue);
    assert!(matches!(&driver.said.messages[..], [shard::Kind::Pong(pong)] if pong.sequence == 7));
    assert!(!driver.shard.is_enlisted());
    assert_eq!(driver.order(take(1, 1)), Session::Close);
}

#[test]
fn hello_tells_who_it_is_and_what_it_holds() {
    let mut driver = Driver::new(small(Durability::Unreplicated));
    let hello = driver.shard.hello();
    assert_eq!(
        (hello.cluster_id, hello.server_id),
        (0, ServerId::INVALID.0)
    );
    assert_eq!(
        (hello.member.as_str(), hello.instance.as_str()),
        ("m-0", "pod")
    );
    assert_eq!(hello.log_capacity_bytes, 64 << 14);
    assert!(!driver.shard.is_enlisted());
    driver.welcome(CLUSTER, ServerId::new(4, 2), 1, &[]);
    assert!(driver.shard.is_enlisted());
    let hello = driver.shard.hello();
    assert_eq!(
        (hello.cluster_id, hello.server_id),
        (CLUSTER, ServerId::new(4, 2).0)
    );
}

#[test]
fn tablets_come_and_go() {
    let mut driver = Driver::new(small(Durability::Unreplicated));
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[]);
    assert_eq!(driver.write(1, b"key", b"").0, Status::UnknownTablet);
    assert_eq!(driver.order(take(1, TABLE.0)), Session::Continue);
    assert_eq!(driver.write(1, b"key", b"").0, Status::Ok);
    assert_eq!(driver.order(drop_order(2, TABLE.0)), Session::Continue);
    assert_eq!(done(&mut driver), [1, 2]);
    assert_eq!(driver.read(b"key").0, Status::UnknownTablet);
    assert_eq!(driver.remove(2, b"key").0, Status::UnknownTablet);
    driver.settle();
    assert_eq!(driver.shard.stats().objects, 0);
    assert_eq!(driver.shard.audit(), Ok(()));
}

/// Objects of the old tablet must not be seen in the new one, and versions go on.
#[test]
fn a_tablet_that_is_taken_again_is_empty() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    for rpc_id in 1..=100 {
        driver.write(rpc_id, b"key", b"old");
    }
    driver.order(drop_order(1, TABLE.0));
    driver.order(take(2, TABLE.0));
    assert_eq!(done(&mut driver), [1], "not before the old objects are out");
    assert_eq!(driver.read(b"key").0, Status::UnknownTablet);
    driver.order(take(3, 99));
    assert_eq!(done(&mut driver), [3], "another table need not wait");
    driver.settle();
    assert_eq!(done(&mut driver), [2]);
    assert_eq!(driver.read(b"key").0, Status::ObjectDoesntExist);
    assert_eq!(driver.write(101, b"key", b"new"), (Status::Ok, 101));
    assert_eq!(driver.shard.audit(), Ok(()));
}

#[test]
fn a_waiting_order_can_be_taken_back() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    driver.order(drop_order(1, TABLE.0));
    driver.order(take(2, TABLE.0));
    driver.order(drop_order(3, TABLE.0));
    driver.settle();
    assert_eq!(done(&mut driver), [1, 2, 3]);
    assert_eq!(driver.shard.stats().tablets, 0);
}

#[test]
fn the_same_server_id_resumes_with_everything() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    driver.write(1, b"key", b"value");
    driver.shard.coordinator_lost(driver.now);
    assert_eq!(
        driver.read(b"key").2,
        b"value",
        "served without a coordinator"
    );
    let tablets = [WHOLE_TABLE, whole(5)];
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &tablets);
    assert_eq!(driver.read(b"key").2, b"value");
    assert_eq!(driver.shard.stats().tablets, 2);
    driver.shard.coordinator_lost(driver.now);
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[whole(5)]);
    assert_eq!(driver.read(b"key").0, Status::UnknownTablet);
    driver.settle();
    assert_eq!(driver.shard.stats().objects, 0);
}

#[test]
fn another_cluster_or_incarnation_starts_empty() {
    for (cluster, server) in [
        (CLUSTER + 1, ServerId::new(1, 0)),
        (CLUSTER, ServerId::new(1, 1)),
    ] {
        let mut driver = Driver::enlisted(small(Durability::Unreplicated));
        driver.write(1, b"key", b"value");
        driver.shard.coordinator_lost(driver.now);
        driver.welcome(cluster, server, (1 << 40) + 1, &[WHOLE_TABLE]);
        assert_eq!(driver.read(b"key").0, Status::ObjectDoesntExist);
        assert_eq!(driver.write(1, b"key", b""), (Status::Ok, (1 << 40) + 1));
        assert_eq!(driver.shard.server_id(), server);
    }
}

#[test]
fn a_superseded_shard_serves_nothing_for_ever() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    driver.write(1, b"key", b"value");
    let refused = member::Refused {
        reason: member::RefusedReason::Superseded as i32,
        text: "member m-0 was removed".to_owned(),
    };
    assert_eq!(
        driver.order(coordinator::Kind::Refused(refused)),
        Session::Close
    );
    assert!(driver.shard.is_superseded() && !driver.shard.is_enlisted());
    let told = Refusal::Told("member m-0 was removed".to_owned());
    assert_eq!(driver.shard.refusal(), Some(&told));
    assert_eq!(driver.read(b"key").0, Status::UnknownTablet);
    assert_eq!(driver.write(1, b"key", b"").0, Status::UnknownTablet);
    let session = driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[WHOLE_TABLE]);
    assert_eq!(session, Session::Close);
}

#[test]
fn other_refusals_change_nothing() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    driver.write(1, b"key", b"value");
    driver.shard.coordinator_lost(driver.now);
    let refused = member::Refused {
        reason: member::RefusedReason::Invalid as i32,
        text: "full".to_owned(),
    };
    assert_eq!(
        driver.order(coordinator::Kind::Refused(refused)),
        Session::Close
    );
    assert_eq!(driver.read(b"key").0, Status::Ok);
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[WHOLE_TABLE]);
    assert_eq!(driver.shard.refusal(), None);
}

#[test]
fn ports_are_told_with_the_next_pong_of_a_session_and_once() {
    let ping = || {
        coordinator::Kind::Ping(member::Ping {
            sequence: 9,
            cluster_time_ns: 5,
            ..Default::default()
        })
    };
    let told = |driver: &mut Driver| match driver.said.messages.pop() {
        Some(shard::Kind::Pong(pong)) => pong.ports,
        other => panic!("no pong: {other:?}"),
    };
    let port = member::PortReport {
        ip: "10.0.0.1".to_owned(),
        ..Default::default()
    };
    let mut driver = Driver::new(small(Durability::Unreplicated));
    driver.shard.report_ports(vec![port.clone()]);
    driver.order(ping());
    assert_eq!(told(&mut driver), [], "nobody has let it in");
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    driver.order(ping());
    assert_eq!(told(&mut driver), []);
    driver.shard.report_ports(vec![port.clone()]);
    driver.order(ping());
    assert_eq!(told(&mut driver), [port]);
    driver.order(ping());
    assert_eq!(told(&mut driver), []);
}

#[test]
fn a_silent_coordinator_is_left() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let nearly = Time::ZERO + Duration::from_millis(4999);
    assert_eq!(driver.shard.session(nearly), Session::Continue);
    assert!(
        driver.shard.tick(driver.now, &mut driver.said) <= Time::ZERO + Duration::from_millis(5000)
    );
    driver.now = nearly;
    driver.order(coordinator::Kind::Ping(member::Ping {
        sequence: 9,
        cluster_time_ns: 5,
        ..Default::default()
    }));
    assert!(matches!(&driver.said.messages[..], [shard::Kind::Pong(pong)] if pong.sequence == 9));
    assert_eq!(
        driver.shard.session(nearly + Duration::from_millis(4999)),
        Session::Continue
    );
    assert_eq!(
        driver.shard.session(nearly + Duration::from_millis(5000)),
        Session::Close
    );
}

#[test]
fn orders_before_the_welcome_and_unknown_messages_end_the_session() {
    let mut driver = Driver::new(small(Durability::Unreplicated));
    assert_eq!(driver.order(take(1, 1)), Session::Close);
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[]);
    let unknown = member::ToShard::default();
    let session = driver
        .shard
        .coordinator_message(driver.now, unknown, &mut driver.said);
    assert_eq!(session, Session::Close);
    let events = [
        MembershipEvent::OrderBeforeWelcome,
        MembershipEvent::UnknownMessage,
    ];
    assert_eq!(driver.said.events, events.map(ShardEvent::from));
}

#[test]
fn overlapping_orders_end_the_session() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let half = coordinator::Kind::TakeTablet(TabletOrder {
        sequence: 1,
        tablet: member::TabletRange {
            start_key_hash: 5,
            ..WHOLE_TABLE
        },
    });
    assert_eq!(driver.order(half), Session::Close);
    assert!(done(&mut driver).is_empty());
    let events = [ShardEvent::from(MembershipEvent::Overlap)];
    assert_eq!(driver.said.events, events);
}

#[test]
fn control_operations() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let mut control = |op, input: &[u8]| {
        driver.order(coordinator::Kind::Control(member::Control {
            sequence: 3,
            op,
            input: input.to_vec(),
        }));
        let Some(shard::Kind::ControlDone(done)) = driver.said.messages.pop() else {
            panic!("not done");
        };
        assert_eq!(done.sequence, 3);
        let response = ServerControlResponse::decode(&done.response).unwrap();
        assert_eq!(response.server_id, ServerId::new(1, 0));
        (response.status, driver.said.events.pop())
    };
    let hello = control(control_op::LOG_MESSAGE, b"\x02\0\0\0hello");
    let text = ClientEvent::Text {
        level: Level::Warning,
        text: "hello".to_owned(),
    };
    assert_eq!(hello, (Status::Ok, Some(text.into())));
    assert_eq!(
        control(control_op::LOG_MESSAGE, b"\x02").0,
        Status::MessageTooShort
    );
    let no_trace = ClientEvent::TraceLine("no time trace is recorded here".to_owned());
    assert_eq!(
        control(control_op::LOG_TIME_TRACE, b""),
        (Status::Ok, Some(no_trace.into()))
    );
    assert_eq!(control(1000, b""), (Status::UnimplementedRequest, None));
    assert_eq!(control(control_op::GET_PERF_STATS, b"").0, Status::Ok);
}

/// An order, and what was noted when it left.
fn order_at(driver: &mut Driver, kind: coordinator::Kind, position: member::Position) -> Session {
    let message = member::ToShard {
        kind: Some(kind),
        position: Some(position),
        numbers: None,
    };
    let now = driver.now;
    let said = &mut driver.said;
    driver.shard.coordinator_message(now, message, said)
}

fn welcomed_by(driver: &mut Driver, cluster_id: u64, term: u64, nonce: u64) -> Session {
    let position = member::Position {
        term,
        nonce,
        sequence: 10 * term,
    };
    driver.order(coordinator::Kind::Welcome(member::Welcome {
        cluster_id,
        server_id: ServerId::new(1, 0).0,
        first_version: 1,
        silence_timeout_ms: 5000,
        position: Some(position),
        ..Default::default()
    }))
}

#[test]
fn a_coordinator_of_an_older_term_is_not_obeyed() {
    let mut driver = Driver::new(small(Durability::Unreplicated));
    assert_eq!(driver.shard.hello().position, None);
    assert_eq!(welcomed_by(&mut driver, 9, 3, 33), Session::Continue);
    assert_eq!(driver.order(take(1, 1)), Session::Continue);
    let known = driver.shard.hello().position;
    assert_eq!(
        known.map(|known| (known.term, known.nonce, known.sequence)),
        Some((3, 33, 30))
    );

    // Its successor is, and then it itself is not any more.
    driver.shard.coordinator_lost(driver.now);
    assert_eq!(welcomed_by(&mut driver, 9, 4, 44), Session::Continue);
    for (term, nonce, why) in [
        (3, 33, "a later one leads already"),
        (4, 45, "put back to an older one"),
    ] {
        driver.shard.coordinator_lost(driver.now);
        assert_eq!(welcomed_by(&mut driver, 9, term, nonce), Session::Close);
        let refusal = driver.shard.refusal().unwrap();
        let leaders = match refusal {
            Refusal::OldLeader { told, known } => (told.term, told.nonce, known.term, known.nonce),
            other => panic!("{other:?}"),
        };
        assert_eq!(leaders, (term, nonce, 4, 44));
        assert!(refusal.to_string().contains(why), "{refusal}");
        assert!(
            driver.order(take(2, 2)) == Session::Close,
            "its orders are not either"
        );
        assert_eq!(driver.shard.hello().position.unwrap().term, 4);
    }
    assert_eq!(welcomed_by(&mut driver, 9, 4, 44), Session::Continue);
    assert_eq!(driver.shard.refusal(), None);

    // Another store has terms of its own.
    driver.shard.coordinator_lost(driver.now);
    assert_eq!(welcomed_by(&mut driver, 10, 1, 11), Session::Continue);
    assert_eq!(driver.shard.hello().position.unwrap().term, 1);
}

#[test]
fn pings_tell_how_far_the_coordinator_is_and_one_of_another_leader_ends_the_session() {
    let mut driver = Driver::new(small(Durability::Unreplicated));
    assert_eq!(welcomed_by(&mut driver, 9, 3, 33), Session::Continue);
    let ping = |term, nonce, sequence| {
        let position = member::Position {
            term,
            nonce,
            sequence,
        };
        coordinator::Kind::Ping(member::Ping {
            position: Some(position),
            ..Default::default()
        })
    };
    assert_eq!(driver.order(ping(3, 33, 35)), Session::Continue);
    assert_eq!(driver.order(ping(3, 33, 34)), Session::Continue);
    assert_eq!(
        driver.shard.hello().position.unwrap().sequence,
        35,
        "the highest"
    );
    for (term, nonce) in [(2, 22), (3, 34), (4, 44)] {
        assert_eq!(driver.order(ping(term, nonce, 40)), Session::Close);
    }
    assert_eq!(driver.shard.hello().position.unwrap().sequence, 35);
}

#[test]
fn orders_tell_how_far_the_coordinator_is_and_one_of_another_leader_is_not_obeyed() {
    let mut driver = Driver::new(small(Durability::Unreplicated));
    assert_eq!(welcomed_by(&mut driver, 9, 3, 33), Session::Continue);
    let at = |term, nonce, sequence| member::Position {
        term,
        nonce,
        sequence,
    };
    let session = order_at(&mut driver, take(1, 1), at(3, 33, 36));
    assert_eq!(session, Session::Continue);
    assert_eq!(driver.shard.hello().position, Some(at(3, 33, 36)));
    assert_eq!(driver.shard.store().tablets.all().len(), 1);

    let session = order_at(&mut driver, take(2, 2), at(3, 34, 40));
    assert_eq!(session, Session::Close);
    assert_eq!(
        driver.shard.store().tablets.all().len(),
        1,
        "it was not carried out"
    );
    assert_eq!(driver.shard.hello().position, Some(at(3, 33, 36)));
}

#[test]
fn a_welcome_from_before_a_split_drops_nothing() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    for key in 0..20_u8 {
        let (status, _) = driver.write(1 + u64::from(key), &[key], b"value");
        assert_eq!(status, Status::Ok);
    }
    for (sequence, key_hash) in [(1, 1 << 63), (2, 1 << 62)] {
        driver.order(coordinator::Kind::SplitTablet(TabletSplit {
            sequence,
            table_id: WHOLE_TABLE.table_id,
            key_hash,
        }));
    }
    assert_eq!(driver.shard.store().tablets.all().len(), 3);
    let half = TabletRange {
        end_key_hash: (1 << 63) - 1,
        ..WHOLE_TABLE
    };
    let other_half = TabletRange {
        start_key_hash: 1 << 63,
        ..WHOLE_TABLE
    };
    for tablets in [&[half, other_half][..], &[WHOLE_TABLE]] {
        driver.shard.coordinator_lost(driver.now);
        let session = driver.welcome(CLUSTER, ServerId::new(1, 0), 1, tablets);
        assert_eq!(session, Session::Continue);
        assert_eq!(driver.shard.store().tablets.all(), tablets);
        for key in 0..20_u8 {
            assert_eq!(driver.read(&[key]).0, Status::Ok);
        }
    }
}

/// As many tablets as a store may have: with an effort in proportion to their square, each welcome took minutes.
#[test]
#[expect(
    clippy::disallowed_types,
    reason = "a deadline for the test, far above what it takes"
)]
fn a_welcome_with_all_tablets_of_a_store_is_carried_out_at_once() {
    let began = std::time::Instant::now();
    let mut driver = Driver::new(small(Durability::Unreplicated));
    let welcome = |driver: &mut Driver, tables: &mut dyn Iterator<Item = u64>| {
        let tablets: Vec<_> = tables.map(whole).collect();
        let session = driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &tablets);
        assert_eq!(session, Session::Continue);
    };
    welcome(&mut driver, &mut (1..=100_000).rev());
    assert_eq!(driver.shard.stats().tablets, 100_000);
    // Half of them are another server's by now, and others have come.
    welcome(&mut driver, &mut (1..=150_000).filter(|id| id % 2 == 0));
    assert_eq!(driver.shard.stats().tablets, 75_000);
    // What was dropped comes back: it is taken as soon as nothing of it is left.
    welcome(&mut driver, &mut (1..=100_000));
    driver.settle();
    assert_eq!(driver.shard.stats().tablets, 100_000);
    // One of them was split again and again meanwhile, and is one again for a coordinator that was put back.
    let step = 1 << 47;
    let parts: Vec<_> = (0..1_u64 << 17)
        .map(|part| TabletRange {
            start_key_hash: part * step,
            end_key_hash: part * step + (step - 1),
            ..whole(1)
        })
        .collect();
    for tablets in [&parts[..], &[whole(1)]] {
        let session = driver.welcome(CLUSTER, ServerId::new(1, 0), 1, tablets);
        assert_eq!(session, Session::Continue);
        assert_eq!(driver.shard.stats().tablets, tablets.len() as u64);
    }
    assert!(began.elapsed() < Duration::from_secs(60));
}
