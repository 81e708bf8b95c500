//! What the coordinator may order, in which order.

use wire::member::{self, RecoveryId, TabletOrder, TabletSplit, Welcome, coordinator, shard};
use wire::peer::{self, Answer, MAX_FILTER_TABLETS};

use super::*;

fn ready(recovery_id: u64) -> (Driver, Sources) {
    let mut driver = driver();
    let mut sources = ten_objects();
    driver.order(sources.order(recovery_id, &[WHOLE_TABLE]));
    sources.answer(&mut driver);
    assert_eq!(recovered(&mut driver).len(), 1);
    (driver, sources)
}

fn welcome_again(driver: &mut Driver, tablets: &[TabletRange], recoveries: &[u64]) -> Session {
    driver.shard.coordinator_lost(driver.now);
    driver.order(coordinator::Kind::Welcome(Welcome {
        cluster_id: CLUSTER,
        server_id: ServerId::new(1, 0).0,
        cluster_time_ns: 1000,
        first_version: 1,
        tablets: tablets.to_vec(),
        silence_timeout_ms: 5000,
        recoveries: recoveries.to_vec(),
        version_floor: 0,
        ..Default::default()
    }))
}

fn durable(driver: &mut Driver) -> Vec<u64> {
    let is_meant = |kind: &mut shard::Kind| matches!(kind, shard::Kind::RecoveryDurable(_));
    let messages = driver.said.messages.extract_if(.., is_meant);
    let ids = messages.map(|kind| match kind {
        shard::Kind::RecoveryDurable(id) => id.recovery_id,
        _ => unreachable!(),
    });
    ids.collect()
}

fn released(driver: &mut Driver, recovery_id: u64) {
    driver.order(coordinator::Kind::SourcesReleased(RecoveryId {
        recovery_id,
    }));
}

#[test]
fn an_order_that_is_given_again_is_carried_out_once() {
    let (mut driver, mut sources) = ready(6);
    driver.order(sources.order(6, &[WHOLE_TABLE]));
    sources.answer(&mut driver);
    assert_eq!(recovered(&mut driver), []);
    commit(&mut driver, 6);
    driver.order(sources.order(6, &[WHOLE_TABLE]));
    assert_eq!(recovered(&mut driver), []);
}

#[test]
fn what_cannot_be_carried_out_is_refused_at_once() {
    let (mut driver, sources) = ready(6);
    let half = TabletRange {
        end_key_hash: 1 << 63,
        ..WHOLE_TABLE
    };
    let other = |start_key_hash, end_key_hash| TabletRange {
        table_id: 2,
        start_key_hash,
        end_key_hash,
    };
    let mut refused = |tablets: &[TabletRange]| {
        driver.order(sources.order(8, tablets));
        failed(&mut driver)
    };
    let taken = RecoveryError::Conflict(Conflict::Taken { table_id: TABLE });
    assert_eq!(refused(&[half]), taken);
    assert_eq!(refused(&[]), RecoveryError::TabletCount { tablets: 0 });
    let no_ranges = RecoveryError::Conflict(Conflict::NoRanges);
    assert_eq!(refused(&[other(5, 4)]), no_ranges);
    assert_eq!(refused(&[other(0, 5), other(5, 9)]), no_ranges);
    let many: Vec<_> = (0..=MAX_FILTER_TABLETS as u64)
        .map(|n| other(n, n))
        .collect();
    assert_eq!(refused(&many), RecoveryError::TabletCount { tablets: 4097 });

    commit(&mut driver, 6);
    driver.order(sources.order(8, &[half]));
    assert_eq!(failed(&mut driver), taken);

    for n in 0..9 {
        driver.order(sources.order(10 + n, &[other(n, n)]));
    }
    assert_eq!(failed(&mut driver), RecoveryError::Busy { recoveries: 8 });
}

#[test]
fn several_recoveries_go_on_at_once() {
    let mut driver = driver();
    let mut sources = ten_objects();
    let quarter = |n: u64| TabletRange {
        start_key_hash: n << 62,
        end_key_hash: (n << 62) + ((1 << 62) - 1),
        ..WHOLE_TABLE
    };
    for n in 0..4 {
        driver.order(sources.order(n, &[quarter(n)]));
    }
    sources.answer(&mut driver);
    assert_eq!(recovered(&mut driver).len(), 4);
    for n in [2, 0, 1] {
        commit(&mut driver, n);
    }
    give_up(&mut driver, 3);
    driver.settle();
    for key in 1..=10 {
        let is_there = wire::hash::key_hash(TABLE, &[key]) < 3 << 62;
        assert_eq!(driver.read(&[key]).0 == Status::Ok, is_there);
    }
    assert_eq!(driver.shard.audit(), Ok(()));
}

#[test]
fn what_was_given_up_is_gone_and_can_be_ordered_again() {
    for reads_all in [true, false] {
        let mut driver = driver();
        let mut sources = ten_objects();
        sources.put(
            &Segment::new(11).object(b"c", 7, b"c").result(b"c", 5, 7),
            &[20],
        );
        driver.order(sources.order(6, &[WHOLE_TABLE]));
        driver.shard.tick(driver.now, &mut driver.said);
        if reads_all {
            sources.answer(&mut driver);
            assert_eq!(driver.shard.stats().objects, 11);
        }
        give_up(&mut driver, 6);
        recovered(&mut driver);
        assert!(!reads_all || driver.shard.stats().rpc_results == 1);
        assert_eq!(
            driver.write(5, b"c", b"again").0,
            Status::UnknownTablet,
            "what came with the tablet is nobody's"
        );
        // It waits until nothing is left of the first time.
        driver.order(sources.order(7, &[WHOLE_TABLE]));
        driver.shard.tick(driver.now, &mut driver.said);
        driver.settle();
        assert_eq!(driver.shard.stats().rpc_results, 0);
        sources.answer(&mut driver);
        assert_eq!(recovered(&mut driver)[0].objects, 11);
        commit(&mut driver, 7);
        assert_eq!(driver.read(b"c").1, 7);
        assert_eq!(driver.write(5, b"c", b"again"), (Status::Ok, 7));
        assert_eq!(driver.shard.audit(), Ok(()));
    }
}

#[test]
fn a_welcome_says_which_recoveries_count() {
    let (mut driver, _) = ready(6);
    assert_eq!(
        welcome_again(&mut driver, &[WHOLE_TABLE], &[6]),
        Session::Continue
    );
    assert_eq!(
        driver.read(&[3]),
        (Status::Ok, 103, b"value".to_vec()),
        "committed"
    );

    let (mut driver, mut sources) = ready(6);
    driver.order(sources.order(9, &[whole(2)]));
    assert_eq!(welcome_again(&mut driver, &[], &[]), Session::Continue);
    driver.settle();
    assert_eq!(driver.shard.stats().objects, 0, "given up");
    driver.order(sources.order(7, &[WHOLE_TABLE]));
    sources.answer(&mut driver);
    assert_eq!(recovered(&mut driver)[0].objects, 10);

    // Split while the coordinator was away.
    let halves = [(0, 1 << 63), ((1 << 63) + 1, u64::MAX)].map(|(start, end)| TabletRange {
        start_key_hash: start,
        end_key_hash: end,
        ..WHOLE_TABLE
    });
    assert_eq!(welcome_again(&mut driver, &halves, &[7]), Session::Continue);
    assert_eq!(driver.read(&[3]).0, Status::Ok);
    assert_eq!(driver.shard.stats().tablets, 2);
}

#[test]
fn who_has_not_what_the_coordinator_counts_on_serves_nothing_more() {
    let told = |driver: &Driver| {
        assert!(driver.shard.is_superseded());
        let refusal = Refusal::NotMadeHere(Brought::Recovery(8));
        assert_eq!(driver.shard.refusal(), Some(&refusal));
    };
    let (mut driver, _) = ready(6);
    assert_eq!(
        welcome_again(&mut driver, &[WHOLE_TABLE], &[6, 8]),
        Session::Close
    );
    told(&driver);
    assert_eq!(driver.read(&[3]).0, Status::UnknownTablet);

    let (mut driver, _) = ready(6);
    assert_eq!(commit(&mut driver, 8), Session::Close);
    told(&driver);

    // Nor has who is still reading.
    let mut driver = super::driver();
    driver.order(ten_objects().order(8, &[WHOLE_TABLE]));
    driver.shard.tick(driver.now, &mut driver.said);
    assert_eq!(commit(&mut driver, 8), Session::Close);
    told(&driver);
    assert_eq!(driver.said.sources_disconnected.len(), 3);
}

#[test]
fn a_tablet_may_be_split_while_it_is_brought_back_but_not_taken() {
    let (mut driver, _) = ready(6);
    driver.order(coordinator::Kind::SplitTablet(TabletSplit {
        sequence: 1,
        table_id: TABLE.0,
        key_hash: 1 << 63,
    }));
    commit(&mut driver, 6);
    assert_eq!(driver.shard.stats().tablets, 2);
    assert_eq!(driver.read(&[3]).0, Status::Ok);

    let (mut driver, _) = ready(6);
    let take = coordinator::Kind::TakeTablet(TabletOrder {
        sequence: 1,
        tablet: WHOLE_TABLE,
    });
    assert_eq!(driver.order(take), Session::Close);
}

#[test]
fn a_recovery_is_durable_when_its_copies_are_on_replicas() {
    let mut driver = Driver::new(Config {
        replication: Some(Replication {
            replicas: 2,
            min_replicas: 2,
            copy_bytes: 1 << 17,
            repair_bytes_per_second: 1 << 40,
        }),
        ..small(Durability::External)
    });
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[]);
    name_backups(&mut driver, &[20, 21, 22]);
    let replicate = |driver: &mut Driver, answers: usize| {
        for _ in 0..answers {
            driver.shard.tick(driver.now, &mut driver.said);
            for id in std::mem::take(&mut driver.said.backups_connected) {
                let channel = Channel::Replication;
                driver
                    .shard
                    .backup_connected(driver.now, channel, id, &mut driver.said);
            }
            for (id, nonce, request) in std::mem::take(&mut driver.said.to_backups) {
                let (channel, status) = (Channel::Replication, peer::Status::Ok);
                let answer = match peer::Request::decode(&request) {
                    // It holds nothing.
                    Ok(peer::Request::List(_)) => vec![status as u8],
                    _ => Answer { status, bytes: 0 }.to_bytes().to_vec(),
                };
                let said = &mut driver.said;
                driver
                    .shard
                    .backup_answer(driver.now, channel, id, nonce, &answer, said);
            }
            let is_floor = |kind: &mut shard::Kind| matches!(kind, shard::Kind::RaiseOpenFloor(_));
            let floors: Vec<_> = driver.said.messages.extract_if(.., is_floor).collect();
            for floor in floors {
                if let shard::Kind::RaiseOpenFloor(floor) = floor {
                    driver.order(coordinator::Kind::OpenFloorRaised(floor));
                }
            }
        }
    };
    replicate(&mut driver, 10);
    let mut sources = ten_objects();
    driver.order(sources.order(6, &[WHOLE_TABLE]));
    sources.answer(&mut driver);
    assert_eq!(recovered(&mut driver)[0].failure, "");
    commit(&mut driver, 6);
    assert_eq!(
        driver.read(&[3]).0,
        Status::Ok,
        "served before its copies are on replicas"
    );
    assert_eq!(durable(&mut driver), [0; 0]);
    replicate(&mut driver, 1);
    assert_eq!(durable(&mut driver), [0; 0]);
    replicate(&mut driver, 10);
    assert_eq!(durable(&mut driver), [6]);
    replicate(&mut driver, 10);
    assert_eq!(durable(&mut driver), [0; 0], "said once");

    // Its tombstone is needed as long as the old log may be read again.
    let removes = remove(lease(1), 1, 0, &[3], wire::rpc::RejectRules::default());
    let nonce = driver.send(&removes);
    replicate(&mut driver, 3);
    assert!(driver.reply_to(nonce).is_some());
    welcome_again(&mut driver, &[WHOLE_TABLE], &[6]);
    assert_eq!(durable(&mut driver), [6], "said again");
    let short = |driver: &Driver| {
        driver
            .shard
            .replication_report()
            .map(|report| report.segments_short)
    };
    assert_eq!(
        short(&driver),
        Some(1),
        "the old log is still needed, and may have one copy only"
    );
    released(&mut driver, 6);
    assert_eq!(short(&driver), Some(0));
    released(&mut driver, 6);
    welcome_again(&mut driver, &[WHOLE_TABLE], &[]);
    assert_eq!(durable(&mut driver), [0; 0]);
    assert_eq!(driver.shard.audit(), Ok(()));

    // The coordinator's word that the sources are released may be lost.
    driver.order(sources.order(7, &[whole(2)]));
    sources.answer(&mut driver);
    commit(&mut driver, 7);
    assert_eq!(
        welcome_again(&mut driver, &[WHOLE_TABLE, whole(2)], &[]),
        Session::Continue
    );
    replicate(&mut driver, 10);
    assert_eq!(durable(&mut driver), [0; 0]);
}

#[test]
fn without_replicas_there_is_nothing_to_wait_for() {
    let (mut driver, _) = ready(6);
    commit(&mut driver, 6);
    driver.shard.tick(driver.now, &mut driver.said);
    assert_eq!(durable(&mut driver), [6]);
}

#[test]
fn orders_for_backups_are_nothing_for_a_shard_alone() {
    let mut driver = driver();
    let fence = coordinator::Kind::FenceLog(member::Log { log: DEAD.0 });
    assert_eq!(driver.order(fence), Session::Close);
}
