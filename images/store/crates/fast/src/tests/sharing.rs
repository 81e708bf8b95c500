//! Long and short messages together.

use core::time::Duration;

use super::network::{Network, Weather};
use super::request;
use crate::Config;

#[test]
fn the_shortest_goes_first() {
    let config = Config {
        window_bytes: 16_000,
        ..Config::default()
    };
    let mut network = Network::with(31, Weather::default(), config, 2);
    let session = network.open(0, 1, false);
    // Answers of different lengths, the longest asked for first.
    for (nonce, length) in [(1, 2_000_000u32), (2, 500_000), (3, 100_000), (4, 20_000)] {
        network.nodes[0].send(
            network.now,
            session,
            nonce,
            &request(10, length, nonce as u8),
        );
    }
    network.run_until(|network| (network.nodes[0].answers.len() == 4).then_some(()));
    let order: Vec<u64> = network.nodes[0]
        .answers
        .iter()
        .map(|(_, nonce, _)| *nonce)
        .collect();
    assert_eq!(order, [4, 3, 2, 1]);
}

#[test]
fn senders_together_have_no_more_on_their_way_than_the_receiver_said() {
    let config = Config {
        window_bytes: 20_000,
        ..Config::default()
    };
    let mut network = Network::with(32, Weather::default(), config, 9);
    for sender in 0..8 {
        let session = network.open(sender, 8, false);
        network.nodes[sender].send(network.now, session, 1, &request(300_000, 4, sender as u8));
    }
    let mut most = 0;
    network.run_until(|network| {
        most = most.max(network.under_way_to(8));
        let done = network.nodes[..8]
            .iter()
            .filter(|node| !node.answers.is_empty())
            .count();
        (done == 8).then_some(())
    });
    // What is sent unasked, and the windows of the two that are granted.
    assert!(most <= 8 * 16_384 + 30_000 + 2 * 9 * 1500, "{most}");
}

#[test]
fn without_memory_messages_wait_and_none_is_lost() {
    let config = Config {
        buffer_bytes: 200_000,
        window_bytes: 20_000,
        ..Config::default()
    };
    let mut network = Network::with(33, Weather::default(), config, 7);
    for sender in 0..6 {
        let session = network.open(sender, 6, false);
        for nonce in 0..8 {
            network.nodes[sender].send(
                network.now,
                session,
                nonce,
                &request(90_000, 4, sender as u8),
            );
        }
    }
    let mut most = 0;
    network.run_until(|network| {
        most = most.max(network.nodes[6].endpoint.counters().held_bytes);
        let answered: usize = network.nodes[..6]
            .iter()
            .map(|node| node.answers.len())
            .sum();
        (answered == 48).then_some(())
    });
    assert!(most <= 100_000 + 4 * 90_000 + 48 * 16_384, "{most}");
    assert!(network.nodes.iter().all(|node| node.closed.is_empty()));
    assert!(
        network.nodes[6].endpoint.counters().refused > 0,
        "the bound was met"
    );
}

/// Those who announce a message and send no more of it than its beginning keep nobody from being served.
#[test]
fn whoever_does_not_use_its_grant_is_passed_over() {
    let config = Config {
        window_bytes: 20_000,
        ..Config::default()
    };
    let mut network = Network::with(34, Weather::default(), config, 6);
    for sender in 0..4 {
        let session = network.open(sender, 5, false);
        network.nodes[sender].send(network.now, session, 1, &request(60_000, 4, 1));
    }
    network.run_until(|network| (network.under_way_to(5) > 0).then_some(()));
    for sender in 0..4 {
        network.nodes[sender].is_dead = true;
    }
    let session = network.open(4, 5, false);
    let start = network.now;
    network.nodes[4].send(network.now, session, 1, &request(2_000_000, 4, 1));
    let answered = network.run_until(|network| network.nodes[4].answers.pop());
    assert!(answered.is_some());
    assert!(
        network.now.since(start) < Duration::from_millis(100),
        "{:?}",
        network.now.since(start)
    );
}
