//! FILL_WITH_TEST_DATA: behind its flag, a piece in every tick, and never in the way of others.

use base::ids::ServerId;
use wire::member::TabletRange;
use wire::rpc::{FillWithTestDataRequest, PingRequest};
use wire::status::Status;

use super::harness::*;
use crate::*;

fn fill(object_count: u32, object_bytes: u32) -> Vec<u8> {
    let mut out = Vec::new();
    FillWithTestDataRequest {
        object_count,
        object_bytes,
    }
    .encode(&mut out);
    out
}

fn allowed(durability: Durability) -> Config {
    Config {
        allow_test_rpcs: true,
        ..small(durability)
    }
}

fn status(reply: &[u8]) -> Status {
    assert!(reply.len() == 4 || reply.len() == 16, "{reply:?}");
    wire::rpc::status(reply).unwrap()
}

#[test]
fn is_not_served_without_its_flag() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    for _ in 0..3 {
        let reply = driver.call(&fill(1, 1));
        assert_eq!(status(&reply), Status::UnimplementedRequest);
    }
    driver.settle();
    assert_eq!(driver.shard.stats().objects, 0);
    let refused = ClientEvent::TestRequestRefused {
        name: "FILL_WITH_TEST_DATA",
    };
    assert_eq!(driver.said.events, [refused.into()], "reported once");
}

#[test]
fn fills_bit_by_bit_while_others_are_served() {
    let mut driver = Driver::enlisted(allowed(Durability::Unreplicated));
    let nonce = driver.send(&fill(2000, 100));
    let mut ping = Vec::new();
    let caller = ServerId::INVALID;
    PingRequest { caller }.encode(&mut ping);
    let mut ticks = 0;
    let reply = loop {
        assert_eq!(driver.call(&ping), [0; 4]);
        let again = driver.call(&fill(1, 1));
        assert_eq!(status(&again), Status::Retry, "one at a time");
        driver.shard.tick(driver.now, &mut driver.said);
        ticks += 1;
        assert!(ticks < 1000, "a fill without end");
        if let Some(reply) = driver.reply_to(nonce) {
            break reply;
        }
    };
    assert_eq!(status(&reply), Status::Ok);
    assert!(ticks > 4, "in pieces");
    assert_eq!(driver.shard.stats().objects, 2000);
    assert_eq!(driver.read(b"1999").2, [0xcc; 100]);
    assert_eq!(driver.read(b"2000").0, Status::ObjectDoesntExist);
    // The keys are taken now.
    let nonce = driver.send(&fill(1, 100));
    driver.settle();
    let reply = driver.reply_to(nonce).unwrap();
    assert_eq!(status(&reply), Status::ObjectExists);
    assert_eq!(driver.shard.audit(), Ok(()));
}

#[test]
fn takes_whole_table_tablets_in_turn() {
    let mut driver = Driver::new(allowed(Durability::Unreplicated));
    let part = TabletRange {
        end_key_hash: 1 << 60,
        ..whole(5)
    };
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[whole(1), part, whole(7)]);
    let nonce = driver.send(&fill(5, 0));
    driver.settle();
    assert_eq!(status(&driver.reply_to(nonce).unwrap()), Status::Ok);
    assert_eq!(driver.read(b"2").0, Status::Ok);
    assert_eq!(driver.read(b"3").0, Status::ObjectDoesntExist);
    assert_eq!(driver.shard.stats().objects, 5);

    let mut driver = Driver::new(allowed(Durability::Unreplicated));
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[part]);
    let reply = driver.call(&fill(5, 0));
    assert_eq!(status(&reply), Status::TabletDoesntExist);
}

#[test]
fn ends_when_memory_is_full_or_the_objects_are_too_large() {
    let mut driver = Driver::enlisted(allowed(Durability::Unreplicated));
    let nonce = driver.send(&fill(u32::MAX, 1000));
    driver.settle();
    let reply = driver.reply_to(nonce).unwrap();
    assert_eq!(status(&reply), Status::NoTableSpace);
    assert_eq!(driver.shard.audit(), Ok(()));
    let reply = driver.call(&fill(1, (1 << 20) + 1));
    assert_eq!(status(&reply), Status::RequestTooLarge);
    // Larger than a segment of this small log takes.
    let nonce = driver.send(&fill(1, 1 << 15));
    driver.settle();
    let reply = driver.reply_to(nonce).unwrap();
    assert_ne!(status(&reply), Status::Ok);
}

#[test]
fn is_answered_when_all_of_it_is_durable() {
    let mut driver = Driver::enlisted(allowed(Durability::External));
    let nonce = driver.send(&fill(10, 10));
    driver.settle();
    assert_eq!(driver.shard.stats().objects, 10);
    assert!(driver.reply_to(nonce).is_none());
    let head = driver.shard.head_position();
    driver.shard.advance_durable(head, &mut driver.said);
    assert_eq!(status(&driver.reply_to(nonce).unwrap()), Status::Ok);
}
