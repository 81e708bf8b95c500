//! Peers that take more than is theirs, and what that costs others: nothing.

use core::time::Duration;

use super::network::{Network, Weather, address};
use super::request;
use crate::packet::{Header, Kind};
use crate::{Config, Endpoint, Reason};

/// Pieces of the longest datagrams here.
const PIECE_BYTES: usize = 1444;

/// A piece of a request that says to be of `length` bytes.
fn piece(session: u64, slot: u8, number: u32, length: u32, offset: usize) -> Vec<u8> {
    let header = Header {
        slot,
        number,
        length,
        offset: offset as u32,
        ..Header::new(Kind::Request, session)
    };
    let payload = [6; PIECE_BYTES];
    [&header.encode(&payload)[..], &payload].concat()
}

/// Sends what goes out unasked of requests of 8 MiB, and nothing more of them, from `node` to the last one.
fn begin_requests(network: &mut Network, node: usize, slots: core::ops::Range<u8>) {
    let server = network.nodes.len() - 1;
    network.open(node, server, false);
    let session = network.nodes[server].opened[node];
    for slot in slots {
        for at in 0..11 {
            let bytes = piece(
                session,
                slot,
                u32::from(slot) + 1,
                8 << 20,
                at * PIECE_BYTES,
            );
            network.inject(node, server, bytes);
        }
    }
    network.run_for(Duration::from_micros(100));
}

/// Has the last but one ask for something long, which is to be answered soon.
fn is_served(network: &mut Network) {
    let (good, server) = (network.nodes.len() - 2, network.nodes.len() - 1);
    let session = network.open(good, server, false);
    let start = network.now;
    network.nodes[good].send(start, session, 5, &request(100_000, 50_000, 1));
    let answered = network.run_until(|network| network.nodes[good].answers.pop());
    assert!(answered.is_some());
    let took = network.now.since(start);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn half_requests_of_one_address_keep_nobody_else_from_being_served() {
    let config = Config {
        buffer_bytes: 1 << 20,
        ..Config::default()
    };
    let mut network = Network::with(51, Weather::default(), config, 3);
    begin_requests(&mut network, 0, 0..64);
    is_served(&mut network);
}

#[test]
fn half_requests_of_many_addresses_make_room_for_somebody_who_has_less() {
    let config = Config {
        buffer_bytes: 128 << 10,
        ..Config::default()
    };
    let mut network = Network::with(52, Weather::default(), config, 8);
    for node in 0..6 {
        begin_requests(&mut network, node, 0..1);
    }
    is_served(&mut network);
    let ended = &network.nodes[7].closed;
    assert!(
        ended.iter().all(|(_, why)| *why == Reason::OutOfBuffers) && !ended.is_empty(),
        "{ended:?}"
    );
}

/// The next request of a session in order does not wait for those behind it, but for memory as any other.
#[test]
fn requests_that_arrive_never_take_more_than_is_for_them() {
    for is_ordered in [false, true] {
        let config = Config {
            buffer_bytes: 40 << 20,
            ..Config::default()
        };
        let mut network = Network::with(58, Weather::default(), config, 9);
        for node in 0..8 {
            for _ in 0..4 {
                network.open(node, 8, is_ordered);
            }
        }
        for node in 0..8 {
            for &session in &network.nodes[8].opened.clone() {
                network.inject(node, 8, piece(session, 0, 1, 8 << 20, 0));
            }
        }
        network.run_for(Duration::from_micros(500));
        let endpoint = &network.nodes[8].endpoint;
        let claimed = endpoint.claimed_bytes();
        assert!((8 << 20..=21 << 20).contains(&claimed), "{claimed}");
        endpoint.assert_consistent();
    }
}

#[test]
fn a_request_that_does_not_go_on_ends_its_session() {
    let mut network = Network::with(53, Weather::default(), Config::default(), 3);
    begin_requests(&mut network, 0, 0..2);
    assert!(network.nodes[2].endpoint.counters().held_bytes > 16_000);
    network.run_for(Duration::from_millis(1900));
    assert_eq!(network.nodes[2].closed, [], "it may still come");
    network.run_for(Duration::from_millis(300));
    let ended = network.nodes[2].closed.pop();
    assert_eq!(ended.map(|(_, why)| why), Some(Reason::Unfinished));
    assert_eq!(network.nodes[2].endpoint.counters().held_bytes, 0);
    network.nodes[2].endpoint.assert_consistent();
    is_served(&mut network);
}

#[test]
fn a_request_that_goes_on_and_on_slowly_has_a_minute() {
    let mut network = Network::with(54, Weather::default(), Config::default(), 3);
    network.open(0, 1, false);
    let session = network.nodes[1].opened[0];
    let start = network.now;
    for at in 0.. {
        network.inject(0, 1, piece(session, 0, 1, 8 << 20, at * PIECE_BYTES));
        // Time goes on from one event to the next.
        network.nodes[2].wake_at = network.now + Duration::from_secs(1);
        network.run_for(Duration::from_secs(1));
        if !network.nodes[1].closed.is_empty() {
            break;
        }
        assert!(network.now.since(start) < Duration::from_secs(70));
    }
    let ended = network.nodes[1].closed.pop();
    assert_eq!(ended.map(|(_, why)| why), Some(Reason::Unfinished));
    let took = network.now.since(start);
    assert!(took > Duration::from_secs(50), "{took:?}");
}

/// A first piece that cannot be one leaves its slot, and the memory for it, as they were.
#[test]
fn a_first_piece_that_is_none_changes_nothing() {
    let mut network = Network::with(55, Weather::default(), Config::default(), 3);
    is_served(&mut network);
    network.open(0, 2, false);
    let session = *network.nodes[2].opened.last().unwrap();
    let before = network.nodes[2].endpoint.counters().held_bytes;
    for slot in 0..64 {
        // Nobody has granted so much, nor does a piece begin there.
        network.inject(0, 2, piece(session, slot, 1, 8 << 20, 7 << 20));
        network.inject(0, 2, piece(session, slot, 1, 8 << 20, 7));
    }
    network.run_for(Duration::from_micros(100));
    assert_eq!(network.nodes[2].endpoint.counters().held_bytes, before);
    // The next request in such a slot is one.
    network.inject(0, 2, piece(session, 3, 2, PIECE_BYTES as u32, 0));
    network.run_for(Duration::from_micros(100));
    assert_eq!(network.nodes[2].closed, []);
    assert_eq!(network.nodes[2].executed.len(), 2);
    network.run_for(Duration::from_secs(3));
    assert_eq!(network.nodes[2].closed, [], "nothing was begun");
}

#[test]
fn one_address_has_a_quarter_of_the_places_for_sessions() {
    let config = Config {
        sessions: 64,
        ..Config::default()
    };
    let mut network = Network::with(56, Weather::default(), config, 3);
    for _ in 0..40 {
        let (now, node) = (network.now, &mut network.nodes[0]);
        node.connect(now, address(2), false);
    }
    network.run_for(Duration::from_millis(300));
    assert_eq!(network.nodes[2].opened.len(), 16);
    assert_eq!(network.nodes[0].closed.len(), 24);
    is_served(&mut network);
    network.nodes[2].endpoint.assert_consistent();
}

#[test]
fn a_port_for_one_kind_of_session_refuses_the_other() {
    for is_ordered in [false, true] {
        let config = Config {
            accepts_ordered: is_ordered,
            accepts_unordered: !is_ordered,
            ..Config::default()
        };
        let mut network = Network::with(57, Weather::default(), config, 2);
        let session = network.open(0, 1, is_ordered);
        let (now, node) = (network.now, &mut network.nodes[0]);
        let other = node.connect(now, address(1), !is_ordered);
        network.run_for(Duration::from_millis(300));
        let refused = Reason::Refused(crate::Refusal::Invalid);
        assert_eq!(network.nodes[0].closed, [(other, refused)]);
        assert_eq!(network.nodes[1].opened.len(), 1);
        assert!(network.nodes[0].send(network.now, session, 1, &request(100, 4, 1)));
        let answered = network.run_until(|network| network.nodes[0].answers.pop());
        assert!(answered.is_some());
    }
}

/// What everybody sees, the numbers of sessions, tells nothing of the key of cookies: they are made with other halves of the secret.
#[test]
fn names_and_cookies_have_keys_of_their_own() {
    let named = |seed: [u8; 32]| {
        let mut endpoint = Endpoint::new(Config::default(), seed);
        let mut out = super::network::Outbox::default();
        let now = base::time::Time(1);
        let names: Vec<u64> = (0..4)
            .map(|_| endpoint.connect(now, address(1), false, &mut out))
            .collect();
        (names, endpoint.cookie_of(now, address(1), 7))
    };
    let (mut other_names, mut other_cookies) = ([9; 32], [9; 32]);
    other_names[3] = 1;
    other_cookies[20] = 1;
    let (names, cookie) = named([9; 32]);
    let (changed_names, same_cookie) = named(other_names);
    let (same_names, changed_cookie) = named(other_cookies);
    assert_eq!((&names, cookie), (&same_names, same_cookie));
    assert!(names != changed_names && cookie != changed_cookie);
}
