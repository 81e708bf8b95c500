//! Increments: they change something, so that they are numbered, and stay the same however often they are sent.

use super::*;
use wire::rpc::{IncrementRequest, IncrementResponse};

const INCREMENT: u8 = 43;

fn increment(script: &mut Script, int64: i64) -> OperationId {
    let by = Increment { int64, double: 0.0 };
    script
        .client
        .increment(script.now, TABLE, b"k", by, &NO_RULES, &mut script.out)
}

fn answer(status: Status, version: u64, sum: i64) -> Vec<u8> {
    encode(|out| {
        IncrementResponse {
            status,
            version,
            new_value: sum.to_le_bytes(),
        }
        .encode(out);
    })
}

#[test]
fn an_increment_says_by_how_much_and_tells_what_came_of_it() {
    let mut script = Script::ready();
    let by = Increment {
        int64: -3,
        double: 0.5,
    };
    let rules = RejectRules {
        doesnt_exist: true,
        ..NO_RULES
    };
    let id = script
        .client
        .increment(script.now, TABLE, b"k", by, &rules, &mut script.out);
    let sent = script.take_sent(INCREMENT);
    let request = IncrementRequest::decode(&sent.payload).unwrap();
    assert_eq!((request.by, request.rules), (by, rules));
    assert_eq!((request.table_id, request.key), (TABLE, &b"k"[..]));
    script.answer(&sent, &answer(Status::Ok, 4, 7));
    let expected = Owned::Incremented(4, 7i64.to_le_bytes());
    assert_eq!(script.completed(), (id, Ok(expected)));
}

#[test]
fn increments_are_numbered_among_the_writes() {
    let mut script = Script::ready();
    script.write(b"a", b"1");
    increment(&mut script, 1);
    script.write(b"b", b"2");
    let (first, second, third) = (
        script.take_sent(14),
        script.take_sent(INCREMENT),
        script.take_sent(14),
    );
    let all = [&first, &second, &third].map(ids);
    assert_eq!(all, [(9, 1, 0), (9, 2, 0), (9, 3, 0)]);
    script.answer(&first, &version(Status::Ok, 1));
    script.answer(&second, &answer(Status::Ok, 1, 1));
    increment(&mut script, 1);
    assert_eq!(ids(&script.take_sent(INCREMENT)), (9, 4, 2));
}

#[test]
fn an_increment_waits_for_a_lease() {
    let mut script = Script::new();
    increment(&mut script, 1);
    script.expect_connect(COORDINATOR);
    script.expect_sent(60);
    script.answer_last(&lease(9, 0));
    script.expect_sent(18);
    script.answer_last(&whole("tcp:host=m,port=1"));
    script.expect_connect("tcp:host=m,port=1");
    assert_eq!(ids(&script.take_sent(INCREMENT)), (9, 1, 0));
}

#[test]
fn an_increment_is_sent_again_under_its_number_until_it_is_answered() {
    let mut script = Script::ready();
    script.now += 20 * MILLI;
    let id = increment(&mut script, 5);
    let first = script.take_sent(INCREMENT);
    // Put off.
    script.answer(&first, &retry(1000, 1000));
    assert_eq!(script.wait(), MILLI);
    let second = script.take_sent(INCREMENT);
    // Somewhere else.
    script.answer(&second, &rpc::status_bytes(Status::UnknownTablet));
    script.expect_sent(18);
    script.answer_last(&whole("tcp:host=n,port=2"));
    script.expect_connect("tcp:host=n,port=2");
    let third = script.take_sent(INCREMENT);
    // Its answer lost: it may have been carried out.
    script
        .client
        .disconnected(script.now, third.session, &mut script.out);
    assert!(script.wait() >= 10 * MILLI, "not asked for so soon again");
    script.expect_sent(18);
    script.answer_last(&whole("tcp:host=n,port=2"));
    script.expect_connect("tcp:host=n,port=2");
    let fourth = script.take_sent(INCREMENT);
    // Silence.
    assert_eq!(script.wait(), 250 * MILLI);
    script.take_sent(7);
    assert_eq!(script.wait(), 250 * MILLI);
    assert_eq!(script.out.closed.pop_front(), Some(fourth.session));
    script.wait();
    script.expect_sent(18);
    script.answer_last(&whole("tcp:host=n,port=2"));
    script.expect_connect("tcp:host=n,port=2");
    let fifth = script.take_sent(INCREMENT);
    for sent in [&second, &third, &fourth, &fifth] {
        assert_eq!(sent.payload, first.payload);
    }
    // Only the last of them is waited for.
    for sent in [&first, &second, &third, &fourth] {
        script.answer(sent, &answer(Status::Ok, 9, 9));
    }
    script.quiet();
    script.answer(&fifth, &answer(Status::Ok, 3, 8));
    let expected = Owned::Incremented(3, 8i64.to_le_bytes());
    assert_eq!(script.completed(), (id, Ok(expected)));
    increment(&mut script, 5);
    assert_eq!(ids(&script.take_sent(INCREMENT)), (9, 2, 1));
}

#[test]
fn refusals_tell_the_version() {
    let mut script = Script::ready();
    for status in [
        Status::InvalidObject,
        Status::WrongVersion,
        Status::ObjectDoesntExist,
    ] {
        let id = increment(&mut script, 1);
        script.answer_last(&answer(status, 6, 0));
        let version = 6;
        let refused = Err(Error::Refused { status, version });
        assert_eq!(script.completed(), (id, refused));
        // Known only by its status, as where the object is not looked at.
        let id = increment(&mut script, 1);
        script.answer_last(&rpc::status_bytes(status));
        assert_eq!(script.completed(), (id, Err(Error::status(status))));
    }
}

#[test]
fn an_increment_that_is_given_up_is_done_with() {
    let mut script = Script::ready();
    let id = increment(&mut script, 1);
    let sent = script.take_sent(INCREMENT);
    script.client.set_deadline(id, script.now + 5 * MILLI);
    assert_eq!(script.wait(), 5 * MILLI);
    assert_eq!(script.completed(), (id, Err(Error::Deadline)));
    script.answer(&sent, &answer(Status::Ok, 1, 1));
    script.quiet();
    increment(&mut script, 1);
    assert_eq!(ids(&script.take_sent(INCREMENT)), (9, 2, 1));
}
