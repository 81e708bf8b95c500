//! Peers that mean no good, and peers that are broken.

use base::time::Time;
use proptest::prelude::*;

use super::network::{Network, Node, Outbox, Weather, address};
use super::request;
use crate::packet::{HEADER_BYTES, Header, Kind, OPEN_BYTES, Open};
use crate::{Config, Endpoint};

const KINDS: [Kind; 14] = [
    Kind::Open,
    Kind::Challenge,
    Kind::Opened,
    Kind::Refused,
    Kind::Request,
    Kind::Response,
    Kind::Grant,
    Kind::Resend,
    Kind::Working,
    Kind::Ack,
    Kind::Ping,
    Kind::Pong,
    Kind::Close,
    Kind::Reset,
];

fn datagram(header: &Header, payload: &[u8]) -> Vec<u8> {
    [&header.encode(payload)[..], payload].concat()
}

/// Whoever does not prove its address makes nobody remember it, and gets no more than it sends.
#[test]
fn an_unproven_address_costs_nothing_and_is_sent_no_more_than_it_sends() {
    let mut endpoint = Endpoint::new(Config::default(), [1; 32]);
    let mut out = Outbox::default();
    let mut sent = 0;
    for number in 0..10_000u64 {
        let open = Open {
            session: number,
            incarnation: number,
            cookie: number.wrapping_mul(77),
            datagram_bytes: 1472,
            slots: 64,
            is_ordered: false,
        };
        let kind = KINDS[number as usize % KINDS.len()];
        let header = Header {
            length: 5_000_000,
            offset: 7,
            number: 9,
            ..Header::new(kind, number << 20)
        };
        for bytes in [
            datagram(&Header::new(Kind::Open, 0), &open.encode()),
            datagram(&header, &[0; 100]),
        ] {
            sent += bytes.len();
            let event = endpoint.receive(Time(1), address(number as usize % 200), &bytes, &mut out);
            assert!(event.is_none());
        }
    }
    assert_eq!(endpoint.counters().sessions, 0);
    let answered: usize = out.sent.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(answered <= sent, "{answered} for {sent}");
    for (_, bytes) in &out.sent {
        assert!(bytes.len() <= HEADER_BYTES + OPEN_BYTES);
    }
}

/// A peer with a session sends anything at all: the other side goes on, within its bounds, and a good peer is served.
fn survives(packets: &[(u8, u8, u8, u32, u32, u32, usize)]) {
    let config = Config {
        buffer_bytes: 1 << 20,
        ..Config::default()
    };
    let mut network = Network::with(41, Weather::default(), config, 3);
    let bad = network.open(0, 1, packets.len().is_multiple_of(2));
    let good = network.open(2, 1, false);
    let known = network.nodes[1].opened.clone();
    for (kind, slot, flags, number, length, offset, bytes) in packets {
        let kind = KINDS[usize::from(*kind) % KINDS.len()];
        // Close would end it too soon.
        let kind = if kind == Kind::Close {
            Kind::Request
        } else {
            kind
        };
        let header = Header {
            slot: *slot,
            flags: *flags,
            number: *number,
            length: *length,
            offset: *offset,
            ..Header::new(kind, known[0])
        };
        network.inject(0, 1, datagram(&header, &vec![3; *bytes]));
    }
    network.nodes[2].send(network.now, good, 5, &request(3000, 50_000, 1));
    let answered = network.run_until(|network| network.nodes[2].answers.pop());
    assert!(answered.is_some());
    let held = network.nodes[1].endpoint.counters().held_bytes;
    assert!(held < 16 << 20, "{held}");
    network
        .nodes
        .iter()
        .for_each(|node| node.endpoint.assert_consistent());
    let _ = bad;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_broken_peer_harms_nobody_else(
        packets in prop::collection::vec(
            (
                any::<u8>(),
                prop_oneof![0u8..4, any::<u8>()],
                0u8..2,
                prop_oneof![0u32..6, any::<u32>()],
                prop_oneof![0u32..4000, any::<u32>()],
                prop_oneof![Just(0u32), Just(1444), any::<u32>()],
                0usize..1444,
            ),
            1..200,
        ),
    ) {
        survives(&packets);
    }

    /// A datagram that opens a session is answered. If any byte of it is changed, it is dropped.
    #[test]
    fn a_changed_datagram_is_dropped(at in any::<prop::sample::Index>(), other in 1u8..) {
        let open = Open {
            session: 7,
            incarnation: 9,
            cookie: 0,
            datagram_bytes: 1472,
            slots: 64,
            is_ordered: false,
        };
        let sound = datagram(&Header::new(Kind::Open, 0), &open.encode());
        let mut changed = sound.clone();
        changed[at.index(sound.len())] ^= other;
        for (bytes, answers) in [(sound, 1), (changed, 0)] {
            let mut node = Node::new(0, Config::default(), 1);
            let event = node.endpoint.receive(Time(1), address(1), &bytes, &mut node.out);
            prop_assert!(event.is_none());
            prop_assert_eq!(node.out.sent.len(), answers);
        }
    }

    #[test]
    fn noise_is_dropped(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut node = Node::new(0, Config::default(), 1);
        let event = node.endpoint.receive(Time(1), address(1), &bytes, &mut node.out);
        prop_assert!(event.is_none());
        prop_assert!(node.out.sent.is_empty());
    }
}

/// Whoever sends all but the first of its requests makes the other side keep them, up to a bound.
#[test]
fn requests_that_wait_for_their_predecessor_take_bounded_memory() {
    let config = Config {
        queue_bytes: 20_000,
        ..Config::default()
    };
    let mut network = Network::with(42, Weather::default(), config, 2);
    network.open(0, 1, true);
    let known = network.nodes[1].opened[0];
    let payload = vec![5; 1000];
    let send = |network: &mut Network, number: u32| {
        let header = Header {
            slot: number as u8,
            number,
            length: 1000,
            ..Header::new(Kind::Request, known)
        };
        network.inject(0, 1, datagram(&header, &payload));
        network.run_for(core::time::Duration::from_micros(10));
        network.nodes[1].endpoint.counters().held_bytes
    };
    for number in 2..22 {
        let held = send(&mut network, number);
        assert_eq!(held, u64::from(number - 1) * 1000);
    }
    assert_eq!(send(&mut network, 22), 0);
    let closed = network.nodes[1].closed.pop();
    assert_eq!(closed, Some((known, crate::Reason::OutOfBuffers)));
    assert!(network.nodes[1].executed.is_empty());
}
