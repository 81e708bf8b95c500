//! A test for every rule, with answers given by hand.

mod chunks;
mod positions;
mod swaps;

use std::time::Duration;

use base::time::Time;
use coordinator::state::objects::{
    ChunkId, Ending, Keeper, KeeperEffect, ObjectResponse, Position, Request, RequestId, Settings,
    Tuning,
};
use coordinator::state::{Changes, Pair};

use super::world::tuning;
use coordinator::state::objects::testing::{ApiServer, Pairs};

/// A keeper, and requests that it waits for.
struct Desk {
    keeper: Keeper,
    now: Time,
    open: Vec<(RequestId, Request)>,
    loaded: Option<Pairs>,
    committed: u64,
    ended: Option<(Ending, String)>,
}

/// It does not look at the root unless it writes, but where that is what is tested.
const NO_LOOKS: Duration = Duration::from_secs(86_400);

fn keeper(nonce: u64, look_interval: Duration) -> Keeper {
    Keeper::new(Settings {
        nonce,
        leader: format!("leader-{nonce}"),
        new_cluster_id: 77,
        awaits_seed: false,
        tuning: Tuning {
            sweep_interval: Tuning::default().sweep_interval,
            look_interval,
            ..tuning()
        },
    })
}

impl Desk {
    fn start(nonce: u64) -> Desk {
        Desk::start_looking(nonce, NO_LOOKS)
    }

    fn start_looking(nonce: u64, look_interval: Duration) -> Desk {
        let mut desk = Desk {
            keeper: keeper(nonce, look_interval),
            now: Time(1_000),
            open: Vec::new(),
            loaded: None,
            committed: 0,
            ended: None,
        };
        desk.keeper.start(desk.now);
        desk.take();
        desk
    }

    /// One that leads.
    fn leading(nonce: u64, server: &mut ApiServer) -> Desk {
        let mut desk = Desk::start(nonce);
        desk.serve(server);
        assert!(desk.loaded.is_some(), "{:?}", desk.ended);
        desk
    }

    fn take(&mut self) {
        while let Some(effect) = self.keeper.take_effect() {
            assert_eq!(self.ended, None, "nothing comes after the end: {effect:?}");
            match effect {
                KeeperEffect::Request(id, request) => self.open.push((id, request)),
                KeeperEffect::Loaded { pairs, .. } => {
                    let pairs = pairs.into_iter().map(|pair| (pair.key, pair.value));
                    self.loaded = Some(pairs.collect());
                }
                KeeperEffect::Empty => panic!("nobody awaits a seed here"),
                KeeperEffect::Committed(number) => self.committed = number,
                KeeperEffect::Ended(ending, text) => self.ended = Some((ending, text)),
            }
        }
    }

    fn answer(&mut self, id: RequestId, answer: ObjectResponse) {
        self.open.retain(|(open, _)| *open != id);
        self.keeper.answered(self.now, id, answer);
        self.take();
    }

    /// The one request that is open.
    fn only(&self) -> (RequestId, Request) {
        assert_eq!(self.open.len(), 1, "{:?}", self.open);
        self.open[0].clone()
    }

    /// The API server answers all there is, and what comes of it.
    fn serve(&mut self, server: &mut ApiServer) {
        while let Some((id, request)) = self.open.first().cloned() {
            self.answer(id, server.execute(&request, 0).0);
        }
    }

    /// It executes what is asked, and the answer is lost.
    fn lose_answer(&mut self, server: &mut ApiServer) {
        let (id, request) = self.only();
        server.execute(&request, 0);
        self.answer(id, failed());
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.keeper.tick(self.now);
        self.take();
    }

    fn commit(&mut self, key: &str, value: &str) -> u64 {
        let number = self.keeper.commit(self.now, put(key, value));
        self.take();
        number
    }

    fn assert_ended(&self, ending: Ending, part: &str) {
        let (found, text) = self.ended.as_ref().expect("it is over");
        assert_eq!(*found, ending, "{text}");
        assert!(text.contains(part), "{text}");
        assert_eq!(self.keeper.next_wake(), Time::NEVER);
        assert_eq!(self.keeper.position(), None);
    }
}

fn failed() -> ObjectResponse {
    ObjectResponse::Failed("timed out".to_owned())
}

fn put(key: &str, value: &str) -> Changes {
    let pair = Pair {
        key: key.into(),
        value: value.into(),
    };
    Changes {
        puts: vec![pair],
        deletes: Vec::new(),
    }
}

fn server() -> ApiServer {
    ApiServer::new(1 << 20)
}

fn value<'a>(pairs: &'a Pairs, key: &str) -> Option<&'a str> {
    let value = pairs.get(key.as_bytes())?;
    Some(core::str::from_utf8(value).unwrap())
}

const SECOND: Duration = Duration::from_secs(1);

/// A server with a run of three chunks, and the chunks.
fn with_chunks() -> (ApiServer, Vec<ChunkId>) {
    let mut server = server();
    let mut desk = Desk::leading(1, &mut server);
    desk.commit("a", &"x".repeat(1000));
    desk.serve(&mut server);
    let chunks = server.chunks();
    assert_eq!(chunks.len(), 3);
    (server, chunks)
}

fn at(term: u64, nonce: u64, sequence: u64) -> Position {
    Position {
        term,
        nonce,
        sequence,
    }
}
