//! What leaves only once it is noted, and what happens while nothing can be noted.

use std::time::Duration;

use crate::common::{create_table, hello, renew_lease};
use base::time::Time;
use coordinator::LEASE_TERM_NS;
use coordinator::leader::{LeaderEffect, Limits, News, TIME_AHEAD};
use coordinator::state::objects::testing::ApiServer;
use coordinator::state::objects::{Ending, Request};
use wire::member::{Pong, ToCoordinator, shard};
use wire::rpc;
use wire::status::Status;

use super::{Bench, get_table_id, pings_in, resumed, status_of, welcome_in, with_member};

#[test]
fn nothing_leaves_before_it_is_noted_but_pings() {
    let mut server = ApiServer::new(1 << 20);
    let mut bench = Bench::leads(11, &mut server);
    let effects = bench.says(1, shard::Kind::Hello(hello("m0", 1, 0, 1)));
    assert!(effects.is_empty(), "{effects:?}");
    // An answer that changes nothing waits for earlier changes to be noted.
    let effects = bench.request(1, &get_table_id());
    assert!(effects.is_empty(), "{effects:?}");
    bench.leader.defer(5);
    assert!(bench.take().is_empty());
    bench.now += Duration::from_millis(200);
    let effects = bench.take();
    assert_eq!(pings_in(&effects).len(), effects.len());
    assert_eq!(effects.len(), 1, "{effects:?}");

    bench.serve(&mut server);
    let effects = bench.take();
    let welcome = welcome_in(&effects).expect("it is let in");
    assert_eq!(status_of(&effects), [Status::TableDoesntExist]);
    assert!(
        matches!(effects.last(), Some(LeaderEffect::Deferred(5))),
        "{effects:?}"
    );
    // It was put out before the root was written in which it stands: of the one before.
    let position = welcome.position.unwrap();
    assert_eq!((position.term, position.nonce), (1, 11));
    assert!(position.sequence < server.root().unwrap().position.sequence);
    // What it leaves with is that root: whoever is welcomed knows of what it is told.
    let left_with = effects.iter().find_map(|effect| match effect {
        LeaderEffect::SendMember(_, message) => message.position,
        _ => None,
    });
    assert_eq!(left_with, Some(server.root().unwrap().position));
    bench.now += Duration::from_millis(200);
    let effects = bench.take();
    let told = pings_in(&effects)[0].position;
    assert_eq!(told, Some(server.root().unwrap().position));
    // Where nothing changes, nothing waits.
    let effects = bench.request(2, &get_table_id());
    assert_eq!(status_of(&effects), [Status::TableDoesntExist]);
    assert!(bench.under_way.is_empty());
}

#[test]
fn what_nobody_waits_for_any_more_is_forgotten() {
    let mut server = ApiServer::new(1 << 20);
    let mut bench = Bench::leads(11, &mut server);
    bench.says(1, shard::Kind::Hello(hello("m0", 1, 0, 1)));
    bench.request(1, &renew_lease(0));
    bench.leader.connection_closed(9);
    bench.leader.member_closed(bench.now, 1);
    bench.serve(&mut server);
    let effects = bench.take();
    assert!(effects.is_empty(), "{effects:?}");
}

#[test]
fn what_comes_on_a_connection_that_is_about_to_be_closed_does_not_count() {
    let mut server = ApiServer::new(1 << 20);
    let (mut bench, welcome) = with_member(&mut server);
    bench.request(1, &renew_lease(0));
    // The same shard, on another connection: the first is closed once the lease is noted.
    bench.says(2, shard::Kind::Hello(resumed(&welcome, None)));
    let effects = bench.says(1, shard::Kind::Hello(hello("m9", 9, 0, 1)));
    assert!(effects.is_empty(), "{effects:?}");
    bench.serve(&mut server);
    let effects = bench.take();
    let closed = effects
        .iter()
        .filter(|effect| matches!(effect, LeaderEffect::CloseMember(1)));
    assert_eq!(closed.count(), 1, "{effects:?}");
    let status = bench.leader.status(bench.now).unwrap();
    assert_eq!(status.members.len(), 1, "nobody else was let in");
}

#[test]
fn while_nothing_can_be_noted_the_status_says_so_and_cluster_time_stands_still() {
    let mut server = ApiServer::new(1 << 20);
    let (mut bench, _) = with_member(&mut server);
    assert_eq!(bench.leader.status(bench.now).unwrap().state_wait, None);
    let renewed = bench.now;
    bench.request(1, &renew_lease(0));
    bench.serve(&mut server);
    let effects = bench.take();
    let Some(LeaderEffect::Reply(_, payload)) = effects.first() else {
        panic!("{effects:?}");
    };
    let lease = rpc::RenewLeaseResponse::decode(payload).unwrap().lease;

    // An hour without the API server; the member answers pings.
    bench.request(2, &create_table("a", 1));
    let mut last_ns = 0;
    for _ in 0..3600 {
        bench.away(Duration::from_secs(1));
        let effects = bench.take();
        for ping in pings_in(&effects) {
            assert!(ping.cluster_time_ns >= last_ns);
            last_ns = ping.cluster_time_ns;
        }
        assert_eq!(pings_in(&effects).len(), effects.len(), "{effects:?}");
        bench.says(1, shard::Kind::Pong(Pong::default()));
    }
    let passed = bench.now.since(renewed).as_nanos() as u64;
    assert!(last_ns < TIME_AHEAD.as_nanos() as u64 && passed > LEASE_TERM_NS);
    let status = bench.leader.status(bench.now).unwrap();
    let wait = status.state_wait.expect("it waits");
    assert!(wait.waited_ms >= 3_590_000 && wait.held >= 1, "{wait:?}");
    assert!(
        wait.why.contains("cannot write the root for")
            || wait.why.contains("cannot read the root for"),
        "{}",
        wait.why
    );
    assert!(wait.why.contains("no answer in time"), "{}", wait.why);

    // It is back: what waited leaves, and no lease has ended for it.
    bench.now += Duration::from_secs(3);
    bench.serve(&mut server);
    bench.take();
    let status = bench.leader.status(bench.now).unwrap();
    assert_eq!((status.state_wait, status.client_lease_count), (None, 1));
    assert!(status.cluster_time_ns < last_ns + 10_000_000_000);
    assert!(lease.expiration_ns > status.cluster_time_ns);
}

#[test]
fn the_bound_of_cluster_time_is_raised_before_it_is_reached_and_nothing_waits_for_that() {
    let mut server = ApiServer::new(1 << 20);
    let (mut bench, _) = with_member(&mut server);
    let mut renewals = 0;
    for _ in 0..1000 {
        bench.now += Duration::from_secs(2);
        bench.says(1, shard::Kind::Pong(Pong::default()));
        let effects = bench.request(1, &get_table_id());
        assert_eq!(status_of(&effects), [Status::TableDoesntExist]);
        renewals += bench
            .under_way
            .iter()
            .filter(|(_, request)| matches!(request, Request::Replace(..)))
            .count();
        bench.serve(&mut server);
    }
    assert!((5..9).contains(&renewals), "{renewals} in 2000 s");
    let status = bench.leader.status(bench.now).unwrap();
    assert_eq!(status.cluster_time_ns / 1_000_000_000, 2000);
    // The next leader goes on with a time that nobody was told before, and not much later.
    let next = Bench::leads(22, &mut server);
    let later = next.leader.status(next.now).unwrap();
    assert!(later.cluster_time_ns > status.cluster_time_ns);
    assert!(later.cluster_time_ns <= status.cluster_time_ns + TIME_AHEAD.as_nanos() as u64);
}

#[test]
fn more_than_fits_is_refused_and_in_the_end_the_leadership_is_given_up() {
    let mut server = ApiServer::new(1 << 20);
    let limits = Limits {
        refuse_count: 10,
        ..Limits::default()
    };
    let mut bench = Bench::with(11, limits);
    bench.serve(&mut server);
    bench.take();
    bench.away(Duration::from_secs(10));
    for nonce in 0..11 {
        let effects = bench.request(nonce, &renew_lease(0));
        assert!(effects.is_empty(), "{effects:?}");
    }
    bench.away(Duration::from_secs(10));
    let effects = bench.request(12, &renew_lease(0));
    let [LeaderEffect::Reply(_, payload)] = &effects[..] else {
        panic!("{effects:?}");
    };
    let retry = rpc::RetryResponse::decode(payload).unwrap();
    let text = String::from_utf8_lossy(retry.message).into_owned();
    assert!(
        retry.min_delay_us >= 1_000_000 && text.contains("no answer in time"),
        "{text}"
    );
    // Members are not asked to wait; there are limits.
    for member in 0..50 {
        let hello = hello(&format!("m{member}"), member, 0, 1);
        let message = ToCoordinator::from(shard::Kind::Hello(hello));
        bench
            .leader
            .member_message(bench.now, 100 + member, message);
    }
    let effects = bench.take();
    assert!(
        matches!(effects.last(), Some(LeaderEffect::State(News::Ended(Ending::Deposed, text))) if text.contains("start anew")),
        "{effects:?}"
    );
    assert_eq!(bench.tick(), Time::NEVER);
    let effects = bench.request(13, &renew_lease(0));
    assert_eq!(status_of(&effects), [Status::Retry]);
}
