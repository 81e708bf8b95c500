//! Servers that can be reached in several ways.

use super::*;

const TCP: &str = "tcp:host=10.0.0.2,port=1";
const FAST: &str = "fast+udp:host=10.0.0.2,port=2";
const BOTH: &str = "tcp:host=10.0.0.2,port=1;fast+udp:host=10.0.0.2,port=2";

/// A client that is about to read an object of a server with two locators.
fn about_to_read() -> (Script, OperationId) {
    let mut script = Script::with(COORDINATOR, |config| {
        config.protocols = vec!["fast+dpdk", "fast+udp", "tcp"];
    });
    let id = script.read(b"k");
    script.expect_connect(COORDINATOR);
    script.expect_sent(18);
    script.answer_last(&whole(BOTH));
    (script, id)
}

fn answer_read(script: &mut Script, id: OperationId, session: u64) {
    let sent = script.take_sent(13);
    assert_eq!(sent.session, session);
    script.answer(&sent, &object(3, b"v"));
    assert_eq!(
        script.completed(),
        (id, Ok(Owned::Object(3, b"v"[..].into())))
    );
}

#[test]
fn the_fastest_is_taken() {
    let (mut script, id) = about_to_read();
    let session = script.expect_connect(FAST);
    answer_read(&mut script, id, session);
    script.quiet();
}

#[test]
fn a_driver_that_speaks_tcp_only_is_asked_for_nothing_else() {
    let mut script = Script::new();
    script.read(b"k");
    script.expect_connect(COORDINATOR);
    script.expect_sent(18);
    script.answer_last(&whole(BOTH));
    script.expect_connect(TCP);
}

#[test]
fn the_slower_way_is_taken_where_the_faster_is_none_and_the_faster_when_it_is_back() {
    let (mut script, first) = about_to_read();
    let failed = script.expect_attempt(FAST);
    script
        .client
        .disconnected(script.now, failed, &mut script.out);
    let slow = script.expect_connect(TCP);
    assert_eq!(slow, failed, "it is one session to the client");
    answer_read(&mut script, first, slow);
    // After a second the faster way is tried again, while operations go on over the slower.
    assert_eq!(script.wait(), Duration::from_secs(1));
    let trial = script.expect_attempt(FAST);
    let id = script.read(b"k");
    answer_read(&mut script, id, slow);
    script
        .client
        .disconnected(script.now, trial, &mut script.out);
    assert_eq!(
        script.wait(),
        Duration::from_secs(2),
        "it waits longer each time"
    );
    let trial = script.expect_attempt(FAST);
    // An operation is under way when it opens: its answer still comes the slower way.
    let under_way = script.read(b"k");
    let sent = script.take_sent(13);
    assert_eq!(sent.session, slow);
    script.client.connected(script.now, trial, &mut script.out);
    let next = script.read(b"k");
    answer_read(&mut script, next, trial);
    assert_eq!(script.out.closed, []);
    script.answer(&sent, &object(4, b"w"));
    assert_eq!(
        script.completed(),
        (under_way, Ok(Owned::Object(4, b"w"[..].into())))
    );
    script.wait();
    assert_eq!(
        script.out.closed.pop_front(),
        Some(slow),
        "its last answer has come"
    );
    script.quiet();
    let id = script.read(b"k");
    answer_read(&mut script, id, trial);
}

#[test]
fn a_way_that_dies_is_left_for_the_other() {
    let (mut script, id) = about_to_read();
    let fast = script.expect_connect(FAST);
    answer_read(&mut script, id, fast);
    let id = script.read(b"k");
    script.take_sent(13);
    script
        .client
        .disconnected(script.now, fast, &mut script.out);
    // The table may have moved.
    script.wait();
    script.expect_sent(18);
    script.answer_last(&whole(BOTH));
    let again = script.expect_attempt(FAST);
    script
        .client
        .disconnected(script.now, again, &mut script.out);
    let slow = script.expect_connect(TCP);
    answer_read(&mut script, id, slow);
}
