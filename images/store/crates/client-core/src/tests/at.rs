//! Calls to a server that is named by its locator: asked once, and not asked elsewhere.

use super::*;
use wire::rpc::{EchoResponse, GetServerIdResponse, ProxyPingRequest, ProxyPingResponse};

const SERVER: &str = "tcp:host=s,port=5";
const PING: u8 = 7;

fn ask(script: &mut Script, question: Question) -> OperationId {
    let (now, out) = (script.now, &mut script.out);
    script.client.ask(now, SERVER, question, out)
}

fn unreachable_is(script: &mut Script, id: OperationId) {
    assert_eq!(script.completed(), (id, Err(Error::Unreachable)));
    assert_eq!(script.client.pending(), 0);
    script.out.closed.clear();
    script.quiet();
}

#[test]
fn a_server_answers_for_itself_without_a_coordinator() {
    let mut script = Script::new();
    let id = ask(&mut script, Question::ServerId);
    script.expect_connect(SERVER);
    let response = encode(|out| {
        GetServerIdResponse {
            status: Status::Ok,
            server_id: ServerId(12),
        }
        .encode(out);
    });
    script.answer_last(&response);
    assert_eq!(script.completed(), (id, Ok(Owned::Server(ServerId(12)))));
    // The connection is kept for the next question.
    let id = ask(&mut script, Question::Ping);
    script.expect_sent(PING);
    script.answer_last(&rpc::status_bytes(Status::Ok));
    assert_eq!(script.completed(), (id, Ok(Owned::Done)));
    script.quiet();
}

#[test]
fn a_connection_that_is_refused_is_not_tried_again() {
    let mut script = Script::new();
    let id = ask(&mut script, Question::Ping);
    let session = script.expect_attempt(SERVER);
    script
        .client
        .disconnected(script.now, session, &mut script.out);
    unreachable_is(&mut script, id);
    // The next question tries again.
    ask(&mut script, Question::Ping);
    script.expect_connect(SERVER);
    script.expect_sent(PING);
}

#[test]
fn the_locators_of_one_server_are_tried_in_order() {
    let mut script = Script::new();
    let list = "tcp:host=s,port=5;tcp:host=t,port=6";
    let (now, out) = (script.now, &mut script.out);
    let id = script.client.ask(now, list, Question::Ping, out);
    let session = script.expect_attempt("tcp:host=s,port=5");
    script.client.disconnected(now, session, &mut script.out);
    let session = script.expect_attempt("tcp:host=t,port=6");
    script.client.disconnected(now, session, &mut script.out);
    unreachable_is(&mut script, id);
}

#[test]
fn a_lost_connection_is_the_end_of_all_that_was_asked_on_it() {
    let mut script = Script::new();
    let first = ask(&mut script, Question::Ping);
    // What the server does not live to answer.
    let kill = ask(&mut script, Question::Kill);
    let session = script.expect_connect(SERVER);
    assert_eq!(script.out.sent.len(), 2);
    script.out.sent.clear();
    script
        .client
        .disconnected(script.now, session, &mut script.out);
    let ends = [script.completed(), script.completed()];
    assert_eq!(ends, [first, kill].map(|id| (id, Err(Error::Unreachable))));
    script.quiet();
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let mut script = Script::new();
    let id = ask(&mut script, Question::Metrics);
    let session = script.expect_connect(SERVER);
    script.out.sent.clear();
    assert_eq!(script.wait(), 250 * MILLI);
    script.take_sent(PING);
    assert_eq!(script.wait(), 250 * MILLI);
    assert_eq!(script.out.closed.pop_front(), Some(session));
    unreachable_is(&mut script, id);
}

#[test]
fn a_server_that_does_not_open_is_given_up() {
    let mut script = Script::new();
    let id = ask(&mut script, Question::Ping);
    let session = script.expect_attempt(SERVER);
    assert_eq!(script.wait(), Duration::from_secs(2));
    assert_eq!(script.out.closed.pop_front(), Some(session));
    unreachable_is(&mut script, id);
}

#[test]
fn a_key_that_lives_there_is_looked_for_again_all_the_same() {
    let mut script = Script::ready();
    script.now += 20 * MILLI;
    let read = script.read(b"k");
    let sent = script.take_sent(13);
    let (now, out) = (script.now, &mut script.out);
    let ping = script
        .client
        .ask(now, "tcp:host=m,port=1", Question::Ping, out);
    assert_eq!(script.take_sent(PING).session, sent.session, "one for both");
    script
        .client
        .disconnected(now, sent.session, &mut script.out);
    assert_eq!(script.completed(), (ping, Err(Error::Unreachable)));
    script.answer_last(&whole("tcp:host=m,port=1"));
    script.expect_connect("tcp:host=m,port=1");
    script.answer_last(&object(3, b"v"));
    assert_eq!(script.completed().0, read);
}

#[test]
fn no_tablet_is_looked_for() {
    let mut script = Script::new();
    let id = ask(&mut script, Question::Statistics);
    script.expect_connect(SERVER);
    script.answer_last(&rpc::status_bytes(Status::UnknownTablet));
    let refused = Err(Error::status(Status::UnknownTablet));
    assert_eq!(script.completed(), (id, refused));
    script.quiet();
}

#[test]
fn what_is_no_locator_is_refused_at_once() {
    let mut script = Script::new();
    for locator in ["", "nonsense", "fast+udp:host=a,port=1"] {
        let (now, out) = (script.now, &mut script.out);
        let id = script.client.ask(now, locator, Question::Ping, out);
        let (done, result) = script.completed();
        assert_eq!(done, id);
        assert!(matches!(result, Err(Error::Invalid(_))), "{locator:?}");
        script.quiet();
    }
}

#[test]
fn an_echo_comes_back_and_a_long_one_does_not_go_out() {
    let mut script = Script::new();
    let (now, out) = (script.now, &mut script.out);
    let id = script.client.echo(now, SERVER, b"hello", 3, out);
    script.expect_connect(SERVER);
    let response = encode(|out| {
        EchoResponse {
            status: Status::Ok,
            bytes: b"abc",
        }
        .encode(out);
    });
    script.answer_last(&response);
    let expected = Owned::Message(b"abc".to_vec());
    assert_eq!(script.completed(), (id, Ok(expected)));
    let too_many = rpc::MAX_RPC_BYTES as u32;
    script
        .client
        .echo(now, SERVER, b"", too_many, &mut script.out);
    assert!(matches!(script.completed().1, Err(Error::Invalid(_))));
    script.quiet();
}

#[test]
fn a_proxy_tells_how_long_it_took_or_that_it_took_too_long() {
    let mut script = Script::new();
    for (reply_ns, took) in [
        (5000, Some(Duration::from_micros(5))),
        (ProxyPingResponse::TIMED_OUT, None),
    ] {
        let (now, out) = (script.now, &mut script.out);
        let id = script
            .client
            .proxy_ping(now, SERVER, ServerId(4), 7 * MILLI, out);
        if let Some((session, _)) = script.out.connects.pop_front() {
            script.client.connected(now, session, &mut script.out);
        }
        let sent = script.out.sent.pop_front().unwrap();
        let request = ProxyPingRequest::decode(&sent.payload).unwrap();
        assert_eq!(request.server_id, ServerId(4));
        assert_eq!(request.timeout_ns, 7_000_000);
        let status = Status::Ok;
        let response = encode(|out| ProxyPingResponse { status, reply_ns }.encode(out));
        script.answer(&sent, &response);
        assert_eq!(script.completed(), (id, Ok(Owned::Took(took))));
    }
}
