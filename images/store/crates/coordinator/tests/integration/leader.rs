//! A leader whose state is in objects of an API server: what waits for what.

use std::time::Duration;

use crate::common::{self, create_table, hello, renew_lease};
use coordinator::leader::{Leader, Limits, News, Output, Settings, TIME_AHEAD};
use coordinator::state::objects::testing::ApiServer;
use coordinator::state::objects::{self, Answer, Ending, Request, RequestId, Tuning};
use coordinator::{Config, Coordinator, LEASE_TERM_NS};
use wire::ids::ReplyTo;
use wire::member::coordinator::Kind;
use wire::member::{
    CheckpointPart, Hello, Ping, Pong, Position, ToCoordinator, ToShard, Welcome, shard,
};
use wire::rpc;
use wire::status::Status;
use wire::time::Time;

/// A leader with its API server, which answers when it is told to.
struct Bench {
    leader: Leader<u32>,
    now: Time,
    under_way: Vec<(RequestId, Request)>,
    /// What has left, but for requests to the API server.
    left: Vec<Output<u32>>,
}

fn settings(nonce: u64, limits: Limits) -> Settings {
    Settings {
        keeper: objects::Settings {
            nonce,
            leader: format!("leader-{nonce}"),
            new_cluster_id: 77,
            awaits_seed: false,
            tuning: Tuning::default(),
        },
        config: Config {
            time_ahead: TIME_AHEAD,
            ..Config::new(1, 5, "test")
        },
        limits,
    }
}

impl Bench {
    fn new(nonce: u64) -> Bench {
        Bench::with(nonce, Limits::default())
    }

    fn with(nonce: u64, limits: Limits) -> Bench {
        Bench::of(settings(nonce, limits))
    }

    /// It makes its store again if there is none.
    fn rebuilding(nonce: u64) -> Bench {
        let mut settings = settings(nonce, Limits::default());
        settings.keeper.awaits_seed = true;
        Bench::of(settings)
    }

    fn of(settings: Settings) -> Bench {
        let mut bench = Bench {
            leader: Leader::new(settings),
            now: Time(1_000_000_000),
            under_way: Vec::new(),
            left: Vec::new(),
        };
        bench.leader.start(bench.now);
        bench.collect();
        bench
    }

    /// It leads, and has noted all that it has to say so far.
    fn leads(nonce: u64, server: &mut ApiServer) -> Bench {
        let mut bench = Bench::new(nonce);
        bench.serve(server);
        assert!(
            bench
                .left
                .iter()
                .any(|output| matches!(output, Output::State(News::Leads { .. })))
        );
        bench.left.clear();
        bench
    }

    fn collect(&mut self) {
        while let Some(output) = self.leader.take_output() {
            match output {
                Output::State(News::Request(id, request)) => self.under_way.push((id, request)),
                Output::Log(..) | Output::Event(_) => {}
                output => self.left.push(output),
            }
        }
    }

    fn tick(&mut self) -> Time {
        let next = self.leader.tick(self.now);
        self.collect();
        next
    }

    /// The API server carries out whatever is under way, and whatever comes of that.
    fn serve(&mut self, server: &mut ApiServer) {
        self.tick();
        while let Some((id, request)) = self.under_way.pop() {
            let (answer, _) = server.execute(&request, 0);
            self.leader.answered(self.now, id, answer);
            self.tick();
        }
    }

    /// The API server does not answer.
    fn fail(&mut self) {
        for (id, _) in std::mem::take(&mut self.under_way) {
            let answer = Answer::Failed("no answer in time".to_owned());
            self.leader.answered(self.now, id, answer);
        }
        self.tick();
    }

    /// So much time passes without the API server.
    fn away(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self
                .tick()
                .min(end)
                .max(self.now + Duration::from_millis(1));
            self.fail();
        }
    }

    fn request(&mut self, nonce: u64, payload: &[u8]) -> Vec<Output<u32>> {
        let to = ReplyTo {
            connection: 9,
            nonce,
        };
        self.leader.request(self.now, to, payload);
        self.take()
    }

    fn says(&mut self, connection: u64, kind: shard::Kind) -> Vec<Output<u32>> {
        let message = ToCoordinator::from(kind);
        self.leader.member_message(self.now, connection, message);
        self.take()
    }

    fn take(&mut self) -> Vec<Output<u32>> {
        self.tick();
        std::mem::take(&mut self.left)
    }

    fn refusal(&self) -> String {
        self.leader.status(self.now).unwrap().refusal
    }
}

fn welcome_in(outputs: &[Output<u32>]) -> Option<&Welcome> {
    outputs.iter().find_map(|output| match output {
        Output::SendMember(_, message) => match &message.kind {
            Some(Kind::Welcome(welcome)) => Some(welcome),
            _ => None,
        },
        _ => None,
    })
}

fn pings_in(outputs: &[Output<u32>]) -> Vec<&Ping> {
    let pings = outputs.iter().filter_map(|output| match output {
        Output::SendMember(_, message) => match &message.kind {
            Some(Kind::Ping(ping)) => Some(ping),
            _ => None,
        },
        _ => None,
    });
    pings.collect()
}

fn status_of(outputs: &[Output<u32>]) -> Vec<Status> {
    let replies = outputs.iter().filter_map(|output| match output {
        Output::Reply(_, payload) => Some(rpc::status(payload).unwrap()),
        _ => None,
    });
    replies.collect()
}

fn get_table_id() -> Vec<u8> {
    common::encode(|out| rpc::GetTableIdRequest { name: b"a" }.encode(out))
}

/// A member of this store, as it comes back.
fn resumed(welcome: &Welcome, position: Option<Position>) -> Hello {
    Hello {
        cluster_id: welcome.cluster_id,
        server_id: welcome.server_id,
        position,
        ..hello("m0", 1, 0, 1)
    }
}

/// A store with one member on connection 1.
fn with_member(server: &mut ApiServer) -> (Bench, Welcome) {
    let mut bench = Bench::leads(11, server);
    bench.says(1, shard::Kind::Hello(hello("m0", 1, 0, 1)));
    bench.serve(server);
    let outputs = bench.take();
    let welcome = welcome_in(&outputs).expect("it is let in").clone();
    (bench, welcome)
}

#[test]
fn nothing_leaves_before_it_is_noted_but_pings() {
    let mut server = ApiServer::new(1 << 20);
    let mut bench = Bench::leads(11, &mut server);
    let outputs = bench.says(1, shard::Kind::Hello(hello("m0", 1, 0, 1)));
    assert!(outputs.is_empty(), "{outputs:?}");
    // What changes nothing waits for what was changed before.
    let outputs = bench.request(1, &get_table_id());
    assert!(outputs.is_empty(), "{outputs:?}");
    bench.leader.defer(5);
    assert!(bench.take().is_empty());
    bench.now += Duration::from_millis(200);
    let outputs = bench.take();
    assert_eq!(pings_in(&outputs).len(), outputs.len());
    assert_eq!(outputs.len(), 1, "{outputs:?}");

    bench.serve(&mut server);
    let outputs = bench.take();
    let welcome = welcome_in(&outputs).expect("it is let in");
    assert_eq!(status_of(&outputs), [Status::TableDoesntExist]);
    assert!(
        matches!(outputs.last(), Some(Output::Deferred(5))),
        "{outputs:?}"
    );
    // It was put out before the root was written in which it stands: of the one before.
    let position = welcome.position.unwrap();
    assert_eq!((position.term, position.nonce), (1, 11));
    assert!(position.sequence < server.root().unwrap().position.sequence);
    // What it leaves with is that root: whoever is welcomed knows of what it is told.
    let left_with = outputs.iter().find_map(|output| match output {
        Output::SendMember(_, message) => message.position,
        _ => None,
    });
    assert_eq!(left_with, Some(server.root().unwrap().position));
    bench.now += Duration::from_millis(200);
    let outputs = bench.take();
    let told = pings_in(&outputs)[0].position;
    assert_eq!(told, Some(server.root().unwrap().position));
    // Where nothing changes, nothing waits.
    let outputs = bench.request(2, &get_table_id());
    assert_eq!(status_of(&outputs), [Status::TableDoesntExist]);
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
    let outputs = bench.take();
    assert!(outputs.is_empty(), "{outputs:?}");
}

#[test]
fn what_comes_on_a_connection_that_is_about_to_be_closed_does_not_count() {
    let mut server = ApiServer::new(1 << 20);
    let (mut bench, welcome) = with_member(&mut server);
    bench.request(1, &renew_lease(0));
    // The same shard, on another connection: the first is closed once the lease is noted.
    bench.says(2, shard::Kind::Hello(resumed(&welcome, None)));
    let outputs = bench.says(1, shard::Kind::Hello(hello("m9", 9, 0, 1)));
    assert!(outputs.is_empty(), "{outputs:?}");
    bench.serve(&mut server);
    let outputs = bench.take();
    let closed = outputs
        .iter()
        .filter(|output| matches!(output, Output::CloseMember(1)));
    assert_eq!(closed.count(), 1, "{outputs:?}");
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
    let outputs = bench.take();
    let Some(Output::Reply(_, payload)) = outputs.first() else {
        panic!("{outputs:?}");
    };
    let lease = rpc::RenewLeaseResponse::decode(payload).unwrap().lease;

    // An hour without the API server; the member answers pings.
    bench.request(2, &create_table("a", 1));
    let mut last_ns = 0;
    for _ in 0..3600 {
        bench.away(Duration::from_secs(1));
        let outputs = bench.take();
        for ping in pings_in(&outputs) {
            assert!(ping.cluster_time_ns >= last_ns);
            last_ns = ping.cluster_time_ns;
        }
        assert_eq!(pings_in(&outputs).len(), outputs.len(), "{outputs:?}");
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
        let outputs = bench.request(1, &get_table_id());
        assert_eq!(status_of(&outputs), [Status::TableDoesntExist]);
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
        let outputs = bench.request(nonce, &renew_lease(0));
        assert!(outputs.is_empty(), "{outputs:?}");
    }
    bench.away(Duration::from_secs(10));
    let outputs = bench.request(12, &renew_lease(0));
    let [Output::Reply(_, payload)] = &outputs[..] else {
        panic!("{outputs:?}");
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
    let outputs = bench.take();
    assert!(
        matches!(outputs.last(), Some(Output::State(News::Ended(Ending::Deposed, text))) if text.contains("start anew")),
        "{outputs:?}"
    );
    assert_eq!(bench.tick(), Time::NEVER);
    let outputs = bench.request(13, &renew_lease(0));
    assert_eq!(status_of(&outputs), [Status::Retry]);
}

#[test]
fn who_tells_of_a_later_leader_is_put_off_until_the_root_was_looked_at() {
    let mut server = ApiServer::new(1 << 20);
    let (mut old, welcome) = with_member(&mut server);
    let mut new = Bench::leads(22, &mut server);
    // A connection whose end is held, and which the coordinator itself knows no more.
    old.request(1, &renew_lease(0));
    old.under_way.clear();
    old.says(3, shard::Kind::Hello(resumed(&welcome, None)));
    new.says(1, shard::Kind::Hello(resumed(&welcome, welcome.position)));
    new.serve(&mut server);
    let outputs = new.take();
    let told = welcome_in(&outputs).expect("it resumes").position;
    assert_eq!(told.map(|told| told.term), Some(2));

    let outputs = old.says(2, shard::Kind::Hello(resumed(&welcome, told)));
    let [Output::SendMember(2, refused), Output::CloseMember(2)] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert!(
        matches!(&refused.kind, Some(Kind::Refused(refused)) if refused.text.contains("try again"))
    );
    assert_eq!(old.refusal(), "");
    old.serve(&mut server);
    let outputs = old.take();
    assert!(
        matches!(
            outputs.last(),
            Some(Output::State(News::Ended(Ending::Deposed, _)))
        ),
        "{outputs:?}"
    );
    for connection in [1, 3] {
        let is_its =
            |output: &Output<u32>| matches!(output, Output::CloseMember(at) if *at == connection);
        assert!(outputs.iter().any(is_its), "{connection}: {outputs:?}");
    }
    assert!(old.refusal().contains("leader-22"), "{}", old.refusal());
}

#[test]
fn objects_that_were_put_back_are_noticed_by_what_servers_were_told() {
    let mut server = ApiServer::new(1 << 20);
    let (mut bench, welcome) = with_member(&mut server);
    let backup = server.objects.clone();
    bench.request(1, &renew_lease(0));
    bench.serve(&mut server);
    bench.now += Duration::from_millis(200);
    let outputs = bench.take();
    let told = pings_in(&outputs)[0].position;
    drop(bench);
    server.roll_back(backup);
    let mut next = Bench::leads(22, &mut server);
    let outputs = next.says(1, shard::Kind::Hello(resumed(&welcome, told)));
    assert!(welcome_in(&outputs).is_none(), "{outputs:?}");
    next.serve(&mut server);
    let outputs = next.take();
    assert!(
        matches!(
            outputs.last(),
            Some(Output::State(News::Ended(Ending::RolledBack, _)))
        ),
        "{outputs:?}"
    );
    assert!(
        next.refusal().contains("Put the newer ones back"),
        "{}",
        next.refusal()
    );
    // Nobody is served any more, and told why.
    let outputs = next.says(2, shard::Kind::Hello(resumed(&welcome, None)));
    assert!(
        matches!(
            &outputs[..],
            [Output::SendMember(2, _), Output::CloseMember(2)]
        ),
        "{outputs:?}"
    );
    let outputs = next.request(3, &get_table_id());
    assert_eq!(status_of(&outputs), [Status::Retry]);
}

// ---- a store that is made again from volumes ----

const FORMER: u64 = 0xf0;

/// A checkpoint of a store without servers, of term 3.
/// The lease and the table that the next who ask get.
fn new_ids(leader: &mut Bench, server: &mut ApiServer) -> (u64, u64) {
    leader.left.clear();
    let to = |nonce| ReplyTo {
        connection: 1,
        nonce,
    };
    let (lease, table) = (to(1), to(2));
    leader.leader.request(leader.now, lease, &renew_lease(0));
    leader
        .leader
        .request(leader.now, table, &create_table("of the moment", 1));
    leader.serve(server);
    let mut ids = (0, 0);
    for output in std::mem::take(&mut leader.left) {
        match output {
            Output::Reply(to, bytes) if to == lease => {
                ids.0 = rpc::RenewLeaseResponse::decode(&bytes).unwrap().lease.id;
            }
            Output::SendMember(_, message) => {
                if let Some(Kind::TakeTablet(order)) = message.kind {
                    ids.1 = order.tablet.table_id;
                }
            }
            _ => {}
        }
    }
    assert!(ids.0 > 0 && ids.1 > 0, "{ids:?}");
    ids
}

#[test]
fn an_older_state_that_goes_on_gives_no_id_of_a_lease_or_table_out_again() {
    let mut server = ApiServer::new(1 << 20);
    let (mut first, _) = with_member(&mut server);
    let older = server.objects.clone();
    let given_out = new_ids(&mut first, &mut server);
    // Somebody puts the older one back, and all who know of the newer one have ended.
    server.roll_back(older);
    let mut second = Bench::leads(3, &mut server);
    second.leader.member_message(
        second.now,
        9,
        ToCoordinator::from(shard::Kind::Hello(hello("m1", 8, 0, 1))),
    );
    second.serve(&mut server);
    let again = new_ids(&mut second, &mut server);
    assert!(
        again.0 > given_out.0 + 1000 && again.1 > given_out.1 + 100,
        "{given_out:?} {again:?}"
    );
}

fn checkpoint() -> Vec<u8> {
    let header = coordinator::checkpoint::Header {
        cluster_id: FORMER,
        position: Position {
            term: 3,
            nonce: 9,
            sequence: 40,
        },
        number: 2,
        cluster_time_ns: 0,
    };
    let former = Coordinator::new(Config::new(FORMER, 5, "test"), Time(1));
    coordinator::checkpoint::encode(&header, former.pairs())
}

impl Bench {
    /// A server with a volume comes, and is asked for what that holds.
    fn volume_comes(&mut self, connection: u64) {
        let hello = Hello {
            volume_cluster_id: FORMER,
            ..hello("m", connection, 0, 1)
        };
        self.hears(connection, shard::Kind::Hello(hello));
        for _ in 0..5 {
            self.now += Duration::from_secs(1);
            self.tick();
            for output in std::mem::take(&mut self.left) {
                let Output::SendMember(
                    on,
                    ToShard {
                        kind: Some(Kind::ReadCheckpoint(read)),
                        ..
                    },
                ) = &output
                else {
                    continue;
                };
                let bytes = checkpoint();
                let rest = &bytes[read.offset as usize..];
                let part = CheckpointPart {
                    cluster_id: FORMER,
                    total_bytes: bytes.len() as u64,
                    offset: read.offset,
                    data: rest[..rest.len().min(read.bytes as usize)].to_vec(),
                };
                self.hears(*on, shard::Kind::CheckpointPart(part));
            }
        }
    }

    fn hears(&mut self, connection: u64, kind: shard::Kind) {
        let message = ToCoordinator::from(kind);
        self.leader.member_message(self.now, connection, message);
        self.tick();
    }

    fn cluster_id(&self) -> u64 {
        let coordinator = self.leader.coordinator().expect("it leads");
        coordinator.cluster_status(self.now).cluster_id
    }
}

#[test]
fn a_store_without_objects_is_made_again_from_volumes() {
    let mut server = ApiServer::new(1 << 20);
    let mut first = Bench::rebuilding(1);
    first.serve(&mut server);
    assert!(
        first
            .left
            .iter()
            .any(|it| matches!(it, Output::State(News::Leads { is_new: false, .. })))
    );
    assert!(
        server.root().is_none(),
        "nothing is noted before it is known what"
    );
    let status = first.leader.status(first.now).unwrap();
    assert!(status.refusal.contains("Rebuilding"), "{}", status.refusal);
    first.volume_comes(7);
    assert_eq!(first.cluster_id(), FORMER);
    assert!(first.left.is_empty(), "nothing leaves before it is noted");
    first.serve(&mut server);
    let root = server.root().unwrap();
    assert_eq!(root.cluster_id, FORMER);
    assert!(root.position.term > 1000);
    assert_eq!(
        root.past.last().map(|past| (past.term, past.nonce)),
        Some((3, 9))
    );
    assert!(
        first
            .left
            .iter()
            .any(|it| matches!(it, Output::CloseMember(7)))
    );

    // Whoever comes next finds it, and has nothing to make again.
    let mut second = Bench::rebuilding(2);
    second.serve(&mut server);
    let status = second.leader.status(second.now).unwrap();
    assert_eq!((status.cluster_id, status.refusal.as_str()), (FORMER, ""));
    assert_eq!(status.term, root.position.term + 1);
}

#[test]
fn a_leader_that_dies_before_all_is_noted_leaves_no_empty_store() {
    let mut server = ApiServer::new(1 << 20);
    let mut first = Bench::rebuilding(1);
    first.serve(&mut server);
    first.volume_comes(7);
    // The root is written, and the leader dies.
    let (_, request) = first.under_way.pop().expect("the root");
    server.execute(&request, 0);
    assert!(server.root().is_some());

    // Even if nobody tells it to: there is no store without what the volumes have.
    let mut second = Bench::new(2);
    second.serve(&mut server);
    let status = second.leader.status(second.now).unwrap();
    assert!(status.refusal.contains("Rebuilding"), "{}", status.refusal);
    second.volume_comes(8);
    second.serve(&mut server);
    let status = second.leader.status(second.now).unwrap();
    assert_eq!((status.cluster_id, status.refusal.as_str()), (FORMER, ""));
    assert_eq!(status.term, server.root().unwrap().position.term);
    let mut third = Bench::new(3);
    third.serve(&mut server);
    let status = third.leader.status(third.now).unwrap();
    assert_eq!((status.cluster_id, status.refusal.as_str()), (FORMER, ""));
}
