//! Both sides of sessions, with connections between them that break.

use core::num::NonZeroU64;
use std::collections::VecDeque;

use base::bugs::{Bug, plant};
use proptest::prelude::*;
use prost::Message;
use wire::member::{Hello, Numbers, Ping, Pong, ToCoordinator, ToShard, Welcome};
use wire::member::{coordinator, shard};

use super::{Closed, Heard, Incoming, MAX_UNHEARD_BYTES, Sessions, ShardSession, What};

fn hello(process: u64) -> ToCoordinator {
    let hello = Hello {
        member: "m1".to_owned(),
        process,
        ..Hello::default()
    };
    ToCoordinator::from(shard::Kind::Hello(hello))
}

fn pong(sequence: u64) -> ToCoordinator {
    let pong = Pong {
        sequence,
        ..Pong::default()
    };
    ToCoordinator::from(shard::Kind::Pong(pong))
}

fn welcome() -> ToShard {
    ToShard::from(coordinator::Kind::Welcome(Welcome::default()))
}

/// An order with a number of the test's own.
fn order(number: u64) -> ToShard {
    let split = wire::member::TabletSplit {
        sequence: number,
        ..Default::default()
    };
    ToShard::from(coordinator::Kind::SplitTablet(split))
}

fn sessions() -> Sessions {
    let mut last = 100;
    Sessions::new(Box::new(move || {
        last += 1;
        NonZeroU64::new(last)
    }))
}

/// One shard and its coordinator. What was sent on a connection that broke may have arrived.
struct World {
    sessions: Sessions,
    shard: ShardSession,
    /// The present connection, and what is on its way there, each way.
    connection: Option<u64>,
    next_connection: u64,
    to_shard: VecDeque<Vec<u8>>,
    to_coordinator: VecDeque<Vec<u8>>,
    session: Option<u64>,
    /// What was said and heard since the session began, by numbers of the test.
    said: [u64; 2],
    heard: [u64; 2],
    welcomes: u64,
}

impl World {
    fn new() -> World {
        let mut world = World {
            sessions: sessions(),
            shard: ShardSession::default(),
            connection: None,
            next_connection: 1,
            to_shard: VecDeque::new(),
            to_coordinator: VecDeque::new(),
            session: None,
            said: [0; 2],
            heard: [0; 2],
            welcomes: 0,
        };
        world.connect();
        world.settle();
        world
    }

    fn connect(&mut self) {
        assert!(self.connection.is_none());
        self.connection = Some(self.next_connection);
        self.next_connection += 1;
        let mut message = hello(1);
        message.numbers = Some(self.shard.hello());
        self.to_coordinator.push_back(message.encode_to_vec());
    }

    /// The first `arrive` messages of each direction arrive all the same.
    fn break_connection(&mut self, arrive: [usize; 2]) {
        let Some(connection) = self.connection else {
            return;
        };
        for _ in 0..arrive[0] {
            self.coordinator_hears();
        }
        for _ in 0..arrive[1] {
            self.shard_hears();
        }
        // What came may have ended it.
        if self.connection == Some(connection) {
            self.connection = None;
            self.sessions.closed(connection);
            self.shard.disconnected();
        }
        self.to_coordinator.clear();
        self.to_shard.clear();
    }

    fn shard_says(&mut self) {
        self.said[0] += 1;
        if let Some(encoded) = self.shard.send(pong(self.said[0])) {
            assert!(self.connection.is_some(), "messages wait for a connection");
            self.to_coordinator.push_back(encoded);
        }
    }

    fn coordinator_says(&mut self) {
        if let Some(session) = self.session {
            self.said[1] += 1;
            self.send(session, order(self.said[1]));
        }
    }

    fn ping(&mut self) {
        if let Some(session) = self.session {
            let ping = coordinator::Kind::Ping(Ping::default());
            self.send(session, ToShard::from(ping));
        }
    }

    fn send(&mut self, session: u64, message: ToShard) {
        let encoded = message.encode_to_vec();
        let what = What::of(&message);
        if let Some((connection, encoded)) = self.sessions.outgoing(session, what, encoded) {
            assert_eq!(Some(connection), self.connection);
            self.to_shard.push_back(encoded);
        }
    }

    fn coordinator_hears(&mut self) {
        let (Some(connection), Some(encoded)) = (self.connection, self.to_coordinator.pop_front())
        else {
            return;
        };
        let message = ToCoordinator::decode(&*encoded).unwrap();
        match self.sessions.incoming(connection, &message) {
            Incoming::Message(session) => match message.kind {
                Some(shard::Kind::Hello(_)) => {
                    if let Some(former) = self.session.replace(session) {
                        self.sessions.end(former);
                    }
                    self.said[1] = 0;
                    self.heard[0] = 0;
                    self.welcomes += 1;
                    self.send(session, welcome());
                }
                Some(shard::Kind::Pong(pong)) => {
                    assert_eq!(pong.sequence, self.heard[0] + 1, "each once, in order");
                    self.heard[0] = pong.sequence;
                }
                _ => panic!("{message:?}"),
            },
            Incoming::Resumed {
                session,
                messages,
                former,
            } => {
                assert_eq!((Some(session), former), (self.session, None));
                self.to_shard.extend(messages);
            }
            Incoming::Nothing => {}
            Incoming::Wrong => panic!("{message:?}"),
        }
    }

    fn shard_hears(&mut self) {
        let Some(encoded) = self.to_shard.pop_front() else {
            return;
        };
        let message = ToShard::decode(&*encoded).unwrap();
        match self.shard.heard(&message) {
            Heard::Resumed(messages) => return self.to_coordinator.extend(messages),
            Heard::Anew | Heard::Message => {}
            Heard::Wrong => panic!("{message:?}"),
        }
        match message.kind {
            Some(coordinator::Kind::Welcome(_)) => {
                self.said[0] = 0;
                self.heard[1] = 0;
            }
            Some(coordinator::Kind::SplitTablet(order)) => {
                assert_eq!(order.sequence, self.heard[1] + 1, "each once, in order");
                self.heard[1] = order.sequence;
            }
            Some(coordinator::Kind::Ping(_)) => {}
            _ => panic!("{message:?}"),
        }
    }

    fn settle(&mut self) {
        while !self.to_coordinator.is_empty() || !self.to_shard.is_empty() {
            self.coordinator_hears();
            self.shard_hears();
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    ShardSays,
    CoordinatorSays,
    Ping,
    CoordinatorHears,
    ShardHears,
    Break([usize; 2]),
    Connect,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::ShardSays),
        4 => Just(Step::CoordinatorSays),
        1 => Just(Step::Ping),
        4 => Just(Step::CoordinatorHears),
        4 => Just(Step::ShardHears),
        2 => [0..4usize, 0..4usize].prop_map(Step::Break),
        3 => Just(Step::Connect),
    ]
}

fn live(steps: &[Step]) {
    let mut world = World::new();
    for step in steps {
        match *step {
            Step::ShardSays => world.shard_says(),
            Step::CoordinatorSays => world.coordinator_says(),
            Step::Ping => world.ping(),
            Step::CoordinatorHears => world.coordinator_hears(),
            Step::ShardHears => world.shard_hears(),
            Step::Break(arrive) => world.break_connection(arrive),
            Step::Connect => {
                if world.connection.is_none() {
                    world.connect();
                }
            }
        }
    }
    if world.connection.is_none() {
        world.connect();
    }
    world.settle();
    assert_eq!(world.heard, world.said, "all is heard in the end");
    assert_eq!(world.welcomes, 1, "the session went on");
}

proptest! {
    #[test]
    fn each_message_is_heard_once_and_in_order_whatever_becomes_of_connections(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        live(&steps);
    }
}

const LOST: [Step; 3] = [
    Step::CoordinatorSays,
    Step::Break([0, 0]),
    Step::CoordinatorSays,
];

#[test]
#[should_panic]
fn messages_that_are_not_sent_again_are_missed() {
    plant(Some(Bug::ForgetUnheard));
    live(&LOST);
}

#[test]
fn what_is_planted_above_is_what_fails() {
    live(&LOST);
}

#[test]
fn a_coordinator_that_does_not_know_the_session_begins_another() {
    let mut world = World::new();
    world.coordinator_says();
    world.settle();
    world.break_connection([0, 0]);
    world.sessions = sessions();
    world.session = None;
    assert!(world.shard.is_interrupted());
    world.shard_says();
    world.connect();
    world.coordinator_hears();
    let message = ToShard::decode(&*world.to_shard.pop_front().unwrap()).unwrap();
    assert_eq!(world.shard.heard(&message), Heard::Anew);
    assert!(!world.shard.is_interrupted());
}

#[test]
fn a_session_is_its_own_process_s_alone() {
    let mut world = World::new();
    world.break_connection([0, 0]);
    let mut other = hello(2);
    other.numbers = Some(world.shard.hello());
    assert_eq!(world.sessions.incoming(9, &other), Incoming::Message(9));
    // The first one's is untouched.
    world.connect();
    world.settle();
    assert_eq!(world.welcomes, 1);
}

#[test]
fn a_session_moves_to_the_next_connection_though_the_first_was_not_seen_to_end() {
    let mut world = World::new();
    world.coordinator_says();
    let first = world.connection.take().unwrap();
    world.to_shard.clear();
    world.shard.disconnected();
    let mut message = hello(1);
    message.numbers = Some(world.shard.hello());
    let Incoming::Resumed {
        former, messages, ..
    } = world.sessions.incoming(50, &message)
    else {
        panic!("the session is known");
    };
    assert_eq!((former, messages.len()), (Some(first), 2));
    // Later messages on the first one, and its end, are nobody's: the session is as it was.
    assert_eq!(world.sessions.incoming(first, &pong(1)), Incoming::Nothing);
    assert_eq!(world.sessions.incoming(first, &hello(2)), Incoming::Nothing);
    assert_eq!(world.sessions.closed(first), Closed::Nothing);
    assert_eq!(world.sessions.closed(50), Closed::Interrupted(1));
}

#[test]
fn builds_that_number_nothing_lose_their_session_with_the_connection() {
    let mut sessions = sessions();
    assert_eq!(sessions.incoming(1, &hello(1)), Incoming::Message(1));
    let (connection, encoded) = sessions
        .outgoing(1, What::Welcome, welcome().encode_to_vec())
        .unwrap();
    assert_eq!((connection, ToShard::decode(&*encoded)), (1, Ok(welcome())));
    assert_eq!(sessions.incoming(1, &pong(1)), Incoming::Message(1));
    assert_eq!(sessions.closed(1), Closed::Over(1));
    assert_eq!(sessions.closed(1), Closed::Nothing);
    // And a shard whose coordinator numbers nothing.
    let mut shard = ShardSession::default();
    assert_eq!(shard.hello(), Numbers::default());
    assert_eq!(shard.heard(&welcome()), Heard::Message);
    assert_eq!(shard.send(pong(1)), Some(pong(1).encode_to_vec()));
    assert!(!shard.disconnected());
}

#[test]
fn what_is_kept_is_bounded_and_a_session_that_lacks_some_begins_anew() {
    let mut world = World::new();
    world.break_connection([0, 0]);
    let large = "x".repeat(1000);
    for _ in 0..2 * MAX_UNHEARD_BYTES / large.len() {
        let refused = wire::member::Refused {
            reason: 0,
            text: large.clone(),
        };
        let message = ToShard::from(coordinator::Kind::Refused(refused));
        let encoded = message.encode_to_vec();
        assert_eq!(world.sessions.outgoing(1, What::Other, encoded), None);
    }
    world.connect();
    world.settle();
    assert_eq!(world.welcomes, 2);
}

#[test]
fn a_message_that_comes_out_of_turn_ends_the_session() {
    let mut world = World::new();
    let ahead = |number, heard| {
        let numbers = Numbers {
            session: 101,
            number,
            heard,
        };
        let mut message = pong(1);
        message.numbers = Some(numbers);
        message
    };
    // One is missing; it has heard what was not said; it is of another session.
    assert_eq!(world.sessions.incoming(1, &ahead(2, 1)), Incoming::Wrong);
    assert_eq!(world.sessions.incoming(1, &ahead(1, 9)), Incoming::Wrong);
    // It was sent before the Welcome had come.
    assert_eq!(world.sessions.incoming(1, &pong(1)), Incoming::Message(1));
    assert_eq!(
        world.sessions.incoming(1, &ahead(1, 1)),
        Incoming::Message(1)
    );
    assert_eq!(world.sessions.incoming(1, &pong(1)), Incoming::Wrong);
    assert_eq!(world.sessions.end(1), Some(1));
    assert_eq!(world.sessions.incoming(1, &pong(1)), Incoming::Message(1));
}
