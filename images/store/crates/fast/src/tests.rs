//! Endpoints on a network that loses, repeats, delays and changes what it carries, in one thread from one seed.

mod attack;
mod faults;
mod greedy;
mod hostile;
mod network;
mod order;
mod sharing;

use core::time::Duration;

use network::{Network, Node, Weather, address};

use crate::{Config, Event, Reason};

/// What the server of these tests answers: as many bytes as the request's first four say, made of the request.
fn answer(request: &[u8]) -> Vec<u8> {
    let length = request
        .first_chunk::<4>()
        .map_or(0, |length| u32::from_le_bytes(*length));
    let seed = request
        .iter()
        .fold(7u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    (0..length)
        .map(|at| seed.wrapping_add((at % 253) as u8))
        .collect()
}

fn request(length: usize, answer_bytes: u32, id: u8) -> Vec<u8> {
    let mut request = answer_bytes.to_le_bytes().to_vec();
    request.resize(length.max(4), id);
    request
}

#[test]
fn a_call_is_two_packets() {
    let mut network = Network::new(1, Weather::default());
    let session = network.open(0, 1, false);
    let before = network.carried;
    let asked = request(100, 100, 3);
    assert!(network.nodes[0].send(network.now, session, 9, &asked));
    let answered = network.run_until(|network| network.nodes[0].answers.pop());
    assert_eq!(answered, Some((session, 9, answer(&asked))));
    assert_eq!(network.carried - before, 2);
}

/// Asks how far the other side is, and waits for what it says.
fn ping(network: &mut Network, session: u64) -> Option<Duration> {
    let (now, node) = (network.now, &mut network.nodes[0]);
    node.endpoint.ping(now, session, &mut node.out);
    network.run_for(Duration::from_micros(100));
    let pinged = network.nodes[0].endpoint.pinged(session);
    pinged
        .filter(|(_, at)| *at > now)
        .map(|(round_trip, _)| round_trip)
}

#[test]
fn a_ping_takes_as_long_as_the_way_there_and_back() {
    let mut network = Network::new(1, Weather::default());
    let session = network.open(0, 1, false);
    assert_eq!(network.nodes[0].endpoint.pinged(session), None);
    assert_eq!(ping(&mut network, session), Some(Duration::from_micros(4)));
    // Nor does it matter what the peer is busy with.
    network.nodes[1].holds_answers = true;
    assert!(network.nodes[0].send(network.now, session, 9, &request(100, 100, 3)));
    assert_eq!(ping(&mut network, session), Some(Duration::from_micros(4)));
    network.weather.lost = 1000;
    assert_eq!(ping(&mut network, session), None, "it was lost");
    network.nodes[0].close(session);
    assert_eq!(network.nodes[0].endpoint.pinged(session), None);
    assert_eq!(ping(&mut network, session), None, "there is no session");
}

#[test]
fn a_ping_makes_nobody_forget_an_answer_that_was_lost() {
    let mut network = Network::new(1, Weather::default());
    let session = network.open(0, 1, false);
    network.nodes[1].holds_answers = true;
    for nonce in [1, 2] {
        let asked = request(100, 100, nonce);
        assert!(network.nodes[0].send(network.now, session, nonce.into(), &asked));
    }
    network.run_until(|network| (network.nodes[1].executed.len() == 2).then_some(()));
    // The answers leave, and are lost.
    network.weather.lost = 1000;
    network.nodes[1].holds_answers = false;
    let now = network.now;
    network.nodes[1].answer_held(now);
    network.run_for(Duration::from_micros(10));
    network.weather.lost = 0;
    assert!(ping(&mut network, session).is_some());
    assert_eq!(network.nodes[0].answers.len(), 0);
    for _ in [1, 2] {
        let answered = network.run_until(|network| network.nodes[0].answers.pop());
        let (_, nonce, bytes) = answered.expect("an answer");
        assert!(bytes == answer(&request(100, 100, nonce as u8)));
    }
    assert_eq!(network.nodes[1].executed.len(), 2, "each once");
}

/// The first requests are repeated: nobody knows how far the peer is. Those that follow wait for as long as it takes.
#[test]
fn a_peer_that_is_far_away_is_not_asked_again_and_again() {
    let weather = Weather {
        jitter: Duration::from_millis(20),
        ..Weather::default()
    };
    let mut network = Network::new(14, weather);
    let session = network.open(0, 1, false);
    let mut call = |nonce: u64| {
        let asked = request(100, 100, nonce as u8);
        assert!(network.nodes[0].send(network.now, session, nonce, &asked));
        let answered = network.run_until(|network| network.nodes[0].answers.pop());
        assert!(answered.is_some());
        network.nodes[0].endpoint.counters().retries
    };
    let first = (1..6).map(&mut call).last().unwrap_or_default();
    let all = (6..26).map(&mut call).last().unwrap_or_default();
    assert!(all - first < 20, "{} repetitions of 20 calls", all - first);
}

#[test]
fn every_length_comes_through() {
    for datagram_bytes in [548, 1472, 8972] {
        let config = Config {
            datagram_bytes,
            ..Config::default()
        };
        let mut network = Network::with(2, Weather::default(), config, 2);
        let session = network.open(0, 1, false);
        for length in [
            4, 5, 519, 520, 521, 1443, 1444, 1445, 2888, 16_383, 16_384, 16_385, 100_000, 1_000_003,
        ] {
            let asked = request(length, length as u32 - 4, 1);
            network.nodes[0].send(network.now, session, length as u64, &asked);
            let answered = network.run_until(|network| network.nodes[0].answers.pop());
            assert!(
                answered == Some((session, length as u64, answer(&asked))),
                "{length}"
            );
        }
        assert_eq!(
            network.nodes[0].endpoint.counters().held_bytes,
            network.nodes[0].idle_bytes()
        );
    }
}

#[test]
fn lent_answers_are_sent_from_where_they_lie_and_given_back() {
    let mut network = Network::new(12, Weather::default());
    let session = network.open(0, 1, false);
    for recall_every in [0, 3] {
        network.nodes[1].recall_every = recall_every;
        for nonce in 1..9 {
            let asked = request(100, 200_000, nonce as u8);
            assert!(network.nodes[0].send(network.now, session, nonce, &asked));
        }
        for _ in 1..9 {
            let answered = network.run_until(|network| network.nodes[0].answers.pop());
            let (_, nonce, bytes) = answered.expect("an answer");
            assert!(bytes == answer(&request(100, 200_000, nonce as u8)));
        }
        network.run_for(Duration::from_secs(12));
        let server = &network.nodes[1];
        assert!(server.lent > 0 && server.loans.is_empty());
        let held = server.endpoint.counters().held_bytes;
        assert!(held <= 9000, "{held} bytes are held by nothing");
    }
}

#[test]
fn a_session_ends_whose_answer_is_gone() {
    let mut network = Network::new(13, Weather::default());
    let session = network.open(0, 1, false);
    for nonce in 1..3 {
        let asked = request(100, 200_000, nonce as u8);
        assert!(network.nodes[0].send(network.now, session, nonce, &asked));
    }
    network.run_until(|network| (!network.nodes[1].loans.is_empty()).then_some(()));
    network.nodes[1].forget_loans();
    let closed = network.run_until(|network| network.nodes[1].closed.pop());
    assert!(matches!(closed, Some((_, Reason::Lost))), "{closed:?}");
    let closed = network.run_until(|network| network.nodes[0].closed.pop());
    assert_eq!(closed, Some((session, Reason::Closed)));
}

#[test]
fn nobody_there() {
    let mut network = Network::new(3, Weather::default());
    let nowhere = address(77);
    let session = network.nodes[0].connect(network.now, nowhere, false);
    let closed = network.run_until(|network| network.nodes[0].closed.pop());
    assert_eq!(closed, Some((session, Reason::Unreachable)));
    assert!(network.now.0 < 1_600_000_000, "{:?}", network.now);
}

#[test]
fn a_peer_that_was_started_anew_knows_nothing_of_the_session() {
    let mut network = Network::new(4, Weather::default());
    let session = network.open(0, 1, false);
    network.restart(1);
    network.nodes[0].send(network.now, session, 1, &request(100, 100, 1));
    let closed = network.run_until(|network| network.nodes[0].closed.pop());
    assert_eq!(closed, Some((session, Reason::Forgotten)));
}

#[test]
fn what_a_former_run_opened_ends_when_the_next_one_opens_a_session() {
    let mut network = Network::new(5, Weather::default());
    network.open(0, 1, false);
    network.restart(0);
    network.open(0, 1, false);
    let closed = network.run_until(|network| network.nodes[1].closed.pop());
    assert!(matches!(closed, Some((_, Reason::Restarted))), "{closed:?}");
    assert_eq!(network.nodes[1].endpoint.counters().sessions, 1);
}

#[test]
fn a_dead_peer_is_noticed_while_it_owes_something_and_while_it_does_not() {
    let mut network = Network::new(6, Weather::default());
    let session = network.open(0, 1, false);
    network.nodes[1].is_dead = true;
    network.nodes[0].send(network.now, session, 1, &request(100, 100, 1));
    let start = network.now;
    let closed = network.run_until(|network| network.nodes[0].closed.pop());
    assert_eq!(closed, Some((session, Reason::Silent)));
    assert!(network.now.since(start) < Duration::from_secs(3));

    let mut network = Network::new(7, Weather::default());
    let session = network.open(0, 1, false);
    network.nodes[1].is_dead = true;
    let closed = network.run_until(|network| network.nodes[0].closed.pop());
    assert_eq!(closed, Some((session, Reason::Silent)));
}

#[test]
fn an_idle_session_lives_for_as_long_as_both_sides_do() {
    let mut network = Network::new(8, Weather::default());
    let session = network.open(0, 1, false);
    network.run_for(Duration::from_secs(600));
    assert!(network.nodes[0].closed.is_empty() && network.nodes[1].closed.is_empty());
    network.nodes[0].is_dead = true;
    network.run_for(Duration::from_secs(60));
    assert!(matches!(
        network.nodes[1].closed.pop(),
        Some((_, Reason::Silent))
    ));
    let _ = session;
}

#[test]
fn a_pause_is_no_death() {
    let mut network = Network::new(9, Weather::default());
    let session = network.open(0, 1, false);
    // Nine seconds of silence, then a request: only from then on does the peer owe an answer.
    network.now += Duration::from_secs(9);
    network.nodes[0].send(network.now, session, 1, &request(10, 10, 1));
    let answered = network.run_until(|network| network.nodes[0].answers.pop());
    assert!(answered.is_some());
}

#[test]
fn a_slow_answer_is_waited_for() {
    let mut network = Network::new(10, Weather::default());
    let session = network.open(0, 1, false);
    network.nodes[1].holds_answers = true;
    network.nodes[0].send(network.now, session, 1, &request(100, 5, 1));
    network.run_for(Duration::from_secs(20));
    assert!(
        network.nodes[0].closed.is_empty(),
        "it is told that its request is worked on"
    );
    let executed = network.nodes[1].executed.len();
    assert_eq!(executed, 1);
    network.nodes[1].answer_held(network.now);
    assert!(
        network
            .run_until(|network| network.nodes[0].answers.pop())
            .is_some()
    );
}

#[test]
fn closing_tells_the_other_side() {
    let mut network = Network::new(11, Weather::default());
    let session = network.open(0, 1, false);
    network.nodes[0].close(session);
    let closed = network.run_until(|network| network.nodes[1].closed.pop());
    assert!(matches!(closed, Some((_, Reason::Closed))));
    assert_eq!(network.nodes[0].endpoint.counters().sessions, 0);
    assert_eq!(network.nodes[1].endpoint.counters().sessions, 0);
}

#[test]
fn too_many_sessions_are_refused_and_idle_ones_make_room() {
    let config = Config {
        sessions: 2,
        ..Config::default()
    };
    let mut network = Network::with(12, Weather::default(), config, 4);
    network.open(0, 3, false);
    network.open(1, 3, false);
    let refused = network.nodes[2].connect(network.now, address(3), false);
    let closed = network.run_until(|network| network.nodes[2].closed.pop());
    assert_eq!(
        closed,
        Some((refused, Reason::Refused(crate::Refusal::Full)))
    );
    // Those two are pinged every ten seconds; one that is gone is not heard of.
    network.nodes[0].is_dead = true;
    network.run_for(Duration::from_secs(15));
    network.open(2, 3, false);
    assert!(matches!(
        network.nodes[3].closed.pop(),
        Some((_, Reason::Displaced))
    ));
}

#[test]
fn more_requests_than_slots_wait_and_come_through() {
    let mut network = Network::new(13, Weather::default());
    let session = network.open(0, 1, false);
    for nonce in 0..1000u64 {
        let asked = request(40, 40, nonce as u8);
        assert!(network.nodes[0].send(network.now, session, nonce, &asked));
    }
    assert!(network.nodes[0].endpoint.queued_bytes(session) > 0);
    let mut seen = Vec::new();
    network.run_until(|network| {
        seen.extend(
            network.nodes[0]
                .answers
                .drain(..)
                .map(|(_, nonce, _)| nonce),
        );
        (seen.len() == 1000).then_some(())
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    assert_eq!(network.nodes[0].endpoint.queued_bytes(session), 0);
}

#[test]
fn a_queue_has_an_end() {
    let config = Config {
        queue_bytes: 10_000,
        ..Config::default()
    };
    let mut network = Network::with(14, Weather::default(), config, 2);
    let session = network.open(0, 1, false);
    for nonce in 0..400 {
        network.nodes[0].send(network.now, session, nonce, &request(100, 0, 0));
    }
    let event = network.nodes[0].endpoint.next_event();
    assert_eq!(
        event,
        Some(Event::Closed {
            session,
            reason: Reason::QueueFull
        })
    );
}

/// What nobody needs any more takes no memory, once the side that asked has been quiet for a while.
#[test]
fn answers_are_not_kept_for_ever() {
    let mut network = Network::new(15, Weather::default());
    let session = network.open(0, 1, false);
    for nonce in 0..64 {
        network.nodes[0].send(
            network.now,
            session,
            nonce,
            &request(100, 1400, nonce as u8),
        );
    }
    network.run_for(Duration::from_secs(1));
    assert!(network.nodes[1].endpoint.counters().held_bytes >= 64 * 1400);
    network.run_for(Duration::from_secs(12));
    assert_eq!(network.nodes[1].endpoint.counters().held_bytes, 0);
}

#[test]
fn nodes_are_what_they_seem() {
    // The harness itself: a node that is not there hears nothing.
    let node = Node::new(9, Config::default(), 1);
    assert!(node.answers.is_empty());
}
