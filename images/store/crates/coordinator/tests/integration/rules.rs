//! The coordinator's rules, one by one, through its public face.

use std::time::Duration;

use crate::common::{
    self, Action, CLUSTER, Harness, create_table, drop_table, encode, hello, removal,
};
use coordinator::orders::{Removal, RemoveMemberError};
use coordinator::status::MemberState;
use coordinator::{LEASE_TERM_NS, Limits};
use wire::ids::{ReplyTo, ServerId, TableId};
use wire::member::{self, RefusedReason, coordinator::Kind};
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
fn control_operations_under_way_are_bounded() {
    let mut harness = Harness::with(|config| config.limits.max_pending_controls = 1);
    harness.enlist(100, hello("a", 1, 0, 1));
    let actions = harness.request(&control(1004, b""));
    let [Action::Send(100, Kind::Control(first))] = &actions[..] else {
        panic!("{actions:?}")
    };
    let answer = harness.answer(&control(1004, b""));
    assert_eq!(status(&answer), Status::Retry);
    // Tables do not wait for that.
    assert_eq!(harness.create("t", 1), TableId(1));
    let done = member::ControlDone {
        sequence: first.sequence,
        response: Vec::new(),
    };
    let answers = harness.shard_says(100, member::shard::Kind::ControlDone(done));
    assert_eq!(answers.len(), 1, "the first is answered");
    let actions = harness.request(&control(1004, b""));
    assert!(matches!(actions[..], [Action::Send(100, Kind::Control(_))]));
}

/// An input is copied for every shard: that counts, of all operations together.
#[test]
fn control_operations_cost_what_they_are_copied() {
    let mut harness = Harness::with(|config| config.limits.max_control_bytes = 4000);
    for shard in 0..4 {
        harness.enlist(100 + u64::from(shard), hello("a", 1, shard, 4));
    }
    let too_large = harness.answer(&control(1004, &[7; 1001]));
    assert_eq!(status(&too_large), Status::RequestTooLarge);
    let actions = harness.request(&control(1004, &[7; 600]));
    assert_eq!(actions.len(), 4, "one for each shard");
    let second = harness.answer(&control(1004, &[7; 600]));
    assert_eq!(status(&second), Status::Retry);
    // What shards answer counts as well: this one's answer is left out.
    let Action::Send(100, Kind::Control(first)) = &actions[0] else {
        panic!("{actions:?}")
    };
    let mut response = Vec::new();
    rpc::ServerControlResponse {
        status: Status::Ok,
        server_id: ServerId(1),
        output: &[1; 3000],
    }
    .encode(&mut response);
    let done = member::ControlDone {
        sequence: first.sequence,
        response,
    };
    harness.shard_says(100, member::shard::Kind::ControlDone(done));
    for (connection, action) in (101..).zip(&actions[1..]) {
        let Action::Send(_, Kind::Control(order)) = action else {
            panic!("{action:?}")
        };
        let done = member::ControlDone {
            sequence: order.sequence,
            response: Vec::new(),
        };
        let answers = harness.shard_says(connection, member::shard::Kind::ControlDone(done));
        for answer in answers {
            let Action::Reply(_, bytes) = answer else {
                panic!("{answer:?}")
            };
            let all = rpc::ServerControlAllResponse::decode(&bytes).unwrap();
            assert_eq!((all.server_count, all.response_count), (4, 0));
        }
    }
    let actions = harness.request(&control(1004, &[7; 600]));
    assert_eq!(actions.len(), 4, "the first has ended");
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
    assert!(harness.out.log.last().unwrap().contains("at most 4"));
    assert_eq!(
        status(&harness.answer(&create_table(&"n".repeat(1025), 1))),
        Status::InvalidParameter
    );
}

#[test]
fn a_server_id_stays_with_its_process() {
    let mut harness = Harness::new();
    let (first, _) = harness.enlist(100, hello("a", 1, 0, 1));
    assert_eq!((first.cluster_id, first.server_id), (CLUSTER, 1));
    assert_eq!((first.first_version, first.silence_timeout_ms), (1, 3000));
    // The welcome got lost: the process asks again, holding nothing.
    let (again, actions) = harness.enlist(101, hello("a", 1, 0, 1));
    assert_eq!(again.server_id, 1);
    assert_eq!(actions, [Action::Close(100)], "the old connection ends");
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!(status.members[0].incarnations, 1);
    assert_eq!(status.losses, []);
}

#[test]
fn a_new_process_supersedes_the_old_one_and_gets_its_tablets_empty() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    let table = harness.create("t", 1);
    let pong = member::Pong {
        sequence: 1,
        log_live_bytes: 77,
        object_count: 5,
        ..member::Pong::default()
    };
    harness.shard_says(100, member::shard::Kind::Pong(pong));
    harness.close(100);
    let (welcome, before) = harness.enlist(101, hello("a", 2, 0, 1));
    assert_eq!(ServerId(welcome.server_id), ServerId::new(1, 1));
    assert_eq!(welcome.first_version, (1 << 40) + 1);
    assert_eq!(welcome.tablets.len(), 1);
    assert_eq!(before, []);
    assert_eq!(harness.owners(table), [ServerId::new(1, 1)]);
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!(status.members[0].incarnations, 2);
    let loss = &status.losses[0];
    assert_eq!(
        (loss.member.as_str(), &loss.server_ids[..], &loss.tables[..]),
        ("a", &[1][..], &["t".to_owned()][..])
    );
    assert_eq!(
        (loss.tablet_count, loss.object_count, loss.live_bytes),
        (1, 5, 77)
    );
    // The old process is never let in again, whether it says what it held or not.
    let mut old = hello("a", 1, 0, 1);
    assert_eq!(
        harness.refused(102, old.clone()).reason(),
        RefusedReason::Superseded
    );
    (old.cluster_id, old.server_id) = (CLUSTER, 1);
    assert_eq!(
        harness.refused(103, old).reason(),
        RefusedReason::Superseded
    );
}

/// A Hello may be long on its way, and its sender dead: nobody takes the place of a process that is there.
#[test]
fn a_connected_process_keeps_its_place() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 2));
    let refused = harness.refused(101, hello("a", 2, 0, 2));
    assert_eq!(refused.reason(), RefusedReason::Invalid);
    assert!(
        refused.text.contains("its own --member"),
        "{}",
        refused.text
    );
    harness.enlist(102, hello("a", 1, 1, 2));
    harness.close(100);
    harness.refused(103, hello("a", 2, 0, 2));
    harness.close(102);
    harness.enlist(104, hello("a", 2, 0, 2));
}

#[test]
fn who_takes_the_place_of_another_has_to_be_alive() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.close(100);
    let says_hello = |harness: &mut Harness, connection, process| {
        let message = member::shard::Kind::Hello(hello("a", process, 0, 1));
        let actions = harness.shard_says(connection, message);
        assert!(matches!(&actions[..], [Action::Send(to, Kind::Ping(_))] if *to == connection));
    };
    // A Hello of a dead process, and then the end of its connection.
    says_hello(&mut harness, 101, 2);
    harness.close(101);
    // One that never answers.
    says_hello(&mut harness, 102, 3);
    let mut closed = Vec::new();
    for action in harness.advance(Duration::from_secs(4)) {
        closed.extend(matches!(action, Action::Close(_)).then_some(action));
    }
    assert_eq!(closed, [Action::Close(102)]);
    // Whoever was meant to lose its place comes back meanwhile.
    says_hello(&mut harness, 103, 4);
    harness.enlist(104, hello("a", 1, 0, 1));
    let pong = || member::shard::Kind::Pong(member::Pong::default());
    assert!(matches!(
        &harness.shard_says(103, pong())[..],
        [Action::Send(103, Kind::Refused(_)), Action::Close(103)]
    ));
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!(status.members[0].incarnations, 1);
}

#[test]
fn a_process_without_tablets_is_no_loss() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.close(100);
    harness.enlist(101, hello("a", 2, 0, 1));
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!((status.losses.len(), status.losses_dropped), (0, 0));
}

/// A coordinator that took over after the process had ended cannot say that it held nothing.
#[test]
fn what_a_process_held_that_never_reported_is_not_told_as_nothing() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.create("t", 1);
    let pong = member::Pong {
        object_count: 2,
        ..member::Pong::default()
    };
    harness.shard_says(100, member::shard::Kind::Pong(pong.clone()));
    harness.restart(Duration::from_secs(1));
    harness.enlist(101, hello("a", 2, 0, 1));
    let last = |harness: &Harness| {
        let status = harness.coordinator.cluster_status(harness.now);
        status.losses.last().cloned().expect("there is one")
    };
    let loss = last(&harness);
    assert_eq!((loss.uncounted, loss.object_count), (true, 0));
    assert_eq!(loss.instance, "instance-1");
    // It is noted so, and one that is counted is told apart.
    harness.restart(Duration::from_secs(1));
    assert_eq!(last(&harness), loss);
    let (welcome, _) = harness.enlist(102, hello("a", 3, 0, 1));
    assert!(last(&harness).uncounted, "it has not reported either");
    assert_eq!(ServerId(welcome.server_id), ServerId::new(1, 2));
    harness.shard_says(102, member::shard::Kind::Pong(pong));
    harness.close(102);
    harness.enlist(103, hello("a", 4, 0, 1));
    let loss = last(&harness);
    assert_eq!((loss.uncounted, loss.object_count), (false, 2));
}

#[test]
fn losses_are_bounded_and_counted() {
    let mut harness = Harness::with(|config| config.limits.max_losses = 2);
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.create("t", 1);
    harness.close(100);
    for process in 2..=4 {
        harness.enlist(100 + process, hello("a", process, 0, 1));
        harness.close(100 + process);
    }
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!((status.losses.len(), status.losses_dropped), (2, 1));
    assert_eq!(status.losses[0].server_ids, [ServerId::new(1, 1).0]);
}

#[test]
fn until_the_successors_shard_is_there_its_tablets_recover() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 2));
    harness.enlist(101, hello("a", 1, 1, 2));
    let table = harness.create("t", 1);
    harness.close(100);
    harness.close(101);
    harness.enlist(102, hello("a", 2, 0, 2));
    let config = harness.config(table);
    assert_eq!(config.tablet[0].state, 0);
    assert!(config.tablet[0].service_locator.is_some());
    assert_eq!(config.tablet[1].state, 1, "RECOVERING");
    assert_eq!(config.tablet[1].service_locator, None);
    harness.enlist(103, hello("a", 2, 1, 2));
    assert_eq!(harness.config(table).tablet[1].state, 0);
}

#[test]
fn fewer_shards_share_all_tablets_and_more_get_new_ids() {
    let mut harness = Harness::new();
    for shard in 0..3 {
        harness.enlist(100 + u64::from(shard), hello("a", 1, shard, 3));
    }
    let table = harness.create("t", 1);
    assert_eq!(
        harness.owners(table),
        [1, 2, 3].map(|index| ServerId::new(index, 0))
    );
    for connection in 100..103 {
        harness.close(connection);
    }
    let (welcome, _) = harness.enlist(110, hello("a", 2, 0, 1));
    assert_eq!(welcome.tablets.len(), 3);
    assert_eq!(harness.owners(table), [ServerId::new(1, 1); 3]);
    harness.close(110);
    harness.enlist(120, hello("a", 3, 0, 4));
    let (welcome, _) = harness.enlist(123, hello("a", 3, 3, 4));
    assert_eq!(ServerId(welcome.server_id), ServerId::new(4, 0));
    let (welcome, _) = harness.enlist(122, hello("a", 3, 2, 4));
    assert_eq!(
        ServerId(welcome.server_id),
        ServerId::new(3, 2),
        "a generation is not given out twice"
    );
}

#[test]
fn what_makes_no_sense_in_a_hello_is_said() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 2));
    type Change = fn(&mut member::Hello);
    let cases: &[(Change, &str)] = &[
        (|hello| hello.member.clear(), "member name is empty"),
        (|hello| hello.member = "m".repeat(254), "254 bytes"),
        (|hello| hello.instance.clear(), "instance is empty"),
        (|hello| hello.shard_count = 0, "makes no sense"),
        (|hello| hello.shard_count = 65, "makes no sense"),
        (|hello| hello.shard_index = 2, "makes no sense"),
        (|hello| hello.shard_count = 3, "with 2 shards before"),
        (|hello| hello.locator = "tcp".to_owned(), "locator"),
        (|hello| hello.locator.clear(), "locator"),
        (|hello| hello.locator = "x".repeat(300), "300 bytes"),
    ];
    for (change, text) in cases {
        let mut message = hello("a", 1, 1, 2);
        change(&mut message);
        let refused = harness.refused(200, message);
        assert_eq!(refused.reason(), RefusedReason::Invalid);
        assert!(
            refused.text.contains(text),
            "{:?} lacks {text:?}",
            refused.text
        );
    }
}

#[test]
fn members_are_bounded() {
    let mut harness = Harness::with(|config| config.limits.max_members = 1);
    harness.enlist(100, hello("a", 1, 0, 1));
    let refused = harness.refused(101, hello("b", 2, 0, 1));
    assert!(refused.text.contains("limit"), "{}", refused.text);
    harness.close(100);
    harness.enlist(102, hello("a", 3, 0, 1));
}

#[test]
fn a_connection_starts_with_one_hello() {
    let mut harness = Harness::new();
    let pong = || member::shard::Kind::Pong(member::Pong::default());
    assert_eq!(harness.shard_says(100, pong()), [Action::Close(100)]);
    harness.enlist(101, hello("a", 1, 0, 1));
    assert_eq!(
        harness.hello(101, hello("a", 1, 0, 1)),
        [Action::Close(101)]
    );
    let status = harness.coordinator.cluster_status(harness.now);
    assert_eq!(status.members[0].state, MemberState::Unreachable);
}

#[test]
fn a_silent_shard_is_unreachable_and_keeps_its_tablets() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.enlist(101, hello("b", 2, 0, 1));
    let table = harness.create("t", 1);
    let mut closed = Vec::new();
    for _ in 0..40 {
        for action in harness.advance(Duration::from_millis(100)) {
            if let Action::Close(connection) = action {
                closed.push(connection);
            }
        }
        harness.shard_says(101, member::shard::Kind::Pong(member::Pong::default()));
    }
    assert_eq!(closed, [100]);
    let states: Vec<_> = harness
        .coordinator
        .cluster_status(harness.now)
        .members
        .into_iter()
        .map(|member| member.state)
        .collect();
    assert_eq!(states, [MemberState::Unreachable, MemberState::Up]);
    let config = harness.config(table);
    assert_eq!(config.tablet[0].state, 0);
    assert!(config.tablet[0].service_locator.is_some());
}

#[test]
fn a_coordinator_that_was_away_blames_nobody() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.advance(Duration::from_millis(500));
    harness.now += Duration::from_secs(60);
    let mut out = common::Recorder::default();
    harness.coordinator.tick(harness.now, &mut out);
    assert!(matches!(
        out.actions[..],
        [Action::Send(100, Kind::Ping(_))]
    ));
}

#[test]
fn a_removed_member_owns_nothing_and_never_comes_back() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.enlist(101, hello("b", 2, 0, 1));
    harness.create("t", 1);
    harness.create("u", 1);
    let now = harness.now;
    let refusal = harness
        .coordinator
        .remove_member(now, &removal("a"), &mut harness.out);
    let Err(RemoveMemberError::OwnsTablets {
        tables,
        tablet_count,
        ..
    }) = refusal
    else {
        panic!("{refusal:?}")
    };
    assert_eq!((tables, tablet_count), (vec!["t".to_owned()], 1));
    let actions = harness.request(&drop_table("t"));
    let [Action::Send(100, Kind::DropTablet(_))] = &actions[..] else {
        panic!("{actions:?}")
    };
    harness
        .coordinator
        .remove_member(now, &removal("a"), &mut harness.out)
        .unwrap();
    assert!(matches!(
        &harness.take()[..],
        // The drop that waited for the removed shard is answered, too.
        [
            Action::Send(100, Kind::Refused(_)),
            Action::Close(100),
            Action::Reply(..)
        ]
    ));
    for message in [hello("a", 1, 0, 1), {
        let mut held = hello("a", 1, 0, 1);
        (held.cluster_id, held.server_id) = (CLUSTER, 1);
        held.instance = "other".to_owned();
        held
    }] {
        assert_eq!(
            harness.refused(102, message).reason(),
            RefusedReason::Superseded
        );
    }
    assert!(matches!(
        harness
            .coordinator
            .remove_member(now, &removal("a"), &mut harness.out),
        Err(RemoveMemberError::NotFound { .. })
    ));
    let (welcome, _) = harness.enlist(103, hello("a", 9, 0, 1));
    assert_eq!(
        ServerId(welcome.server_id),
        ServerId::new(3, 0),
        "a fresh place"
    );
    assert_eq!(harness.create("v", 1), TableId(3));
}

#[test]
fn a_process_that_is_about_to_enlist_can_be_kept_out() {
    let mut harness = Harness::new();
    let now = harness.now;
    let remove = |harness: &mut Harness, instance: &str, expected_cluster_id| {
        let removal = Removal {
            instance: instance.to_owned(),
            expected_cluster_id,
            ..removal("a")
        };
        harness
            .coordinator
            .remove_member(now, &removal, &mut harness.out)
    };
    let another = remove(&mut harness, "instance-1", CLUSTER + 1);
    let Err(RemoveMemberError::OtherStore(other)) = another else {
        panic!("{another:?}");
    };
    assert_eq!(other.cluster_id, CLUSTER);
    for _ in 0..2 {
        assert_eq!(remove(&mut harness, "instance-1", CLUSTER), Ok(()));
    }
    let refused = harness.refused(100, hello("a", 1, 0, 1));
    assert_eq!(refused.reason(), RefusedReason::Superseded);
    // Others of that name, and others of that instance, come in.
    harness.enlist(101, hello("a", 2, 0, 1));
    harness.enlist(102, hello("b", 1, 0, 1));
    // One that is there and one that is on its way, at once.
    assert_eq!(remove(&mut harness, "instance-3", 0), Ok(()));
    harness.take();
    for process in [2, 3] {
        let refused = harness.refused(110 + process, hello("a", process, 0, 1));
        assert_eq!(refused.reason(), RefusedReason::Superseded);
    }
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
fn control_operations_go_to_every_shard() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.enlist(101, hello("b", 2, 0, 1));
    let input = [&3u32.to_le_bytes()[..], b"hello"].concat();
    let (to, actions) = harness.request_on(1, &control(1010, &input));
    assert_eq!(harness.out.log.last().unwrap(), "hello");
    let mut replies = Vec::new();
    for (action, id) in actions.into_iter().zip([1u64, 2]).rev() {
        let Action::Send(connection, Kind::Control(message)) = action else {
            panic!("{action:?}")
        };
        assert_eq!((message.op, &message.input), (1010, &input));
        let response = encode(|out| {
            rpc::ServerControlResponse {
                status: Status::Ok,
                server_id: ServerId(id),
                output: b"xy",
            }
            .encode(out);
        });
        let done = member::ControlDone {
            sequence: message.sequence,
            response,
        };
        replies = harness.shard_says(connection, member::shard::Kind::ControlDone(done));
    }
    let [Action::Reply(answered, bytes)] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!(*answered, to);
    let response = rpc::ServerControlAllResponse::decode(bytes).unwrap();
    assert_eq!(
        (
            response.server_count,
            response.response_count,
            response.responses.len()
        ),
        (2, 2, 36)
    );
    assert_eq!(response.responses[4], 1, "in order of server ids");
}

#[test]
fn control_waits_a_bounded_time_and_leaves_malformed_answers_out() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.enlist(101, hello("b", 2, 0, 1));
    let actions = harness.request(&control(1004, b""));
    let Action::Send(100, Kind::Control(message)) = &actions[0] else {
        panic!("{actions:?}")
    };
    let done = member::ControlDone {
        sequence: message.sequence,
        response: vec![0; 15],
    };
    assert_eq!(
        harness.shard_says(100, member::shard::Kind::ControlDone(done)),
        []
    );
    let replies: Vec<(ReplyTo, Vec<u8>)> = harness
        .advance(Duration::from_secs(1))
        .into_iter()
        .filter_map(|action| match action {
            Action::Reply(to, bytes) => Some((to, bytes)),
            _ => None,
        })
        .collect();
    let response = rpc::ServerControlAllResponse::decode(&replies[0].1).unwrap();
    assert_eq!((response.server_count, response.response_count), (2, 0));
}

#[test]
fn control_refuses_what_it_does_not_do() {
    let mut harness = Harness::new();
    for (request, expected) in [
        (control(1000, b""), Status::UnimplementedRequest),
        (control(1013, b""), Status::UnimplementedRequest),
        (control(1010, b"abc"), Status::MessageTooShort),
        (control(1010, &vec![0; 65_537]), Status::RequestTooLarge),
    ] {
        let answer = harness.answer(&request);
        assert_eq!((status(&answer), answer.len()), (expected, 16));
    }
    // Nobody to ask: answered at once.
    let answer = harness.answer(&control(1006, b""));
    assert_eq!(answer, [0; 16]);
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
