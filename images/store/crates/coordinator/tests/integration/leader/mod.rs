//! A leader whose state is in objects of an API server: what waits for what.

mod noting;
mod succession;
mod volumes;

use std::time::Duration;

use crate::common::{self, hello};
use base::ids::ReplyTo;
use base::time::Time;
use coordinator::Config;
use coordinator::leader::{Leader, LeaderEffect, Limits, News, Settings, TIME_AHEAD};
use coordinator::state::objects::testing::ApiServer;
use coordinator::state::objects::{self, ObjectResponse, Request, RequestId, Tuning};
use wire::member::coordinator::Kind;
use wire::member::{Hello, Ping, Position, ToCoordinator, Welcome, shard};
use wire::rpc;
use wire::status::Status;

/// A leader with its API server, which answers when it is told to.
struct Bench {
    leader: Leader<u32>,
    now: Time,
    under_way: Vec<(RequestId, Request)>,
    /// What has left, but for requests to the API server.
    left: Vec<LeaderEffect<u32>>,
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
                .any(|effect| matches!(effect, LeaderEffect::State(News::Leads { .. })))
        );
        bench.left.clear();
        bench
    }

    fn collect(&mut self) {
        while let Some(effect) = self.leader.take_effect() {
            match effect {
                LeaderEffect::State(News::Request(id, request)) => {
                    self.under_way.push((id, request))
                }
                LeaderEffect::Report(_) => {}
                effect => self.left.push(effect),
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
            let answer = ObjectResponse::Failed("no answer in time".to_owned());
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

    fn request(&mut self, nonce: u64, payload: &[u8]) -> Vec<LeaderEffect<u32>> {
        let to = ReplyTo {
            connection: 9,
            nonce,
        };
        self.leader.request(self.now, to, payload);
        self.take()
    }

    fn says(&mut self, connection: u64, kind: shard::Kind) -> Vec<LeaderEffect<u32>> {
        let message = ToCoordinator::from(kind);
        self.leader.member_message(self.now, connection, message);
        self.take()
    }

    fn take(&mut self) -> Vec<LeaderEffect<u32>> {
        self.tick();
        std::mem::take(&mut self.left)
    }

    fn refusal(&self) -> String {
        self.leader.status(self.now).unwrap().refusal
    }
}

fn welcome_in(effects: &[LeaderEffect<u32>]) -> Option<&Welcome> {
    effects.iter().find_map(|effect| match effect {
        LeaderEffect::SendMember(_, message) => match &message.kind {
            Some(Kind::Welcome(welcome)) => Some(welcome),
            _ => None,
        },
        _ => None,
    })
}

fn pings_in(effects: &[LeaderEffect<u32>]) -> Vec<&Ping> {
    let pings = effects.iter().filter_map(|effect| match effect {
        LeaderEffect::SendMember(_, message) => match &message.kind {
            Some(Kind::Ping(ping)) => Some(ping),
            _ => None,
        },
        _ => None,
    });
    pings.collect()
}

fn status_of(effects: &[LeaderEffect<u32>]) -> Vec<Status> {
    let replies = effects.iter().filter_map(|effect| match effect {
        LeaderEffect::Reply(_, payload) => Some(rpc::status(payload).unwrap()),
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
    let effects = bench.take();
    let welcome = welcome_in(&effects).expect("it is let in").clone();
    (bench, welcome)
}
