//! Large requests, full memory, versions.

use core::time::Duration;

use base::ids::TableId;
use wire::member::{self, coordinator, shard};
use wire::rpc::{MAX_VALUE_BYTES, MultiWriteResponse, RejectRules};
use wire::status::Status;

use super::harness::*;
use crate::{Config, Durability};

#[test]
fn versions_of_a_key_only_grow() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    for version in 1..=5 {
        assert_eq!(driver.write(version, b"key", b""), (Status::Ok, version));
    }
    assert_eq!(driver.write(6, b"other", b""), (Status::Ok, 2));
    assert_eq!(driver.remove(7, b"key"), (Status::Ok, 5));
    assert_eq!(driver.read(b"key").0, Status::ObjectDoesntExist);
    assert_eq!(driver.write(8, b"key", b""), (Status::Ok, 6));
}

#[test]
fn reject_rules_answer_with_the_version_as_it_is() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    driver.write(1, b"key", b"1");
    driver.write(2, b"key", b"2");
    let only_new = RejectRules {
        exists: true,
        ..RejectRules::default()
    };
    let not_2 = RejectRules {
        given_version: 1,
        version_ne_given: true,
        ..RejectRules::default()
    };
    let mut rpc_id = 2;
    let mut call = |driver: &mut Driver, rules, is_remove| {
        rpc_id += 1;
        driver.simple(&if is_remove {
            remove(lease(1), rpc_id, 0, b"key", rules)
        } else {
            write(lease(1), rpc_id, 0, b"key", b"3", rules)
        })
    };
    assert_eq!(
        call(&mut driver, only_new, false),
        (Status::ObjectExists, 2)
    );
    assert_eq!(call(&mut driver, not_2, false), (Status::WrongVersion, 2));
    assert_eq!(call(&mut driver, not_2, true), (Status::WrongVersion, 2));
    let right = RejectRules {
        given_version: 2,
        ..not_2
    };
    assert_eq!(call(&mut driver, right, true), (Status::Ok, 2));
    let must_exist = RejectRules {
        doesnt_exist: true,
        ..RejectRules::default()
    };
    assert_eq!(
        call(&mut driver, must_exist, true),
        (Status::ObjectDoesntExist, 0)
    );
}

#[test]
fn parts_of_a_multi_write_stand_on_their_own() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let large = vec![0; MAX_VALUE_BYTES + 1];
    let reply = driver.call(&multi_write(&[
        (TABLE, b"a", b"1"),
        (TableId(2), b"b", b"2"),
        (TABLE, b"c", &large),
        (TABLE, b"a", b"3"),
    ]));
    let response = MultiWriteResponse::decode(&reply).unwrap();
    assert_eq!(response.status, Status::Ok);
    let parts: Vec<_> = response
        .parts()
        .map(|part| (part.status, part.version))
        .collect();
    let expected = [
        (Status::Ok, 1),
        (Status::UnknownTablet, 0),
        (Status::RequestTooLarge, 0),
        (Status::Ok, 2),
    ];
    assert_eq!(parts, expected);
    assert_eq!(driver.read(b"a"), (Status::Ok, 2, b"3".to_vec()));
}

#[test]
fn a_multi_write_with_very_many_parts_is_answered_in_part() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let objects = vec![(TABLE, &b"key"[..], &b""[..]); 1500];
    let reply = driver.call(&multi_write(&objects));
    let response = MultiWriteResponse::decode(&reply).unwrap();
    assert_eq!(response.count(), 1024);
    assert_eq!(driver.read(b"key").1, 1024);
}

#[test]
fn the_largest_object_fits_and_a_larger_one_is_too_large() {
    let config = Config::from_memory(40 << 20, 10).unwrap();
    let mut driver = Driver::enlisted(config);
    let key = vec![b'k'; 65_535];
    let mut value = vec![7; MAX_VALUE_BYTES];
    for rpc_id in 1..=50 {
        assert_eq!(driver.write(rpc_id, &key, &value), (Status::Ok, rpc_id));
        driver.settle();
    }
    assert_eq!(driver.read(&key), (Status::Ok, 50, value.clone()));
    value.push(7);
    assert_eq!(driver.write(51, &key, &value).0, Status::RequestTooLarge);
    assert_eq!(driver.remove(52, &key), (Status::Ok, 50));
}

#[test]
fn an_object_that_fits_no_segment_is_too_large() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    assert_eq!(
        driver.write(1, b"key", &[0; 12_000]).0,
        Status::RequestTooLarge
    );
    assert_eq!(driver.write(2, b"key", &[0; 9_000]).0, Status::Ok);
}

/// Writes until memory is full; answers how many objects fit.
fn fill(driver: &mut Driver) -> u64 {
    for n in 0.. {
        let key = format!("key-{n}");
        for attempt in 0.. {
            let reply = driver.call(&multi_write(&[(TABLE, key.as_bytes(), &[1; 300])]));
            let part = MultiWriteResponse::decode(&reply)
                .unwrap()
                .parts()
                .next()
                .unwrap();
            match part.status {
                Status::Ok => break,
                Status::Retry => assert!(attempt < 1000, "retries end"),
                other => {
                    assert_eq!(other, Status::NoTableSpace);
                    return n;
                }
            }
            driver.settle();
        }
    }
    unreachable!()
}

#[test]
fn full_memory_refuses_new_objects_and_serves_everything_else() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let count = fill(&mut driver);
    assert!(count > 2000, "{count}");
    let stats = driver.shard.stats();
    assert_eq!((stats.objects, stats.rejected_full), (count, 1));
    assert_eq!(driver.write(1, b"new", &[0; 300]).0, Status::NoTableSpace);
    assert_eq!(driver.read(b"key-7").2, [1; 300]);
    assert_eq!(
        driver.write(2, b"key-7", &[2; 300]).0,
        Status::Ok,
        "of the same size"
    );
    for n in 0..count {
        let key = format!("key-{n}");
        let payload = remove(lease(2), n + 1, n, key.as_bytes(), RejectRules::default());
        for attempt in 0.. {
            match driver.simple(&payload).0 {
                Status::Ok => break,
                status => assert_eq!((status, attempt < 1000), (Status::Retry, true)),
            }
            driver.settle();
        }
    }
    driver.settle();
    assert_eq!(driver.shard.stats().objects, 0);
    assert_eq!(
        driver.write(1, b"new", &[0; 300]).0,
        Status::NoTableSpace,
        "a late copy of what its client was told is not done"
    );
    assert_eq!(driver.read(b"new").0, Status::ObjectDoesntExist);
    assert_eq!(driver.write(3, b"new", &[0; 300]).0, Status::Ok);
    assert_eq!(driver.shard.audit(), Ok(()));
    assert!(fill(&mut driver) > count / 2);
}

#[test]
fn a_pong_says_since_when_requests_are_refused_for_want_of_memory() {
    let room = |driver: &mut Driver| {
        let ping = coordinator::Kind::Ping(member::Ping::default());
        driver.order(ping);
        match driver.said.messages.pop() {
            Some(shard::Kind::Pong(pong)) => pong.room.expect("always told"),
            other => panic!("no pong: {other:?}"),
        }
    };
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let before = room(&mut driver);
    assert_eq!((before.full_rejections, before.full), (0, None));
    assert!(before.max_live_bytes > 0);
    // The last write of these is refused.
    fill(&mut driver);
    driver.now += Duration::from_secs(3);
    let payload = multi_write(&[(TABLE, b"a", &[1; 300]), (TABLE, b"b", &[1; 300])]);
    driver.call(&payload);
    driver.now += Duration::from_secs(2);
    let full = member::MemoryFull {
        for_ms: 5_000,
        last_ms: 2_000,
    };
    let shown = room(&mut driver);
    assert_eq!((shown.full_rejections, shown.full), (3, Some(full)));
    driver.now += Duration::from_secs(58);
    assert_eq!(
        room(&mut driver).full,
        None,
        "nobody was refused for a minute"
    );
}

#[test]
fn a_full_hash_table_is_full_memory() {
    let mut config = small(Durability::Unreplicated);
    config.hash_table_bytes = 0;
    let mut driver = Driver::enlisted(config);
    let count = fill(&mut driver);
    assert!((100..300).contains(&count), "{count}");
    assert_eq!(
        driver.write(1, b"key-0", b"").0,
        Status::Ok,
        "its slot is there"
    );
    assert_eq!(driver.remove(2, b"key-0").0, Status::Ok);
}
