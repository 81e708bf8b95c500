//! RAMCloud's own master answered these bytes; so do we.

use std::collections::BTreeSet;

use base::ids::ServerId;
use wire::rpc::{EnumerateRequest, EnumerateResponse, EnumeratedObject, RetryResponse};
use wire::status::Status;

use super::harness::*;
use crate::Durability;

const CAPTURED: &str = include_str!("../../../wire/testdata/captured.txt");

fn bytes_of_hex(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().as_chunks::<2>().0.iter();
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn the_captured_story_comes_out_the_same() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    // The lease of the capture ends at this cluster time; the test's cluster is younger.
    let mut expected: Option<(u64, Vec<u8>)> = None;
    let mut compared = 0;
    let mut cursor = 0;
    let mut iterator = Vec::new();
    for line in CAPTURED.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [kind, "master", nonce, rpc, hex] = words[..] else {
            continue;
        };
        let nonce: u64 = nonce.parse().unwrap();
        match (kind, nonce) {
            ("response", _) => {
                let (sent, reply) = expected.take().expect("a request before its response");
                assert_eq!(sent, nonce);
                let captured = bytes_of_hex(hex);
                match rpc {
                    "TX_PREPARE" | "LOOKUP_INDEX_KEYS" | "READ_HASHES" => {
                        assert_eq!(wire::rpc::status(&reply), Ok(Status::UnimplementedRequest));
                    }
                    // In another order, with another state, and the time of writing is not kept.
                    "ENUMERATE" if nonce == 19 => {
                        assert_eq!(enumerated(&reply), enumerated(&captured));
                        let response = EnumerateResponse::decode(&reply).unwrap();
                        cursor = response.tablet_first_hash;
                        iterator = response.iterator.to_vec();
                    }
                    _ => {
                        assert_eq!(reply, captured, "{rpc} {nonce}");
                        compared += 1;
                    }
                }
            }
            _ => {
                stand_in(&mut driver, nonce);
                if nonce == 26 {
                    driver.order(wire::member::coordinator::Kind::DropTablet(
                        wire::member::TabletOrder {
                            sequence: 1,
                            tablet: WHOLE_TABLE,
                        },
                    ));
                }
                let mut payload = bytes_of_hex(hex);
                if (rpc, nonce) == ("ENUMERATE", 20) {
                    payload.clear();
                    let next = EnumerateRequest {
                        table_id: TABLE,
                        keys_only: false,
                        tablet_first_hash: cursor,
                        iterator: &iterator,
                    };
                    next.encode(&mut payload);
                }
                expected = Some((nonce, driver.call(&payload)));
            }
        }
    }
    assert_eq!(compared, 20);
}

/// Keys, versions and values of an ENUMERATE response.
fn enumerated(response: &[u8]) -> BTreeSet<(Vec<u8>, u64, Vec<u8>)> {
    let response = EnumerateResponse::decode(response).unwrap();
    let objects = EnumeratedObject::decode_all(response.objects).map(Result::unwrap);
    objects
        .map(|object| {
            let (key, value) = (object.object.primary_key(), object.object.value());
            (key.to_vec(), object.version, value.to_vec())
        })
        .collect()
}

/// What RPCs that this version does not serve did to versions, before the request with this nonce.
fn stand_in(driver: &mut Driver, nonce: u64) {
    match nonce {
        // A transaction made "tw" and removed "ctr".
        17 => {
            driver.call(&multi_write(&[(TABLE, b"tw", b"T")]));
            let payload = remove(lease(9), 1, 0, b"ctr", Default::default());
            assert_eq!(driver.simple(&payload), (Status::Ok, 3));
        }
        // It took one more version; the next new object had version 8.
        21 => {
            driver.call(&multi_write(&[(TABLE, b"tx", b"")]));
        }
        _ => {}
    }
}

#[test]
fn generic_checks_in_order() {
    let mut driver = Driver::new(small(Durability::Unreplicated));
    let status = |driver: &mut Driver, payload: &[u8]| {
        let reply = driver.call(payload);
        assert_eq!(reply.len(), 4, "{payload:?}");
        wire::rpc::status(&reply).unwrap()
    };
    assert_eq!(status(&mut driver, &[13, 0]), Status::MessageTooShort);
    assert_eq!(
        status(&mut driver, &[81, 0, 9, 0]),
        Status::UnimplementedRequest
    );
    assert_eq!(
        status(&mut driver, &[13, 0, 9, 0]),
        Status::ServiceNotAvailable
    );
    assert_eq!(
        status(&mut driver, &[32, 0, 1, 0]),
        Status::ServiceNotAvailable
    );
    assert_eq!(
        status(&mut driver, &[10, 0, 2, 0]),
        Status::ServiceNotAvailable
    );
    assert_eq!(
        status(&mut driver, &[77, 0, 0, 0]),
        Status::UnimplementedRequest
    );
    assert_eq!(
        status(&mut driver, &[13, 0, 3, 0]),
        Status::UnimplementedRequest
    );
    assert_eq!(status(&mut driver, &[13, 0, 0, 0]), Status::MessageTooShort);
    // Only then does it matter that nobody let the shard in.
    let retry = driver.call(&read(b"key"));
    assert_eq!(
        RetryResponse::decode(&retry),
        Ok(RetryResponse::new(100, 100))
    );
}

#[test]
fn pings_are_answered_before_the_shard_is_let_in() {
    let mut driver = Driver::new(small(Durability::Unreplicated));
    let ping = |caller: ServerId| {
        let mut payload = Vec::new();
        wire::rpc::PingRequest { caller }.encode(&mut payload);
        payload
    };
    assert_eq!(driver.call(&ping(ServerId::INVALID)), [0; 4]);
    assert_eq!(driver.call(&ping(ServerId::new(3, 0))), [26, 0, 0, 0]);
    assert_eq!(driver.call(&ping(ServerId::INVALID)[..11]), [7, 0, 0, 0]);
}

#[test]
fn malformed_requests_have_no_effect_and_a_full_length_answer() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let mut payload = write(lease(1), 1, 0, b"key", b"value", Default::default());
    let keys = wire::rpc::WriteRequest::FIXED_BYTES;
    payload[keys] = 0;
    assert_eq!(driver.call(&payload), [&[9, 0, 0, 0][..], &[0; 8]].concat());
    payload[keys] = 1;
    payload.pop();
    assert_eq!(driver.call(&payload), [&[7, 0, 0, 0][..], &[0; 8]].concat());
    let mut multi = multi_write(&[(TABLE, b"a", b"1"), (TABLE, b"b", b"2")]);
    multi.pop();
    assert_eq!(driver.call(&multi), [7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(driver.read(b"a").0, Status::ObjectDoesntExist);
    assert_eq!(driver.shard.stats().objects, 0);
}
