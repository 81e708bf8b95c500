//! Control operations, which go to all shards.

use std::time::Duration;

use crate::common::{Action, Harness, encode, hello};
use base::ids::{ReplyTo, ServerId, TableId};
use base::level::Level;
use coordinator::reports::ClientEvent;
use wire::member::{self, coordinator::Kind};
use wire::rpc;
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
fn control_operations_go_to_every_shard() {
    let mut harness = Harness::new();
    harness.enlist(100, hello("a", 1, 0, 1));
    harness.enlist(101, hello("b", 2, 0, 1));
    let input = [&3u32.to_le_bytes()[..], b"hello"].concat();
    let (to, actions) = harness.request_on(1, &control(1010, &input));
    let text = ClientEvent::Text {
        level: Level::Notice,
        text: "hello".to_owned(),
    };
    assert_eq!(harness.out.events.last(), Some(&text.into()));
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
