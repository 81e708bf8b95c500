//! Enumeration: each piece goes to the server of the hash where it begins, whoever that is by then.

use super::*;
use wire::hash::key_hash;
use wire::rpc::{EnumerateRequest, EnumerateResponse};

const ENUMERATE: u8 = 22;
const HALF: u64 = 1 << 63;

fn ask(script: &mut Script, first_hash: u64, iterator: &[u8]) -> OperationId {
    let (now, out) = (script.now, &mut script.out);
    script
        .client
        .enumerate(now, TABLE, false, first_hash, iterator, out)
}

fn page(first_hash: u64, objects: &[u8], iterator: &[u8]) -> Vec<u8> {
    encode(|out| {
        EnumerateResponse {
            status: Status::Ok,
            tablet_first_hash: first_hash,
            objects,
            iterator,
        }
        .encode(out);
    })
}

fn enumerated(first_hash: u64, objects: &[u8], iterator: &[u8]) -> Result<Owned, Error> {
    Ok(Owned::Enumerated {
        tablet_first_hash: first_hash,
        objects: objects.to_vec(),
        iterator: iterator.to_vec(),
    })
}

/// A client that knows both halves of its table.
fn halves() -> Script {
    let mut script = Script::new();
    ask(&mut script, 0, &[]);
    script.expect_connect(COORDINATOR);
    script.answer_last(&config(vec![
        tablet(0, HALF - 1, Some("tcp:host=l,port=1")),
        tablet(HALF, u64::MAX, Some("tcp:host=h,port=2")),
    ]));
    script.expect_connect("tcp:host=l,port=1");
    script
}

#[test]
fn pieces_go_where_the_answer_before_says() {
    let mut script = halves();
    let first = script.take_sent(ENUMERATE);
    let request = EnumerateRequest::decode(&first.payload).unwrap();
    assert_eq!((request.table_id, request.tablet_first_hash), (TABLE, 0));
    assert!(request.iterator.is_empty() && !request.keys_only);
    script.answer(&first, &page(77, b"objects", b"state"));
    assert_eq!(script.completed().1, enumerated(77, b"objects", b"state"));

    // The same tablet.
    ask(&mut script, 77, b"state");
    let second = script.take_sent(ENUMERATE);
    assert_eq!(second.session, first.session);
    let request = EnumerateRequest::decode(&second.payload).unwrap();
    assert_eq!(request.tablet_first_hash, 77);
    assert_eq!(request.iterator, b"state");
    script.answer(&second, &page(HALF, b"", b"more"));
    assert_eq!(script.completed().1, enumerated(HALF, b"", b"more"));

    // The next one, elsewhere.
    ask(&mut script, HALF, b"more");
    let elsewhere = script.expect_connect("tcp:host=h,port=2");
    let third = script.take_sent(ENUMERATE);
    assert_eq!(third.session, elsewhere);
    script.answer(&third, &page(0, b"", b""));
    assert_eq!(script.completed().1, enumerated(0, b"", b""));
    script.quiet();
}

#[test]
fn keys_alone_can_be_asked_for() {
    let mut script = Script::ready();
    let (now, out) = (script.now, &mut script.out);
    script.client.enumerate(now, TABLE, true, 0, &[], out);
    let sent = script.take_sent(ENUMERATE);
    assert!(EnumerateRequest::decode(&sent.payload).unwrap().keys_only);
}

#[test]
fn a_tablet_that_was_split_and_moved_is_found_again() {
    let mut script = halves();
    script.now += 20 * MILLI;
    let id = ask(&mut script, HALF - 10, b"state");
    let waits = script.take_sent(ENUMERATE);
    let sent = script.take_sent(ENUMERATE);
    // What the client believes to be one tablet are two, and the second is somewhere else.
    script.answer(&sent, &rpc::status_bytes(Status::UnknownTablet));
    script.answer_last(&config(vec![
        tablet(0, HALF - 11, Some("tcp:host=l,port=1")),
        tablet(HALF - 10, HALF - 1, Some("tcp:host=n,port=3")),
        tablet(HALF, u64::MAX, Some("tcp:host=h,port=2")),
    ]));
    let session = script.expect_connect("tcp:host=n,port=3");
    let again = script.take_sent(ENUMERATE);
    assert_eq!((again.session, &again.payload), (session, &sent.payload));
    script.answer(&again, &page(HALF, b"o", b"s"));
    assert_eq!(script.completed(), (id, enumerated(HALF, b"o", b"s")));
    // The piece that was asked for before is not disturbed.
    script.answer(&waits, &page(5, b"p", b"s"));
    assert_eq!(script.completed().1, enumerated(5, b"p", b"s"));
    script.quiet();
}

#[test]
fn a_piece_whose_answer_is_lost_is_asked_for_again() {
    let mut script = Script::ready();
    script.now += 20 * MILLI;
    let id = ask(&mut script, 3, b"state");
    let sent = script.take_sent(ENUMERATE);
    script
        .client
        .disconnected(script.now, sent.session, &mut script.out);
    script.answer_last(&whole("tcp:host=n,port=9"));
    script.expect_connect("tcp:host=n,port=9");
    let again = script.take_sent(ENUMERATE);
    assert_eq!(again.payload, sent.payload);
    script.answer(&again, &retry(2000, 2000));
    assert_eq!(script.wait(), 2 * MILLI);
    let last = script.take_sent(ENUMERATE);
    assert_eq!(last.payload, sent.payload);
    script.answer(&last, &page(0, b"", b""));
    assert_eq!(script.completed(), (id, enumerated(0, b"", b"")));
}

#[test]
fn a_table_that_is_dropped_ends_it() {
    let mut script = Script::ready();
    script.now += 20 * MILLI;
    let id = ask(&mut script, 3, b"state");
    script.answer_last(&rpc::status_bytes(Status::UnknownTablet));
    script.answer_last(&config(Vec::new()));
    let gone = Err(Error::status(Status::TableDoesntExist));
    assert_eq!(script.completed(), (id, gone));
}

#[test]
fn a_state_that_is_refused_is_told() {
    let mut script = Script::ready();
    let id = ask(&mut script, 3, b"nonsense");
    script.answer_last(&rpc::status_bytes(Status::RequestFormatError));
    let refused = Err(Error::status(Status::RequestFormatError));
    assert_eq!(script.completed(), (id, refused));
    // An answer that claims more than it has.
    let id = ask(&mut script, 3, b"state");
    let whole = page(9, b"objects", b"state");
    script.answer_last(&whole[..whole.len() - 1]);
    let malformed = Err(Error::status(Status::ResponseFormatError));
    assert_eq!(script.completed(), (id, malformed));
}

#[test]
fn the_place_is_a_hash_and_not_that_of_a_key() {
    let mut script = halves();
    script.take_sent(ENUMERATE);
    // Both hashes are looked up as they are.
    let key = (0u8..)
        .find(|key| key_hash(TABLE, &[*key]) >= HALF)
        .unwrap();
    ask(&mut script, key_hash(TABLE, &[key]), b"state");
    script.expect_connect("tcp:host=h,port=2");
    script.take_sent(ENUMERATE);
}
