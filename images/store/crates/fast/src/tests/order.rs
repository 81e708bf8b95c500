//! Sessions that keep the order of requests.

use core::time::Duration;

use super::network::{Network, Weather};
use super::request;

#[test]
fn requests_of_an_ordered_session_are_handed_over_in_order() {
    let weather = Weather {
        lost: 100,
        repeated: 100,
        changed: 10,
        jitter: Duration::from_micros(50),
    };
    for seed in 0..20 {
        let mut network = Network::new(seed, weather);
        let session = network.open(0, 1, true);
        for nonce in 1..=200u64 {
            let length = if nonce % 7 == 0 { 30_000 } else { 50 };
            network.nodes[0].send(
                network.now,
                session,
                nonce,
                &request(length, 4, nonce as u8),
            );
        }
        network.run_until(|network| (network.nodes[0].answers.len() == 200).then_some(()));
        let order: Vec<u8> = network.nodes[1]
            .executed
            .iter()
            .map(|(_, _, request)| request[4])
            .collect();
        assert_eq!(order, (1..=200u8).collect::<Vec<_>>());
    }
}

#[test]
fn a_short_request_overtakes_a_long_one_where_order_is_not_wanted() {
    let mut network = Network::new(3, Weather::default());
    let session = network.open(0, 1, false);
    network.nodes[0].send(network.now, session, 1, &request(1_000_000, 4, 1));
    network.nodes[0].send(network.now, session, 2, &request(50, 4, 2));
    network.run_until(|network| (network.nodes[0].answers.len() == 2).then_some(()));
    let order: Vec<u64> = network.nodes[0]
        .answers
        .iter()
        .map(|(_, nonce, _)| *nonce)
        .collect();
    assert_eq!(order, [2, 1]);
}
