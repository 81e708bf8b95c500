//! A peer with a session that sends anything, to both sides: nothing crashes, memory stays bounded, and no request is handed over twice.
#![no_main]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use base::time::Time;
use fast::packet::{Header, Kind};
use fast::{Config, Endpoint, Event};
use fuzz::bounded_target;
use transport::datagram::Transmit;

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
const BUFFER_BYTES: usize = 256 << 10;
/// Both sides' memory, and packets: twelve bytes of input have up to four windows be sent, which nobody takes away before the next.
const BOUND: fuzz::Bound = fuzz::Bound {
    times: 4096,
    fixed_bytes: 48 << 20,
};

fn address(side: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1 + side as u8), 7)
}

#[derive(Default)]
struct Outbox(Vec<Vec<u8>>);

impl Transmit for Outbox {
    fn address(&self) -> SocketAddrV4 {
        address(0)
    }
    fn max_payload_bytes(&self) -> usize {
        1472
    }
    fn send(&mut self, _to: SocketAddrV4, parts: &[&[u8]]) {
        self.0.push(parts.concat());
    }
    fn flush(&mut self) {}
}

struct Side {
    endpoint: Endpoint,
    out: Outbox,
    sessions: Vec<u64>,
    asked: Vec<(u64, u64)>,
    seen: BTreeSet<(u64, u64)>,
    /// How long each request is that was sent from here and has no answer: whoever asks keeps it.
    own: BTreeMap<u64, usize>,
}

impl Side {
    fn new(seed: u8) -> Side {
        let config = Config {
            buffer_bytes: BUFFER_BYTES,
            own_buffer_bytes: BUFFER_BYTES,
            window_bytes: 8 << 10,
            ..Config::default()
        };
        Side {
            endpoint: Endpoint::new(config, [seed; 32]),
            out: Outbox::default(),
            sessions: Vec::new(),
            asked: Vec::new(),
            seen: BTreeSet::new(),
            own: BTreeMap::new(),
        }
    }

    fn receive(&mut self, now: Time, from: usize, datagram: &[u8]) {
        let event = self
            .endpoint
            .receive(now, address(from), datagram, &mut self.out);
        if let Some(event) = event {
            self.handle(event);
        }
        while let Some(event) = self.endpoint.next_event() {
            self.handle(event);
        }
        assert!(self.endpoint.is_within_bounds());
        // A message that was begun may end, what is sent unasked comes in any case, an answer has room before it comes, and one of the longest is
        // kept however little memory there is.
        let held = self.endpoint.counters().held_bytes as usize;
        let own: usize = self.own.values().sum();
        assert!(
            held <= 4 * BUFFER_BYTES + 64 * (16 << 10) + (1 << 20) + (9 << 20) + own,
            "{held} bytes, {own} of them in requests from here"
        );
    }

    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Opened { session, .. } => self.sessions.push(session),
            Event::Message {
                session,
                nonce,
                payload,
            } => {
                assert!(payload.len() <= wire::rpc::MAX_RPC_BYTES);
                self.own.remove(&nonce);
                if self.sessions.contains(&session) {
                    assert!(self.seen.insert((session, nonce)), "handed over twice");
                    self.asked.push((session, nonce));
                }
                if let Cow::Owned(buffer) = payload {
                    self.endpoint.recycle(buffer);
                }
            }
            Event::Closed { .. } => {}
            Event::Returned { token } => panic!("{token} comes back, and nothing was lent"),
        }
    }
}

/// What two sides sent is carried, as often as it takes.
fn carry(now: Time, sides: &mut [Side; 2]) {
    for _ in 0..4 {
        for from in 0..2 {
            for datagram in std::mem::take(&mut sides[from].out.0) {
                sides[1 - from].receive(now, from, &datagram);
            }
        }
    }
}

bounded_target!(BOUND, |data: &[u8]| {
    let mut now = Time(1_000_000);
    let mut sides = [Side::new(1), Side::new(2)];
    let Some((&first, mut rest)) = data.split_first() else {
        return;
    };
    let Side { endpoint, out, .. } = &mut sides[0];
    let session = endpoint.connect(now, address(1), first & 1 == 1, out);
    carry(now, &mut sides);
    let served = sides[1].sessions[0];
    // Who asks names each request differently: by its name the answer is known.
    let mut nonces = 1..;
    while let Some((step, more)) = rest.split_first_chunk::<12>() {
        rest = more;
        let word = |at: usize| u16::from_le_bytes([step[at], step[at + 1]]);
        let side = usize::from(step[0] >> 7);
        match step[0] & 0x0f {
            // A packet that the other side could have sent, or not.
            0..8 => {
                let kind = KINDS[usize::from(step[1]) % KINDS.len()];
                let header = Header {
                    slot: step[2],
                    flags: step[3] & 1,
                    number: word(4).into(),
                    // Some lengths and offsets that fit, and some that are huge.
                    length: u32::from(word(6)) << ((step[0] >> 4 & 1) * 12),
                    offset: u32::from(word(8)) * if step[3] & 2 == 2 { 1444 } else { 1 },
                    ..Header::new(kind, if side == 0 { session } else { served })
                };
                let payload = vec![7; usize::from(word(10)) % 1445];
                let datagram = [&header.encode(&payload)[..], &payload].concat();
                sides[side].receive(now, 1 - side, &datagram);
            }
            8 => now += Duration::from_micros(u64::from(word(4)) << (step[3] & 15)),
            9 => {
                let payload = vec![1; usize::from(word(4))];
                let Side {
                    endpoint, out, own, ..
                } = &mut sides[0];
                let nonce = nonces.next().unwrap_or_default();
                own.insert(nonce, payload.len());
                endpoint.send(|| now, session, nonce, &[&payload], out);
            }
            10 => {
                let payload = vec![2; usize::from(word(4))];
                let Side {
                    endpoint,
                    out,
                    asked,
                    ..
                } = &mut sides[1];
                if let Some((session, nonce)) = asked.pop() {
                    endpoint.send(|| now, session, nonce, &[&payload], out);
                }
            }
            11 => carry(now, &mut sides),
            12 => drop(std::mem::take(&mut sides[side].out.0)),
            13 => sides[side].receive(now, 1 - side, &step[1..]),
            _ => {
                let Side { endpoint, out, .. } = &mut sides[side];
                endpoint.tick(now, out);
                endpoint.pump(4, &|_, _| None, out);
            }
        }
        let Side { endpoint, out, .. } = &mut sides[side];
        endpoint.pump(1, &|_, _| None, out);
    }
});
