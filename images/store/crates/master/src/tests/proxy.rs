//! PROXY_PING, step by step.

use core::time::Duration;

use base::ids::ServerId;
use base::time::Time;
use wire::member::{self, ServerLocation, coordinator, shard};
use wire::rpc::{GetServerIdResponse, ProxyPingRequest, ProxyPingResponse};
use wire::status::Status;

use super::harness::*;
use crate::*;

const OTHER: ServerId = ServerId(7);
const LOCATOR: &str = "tcp:host=10.0.0.7,port=12100";
const TIMED_OUT: u64 = u64::MAX;

fn driver() -> Driver {
    Driver::enlisted(small(Durability::Unreplicated))
}

fn proxy_ping(driver: &mut Driver, timeout: Duration) -> u64 {
    let mut payload = Vec::new();
    ProxyPingRequest {
        server_id: OTHER,
        timeout_ns: u64::try_from(timeout.as_nanos()).unwrap(),
    }
    .encode(&mut payload);
    driver.send(&payload)
}

fn questions(driver: &mut Driver) -> Vec<u64> {
    let messages = std::mem::take(&mut driver.said.messages).into_iter();
    messages
        .filter_map(|kind| match kind {
            shard::Kind::LocateServer(question) => Some(question.server_id),
            _ => None,
        })
        .collect()
}

fn located(driver: &mut Driver, locator: &str) {
    driver.order(coordinator::Kind::ServerLocation(ServerLocation {
        server_id: OTHER.0,
        locator: locator.to_owned(),
    }));
}

fn answered(driver: &mut Driver, nonce: u64) -> Option<u64> {
    let reply = driver.reply_to(nonce)?;
    let response = ProxyPingResponse::decode(&reply).unwrap();
    assert_eq!(response.status, Status::Ok);
    Some(response.reply_ns)
}

fn says_it_is(driver: &mut Driver, connection: u64, server_id: ServerId) {
    let mut answer = Vec::new();
    let status = Status::Ok;
    GetServerIdResponse { status, server_id }.encode(&mut answer);
    let Driver {
        shard, said, now, ..
    } = driver;
    shard.server_answered(*now, connection, 1, &answer, said);
}

#[test]
fn the_time_of_the_ping_alone_is_told() {
    let mut driver = driver();
    let nonce = proxy_ping(&mut driver, Duration::from_secs(1));
    assert_eq!(questions(&mut driver), [OTHER.0]);
    driver.now += Duration::from_millis(3);
    located(&mut driver, LOCATOR);
    assert_eq!(driver.said.connects, [LOCATOR]);
    driver.now += Duration::from_millis(3);
    driver.shard.server_connected(1, &mut driver.said);
    assert_eq!(driver.said.sent[0], (1, 1, vec![63, 0, 3, 0]));
    driver.now += Duration::from_millis(3);
    says_it_is(&mut driver, 1, OTHER);
    assert_eq!(driver.said.sent[1].2[..4], [7, 0, 3, 0]);
    driver.now += Duration::from_micros(40);
    let now = driver.now;
    driver
        .shard
        .server_answered(now, 1, 2, &[0; 4], &mut driver.said);
    assert_eq!(answered(&mut driver, nonce), Some(40_000));
    assert_eq!(driver.said.closed, [1]);
}

#[test]
fn whoever_does_not_answer_in_time_is_all_ones() {
    for step in 0..4 {
        let mut driver = driver();
        let nonce = proxy_ping(&mut driver, Duration::from_millis(100));
        if step > 0 {
            located(&mut driver, LOCATOR);
        }
        if step > 1 {
            driver.shard.server_connected(1, &mut driver.said);
        }
        if step > 2 {
            says_it_is(&mut driver, 1, OTHER);
        }
        assert!(driver.shard.tick(driver.now, &mut driver.said) <= Time(100_000_000));
        driver.now = Time(99_999_999);
        driver.settle();
        assert_eq!(answered(&mut driver, nonce), None, "step {step}");
        driver.now = Time(100_000_000);
        driver.settle();
        assert_eq!(answered(&mut driver, nonce), Some(TIMED_OUT), "step {step}");
        assert_eq!(driver.said.closed.len(), usize::from(step > 0));
        // What comes late is nobody's.
        located(&mut driver, LOCATOR);
        says_it_is(&mut driver, 1, OTHER);
        driver.shard.server_disconnected(1, &mut driver.said);
        assert!(driver.said.replies.is_empty());
    }
}

#[test]
fn a_server_that_is_not_there_or_is_another_is_all_ones_at_once() {
    let hour = Duration::from_secs(3600);
    let mut cut_off = driver();
    cut_off.said.is_cut_off = true;
    let nonce = proxy_ping(&mut cut_off, hour);
    located(&mut cut_off, "");
    assert_eq!(answered(&mut cut_off, nonce), Some(TIMED_OUT));

    let mut another = driver();
    let nonce = proxy_ping(&mut another, hour);
    located(&mut another, LOCATOR);
    another.shard.server_connected(1, &mut another.said);
    says_it_is(&mut another, 1, ServerId::new(7, 1));
    assert_eq!(answered(&mut another, nonce), Some(TIMED_OUT));
    assert_eq!(another.said.closed, [1]);

    let mut refusing = driver();
    let nonce = proxy_ping(&mut refusing, hour);
    located(&mut refusing, LOCATOR);
    refusing.shard.server_disconnected(1, &mut refusing.said);
    assert_eq!(answered(&mut refusing, nonce), Some(TIMED_OUT));
}

#[test]
fn the_coordinator_is_asked_again_when_it_is_back() {
    let mut driver = driver();
    let first = proxy_ping(&mut driver, Duration::from_secs(9));
    driver.shard.coordinator_lost(driver.now);
    driver.said.messages.clear();
    let second = proxy_ping(&mut driver, Duration::from_secs(9));
    assert!(questions(&mut driver).is_empty());
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[WHOLE_TABLE]);
    assert_eq!(questions(&mut driver), [OTHER.0, OTHER.0]);
    located(&mut driver, LOCATOR);
    assert_eq!(driver.said.connects.len(), 2);
    for (connection, nonce) in [(1, first), (2, second)] {
        driver.shard.server_connected(connection, &mut driver.said);
        says_it_is(&mut driver, connection, OTHER);
        let now = driver.now;
        let Driver { shard, said, .. } = &mut driver;
        shard.server_answered(now, connection, 2, &[0; 4], said);
        assert_eq!(answered(&mut driver, nonce), Some(0));
    }
}

#[test]
fn pings_for_others_are_bounded_in_number_and_in_time() {
    let mut driver = driver();
    let hour = Duration::from_secs(3600);
    let nonces: Vec<u64> = (0..16).map(|_| proxy_ping(&mut driver, hour)).collect();
    let one_too_many = proxy_ping(&mut driver, hour);
    let reply = driver.reply_to(one_too_many).unwrap();
    assert_eq!(wire::rpc::status(&reply), Ok(Status::Retry));
    // The session with the coordinator must not end meanwhile.
    driver.order(coordinator::Kind::Ping(member::Ping::default()));
    driver.now += Duration::from_secs(10);
    driver.shard.tick(driver.now, &mut driver.said);
    for nonce in nonces {
        assert_eq!(answered(&mut driver, nonce), Some(TIMED_OUT));
    }
}

fn probe(driver: &mut Driver, sequence: u64) -> Session {
    driver.order(coordinator::Kind::Probe(member::Probe {
        sequence,
        server_id: OTHER.0,
        locator: LOCATOR.to_owned(),
        timeout_ms: 500,
    }))
}

fn probed(driver: &mut Driver) -> Vec<(u64, bool)> {
    let messages = std::mem::take(&mut driver.said.messages).into_iter();
    let probed = messages.filter_map(|kind| match kind {
        shard::Kind::Probed(probed) => Some((probed.sequence, probed.is_alive)),
        _ => None,
    });
    probed.collect()
}

#[test]
fn the_coordinator_hears_whether_a_server_is_alive() {
    let mut driver = driver();
    assert_eq!(probe(&mut driver, 5), Session::Continue);
    assert_eq!(driver.said.connects, [LOCATOR]);
    driver.shard.server_connected(1, &mut driver.said);
    says_it_is(&mut driver, 1, OTHER);
    assert_eq!(probed(&mut driver), [], "it has not answered the ping");
    let now = driver.now;
    driver
        .shard
        .server_answered(now, 1, 2, &[0; 4], &mut driver.said);
    assert_eq!(probed(&mut driver), [(5, true)]);

    // Another has its place.
    probe(&mut driver, 6);
    driver.shard.server_connected(2, &mut driver.said);
    says_it_is(&mut driver, 2, ServerId::new(7, 1));
    assert_eq!(probed(&mut driver), [(6, false)]);

    // Nobody is there, which is known at once; or nobody answers.
    probe(&mut driver, 7);
    driver.shard.server_disconnected(3, &mut driver.said);
    assert_eq!(probed(&mut driver), [(7, false)]);
    probe(&mut driver, 8);
    driver.now += Duration::from_millis(499);
    driver.settle();
    assert_eq!(probed(&mut driver), []);
    driver.now += Duration::from_millis(1);
    driver.settle();
    assert_eq!(probed(&mut driver), [(8, false)]);
    driver.said.is_cut_off = true;
    probe(&mut driver, 9);
    assert_eq!(probed(&mut driver), [(9, false)]);
}

#[test]
fn a_coordinator_that_comes_back_hears_nothing_of_probes_before_that() {
    let mut driver = driver();
    probe(&mut driver, 5);
    driver.shard.coordinator_lost(driver.now);
    driver.settle();
    assert_eq!(driver.said.closed, [1]);
    driver.welcome(CLUSTER, ServerId::new(1, 0), 1, &[WHOLE_TABLE]);
    driver.shard.server_disconnected(1, &mut driver.said);
    assert_eq!(probed(&mut driver), []);
}

#[test]
fn of_servers_that_nobody_looked_at_nothing_is_said() {
    let mut driver = driver();
    for sequence in 0..257 {
        probe(&mut driver, sequence);
    }
    assert_eq!(driver.said.connects.len(), 256);
    assert_eq!(probed(&mut driver), []);
    let too_many = MembershipEvent::TooManyProbes { most: 256 };
    assert_eq!(driver.said.events.last(), Some(&too_many.into()));
}
