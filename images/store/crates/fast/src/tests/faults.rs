//! Bad weather.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::network::{Network, Weather};
use super::{answer, request};
use crate::Config;

/// Runs calls of mixed lengths through bad weather, perhaps with restarts of the server, and checks that each is executed at most once in each
/// session, that answers are right, and that all come that no end of a session took away.
fn storm(seed: u64, weather: Weather, datagram_bytes: usize, restarts: u32, is_ordered: bool) {
    let config = Config {
        datagram_bytes,
        window_bytes: 20_000,
        ..Config::default()
    };
    let mut network = Network::with(seed, weather, config, 2);
    network.nodes[1].recall_every = [0, 5, 50][seed as usize % 3];
    let mut expected = BTreeMap::new();
    let mut nonce = 0;
    for round in 0..=restarts {
        let session = network.open(0, 1, is_ordered);
        for _ in 0..60 {
            nonce += 1;
            let length = [10, 100, 1500, 5000, 40_000][network.below(5) as usize];
            let answered = [0, 100, 1444, 3000, 60_000][network.below(5) as usize];
            let asked = request(length + nonce as usize, answered, nonce as u8);
            assert!(network.nodes[0].send(network.now, session, nonce, &asked));
            expected.insert(nonce, answer(&asked));
        }
        let is_last = round == restarts;
        if !is_last {
            let moment = Duration::from_micros(network.below(3000));
            network.run_for(moment);
            let executed = std::mem::take(&mut network.nodes[1].executed);
            check_executed(&executed);
            network.restart(1);
        }
        // All answers, or the end of the session.
        network.run_until(|network| {
            let node = &network.nodes[0];
            let is_over = node.closed.iter().any(|(closed, _)| *closed == session);
            let answered = node
                .answers
                .iter()
                .filter(|(of, ..)| *of == session)
                .count();
            (is_over || answered == 60).then_some(())
        });
        assert!(
            !is_last || network.nodes[0].closed.len() <= restarts as usize,
            "{:?}",
            network.nodes[0].closed
        );
    }
    check_executed(&network.nodes[1].executed);
    let mut seen = BTreeSet::new();
    for (_, nonce, bytes) in &network.nodes[0].answers {
        assert!(seen.insert(*nonce), "two answers to {nonce}");
        assert!(expected[nonce] == *bytes, "the answer to {nonce} is wrong");
    }
    if restarts == 0 {
        assert_eq!(seen.len(), 60);
        // Longer than a session lives of which nobody hears anything: all pings, and the end after them, may be lost.
        network.run_for(Duration::from_secs(40));
        let server = &network.nodes[1];
        assert!(
            server.loans.is_empty(),
            "{} not returned",
            server.loans.len()
        );
        let sum: u64 = network
            .nodes
            .iter()
            .map(|node| node.endpoint.counters().held_bytes)
            .sum();
        assert!(
            sum <= 64 * datagram_bytes as u64,
            "{sum} bytes are held by nothing"
        );
    }
}

fn check_executed(executed: &[(u64, u64, Vec<u8>)]) {
    let mut once = BTreeSet::new();
    for (session, nonce, _) in executed {
        assert!(
            once.insert((*session, *nonce)),
            "{nonce} was handed over twice"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn loss_repetition_change_and_disorder(
        seed in any::<u64>(),
        lost in 0u32..=200,
        repeated in 0u32..=200,
        changed in 0u32..=50,
        jitter_us in prop::sample::select(vec![0u64, 5, 100, 3000]),
        datagram_bytes in prop::sample::select(vec![548usize, 1472, 8972]),
        is_ordered in any::<bool>(),
    ) {
        let weather = Weather { lost, repeated, changed, jitter: Duration::from_micros(jitter_us) };
        storm(seed, weather, datagram_bytes, 0, is_ordered);
    }

    #[test]
    fn restarts_in_bad_weather(seed in any::<u64>(), lost in 0u32..=100, is_ordered in any::<bool>()) {
        let weather = Weather { lost, repeated: 50, changed: 10, jitter: Duration::from_micros(20) };
        storm(seed, weather, 1472, 3, is_ordered);
    }
}

#[test]
fn a_lost_packet_costs_about_a_millisecond_and_not_more() {
    let mut network = Network::new(21, Weather::default());
    let session = network.open(0, 1, false);
    network.nodes[0].send(network.now, session, 1, &request(100, 100, 1));
    network.nodes[0].out.sent.clear();
    let start = network.now;
    network.run_until(|network| network.nodes[0].answers.pop());
    assert!(
        network.now.since(start) < Duration::from_millis(3),
        "{:?}",
        network.now.since(start)
    );
}

#[test]
fn what_is_lost_within_a_long_message_is_asked_for_at_once() {
    let weather = Weather {
        lost: 10,
        ..Weather::default()
    };
    let mut network = Network::new(22, weather);
    let session = network.open(0, 1, false);
    let start = network.now;
    network.nodes[0].send(network.now, session, 1, &request(100, 1_000_000, 1));
    network.run_until(|network| network.nodes[0].answers.pop());
    let counters = network.nodes[1].endpoint.counters();
    assert!(counters.resent >= 1, "{counters:?}");
    // About 700 packets at 1 % loss, each loss waited for, would take longer.
    assert!(
        network.now.since(start) < Duration::from_millis(10),
        "{:?}",
        network.now.since(start)
    );
}
