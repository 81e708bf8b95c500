//! MULTI_OP of all kinds, INCREMENT and objects with several keys.

use base::ids::TableId;
use wire::keys::KeysAndValue;
use wire::rpc::{
    Increment, IncrementRequest, IncrementResponse, MAX_RPC_BYTES, MultiIncrementPart,
    MultiIncrementRequest, MultiReadPart, MultiReadRequest, MultiReadResponse, MultiRemovePart,
    MultiRemoveRequest, MultiWritePart, MultiWriteRequest, RejectRules,
};
use wire::status::Status;

use super::harness::*;
use crate::*;

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn multi_read(keys: &[(TableId, &[u8])]) -> Vec<u8> {
    let parts: Vec<_> = keys
        .iter()
        .map(|&(table_id, key)| MultiReadPart {
            table_id,
            rules: RejectRules::default(),
            key,
        })
        .collect();
    encoded(|out| MultiReadRequest::encode_parts(&parts, out))
}

fn increment(rpc_id: u64, key: &[u8], by: Increment, rules: RejectRules) -> Vec<u8> {
    let request = IncrementRequest {
        table_id: TABLE,
        lease: lease(1),
        rpc_id,
        ack_id: 0,
        by,
        rules,
        key,
    };
    encoded(|out| request.encode(out))
}

const INT: fn(i64) -> Increment = |int64| Increment { int64, double: 0.0 };
const DOUBLE: fn(f64) -> Increment = |double| Increment { int64: 0, double };

fn incremented(driver: &mut Driver, payload: &[u8]) -> (Status, u64, [u8; 8]) {
    let reply = driver.call(payload);
    assert_eq!(reply.len(), IncrementResponse::FIXED_BYTES);
    let response = IncrementResponse::decode(&reply).unwrap();
    (response.status, response.version, response.new_value)
}

#[test]
fn increments() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let any = RejectRules::default();
    let first = increment(1, b"n", INT(i64::MAX), any);
    assert_eq!(
        incremented(&mut driver, &first),
        (Status::Ok, 1, i64::MAX.to_le_bytes())
    );
    assert_eq!(
        incremented(&mut driver, &increment(2, b"n", INT(1), any)),
        (Status::Ok, 2, i64::MIN.to_le_bytes()),
        "it wraps"
    );
    // Sent again, it is answered again, and counts once.
    assert_eq!(
        incremented(&mut driver, &first),
        (Status::Ok, 1, i64::MAX.to_le_bytes())
    );
    assert_eq!(driver.read(b"n").1, 2);
    assert_eq!(driver.shard.stats().duplicates, 1);
    assert_eq!(
        incremented(&mut driver, &increment(3, b"d", DOUBLE(-1.5), any)),
        (Status::Ok, 2, (-1.5f64).to_le_bytes()),
        "a new object has the next safe version"
    );
    let there = RejectRules {
        doesnt_exist: true,
        ..any
    };
    let absent = increment(4, b"absent", INT(1), there);
    for _ in 0..2 {
        assert_eq!(
            incremented(&mut driver, &absent),
            (Status::ObjectDoesntExist, 0, [0; 8])
        );
    }
    driver.write(5, b"text", b"nine bytes");
    let (status, _, value) = incremented(&mut driver, &increment(6, b"text", INT(1), any));
    assert_eq!((status, value), (Status::InvalidObject, [0; 8]));
    assert_eq!(driver.read(b"text").2, b"nine bytes");
    assert_eq!(driver.shard.audit(), Ok(()));
}

#[test]
fn every_cut_of_an_increment_is_refused() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let whole = increment(1, b"key", INT(1), RejectRules::default());
    for length in 4..whole.len() {
        let reply = driver.call(&whole[..length]);
        assert_eq!(reply[..4], [7, 0, 0, 0], "{length} bytes");
        let expected = if length < IncrementRequest::FIXED_BYTES {
            4
        } else {
            20
        };
        assert_eq!(reply.len(), expected);
    }
    assert_eq!(driver.shard.stats().objects, 0);
    assert_eq!(incremented(&mut driver, &whole).0, Status::Ok);
}

/// An object with a missing and another secondary key, written by multi-write, overwritten and moved about by the cleaner.
#[test]
fn objects_with_several_keys_stay_whole() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    let object = KeysAndValue::parse(b"\x03\x03\x00\x03\x00\x06\x00pk1secvalue678").unwrap();
    let part = MultiWritePart {
        table_id: TABLE,
        rules: RejectRules::default(),
        object,
    };
    let payload = encoded(|out| MultiWriteRequest::encode_parts(&[part], out));
    driver.call(&payload);
    driver.call(&payload);
    let cleaned = |driver: &Driver| driver.shard.stats().segments_cleaned;
    let mut written = 0u64;
    while cleaned(&driver) < 64 {
        written += 1;
        driver.call(&multi_write(&[(
            TABLE,
            &(written % 7).to_le_bytes(),
            &[0; 3000],
        )]));
        driver.settle();
        assert!(written < 100_000, "nothing is cleaned");
    }
    let reply = driver.call(&multi_read(&[(TABLE, b"pk1")]));
    let response = MultiReadResponse::decode(&reply).unwrap();
    let read: Vec<_> = response.parts().collect();
    assert_eq!((read[0].version, read[0].object), (2, Some(object)));
    assert_eq!(driver.read(b"pk1").2, b"value678");
    assert_eq!(driver.shard.audit(), Ok(()));
    // What an increment writes back has the primary key only.
    let add = increment(1, b"pk1", INT(1), RejectRules::default());
    assert_eq!(incremented(&mut driver, &add).0, Status::Ok);
    let reply = driver.call(&multi_read(&[(TABLE, b"pk1")]));
    let response = MultiReadResponse::decode(&reply).unwrap();
    assert_eq!(
        response.parts().next().unwrap().object.unwrap().key_count(),
        1
    );
}

#[test]
fn parts_have_their_own_outcomes() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    driver.call(&multi_write(&[(TABLE, b"a", b"1"), (TABLE, b"n", &[0; 8])]));
    let reply = driver.call(&multi_read(&[
        (TABLE, b"a"),
        (TABLE, b"absent"),
        (TableId(9), b"a"),
        (TABLE, b"n"),
    ]));
    let response = MultiReadResponse::decode(&reply).unwrap();
    let statuses: Vec<_> = response.parts().map(|part| part.status).collect();
    assert_eq!(
        statuses,
        [
            Status::Ok,
            Status::ObjectDoesntExist,
            Status::UnknownTablet,
            Status::Ok
        ]
    );

    let rules = RejectRules::default();
    let by = |key| MultiIncrementPart {
        table_id: TABLE,
        by: INT(2),
        rules,
        key,
    };
    let payload = encoded(|out| {
        MultiIncrementRequest::encode_parts(&[by(&b"n"[..]), by(b"a"), by(b"n")], out);
    });
    let reply = driver.call(&payload);
    assert_eq!(reply.len(), 8 + 3 * 20);
    assert_eq!((reply[8], reply[8 + 12]), (0, 2));
    assert_eq!(reply[8 + 20], 22, "INVALID_OBJECT");
    assert_eq!((reply[8 + 40], reply[8 + 40 + 12]), (0, 4));

    let gone = |key| MultiRemovePart {
        table_id: TABLE,
        rules,
        key,
    };
    let payload = encoded(|out| {
        MultiRemoveRequest::encode_parts(&[gone(&b"n"[..]), gone(b"absent")], out);
    });
    let reply = driver.call(&payload);
    assert_eq!(reply.len(), 8 + 2 * 12);
    assert_eq!((reply[8], reply[12], reply[20], reply[24]), (0, 4, 0, 0));
    assert_eq!(driver.shard.stats().objects, 1);
}

#[test]
fn a_malformed_multi_op_has_no_effect() {
    let mut driver = Driver::enlisted(small(Durability::Unreplicated));
    driver.call(&multi_write(&[(TABLE, b"n", &[0; 8])]));
    let rules = RejectRules::default();
    let part = MultiIncrementPart {
        table_id: TABLE,
        by: INT(1),
        rules,
        key: b"n",
    };
    let increments = encoded(|out| MultiIncrementRequest::encode_parts(&[part, part], out));
    let part = MultiRemovePart {
        table_id: TABLE,
        rules,
        key: b"n",
    };
    let removes = encoded(|out| MultiRemoveRequest::encode_parts(&[part, part], out));
    let reads = multi_read(&[(TABLE, b"n"), (TABLE, b"n")]);
    for whole in [increments, removes, reads] {
        for length in 4..whole.len() {
            let reply = driver.call(&whole[..length]);
            let expected = if length < 12 { 4 } else { 8 };
            assert_eq!((reply.len(), reply[0]), (expected, 7), "{length} bytes");
        }
    }
    assert_eq!(driver.read(b"n").1, 1);
}

#[test]
fn a_multi_read_stops_before_the_answer_is_too_long() {
    let mut driver = Driver::enlisted(Config {
        segment_bytes: 2 << 20,
        log_bytes: 16 << 20,
        ..small(Durability::Unreplicated)
    });
    // Eight of the largest values under a key of five bytes fill an answer to its last byte.
    let largest = vec![5; 1 << 20];
    for (key, count) in [(&b"five5"[..], 8), (b"sixsix", 7)] {
        driver.call(&multi_write(&[(TABLE, key, &largest)]));
        let reply = driver.call(&multi_read(&[(TABLE, key); 9]));
        assert!(reply.len() <= MAX_RPC_BYTES);
        let response = MultiReadResponse::decode(&reply).unwrap();
        let parts: Vec<_> = response.parts().collect();
        assert_eq!(
            parts.len(),
            count,
            "and the client asks again for the others"
        );
        assert!(
            parts
                .iter()
                .all(|part| part.object.unwrap().value() == largest)
        );
    }
}
