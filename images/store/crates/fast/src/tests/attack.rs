//! Strangers that send all of their requests but the last pieces, again and again from many sessions: what that costs, and whom.

use core::time::Duration;

use base::bugs::{Bug, plant};
use base::time::Time;

use super::network::{Network, Weather, address};
use super::request;
use crate::Config;

const STRANGERS: usize = 6;
/// Asks of the server, which comes last.
const GOOD: usize = STRANGERS;
const SERVER: usize = STRANGERS + 1;
const SESSIONS: usize = 2;
/// Strangers open sessions again, and begin requests, this often.
const PACE: Duration = Duration::from_millis(20);
const LONGEST: usize = 256 << 10;

fn config() -> Config {
    Config {
        message_bytes: LONGEST,
        buffer_bytes: 3 * LONGEST,
        window_bytes: 16 << 10,
        ..Config::default()
    }
}

/// Requests of each length in each session of a stranger, which never end.
struct Attack {
    network: Network,
    is_ordered: bool,
    lengths: Vec<usize>,
    next_at: Time,
    /// The most that the server has counted for others.
    most_claimed: usize,
}

impl Attack {
    fn new(seed: u64, config: Config, is_ordered: bool, lengths: &[usize]) -> Attack {
        let mut network = Network::with(seed, Weather::default(), config, SERVER + 1);
        network.never_end = (0..STRANGERS).collect();
        for node in 0..STRANGERS {
            for _ in 0..SESSIONS {
                let now = network.now;
                network.nodes[node].connect(now, address(SERVER), is_ordered);
            }
        }
        let mut attack = Attack {
            network,
            is_ordered,
            lengths: lengths.to_vec(),
            next_at: Time::ZERO,
            most_claimed: 0,
        };
        attack.until(|network| {
            let claimed = network.nodes[SERVER].endpoint.claimed_bytes();
            (claimed > network.room() * 2 / 3).then_some(())
        });
        attack
    }

    /// Goes on until something is so: how long that took.
    fn until<T>(&mut self, mut wanted: impl FnMut(&mut Network) -> Option<T>) -> (T, Duration) {
        let start = self.network.now;
        let (is_ordered, lengths) = (self.is_ordered, &self.lengths);
        let (next_at, most) = (&mut self.next_at, &mut self.most_claimed);
        let found = self.network.run_until(|network| {
            if network.now >= *next_at {
                *next_at = network.now + PACE;
                for node in 0..STRANGERS {
                    go_on(network, node, is_ordered, lengths);
                }
            }
            *most = network.nodes[SERVER].endpoint.claimed_bytes().max(*most);
            assert!(network.now.since(start) < Duration::from_secs(100));
            wanted(network)
        });
        let found = found.expect("strangers never end");
        (found, self.network.now.since(start))
    }

    /// Has the good one ask for something in a request of this length; how long it takes, sessions that end included.
    fn serve(&mut self, length: usize, is_ordered: bool) -> Duration {
        let start = self.network.now;
        let mut session = self.network.nodes[GOOD].connect(start, address(SERVER), is_ordered);
        let mut is_asked = false;
        self.until(|network| {
            let (now, good) = (network.now, &mut network.nodes[GOOD]);
            if good.closed.iter().any(|(ended, _)| *ended == session) {
                session = good.connect(now, address(SERVER), is_ordered);
                is_asked = false;
            }
            if !is_asked && good.opened.contains(&session) {
                good.send(now, session, 1, &request(length, 50, 1));
                is_asked = true;
            }
            good.answers.pop()
        })
        .1
    }
}

/// Opens sessions again that have ended, and begins requests in those that are open.
fn go_on(network: &mut Network, node: usize, is_ordered: bool, lengths: &[usize]) {
    let now: Time = network.now;
    let stranger = &mut network.nodes[node];
    for _ in std::mem::take(&mut stranger.closed) {
        stranger.connect(now, address(SERVER), is_ordered);
    }
    for session in std::mem::take(&mut stranger.opened) {
        for (nonce, length) in lengths.iter().enumerate() {
            stranger.send(now, session, nonce as u64, &request(*length, 4, 1));
        }
    }
}

/// Lengths that strangers announce: the longest, many of a part of that, and very many of few packets.
fn lengths() -> [Vec<usize>; 3] {
    [
        vec![LONGEST; 4],
        vec![LONGEST / 8; 8],
        vec![LONGEST / 8 / 4; 16],
    ]
}

#[test]
fn requests_that_never_end_take_no_more_memory_than_is_for_them() {
    for is_ordered in [false, true] {
        for (seed, lengths) in (60..).zip(lengths()) {
            let mut attack = Attack::new(seed, config(), is_ordered, &lengths);
            let end = attack.network.now + Duration::from_millis(2500);
            attack.until(|network| (network.now >= end).then_some(()));
            let server = &attack.network.nodes[SERVER].endpoint;
            server.assert_consistent();
            assert!(server.is_within_bounds());
            // Half for what arrives, an eighth each for slots and spare buffers. No answer is kept.
            let most = 3 * LONGEST * 3 / 4;
            assert!(attack.most_claimed <= most, "{}", attack.most_claimed);
        }
    }
}

#[test]
fn requests_that_are_let_in_without_room_are_seen_to_take_too_much() {
    plant(Some(Bug::AdmitWithoutRoom));
    let attack = Attack::new(59, config(), false, &[LONGEST; 4]);
    plant(None);
    let server = &attack.network.nodes[SERVER].endpoint;
    assert!(attack.most_claimed > 3 * LONGEST * 3 / 4 && !server.is_within_bounds());
}

#[test]
fn requests_that_never_end_keep_nobody_waiting_for_long() {
    for is_ordered in [false, true] {
        for (seed, lengths) in (70..).zip(lengths()) {
            let mut attack = Attack::new(seed, config(), is_ordered, &lengths);
            for (length, most) in [
                (1000, Duration::from_millis(100)),
                (5000, Duration::from_secs(5)),
                (LONGEST / 8, Duration::from_secs(5)),
                (LONGEST, Duration::from_secs(30)),
            ] {
                let took = attack.serve(length, is_ordered);
                assert!(
                    took < most,
                    "{length} bytes beside {lengths:?} took {took:?}"
                );
            }
        }
    }
}

#[test]
fn requests_that_never_end_have_no_part_in_what_is_for_own_sessions() {
    let lengths = [LONGEST; 4];
    let mut attack = Attack::new(80, config(), true, &lengths);
    let session = attack.network.open(SERVER, GOOD, true);
    for nonce in 0..20 {
        let now = attack.network.now;
        let asked = request(LONGEST / 2, LONGEST as u32 / 2, 1);
        attack.network.nodes[SERVER].send(now, session, nonce, &asked);
        let (_, took) = attack.until(|network| network.nodes[SERVER].answers.pop());
        assert!(took < Duration::from_millis(500), "{took:?}");
        let ended = &attack.network.nodes[SERVER].closed;
        assert!(ended.iter().all(|(ended, _)| *ended != session));
    }
}
