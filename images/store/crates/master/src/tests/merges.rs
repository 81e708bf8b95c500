//! Tablets that become one, in whatever order orders, welcomes and broken sessions come.

use std::collections::BTreeMap;

use base::ids::{ServerId, TableId};
use proptest::prelude::*;
use wire::hash::key_hash;
use wire::member::{self, TabletLoad, TabletMerge, TabletRange, TabletSplit, coordinator, shard};
use wire::peer::MigrateRead;
use wire::status::Status;

use super::harness::*;
use crate::{Durability, MembershipEvent, Session};

const HALF: u64 = 1 << 63;
const FIRST: TabletRange = TabletRange {
    end_key_hash: HALF - 1,
    ..WHOLE_TABLE
};
const SECOND: TabletRange = TabletRange {
    start_key_hash: HALF,
    ..WHOLE_TABLE
};

fn split(key_hash: u64) -> coordinator::Kind {
    coordinator::Kind::SplitTablet(TabletSplit {
        sequence: 1,
        table_id: TABLE.0,
        key_hash,
    })
}

fn merge(tablet: TabletRange) -> coordinator::Kind {
    coordinator::Kind::MergeTablets(TabletMerge {
        sequence: 2,
        tablet,
    })
}

/// A server with both halves, and objects in each.
fn with_halves() -> Driver {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    assert!(driver.shard.hello().merges_tablets);
    driver.order(split(HALF));
    for key in 0..40_u8 {
        let (status, _) = driver.write(1 + u64::from(key), &[key], &[key; 100]);
        assert_eq!(status, Status::Ok);
    }
    driver
}

fn has_everything(driver: &mut Driver) {
    for key in 0..40_u8 {
        assert_eq!(driver.read(&[key]).2, [key; 100]);
    }
    driver.settle();
    assert_eq!(driver.shard.audit(), Ok(()));
}

/// What the server says of its tablets in a few rounds of pings.
fn loads(driver: &mut Driver) -> BTreeMap<TabletRange, TabletLoad> {
    driver.said.messages.clear();
    for sequence in 0..40 {
        let ping = member::Ping {
            sequence,
            cluster_time_ns: 1000,
            ..Default::default()
        };
        driver.order(coordinator::Kind::Ping(ping));
    }
    let messages = std::mem::take(&mut driver.said.messages).into_iter();
    let loads = messages.filter_map(|message| match message {
        shard::Kind::Pong(pong) => Some(pong.loads),
        _ => None,
    });
    loads.flatten().map(|load| (load.tablet, load)).collect()
}

#[test]
fn two_tablets_become_one_with_all_that_is_in_them() {
    let mut driver = with_halves();
    driver.said.messages.clear();
    assert_eq!(driver.order(merge(WHOLE_TABLE)), Session::Continue);
    let done = shard::Kind::TabletDone(member::TabletDone { sequence: 2 });
    assert_eq!(driver.said.messages, [done]);
    assert_eq!(driver.shard.store().tablets.all(), [WHOLE_TABLE]);
    has_everything(&mut driver);
    // Said twice is said once.
    assert_eq!(driver.order(merge(WHOLE_TABLE)), Session::Continue);
    assert_eq!(driver.shard.store().tablets.all(), [WHOLE_TABLE]);
}

#[test]
fn tablets_that_are_not_all_here_stay_as_they_are() {
    let mut driver = with_halves();
    let wrong = [
        whole(9),
        TabletRange {
            start_key_hash: 5,
            ..WHOLE_TABLE
        },
        TabletRange {
            end_key_hash: HALF + 5,
            ..WHOLE_TABLE
        },
    ];
    for tablet in wrong {
        assert_eq!(driver.order(merge(tablet)), Session::Continue);
        let table_id = TableId(tablet.table_id);
        let refused = MembershipEvent::CannotMerge { table_id };
        assert_eq!(driver.said.events.pop(), Some(refused.into()));
        assert_eq!(driver.shard.store().tablets.all(), [FIRST, SECOND]);
    }
    has_everything(&mut driver);
}

#[test]
fn what_is_in_the_one_tablet_is_told_and_what_is_in_two_is_told_anew() {
    let mut driver = with_halves();
    let told = loads(&mut driver);
    let sum = |loads: &BTreeMap<TabletRange, TabletLoad>, of: fn(&TabletLoad) -> u64| {
        loads.values().map(of).sum::<u64>()
    };
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), [FIRST, SECOND]);
    assert_eq!(sum(&told, |load| load.objects), 40);
    // In the middle of a round: what was seen of the parts in it is seen of the one.
    for sequence in 0..3 {
        let ping = member::Ping {
            sequence,
            cluster_time_ns: 1000,
            ..Default::default()
        };
        driver.order(coordinator::Kind::Ping(ping));
    }
    driver.order(merge(WHOLE_TABLE));
    let one = loads(&mut driver);
    assert_eq!(one.keys().copied().collect::<Vec<_>>(), [WHOLE_TABLE]);
    assert_eq!(sum(&one, |load| load.objects), 40);
    assert_eq!(sum(&one, |load| load.bytes), sum(&told, |load| load.bytes));
    assert_eq!(sum(&one, |load| load.uses), 40);
    // Nothing has changed since these were told, but that they were one meanwhile.
    driver.order(split(HALF));
    let again = loads(&mut driver);
    assert_eq!(again.keys().copied().collect::<Vec<_>>(), [FIRST, SECOND]);
}

/// The coordinator has given the migration up, and this server does not know yet.
#[test]
fn a_migration_of_a_part_ends_with_the_part() {
    for is_welcomed in [false, true] {
        let mut driver = with_halves();
        driver.order(coordinator::Kind::MigrateOut(member::MigrateOut {
            migration_id: 5,
            tablet: SECOND,
            target: ServerId::new(2, 0).0,
        }));
        let read = MigrateRead {
            migration_id: 5,
            piece: 0,
            bytes: 1 << 20,
            freezes: true,
        };
        let mut data = Vec::new();
        driver.shard.migrate_read(&read, &mut data);
        assert!(!data.is_empty());
        let frozen = (0..40_u8).find(|key| key_hash(TABLE, &[*key]) >= HALF);
        let frozen = frozen.expect("one of 40 keys");
        let (status, _) = driver.write(100, &[frozen], &[frozen; 100]);
        assert_eq!(status, Status::Retry);
        if is_welcomed {
            driver.shard.coordinator_lost(driver.now);
            driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[WHOLE_TABLE]);
        } else {
            driver.order(merge(WHOLE_TABLE));
        }
        let (status, _) = driver.write(101, &[frozen], &[frozen; 100]);
        assert_eq!(status, Status::Ok);
        let later = driver.shard.migrate_read(&read, &mut data);
        assert_eq!(later.status, wire::peer::Status::Missing);
        has_everything(&mut driver);
    }
}

/// The coordinator's part: what is noted, and what is on its way to the server over the present session.
struct Noted {
    tablets: Vec<TabletRange>,
    on_their_way: Vec<coordinator::Kind>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is cut and made one, however far the server has heard of it when its session ends: it drops nothing, and has in the end what is noted.
    #[test]
    fn sessions_that_break_between_orders_lose_nothing(
        steps in proptest::collection::vec((0..10_u8, 0..16_usize), 1..40),
    ) {
        let mut driver = with_halves();
        let mut noted = Noted {
            tablets: vec![FIRST, SECOND],
            on_their_way: Vec::new(),
        };
        for (what, number) in steps {
            match what {
                0..3 => noted.split(number as u64 % 8 + 1),
                3..6 => noted.merge(number),
                6..9 if !noted.on_their_way.is_empty() => {
                    let order = noted.on_their_way.remove(0);
                    assert_eq!(driver.order(order), Session::Continue);
                }
                _ => break_session(&mut driver, &mut noted),
            }
        }
        break_session(&mut driver, &mut noted);
        has_everything(&mut driver);
    }
}

impl Noted {
    /// At so many sixteenths of all hashes.
    fn split(&mut self, sixteenths: u64) {
        let hash = sixteenths << 60;
        let mut tablets = self.tablets.iter();
        let whole = tablets.find(|tablet| hash <= tablet.end_key_hash);
        let whole = *whole.expect("all hashes");
        if whole.start_key_hash < hash {
            let at = self.tablets.binary_search(&whole).expect("there it is");
            let end_key_hash = hash - 1;
            self.tablets[at].end_key_hash = end_key_hash;
            let second = TabletRange {
                start_key_hash: hash,
                ..whole
            };
            self.tablets.insert(at + 1, second);
            self.on_their_way.push(split(hash));
        }
    }

    /// One of those that have a tablet before them goes with it.
    fn merge(&mut self, number: usize) {
        if self.tablets.len() > 1 {
            let at = 1 + number % (self.tablets.len() - 1);
            let second = self.tablets.remove(at);
            self.tablets[at - 1].end_key_hash = second.end_key_hash;
            self.on_their_way.push(merge(self.tablets[at - 1]));
        }
    }
}

/// What was on its way is lost.
fn break_session(driver: &mut Driver, noted: &mut Noted) {
    noted.on_their_way.clear();
    driver.shard.coordinator_lost(driver.now);
    let session = driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &noted.tablets);
    assert_eq!(session, Session::Continue);
    assert_eq!(driver.shard.store().tablets.all(), noted.tablets);
    assert_eq!(driver.shard.stats().objects, 40, "nothing was dropped");
}
