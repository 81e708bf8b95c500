//! The coordinator's rules, one by one, through its public face: what clients ask for.

use std::time::Duration;

use crate::common::{Action, CLUSTER, Harness, create_table, drop_table, encode, hello};
use base::ids::{ServerId, TableId};
use coordinator::reports::{TableEvent, TableLimit};
use coordinator::{LEASE_TERM_NS, Limits};
use wire::member::{self, coordinator::Kind};
use wire::rpc::{self, RetryResponse};
use wire::status::Status;

fn status(payload: &[u8]) -> Status {
    rpc::status(payload).unwrap()
}

fn control(op: u32, input: &[u8]) -> Vec<u8> {
    encode(|out| {
        rpc::ServerControlAllRequest {
            control_op: op,
            input,
        }
        .encode(out);
    })
}

fn renew(lease_id: u64) -> Vec<u8> {
    encode(|out| rpc::RenewLeaseRequest { lease_id }.encode(out))
}

#[test]
fn generic_checks_come_in_the_protocols_order() {
    let mut harness = Harness::new();
    let cases: &[(&[u8], Status)] = &[
        (&[], Status::MessageTooShort),
        (&[10, 0, 2], Status::MessageTooShort),
        (&[81, 0, 9, 0], Status::UnimplementedRequest),
        (&[10, 0, 4, 0], Status::ServiceNotAvailable),
        (&[13, 0, 0, 0], Status::ServiceNotAvailable),
        (&[13, 0, 1, 0], Status::ServiceNotAvailable),
        (&[13, 0, 2, 0], Status::UnimplementedRequest),
        (&[27, 0, 2, 0], Status::UnimplementedRequest),
        // CREATE_INDEX, KILL and GET_SERVER_CONFIG are not served.
        (&[69, 0, 2, 0], Status::UnimplementedRequest),
        (&[9, 0, 3, 0], Status::UnimplementedRequest),
        (&[52, 0, 3, 0], Status::UnimplementedRequest),
        (&[20, 0, 2, 0], Status::MessageTooShort),
        (&[17, 0, 2, 0], Status::MessageTooShort),
        (&[59, 0, 2, 0], Status::MessageTooShort),
        (&[49, 0, 2, 0], Status::MessageTooShort),
        (&[10, 0, 2, 0], Status::MessageTooShort),
        (&[62, 0, 2, 0, 0], Status::MessageTooShort),
    ];
    for (request, expected) in cases {
        let answer = harness.answer(request);
        assert_eq!(
            answer,
            rpc::status_bytes(*expected),
            "{request:?} wants {expected}"
        );
    }
}

#[test]
fn a_malformed_name_is_refused_with_the_whole_fixed_part() {
    let mut harness = Harness::new();
    let no_nul = [&[10u8, 0, 2, 0, 1, 0, 0, 0, 1, 0, 0, 0][..], b"a"].concat();
    let empty = [10u8, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    for request in [&no_nul[..], &empty] {
        let answer = harness.answer(request);
        assert_eq!(
            (status(&answer), answer.len()),
            (Status::RequestFormatError, 12)
        );
    }
}

#[test]
fn ping_is_answered_and_an_unknown_caller_is_told() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    let ping = |caller| encode(|out| rpc::PingRequest { caller }.encode(out));
    for (caller, expected) in [
        (ServerId::INVALID, Status::Ok),
        (ServerId::new(1, 0), Status::Ok),
        (ServerId::new(1, 1), Status::CallerNotInCluster),
        (ServerId::new(2, 0), Status::CallerNotInCluster),
    ] {
        assert_eq!(harness.answer(&ping(caller)), rpc::status_bytes(expected));
    }
}

#[test]
fn creating_a_table_without_masters_asks_to_come_again() {
    let mut harness = Harness::new();
    let answer = harness.answer(&create_table("t", 1));
    let retry = RetryResponse::decode(&answer).unwrap();
    assert_eq!(
        (retry.min_delay_us, retry.max_delay_us),
        (5_000_000, 10_000_000)
    );
    assert_eq!(retry.message, b"no masters in cluster");
    // A member of which one shard is missing is not up.
    harness.enlist(100, hello("a", 1, 0, 2));
    assert_eq!(
        status(&harness.answer(&create_table("t", 1))),
        Status::Retry
    );
    harness.enlist(101, hello("a", 1, 1, 2));
    assert_eq!(harness.create("t", 1), TableId(1));
}

#[test]
fn the_reply_to_create_waits_for_every_owner() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.enlist(101, hello("b", 2, 0, 1));
    let actions = harness.request(&create_table("t", 2));
    let orders: Vec<(u64, member::TabletOrder)> = actions
        .into_iter()
        .map(|action| match action {
            Action::Send(connection, Kind::TakeTablet(order)) => (connection, order),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(orders.len(), 2);
    assert_eq!(
        (
            orders[0].1.tablet.start_key_hash,
            orders[0].1.tablet.end_key_hash
        ),
        (0, (1 << 63) - 1)
    );
    assert_eq!(harness.done(100, orders[0].1.sequence + 1000), []);
    assert_eq!(harness.done(100, orders[0].1.sequence), []);
    assert_eq!(harness.done(100, orders[0].1.sequence), [], "counts once");
    // The same request from another connection joins the one under way.
    let (second, actions) = harness.request_on(2, &create_table("t", 9));
    assert_eq!(actions, []);
    let replies = harness.done(101, orders[1].1.sequence);
    assert_eq!(replies.len(), 2);
    assert!(matches!(&replies[1], Action::Reply(to, bytes) if *to == second && bytes.len() == 12));
    // From now on the name is answered at once.
    assert_eq!(harness.create("t", 1), TableId(1));
}

#[test]
fn an_owner_that_goes_away_holds_no_reply_up() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    assert_eq!(harness.request(&create_table("t", 1)).len(), 1);
    assert!(matches!(harness.close(100)[..], [Action::Reply(..)]));
    // What it missed, it learns when it comes back.
    let mut back = hello("a", 1, 0, 1);
    (back.cluster_id, back.server_id) = (CLUSTER, 1);
    let (welcome, _) = harness.enlist(101, back);
    assert_eq!(welcome.server_id, 1);
    assert_eq!(welcome.tablets.len(), 1);
    assert_eq!(welcome.tablets[0].table_id, 1);
}

#[test]
fn an_owner_that_never_answers_holds_no_reply_up_for_ever() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.request(&create_table("t", 1));
    let mut replies = 0;
    for _ in 0..40 {
        for action in harness.advance(Duration::from_millis(100)) {
            replies += usize::from(matches!(action, Action::Reply(..)));
        }
        harness.shard_says(100, member::shard::Kind::Pong(member::Pong::default()));
    }
    assert_eq!(replies, 1);
}

#[test]
fn nobody_is_answered_on_a_closed_connection() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    let actions = harness.request(&create_table("t", 1));
    let [Action::Send(_, Kind::TakeTablet(order))] = &actions[..] else {
        panic!("{actions:?}")
    };
    harness.coordinator.connection_closed(1);
    assert_eq!(harness.done(100, order.sequence), []);
}

#[test]
fn dropping_waits_for_the_owners_and_is_ok_for_unknown_names() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    assert_eq!(harness.answer(&drop_table("no")), [0, 0, 0, 0]);
    harness.create("t", 1);
    let actions = harness.request(&drop_table("t"));
    let [Action::Send(100, Kind::DropTablet(order))] = &actions[..] else {
        panic!("{actions:?}")
    };
    // Sent again while it is under way: both are answered together.
    assert_eq!(harness.request(&drop_table("t")), []);
    assert_eq!(harness.config(TableId(1)).tablet, []);
    assert_eq!(harness.done(100, order.sequence).len(), 2);
    assert_eq!(harness.create("t", 1), TableId(2), "ids are not reused");
}

#[test]
fn pending_replies_are_bounded() {
    let mut harness = Harness::with(|config| config.limits.max_pending_replies = 2);
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.request(&create_table("t", 1));
    harness.request(&create_table("t", 1));
    for request in [
        create_table("u", 1),
        create_table("t", 1),
        drop_table("t"),
        control(1004, b""),
    ] {
        let answer = harness.answer(&request);
        let retry = RetryResponse::decode(&answer).unwrap();
        assert_eq!(retry.min_delay_us, 10_000);
    }
}

#[test]
fn limits_of_tables_are_invalid_parameters_and_logged() {
    let mut harness = Harness::with(|config| {
        config.limits = Limits {
            max_span: 4,
            ..Limits::default()
        };
    });
    harness.enlist(100, hello("a", 1, 0, 1));
    assert_eq!(
        status(&harness.answer(&create_table("t", 5))),
        Status::InvalidParameter
    );
    let refused = TableEvent::CreateRefused(TableLimit::Span { most: 4, asked: 5 });
    assert_eq!(harness.out.events.last(), Some(&refused.into()));
    assert_eq!(
        status(&harness.answer(&create_table(&"n".repeat(1025), 1))),
        Status::InvalidParameter
    );
}

#[test]
fn leases_count_up_from_the_tag_and_are_answered_to_masters() {
    let mut harness = Harness::with(|config| config.cluster_tag = 5);
    harness.enlist(100, hello("a", 1, 0, 1));
    let lease = rpc::RenewLeaseResponse::decode(&harness.answer(&renew(0)))
        .unwrap()
        .lease;
    assert_eq!(
        (lease.id, lease.timestamp_ns, lease.expiration_ns),
        (5 << 32 | 1, 0, LEASE_TERM_NS)
    );
    let query = |harness: &mut Harness, lease_id| {
        let query = member::LeaseQuery { lease_id };
        match &harness.shard_says(100, member::shard::Kind::LeaseQuery(query))[..] {
            [Action::Send(100, Kind::LeaseAnswer(answer))] => answer.expiration_ns,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(query(&mut harness, lease.id), LEASE_TERM_NS);
    assert_eq!(query(&mut harness, 1), 0);
    harness.now += Duration::from_nanos(LEASE_TERM_NS);
    assert_eq!(query(&mut harness, lease.id), 0);
    let next = rpc::RenewLeaseResponse::decode(&harness.answer(&renew(lease.id)))
        .unwrap()
        .lease;
    assert_eq!(next.id, 5 << 32 | 2);
    assert_eq!(
        harness
            .coordinator
            .cluster_status(harness.now)
            .client_lease_count,
        1
    );
}

#[test]
fn too_many_leases_are_told_to_come_again() {
    let mut harness = Harness::with(|config| config.limits.max_client_leases = 1);
    harness.answer(&renew(0));
    let answer = harness.answer(&renew(0));
    assert_eq!(
        RetryResponse::decode(&answer).unwrap().min_delay_us,
        1_000_000
    );
    assert_eq!(status(&harness.answer(&renew(1))), Status::Ok);
}

#[test]
fn tables_are_shown_in_pages() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    for name in ["x", "y", "z"] {
        harness.create(name, 1);
    }
    let page = harness.coordinator.tables(0, 2);
    assert_eq!(page.next_after_table_id, Some(2));
    assert_eq!(page.tables[1].name, "y");
    assert_eq!(page.tables[1].tablets[0].member, "a");
    let page = harness.coordinator.tables(2, 2);
    assert_eq!((page.tables.len(), page.next_after_table_id), (1, None));
    assert_eq!(harness.coordinator.tables(0, 0).tables.len(), 3);
}
