//! A leader whose state is in objects of an API server: what waits for what.

mod noting;
mod succession;
mod volumes;

use std::time::Duration;

use crate::common::{self, hello};
use base::ids::ReplyTo;
use base::time::Time;
use coordinator::Config;
use coordinator::leader::{Leader, Limits, News, Output, Settings, TIME_AHEAD};
use coordinator::state::objects::testing::ApiServer;
use coordinator::state::objects::{self, Answer, Request, RequestId, Tuning};
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
                Output::Report(_) => {}
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
