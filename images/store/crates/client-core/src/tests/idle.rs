//! Connections on which nothing is asked are closed, and opened again when something is.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// As applications have it: [`Config::new`] says how long.
fn ready() -> (Script, u64, u64) {
    let idle_timeout = Config::new(COORDINATOR, 1).unwrap().idle_timeout;
    assert_eq!(idle_timeout, MINUTE);
    let mut script = Script::ready_with(|config| config.idle_timeout = idle_timeout);
    let coordinator = script.client.sessions.coordinator.unwrap();
    script.read(b"k");
    let sent = script.take_sent(13);
    script.answer(&sent, &object(3, b"v"));
    script.out.completed.clear();
    (script, coordinator, sent.session)
}

#[test]
fn a_minute_without_a_question_closes_a_connection() {
    let (mut script, coordinator, server) = ready();
    // Both are a minute old at once.
    assert_eq!(script.wait(), MINUTE);
    let mut closed: Vec<u64> = script.out.closed.drain(..).collect();
    closed.sort_unstable();
    let mut both = vec![coordinator, server];
    both.sort_unstable();
    assert_eq!(closed, both);
    // Nobody is waiting: nothing is opened, and nothing is pinged.
    script.quiet();
}

#[test]
fn a_question_starts_the_minute_anew() {
    let (mut script, coordinator, server) = ready();
    script.now += Duration::from_secs(40);
    script.read(b"k");
    let sent = script.take_sent(13);
    assert_eq!(sent.session, server, "still the same connection");
    script.answer(&sent, &object(3, b"v"));
    script.out.completed.clear();
    // The coordinator was not asked.
    assert_eq!(script.wait(), Duration::from_secs(20));
    assert_eq!(
        script.out.closed.drain(..).collect::<Vec<_>>(),
        [coordinator]
    );
    assert_eq!(script.wait(), Duration::from_secs(40));
    assert_eq!(script.out.closed.drain(..).collect::<Vec<_>>(), [server]);
}

#[test]
fn the_next_operation_opens_another() {
    let (mut script, _, server) = ready();
    script.wait();
    script.out.closed.clear();
    let id = script.write(b"k", b"v");
    // Where the table is has not been forgotten.
    let session = script.expect_connect("tcp:host=m,port=1");
    assert_ne!(session, server);
    let sent = script.take_sent(14);
    assert_eq!(sent.session, session);
    script.answer(&sent, &version(Status::Ok, 4));
    assert_eq!(script.completed(), (id, Ok(Owned::Version(4))));
    // And so for the coordinator.
    script.client.table_id(script.now, b"t", &mut script.out);
    script.expect_connect(COORDINATOR);
    script.take_sent(11);
}

#[test]
fn a_connection_that_owes_an_answer_is_not_idle() {
    let (mut script, coordinator, server) = ready();
    script.read(b"k");
    let sent = script.take_sent(13);
    // The server lives, but takes its time: it answers pings only.
    let mut waited = Duration::ZERO;
    while waited < 3 * MINUTE {
        waited += script.wait();
        let closed: Vec<u64> = script.out.closed.drain(..).collect();
        assert!(closed.iter().all(|session| *session == coordinator));
        while let Some(ping) = script.out.sent.pop_front() {
            assert_eq!((ping.session, ping.payload[0]), (server, 7));
            script.answer(&ping, &rpc::status_bytes(Status::Ok));
        }
    }
    script.answer(&sent, &object(3, b"v"));
    assert!(script.completed().1.is_ok());
    assert_eq!(script.wait(), MINUTE);
    assert_eq!(script.out.closed.pop_front(), Some(server));
}
