//! A shard that brings back what a dead server had. The backups that it reads from are real, the coordinator is the test.

mod orders;
mod sources;

use core::time::Duration;

use base::ids::ServerId;
use wire::member::coordinator::Kind;
use wire::member::{TabletRange, shard};
use wire::peer::{Entries, Status as PeerStatus};
use wire::status::Status;

use super::harness::*;
use crate::*;
use sources::*;

fn driver() -> Driver {
    let mut driver = Driver::new(small(Durability::Unreplicated));
    let session = driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[]);
    assert_eq!(session, Session::Continue);
    name_backups(&mut driver, &[20, 21, 22]);
    driver
}

/// What a backup answers instead of this.
type BackupAnswer<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

/// Ten segments with an object each, on two of three backups.
fn ten_objects() -> Sources {
    let mut sources = Sources::default();
    for id in 1..=10 {
        let segment = Segment::new(id).object(&[id as u8], id + 100, b"value");
        sources.put(&segment, &[20 + id % 3, 20 + (id + 1) % 3]);
    }
    sources
}

#[test]
fn tablets_are_served_when_the_coordinator_says_so() {
    let mut sources = Sources::default();
    let (a, b, c) = (b"a", b"b", b"c");
    sources.put(
        &Segment::new(1).object(a, 1, b"old").object(b, 2, b"b"),
        &[20],
    );
    sources.put(&Segment::new(3).object(a, 4, b"new").tombstone(b, 2), &[21]);
    sources.put(
        &Segment::new(4).object(c, 7, b"c").result(c, 5, 7),
        &[20, 22],
    );
    let mut driver = driver();
    driver.order(sources.order(6, &[WHOLE_TABLE]));
    sources.answer(&mut driver);
    let recovered = recovered(&mut driver);
    assert_eq!(recovered.len(), 1);
    assert_eq!(recovered[0].failure, "");
    assert!(recovered[0].recovery_id == 6 && recovered[0].from_segment > 0);
    assert!(
        recovered[0].objects >= 2 && recovered[0].bytes > 300,
        "{recovered:?}"
    );
    assert_eq!(
        driver.said.sources_disconnected.len(),
        2,
        "nothing more to read"
    );

    assert_eq!(driver.read(a).0, Status::UnknownTablet);
    assert_eq!(commit(&mut driver, 6), Session::Continue);
    assert_eq!(driver.read(a), (Status::Ok, 4, b"new".to_vec()));
    assert_eq!(driver.read(b).0, Status::ObjectDoesntExist);
    assert_eq!(driver.read(c), (Status::Ok, 7, b"c".to_vec()));
    assert_eq!(
        driver.write(5, c, b"again"),
        (Status::Ok, 7),
        "it was done by the dead server"
    );
    assert!(
        driver.write(6, b, b"b").1 > 7,
        "a version that was never used"
    );
    assert_eq!(driver.shard.audit(), Ok(()));
    assert_eq!(commit(&mut driver, 6), Session::Continue, "said again");
}

#[test]
fn versions_that_may_have_been_used_in_what_was_given_up_are_not_used_again() {
    let mut sources = Sources::default();
    let segment = Segment::new(1).object(b"a", 5, b"older than what was lost");
    sources.put(&segment.object(b"c", 6, b"c"), &[20]);
    let mut driver = driver();
    let Kind::Recover(mut order) = sources.order(6, &[WHOLE_TABLE]) else {
        panic!("an order");
    };
    order.version_floor = 1000;
    driver.order(Kind::Recover(order));
    sources.answer(&mut driver);
    recovered(&mut driver);
    assert_eq!(commit(&mut driver, 6), Session::Continue);
    assert_eq!(driver.read(b"a").1, 5, "what is left is as it was");
    let over = driver.write(1, b"a", b"new").1;
    let new = driver.write(2, b"b", b"new").1;
    assert_eq!(driver.remove(3, b"c"), (Status::Ok, 6));
    let again = driver.write(4, b"c", b"new").1;
    assert!(
        over >= 1000 && new >= 1000 && again >= 1000,
        "{over} {new} {again}"
    );
    // The coordinator hears which versions are in use, also those of objects that were overwritten.
    let count = 5;
    for rpc_id in 5..5 + count {
        driver.write(rpc_id, b"a", b"newer");
    }
    driver.order(Kind::Ping(wire::member::Ping {
        sequence: 1,
        cluster_time_ns: 1,
        ..Default::default()
    }));
    let mut pongs = driver.said.messages.iter().filter_map(|kind| match kind {
        shard::Kind::Pong(pong) => Some(pong.next_version),
        _ => None,
    });
    assert!(pongs.next_back().is_some_and(|next| next > over + count));
}

#[test]
fn only_what_was_ordered_comes_back() {
    let hash = wire::hash::key_hash(TABLE, &[4]);
    let tablet = TabletRange {
        start_key_hash: hash,
        end_key_hash: hash,
        ..WHOLE_TABLE
    };
    let mut driver = driver();
    let mut sources = ten_objects();
    driver.order(sources.order(6, &[tablet]));
    sources.answer(&mut driver);
    commit(&mut driver, 6);
    assert_eq!(driver.shard.stats().objects, 1);
    assert_eq!(driver.read(&[4]), (Status::Ok, 104, b"value".to_vec()));
    assert_eq!(driver.read(&[5]).0, Status::UnknownTablet);
}

#[test]
fn every_recovery_reads_in_an_order_of_its_own_and_a_bounded_number_at_once() {
    let mut orders = Vec::new();
    for recovery_id in [6, 7] {
        let mut driver = driver();
        let mut sources = Sources::default();
        for id in 1..=100 {
            sources.put(
                &Segment::new(id).object(&[id as u8], id, b"value"),
                &[20, 21, 22],
            );
        }
        driver.order(sources.order(recovery_id, &[WHOLE_TABLE]));
        sources.answer(&mut driver);
        assert_eq!(recovered(&mut driver)[0].objects, 100);
        assert_eq!(sources.most, (12, 4), "in all, and of one backup");
        orders.push(sources.asked);
    }
    assert_ne!(orders[0], orders[1]);
    orders.iter_mut().for_each(|order| order.sort_unstable());
    assert_eq!(orders[0], orders[1]);
}

#[test]
fn another_backup_is_read_where_one_does_not_help() {
    let helps = |spoil: &dyn Fn(&mut Driver, &mut Sources)| {
        let mut driver = driver();
        let mut sources = Sources::default();
        let segment = Segment::new(1).object(b"a", 4, b"value");
        sources.put(&segment, &[20, 21]);
        sources.put(&segment, &[21]);
        sources.name(&segment, &[20, 21]);
        driver.order(sources.order(6, &[WHOLE_TABLE]));
        driver.shard.tick(driver.now, &mut driver.said);
        assert_eq!(
            driver.said.sources_connected,
            [ServerId(20)],
            "the first of the list"
        );
        spoil(&mut driver, &mut sources);
        sources.answer(&mut driver);
        commit(&mut driver, 6);
        assert_eq!(driver.read(b"a"), (Status::Ok, 4, b"value".to_vec()));
    };
    helps(&|driver, _| disconnect(driver, 20));
    helps(&|_, sources| sources.rot(20));
    helps(&|driver, _| name_backups(driver, &[21]));
    helps(&|driver, _| {
        connect(driver);
        driver.now += Duration::from_secs(3);
    });
    let another = Segment::new(2).object(b"a", 9, b"other");
    let answers: [BackupAnswer<'_>; 7] = [
        &|right| [&right[..5], another.bytes()].concat(),
        &|_| Entries::fixed_bytes(PeerStatus::Missing, 0).to_vec(),
        &|_| Entries::fixed_bytes(PeerStatus::Mismatch, 0).to_vec(),
        &|_| Entries::fixed_bytes(PeerStatus::Retired, 0).to_vec(),
        &|_| b"?".to_vec(),
        // Damaged on the way.
        &|right| [&right[..right.len() - 1], b"?"].concat(),
        // More than there can be.
        &|right| {
            [
                &Entries::fixed_bytes(PeerStatus::Ok, 10_000)[..],
                &right[5..],
            ]
            .concat()
        },
    ];
    for answer in answers {
        helps(&|driver, sources| {
            connect(driver);
            driver.shard.tick(driver.now, &mut driver.said);
            let (backup, nonce, payload) = driver.said.to_sources.remove(0);
            let right = sources.read(backup, &payload);
            answer_with(driver, backup, nonce, &answer(&right));
        });
    }
}

#[test]
fn who_cannot_read_a_segment_says_what_each_backup_said() {
    let mut driver = driver();
    let mut sources = Sources::default();
    let segment = Segment::new(5).object(b"a", 4, b"value");
    sources.put(&segment, &[20]);
    sources.rot(20);
    sources.put(&Segment::new(6), &[21]);
    sources.name(&segment, &[20, 21, 30, 22]);
    driver.order(sources.order(6, &[WHOLE_TABLE]));
    // One that cannot be reached may be the next time, and is tried once more.
    sources.away = Some(22);
    sources.answer(&mut driver);
    assert_eq!(sources.attempts, 2);
    driver
        .said
        .messages
        .retain(|kind| !matches!(kind, shard::Kind::SuspectServer(_)));
    let failure = failure(&mut driver);
    assert!(!failure.is_full);
    assert_eq!(
        failure.failure,
        "segment 5 of 9.3 cannot be read: backup 30.0 is not among the backups that the coordinator named; \
         backup 20.0 has found its replica damaged; backup 21.0 does not have it; backup 22.0 has lost the connection"
    );
    driver.settle();
    assert_eq!(driver.shard.stats().objects, 0);
    assert_eq!(
        driver
            .shard
            .tick(driver.now, &mut driver.said)
            .min(driver.now),
        driver.now
    );
    // What comes late is nobody's.
    driver.order(sources.order(7, &[WHOLE_TABLE]));
    assert_eq!(recovered(&mut driver), [], "the tablets are free again");
}

#[test]
fn a_backup_that_gives_nothing_is_not_asked_for_ever() {
    let mut driver = driver();
    let mut sources = Sources::default();
    sources.name(&Segment::new(5).object(b"a", 4, b"value"), &[20]);
    driver.order(sources.order(6, &[WHOLE_TABLE]));
    driver.shard.tick(driver.now, &mut driver.said);
    connect(&mut driver);
    for _ in 0..65 {
        let (backup, nonce, _) = driver.said.to_sources.remove(0);
        let nothing = Entries::fixed_bytes(PeerStatus::Ok, 0);
        answer_with(&mut driver, backup, nonce, &nothing);
    }
    let RecoveryError::Unreadable { tried, .. } = failed(&mut driver) else {
        panic!("not for want of a backup");
    };
    assert!(matches!(
        tried[..],
        [(ServerId(20), SourceError::GivesNothing { beyond: 0, .. })]
    ));
}

#[test]
fn what_finds_no_memory_waits_for_the_cleaner_or_is_left_to_others() {
    let mut sources = Sources::default();
    let value = [7; 1500];
    for id in 1..=30 {
        let mut segment = Segment::new(id);
        for n in 0..10 {
            segment = segment.object(&[id as u8, n], 5, &value);
        }
        sources.put(&segment, &[20]);
    }
    // Nearly all is dead here, and has to be cleaned.
    let mut full_of_dead = Driver::enlisted(small(Durability::Unreplicated));
    name_backups(&mut full_of_dead, &[20]);
    for n in 1..500 {
        assert_eq!(full_of_dead.write(n, b"key", &[1; 1800]).0, Status::Ok);
        full_of_dead.settle();
    }
    let free = full_of_dead.shard.stats().log_free_bytes;
    assert!(free < 20 << 14, "{free} bytes are free");
    let other = [TabletRange {
        table_id: 2,
        ..WHOLE_TABLE
    }];
    full_of_dead.order(sources.order(6, &other));
    sources.answer(&mut full_of_dead);
    assert_eq!(recovered(&mut full_of_dead).len(), 1, "nothing to copy");
    full_of_dead.order(wire::member::coordinator::Kind::DropTablet(
        wire::member::TabletOrder {
            sequence: 1,
            tablet: WHOLE_TABLE,
        },
    ));
    full_of_dead.order(sources.order(7, &[WHOLE_TABLE]));
    for _ in 0..10_000 {
        sources.answer(&mut full_of_dead);
        full_of_dead.now += Duration::from_millis(1);
    }
    assert_eq!(recovered(&mut full_of_dead)[0].objects, 300);
    commit(&mut full_of_dead, 7);
    assert_eq!(full_of_dead.read(&[30, 9]).1, 5);
    assert_eq!(full_of_dead.shard.audit(), Ok(()));

    let mut small = Driver::new(Config {
        log_bytes: 16 << 14,
        ..small(Durability::Unreplicated)
    });
    small.welcome(CLUSTER, ServerId::new(1, 0), 1, &[]);
    name_backups(&mut small, &[20]);
    small.order(sources.order(6, &[WHOLE_TABLE]));
    sources.answer(&mut small);
    let failure = failure(&mut small);
    assert!(failure.is_full, "{failure:?}");
    small.settle();
    assert_eq!(small.shard.stats().objects, 0);
}
