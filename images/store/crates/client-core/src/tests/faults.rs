//! Retries, lost connections, silence.

use super::*;

#[test]
fn retry_sends_the_identical_request_after_a_delay_in_the_range() {
    let mut script = Script::ready();
    script.write(b"k", b"v");
    let first = script.expect_sent(14);
    let mut delays = Vec::new();
    for _ in 0..20 {
        script.answer_last(&retry(1000, 2000));
        delays.push(script.wait());
        assert_eq!(script.expect_sent(14).payload, first.payload);
    }
    assert!(
        delays
            .iter()
            .all(|delay| (MILLI..=2 * MILLI).contains(delay))
    );
    delays.dedup();
    assert!(delays.len() > 1, "the delay is random");
    // A short response means 100 to 200 microseconds.
    script.answer_last(&rpc::status_bytes(Status::Retry));
    let range = Duration::from_micros(100)..=Duration::from_micros(200);
    assert!(range.contains(&script.wait()));
}

#[test]
fn a_lost_connection_looks_up_again_and_resends_the_same_bytes() {
    let mut script = Script::ready();
    script.now += 20 * MILLI;
    let id = script.write(b"k", b"v");
    let sent = script.take_sent(14);
    script
        .client
        .disconnected(script.now, sent.session, &mut script.out);
    script.expect_sent(18);
    script.answer_last(&whole("tcp:host=n,port=9"));
    script.expect_connect("tcp:host=n,port=9");
    let again = script.take_sent(14);
    assert_eq!(again.payload, sent.payload);
    assert_ne!(again.session, sent.session);
    // The old connection's answer is worth nothing any more.
    script.answer(&sent, &version(Status::Ok, 77));
    script.answer(&again, &version(Status::Ok, 5));
    assert_eq!(script.completed(), (id, Ok(Owned::Version(5))));
    script.quiet();
}

#[test]
fn a_server_that_refuses_connections_is_tried_less_and_less_often() {
    let mut script = Script::ready();
    script.now += 20 * MILLI;
    script.read(b"k");
    let sent = script.take_sent(13);
    script
        .client
        .disconnected(script.now, sent.session, &mut script.out);
    let mut delays = Vec::new();
    for _ in 0..8 {
        script.expect_sent(18);
        script.answer_last(&whole("tcp:host=m,port=1"));
        let session = script.expect_attempt("tcp:host=m,port=1");
        script
            .client
            .disconnected(script.now, session, &mut script.out);
        script.quiet();
        delays.push(script.wait());
    }
    assert!(delays[0] >= 20 * MILLI && delays[0] <= 40 * MILLI);
    assert!(
        delays[7] >= 320 * MILLI && delays[7] <= 640 * MILLI,
        "bounded"
    );
}

#[test]
fn a_list_of_locators_is_tried_in_order() {
    let mut script = Script::ready();
    script.now += 20 * MILLI;
    script.read(b"k");
    script.answer_last(&version(Status::UnknownTablet, 0));
    script.answer_last(&whole(
        "tcp:host=a,port=1;fast+udp:host=f,port=1;tcp:host=b,port=2",
    ));
    let session = script.expect_attempt("tcp:host=a,port=1");
    script
        .client
        .disconnected(script.now, session, &mut script.out);
    assert_eq!(script.expect_connect("tcp:host=b,port=2"), session);
    script.take_sent(13);
}

#[test]
fn a_connection_that_does_not_open_in_time_is_given_up() {
    let mut script = Script::new();
    script.read(b"k");
    let session = script.expect_attempt(COORDINATOR);
    assert_eq!(script.wait(), Duration::from_secs(2));
    assert_eq!(script.out.closed.pop_front(), Some(session));
    let delay = script.wait();
    assert!(delay >= 10 * MILLI && delay <= 20 * MILLI);
    script.expect_attempt(COORDINATOR);
}

#[test]
fn the_coordinators_locators_are_tried_in_turn_for_ever() {
    let list = "tcp:host=a,port=1;tcp:host=b,port=1";
    let mut script = Script::with(list, |_| {});
    let id = script.client.table_id(script.now, b"t", &mut script.out);
    for _ in 0..3 {
        for locator in ["tcp:host=a,port=1", "tcp:host=b,port=1"] {
            let session = script.expect_attempt(locator);
            script
                .client
                .disconnected(script.now, session, &mut script.out);
            script.quiet();
            script.wait();
        }
    }
    script.expect_connect("tcp:host=a,port=1");
    let first = script.take_sent(11);
    // Lost while open: sent again at once, on the next one.
    script
        .client
        .disconnected(script.now, first.session, &mut script.out);
    script.expect_connect("tcp:host=b,port=1");
    let again = script.take_sent(11);
    assert_eq!(again.payload, first.payload);
    let answer = encode(|out| {
        rpc::TableIdResponse {
            status: Status::Ok,
            table_id: TABLE,
        }
        .encode(out);
    });
    script.answer(&again, &answer);
    assert_eq!(script.completed(), (id, Ok(Owned::Table(TABLE))));
}

#[test]
fn a_quiet_connection_is_pinged_and_then_given_up() {
    let mut script = Script::ready();
    script.now += 20 * MILLI;
    script.read(b"k");
    let sent = script.take_sent(13);
    assert_eq!(script.wait(), 250 * MILLI);
    let ping = script.take_sent(7);
    assert_eq!(ping.session, sent.session);
    assert_eq!(ping.payload, b"\x07\0\x03\0\0\0\0\0\xff\xff\xff\xff");
    script.answer(&ping, &[0; 4]);
    // Answered: the connection lives, and the wait begins anew.
    assert_eq!(script.wait(), 250 * MILLI);
    script.take_sent(7);
    assert_eq!(script.wait(), 250 * MILLI);
    assert_eq!(script.out.closed.pop_front(), Some(sent.session));
    script.expect_sent(18);
}

#[test]
fn a_connection_that_owes_nothing_is_left_alone() {
    let mut script = Script::ready();
    let next = script.client.tick(script.now, &mut script.out);
    script.now += Duration::from_secs(600);
    script.client.tick(script.now, &mut script.out);
    script.quiet();
    assert!(next > Time::ZERO);
    // The silence before a request does not count.
    script.read(b"k");
    script.take_sent(13);
    assert_eq!(script.wait(), 250 * MILLI);
    script.take_sent(7);
}
