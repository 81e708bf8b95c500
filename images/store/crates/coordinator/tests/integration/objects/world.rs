//! One run: leaders that come, go and overlap, an API server that can be slow, away, or put back, and everything that may become of a request.

use std::collections::BTreeMap;
use std::time::Duration;

use base::time::Time;
use coordinator::state::Changes;
use coordinator::state::objects::testing::{ApiServer, Change, Objects, Pairs};
use coordinator::state::objects::{
    ChunkId, Ending, Keeper, KeeperEffect, ObjectResponse, Position, Request, RequestId, Settings,
    Tuning,
};
use fastrand::Rng;

use super::oracle::Oracle;

/// What has happened, over many runs: a test that never met something says nothing about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Met {
    #[default]
    Commit,
    Conflict,
    FailedNotExecuted,
    FailedExecuted,
    /// It took effect after its sender had been told that it failed.
    LateEffect,
    /// So did a root.
    LateRoot,
    StaleList,
    Sweep,
    /// A chunk of a dead leader that no root names was swept.
    OrphanSwept,
    StateWrittenAnew,
    /// Of changes.
    RunOfManyChunks,
    KilledBetweenChunkAndRoot,
    KilledInTakeover,
    TwoLeaders,
    Deposed,
    RolledBack,
    RootTouched,
    AwayForMinutes,
}

pub type Coverage = BTreeMap<Met, u64>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weather {
    Calm,
    Rough,
    Away,
}

pub struct Client {
    pub nonce: u64,
    pub keeper: Keeper,
    pub leads: bool,
    pub ended: Option<Ending>,
    /// Chunks that it has created since its last root.
    created: Vec<ChunkId>,
}

/// Whether a request's sender learns what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tell {
    Now,
    /// It is going to be told that the request failed.
    Never,
    /// It was told before that the request failed.
    Before,
}

#[derive(Debug)]
enum Event {
    /// A request gets to the API server.
    Execute {
        client: usize,
        id: RequestId,
        request: Request,
        tell: Tell,
    },
    ObjectResponse {
        client: usize,
        id: RequestId,
        answer: ObjectResponse,
    },
    Wake {
        client: usize,
    },
}

struct Snapshot {
    objects: Objects,
    oracle: Oracle,
}

pub struct World {
    pub now: Time,
    pub random: Rng,
    pub weather: Weather,
    pub server: ApiServer,
    pub oracle: Oracle,
    pub clients: Vec<Client>,
    /// By nonce: what was to be committed.
    pub asked: BTreeMap<u64, Vec<Changes>>,
    /// The newest root that members were told of.
    pub told: Option<Position>,
    pub coverage: Coverage,
    pub failure: Option<String>,
    snapshots: Vec<Snapshot>,
    events: BTreeMap<(Time, u64), Event>,
    last_event: u64,
    /// Over all that has happened.
    pub trace: u32,
    same_time: (Time, u32),
}

/// Small enough that everything happens often.
pub fn tuning() -> Tuning {
    Tuning {
        chunk_bytes: 400,
        tail_bytes: 300,
        rewrite_bytes: 1500,
        max_reads: 3,
        max_deletes: 5,
        sweep_interval: Duration::from_secs(2),
        look_interval: Duration::from_secs(1),
    }
}

/// No object may be longer: the root with its list of chunks is the longest.
const MAX_OBJECT_BYTES: usize = 4096;

impl World {
    pub fn new(seed: u64) -> World {
        World {
            now: Time(1),
            random: Rng::with_seed(seed),
            weather: Weather::Calm,
            server: ApiServer::new(MAX_OBJECT_BYTES),
            oracle: Oracle::default(),
            clients: Vec::new(),
            asked: BTreeMap::new(),
            told: None,
            coverage: Coverage::new(),
            failure: None,
            snapshots: Vec::new(),
            events: BTreeMap::new(),
            last_event: 0,
            trace: 0,
            same_time: (Time(0), 0),
        }
    }

    pub fn met(&mut self, what: Met) {
        *self.coverage.entry(what).or_default() += 1;
    }

    fn hold(&mut self, result: Result<(), String>) {
        if let (Err(text), None) = (result, &self.failure) {
            self.failure = Some(format!("at {:?}: {text}", self.now));
        }
    }

    fn at(&mut self, delay: Duration, event: Event) {
        self.last_event += 1;
        self.events
            .insert((self.now + delay, self.last_event), event);
    }

    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = (most - least).as_nanos() as u64;
        least + Duration::from_nanos(self.random.u64(..span + 1))
    }

    pub fn start(&mut self) -> usize {
        let nonce = self.random.u64(..) | 1;
        let mut keeper = Keeper::new(Settings {
            nonce,
            leader: format!("box-coordinator-{}", self.clients.len()),
            new_cluster_id: nonce ^ 77,
            awaits_seed: false,
            tuning: tuning(),
        });
        keeper.start(self.now);
        if self.clients.iter().any(|client| client.leads) {
            self.met(Met::TwoLeaders);
        }
        self.asked.insert(nonce, Vec::new());
        self.clients.push(Client {
            nonce,
            keeper,
            leads: false,
            ended: None,
            created: Vec::new(),
        });
        let client = self.clients.len() - 1;
        self.carry_out(client);
        client
    }

    /// Its process dies: requests under way may still take effect.
    pub fn kill(&mut self, client: usize) {
        let killed = &mut self.clients[client];
        let was_between = !killed.created.is_empty();
        let was_coming = killed.keeper.position().is_none() && killed.ended.is_none();
        killed.leads = false;
        killed.ended = Some(Ending::Deposed);
        if was_between {
            self.met(Met::KilledBetweenChunkAndRoot);
        }
        if was_coming {
            self.met(Met::KilledInTakeover);
        }
    }

    pub fn commit(&mut self, client: usize, changes: Changes) {
        let nonce = self.clients[client].nonce;
        let asked = self.asked.get_mut(&nonce).expect("it was started");
        if !changes.is_empty() {
            asked.push(changes.clone());
        }
        let expected = asked.len() as u64;
        let number = self.clients[client].keeper.commit(self.now, changes);
        assert_eq!(number, expected);
        self.carry_out(client);
    }

    pub fn tell(&mut self, client: usize) {
        if let Some(told) = self.told {
            self.clients[client].keeper.heard_of(self.now, told);
            self.carry_out(client);
        }
    }

    /// The API server is started again from an older backup; everything under way is cut. Not if a leader is left that would
    /// not notice: one that has written no root since the backup was made.
    pub fn roll_back(&mut self) -> bool {
        let count = self.snapshots.len() as u64;
        if count == 0 {
            return false;
        }
        let snapshot = self
            .snapshots
            .swap_remove(self.random.u64(..count) as usize);
        let mut alive = self.clients.iter().filter(|client| client.ended.is_none());
        let would_miss_it = |client: &Client| {
            let position = client.keeper.position();
            position.is_some_and(|position| snapshot.oracle.has(&position))
        };
        if snapshot.oracle.newest() == self.oracle.newest() || alive.any(would_miss_it) {
            return false;
        }
        self.server.roll_back(snapshot.objects);
        self.oracle.roll_back_to(snapshot.oracle);
        self.snapshots.clear();
        for event in core::mem::take(&mut self.events).into_values() {
            match event {
                Event::Execute {
                    client,
                    id,
                    tell: Tell::Now,
                    ..
                }
                | Event::ObjectResponse { client, id, .. } => {
                    let answer = ObjectResponse::Failed("connection lost".to_owned());
                    self.at(
                        Duration::from_millis(1),
                        Event::ObjectResponse { client, id, answer },
                    );
                }
                Event::Execute { .. } => {}
                Event::Wake { client } => self.at(Duration::ZERO, Event::Wake { client }),
            }
        }
        true
    }

    /// Members keep the highest position that they were told of.
    fn tell_members(&mut self, client: usize) {
        let order = |position: &Position| (position.term, position.sequence);
        let position = self.clients[client].keeper.position();
        if let Some(position) = position
            && self.told.is_none_or(|told| order(&told) < order(&position))
        {
            self.told = Some(position);
        }
    }

    /// What the keeper wants.
    fn carry_out(&mut self, client: usize) {
        while let Some(effect) = self.clients[client].keeper.take_effect() {
            let nonce = self.clients[client].nonce;
            self.note(&format!("{client} {effect:?}"));
            match effect {
                KeeperEffect::Request(id, request) => self.send(client, id, request),
                KeeperEffect::Loaded { pairs, .. } => {
                    self.clients[client].leads = true;
                    let pairs: Pairs = pairs
                        .into_iter()
                        .map(|pair| (pair.key, pair.value))
                        .collect();
                    let result = self.oracle.loaded(nonce, &pairs);
                    self.hold(result);
                }
                KeeperEffect::Empty => panic!("nobody awaits a seed here"),
                KeeperEffect::Committed(number) => {
                    self.met(Met::Commit);
                    self.tell_members(client);
                    let result = self.oracle.committed(nonce, number);
                    self.hold(result);
                }
                KeeperEffect::Ended(ending, text) => {
                    let (what, result) = (ending, self.oracle.ended(nonce, ending, &text));
                    self.hold(result);
                    self.clients[client].leads = false;
                    self.clients[client].ended = Some(what);
                    match what {
                        Ending::RolledBack => self.met(Met::RolledBack),
                        _ => self.met(Met::Deposed),
                    }
                }
            }
        }
        let wake = self.clients[client].keeper.next_wake();
        if wake != Time::NEVER && self.clients[client].ended.is_none() {
            self.at(wake.since(self.now), Event::Wake { client });
        }
    }

    /// Decides what becomes of a request.
    fn send(&mut self, client: usize, id: RequestId, request: Request) {
        let ms = Duration::from_millis;
        let fails = match self.weather {
            Weather::Calm => self.random.u64(..1000) < 5,
            Weather::Rough => self.random.u64(..1000) < 300,
            Weather::Away => true,
        };
        let there = self.between(ms(1), ms(30));
        if !fails {
            self.at(
                there,
                Event::Execute {
                    client,
                    id,
                    request,
                    tell: Tell::Now,
                },
            );
            return;
        }
        let timeout = self.between(ms(1), ms(10_000));
        let answer = ObjectResponse::Failed("no answer in time".to_owned());
        self.at(timeout, Event::ObjectResponse { client, id, answer });
        let delay = match self.random.u64(..3) {
            0 => return self.met(Met::FailedNotExecuted),
            1 if self.weather != Weather::Away => self.between(ms(0), timeout),
            _ => timeout + self.between(ms(0), ms(120_000)),
        };
        self.met(Met::FailedExecuted);
        let tell = if delay > timeout {
            Tell::Before
        } else {
            Tell::Never
        };
        self.at(
            delay,
            Event::Execute {
                client,
                id,
                request,
                tell,
            },
        );
    }

    fn execute(&mut self, client: usize, id: RequestId, request: &Request, tell: Tell) {
        let staleness = self.random.u64(..8) as usize;
        let (answer, change) = self.server.execute(request, staleness);
        if answer == ObjectResponse::Failed("object too large".to_owned()) {
            self.hold(Err("an object was too large".to_owned()));
        }
        let result = self.oracle.changed(&self.server, &change, &self.asked);
        self.hold(result);
        self.observe(client, &answer, &change, tell);
        if tell == Tell::Now {
            let back = self.between(Duration::from_millis(1), Duration::from_millis(30));
            self.at(back, Event::ObjectResponse { client, id, answer });
        }
    }

    fn observe(&mut self, client: usize, answer: &ObjectResponse, change: &Change, tell: Tell) {
        if *answer == ObjectResponse::Conflict {
            self.met(Met::Conflict);
        }
        if matches!(answer, ObjectResponse::Listed(chunks) if *chunks != self.server.chunks()) {
            self.met(Met::StaleList);
        }
        if tell == Tell::Before && *change != Change::Nothing {
            self.met(Met::LateEffect);
        }
        match change {
            Change::Nothing => {}
            Change::Created(id) => self.clients[client].created.push(*id),
            Change::Deleted(id) => {
                self.met(Met::Sweep);
                let writer = self.clients.iter().find(|other| other.nonce == id.nonce);
                if writer.is_some_and(|writer| writer.created.contains(id)) {
                    self.met(Met::OrphanSwept);
                }
            }
            Change::Root => self.observe_root(client, tell),
        }
    }

    fn observe_root(&mut self, client: usize, tell: Tell) {
        if tell == Tell::Before {
            self.met(Met::LateRoot);
        }
        let Some(root) = self.server.root() else {
            return;
        };
        let named: Vec<ChunkId> = root.chunks().map(|chunk| chunk.id).collect();
        self.clients[client]
            .created
            .retain(|id| !named.contains(id));
        if root.runs.iter().skip(1).any(|run| run.chunks.len() > 1) {
            self.met(Met::RunOfManyChunks);
        }
        let is_first = |id: &ChunkId| id.term == root.position.term && id.number > 1;
        if named.first().is_some_and(is_first) {
            self.met(Met::StateWrittenAnew);
        }
        if self.random.u64(..1000) < 100 {
            self.snapshots.push(Snapshot {
                objects: self.server.objects.clone(),
                oracle: self.oracle.clone(),
            });
        }
    }

    fn note(&mut self, text: &str) {
        self.trace = crc32c::crc32c_append(self.trace, &self.now.0.to_le_bytes());
        self.trace = crc32c::crc32c_append(self.trace, text.as_bytes());
    }

    /// Lets time pass, with all that happens in it.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.failure.is_none() {
            let Some(entry) = self.events.first_entry() else {
                break;
            };
            let at = entry.key().0;
            if at > end {
                break;
            }
            let event = entry.remove();
            self.now = at;
            self.note(&format!("{event:?}"));
            self.happen(event);
            self.check_that_time_passes();
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Execute {
                client,
                id,
                request,
                tell,
            } => self.execute(client, id, &request, tell),
            Event::ObjectResponse { client, id, answer }
                if self.clients[client].ended.is_none() =>
            {
                self.clients[client].keeper.answered(self.now, id, answer);
                self.carry_out(client);
            }
            Event::Wake { client } if self.clients[client].ended.is_none() => {
                let wake = self.clients[client].keeper.next_wake();
                if wake <= self.now {
                    self.clients[client].keeper.tick(self.now);
                    self.carry_out(client);
                }
            }
            Event::ObjectResponse { .. } | Event::Wake { .. } => {}
        }
    }

    fn check_that_time_passes(&mut self) {
        self.same_time = match self.same_time {
            (at, count) if at == self.now => (at, count + 1),
            _ => (self.now, 0),
        };
        if self.same_time.1 > 1000 {
            self.hold(Err("it goes round in circles".to_owned()));
        }
    }
}
