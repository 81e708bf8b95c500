//! Random histories: a table goes to and fro while it is used, and everything breaks now and then.

use core::time::Duration;
use std::collections::BTreeMap;

use base::ids::ServerId;
use wire::member::{self, MigrationId, RecoveryId, coordinator, shard};

use super::super::harness::*;
use super::clients::Client;
use super::world::*;
use crate::Config;

/// Order of a migration, and how far it has come.
struct Migrating {
    id: u64,
    from: usize,
    from_segment: u64,
}

/// The table was its owner's, which is dead.
struct Recovering {
    fenced: Vec<(ServerId, u64)>,
    /// Id, and who brings it back.
    order: Option<(u64, usize)>,
}

/// The coordinator, as the test plays it, with all that it knows.
struct World {
    nodes: Nodes,
    clients: Vec<Client>,
    owner: Option<usize>,
    /// Logs that hold the table, and the first segment of each that counts.
    sources: Vec<(ServerId, u64)>,
    floors: BTreeMap<ServerId, u64>,
    migrating: Option<Migrating>,
    recovering: Option<Recovering>,
    last_id: u64,
    /// Steps between two pieces, about.
    piece_steps: usize,
    counts: Counts,
}

/// What happened, so that a test that tests nothing fails.
#[derive(Debug, Default)]
pub struct Counts {
    pub operations: usize,
    pub committed: usize,
    pub given_up: usize,
    pub full: usize,
    pub crashed: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let config = Config {
            migrated_bytes: [300, 3000][random.below(2)],
            lend_bytes: 8 << 10,
            ..config([9, 12, 32][random.below(3)])
        };
        let piece_steps = [1, 1, 4, 40][random.below(4)];
        let mut world = World {
            nodes: Nodes::new(random.next(), config),
            clients: (0..16).map(Client::new).collect(),
            owner: Some(0),
            sources: Vec::new(),
            floors: BTreeMap::new(),
            migrating: None,
            recovering: None,
            last_id: 0,
            piece_steps,
            counts: Counts::default(),
        };
        world.nodes.is_flaky = true;
        world.sources = vec![(world.nodes.id(0), 0)];
        world.welcome(0);
        world.welcome(1);
        world
    }

    fn welcome(&mut self, at: usize) {
        let tablets = [WHOLE_TABLE];
        let count = usize::from(self.owner == Some(at));
        self.nodes.welcome(at, &tablets[..count]);
    }

    fn order(&mut self, at: usize, kind: coordinator::Kind) {
        self.nodes.nodes[at].orders.push_back(kind);
    }

    fn step(&mut self) {
        let at = self.nodes.random.below(2);
        match self.nodes.random.below(20) {
            0..5 => self.nodes.tick(at),
            5..9 => self.nodes.replicate(at),
            9..12 if self.nodes.random.one_in(self.piece_steps) => self.nodes.migrate(at),
            12 => self.nodes.read_source(at),
            13 => self.nodes.order(at),
            14 => self.hear(at),
            15 => {
                self.recover();
                self.nodes.pass(Duration::from_micros(500));
            }
            _ => self.use_table(at),
        }
        self.take_replies(at);
    }

    fn use_table(&mut self, at: usize) {
        let which = self.nodes.random.below(self.clients.len());
        let client = &mut self.clients[which];
        if client.is_idle() {
            client.begin(&mut self.nodes.random);
        }
        let at = match self.owner {
            Some(owner) if !self.nodes.random.one_in(3) => owner,
            _ => at,
        };
        client.send(&mut self.nodes, at);
    }

    fn take_replies(&mut self, at: usize) {
        for (to, payload) in std::mem::take(&mut self.nodes.nodes[at].driver.said.replies) {
            for client in &mut self.clients {
                client.answered(at, to.nonce, &payload);
            }
        }
    }

    // ---- the coordinator ----

    fn begin_migration(&mut self) {
        let (Some(from), None) = (self.owner, &self.migrating) else {
            return;
        };
        self.last_id += 1;
        let (id, to) = (self.last_id, 1 - from);
        self.migrating = Some(Migrating {
            id,
            from,
            from_segment: 0,
        });
        let (source, target) = (self.nodes.id(from).0, self.nodes.id(to).0);
        let tablet = WHOLE_TABLE;
        let into = member::Migrate {
            migration_id: id,
            tablet,
            source,
            locator: "tcp:".to_owned(),
            bytes_per_second: 10_000_000,
            version_floor: 0,
        };
        let out = member::MigrateOut {
            migration_id: id,
            tablet,
            target,
        };
        self.order(to, coordinator::Kind::Migrate(into));
        self.order(from, coordinator::Kind::MigrateOut(out));
    }

    fn give_up(&mut self) {
        if let Some(migrating) = self.migrating.take() {
            let migration_id = migrating.id;
            for at in 0..2 {
                let id = MigrationId { migration_id };
                self.order(at, coordinator::Kind::GiveUpMigration(id));
            }
            self.counts.given_up += 1;
        }
    }

    fn hear(&mut self, at: usize) {
        let Some(kind) = self.nodes.heard(at) else {
            return;
        };
        match kind {
            shard::Kind::RaiseOpenFloor(floor) => {
                self.floors.insert(self.nodes.id(at), floor.segment_id);
                self.order(at, coordinator::Kind::OpenFloorRaised(floor));
            }
            shard::Kind::LeaseQuery(query) => {
                let answer = member::LeaseAnswer {
                    lease_id: query.lease_id,
                    expiration_ns: 1_000_000_000_000,
                    cluster_time_ns: 1000,
                };
                self.order(at, coordinator::Kind::LeaseAnswer(answer));
            }
            shard::Kind::Migrated(migrated) => self.migrated(at, &migrated),
            shard::Kind::Stopped(stopped) => self.stopped(at, stopped.migration_id),
            shard::Kind::Recovered(recovered) => self.recovered(at, &recovered),
            shard::Kind::RecoveryDurable(recovery) => {
                self.nodes.nodes[at]
                    .recoveries
                    .retain(|id| *id != recovery.recovery_id);
                if self.owner == Some(at) {
                    let own = self.nodes.id(at);
                    self.sources.retain(|(log, _)| *log == own);
                }
                self.order(at, coordinator::Kind::SourcesReleased(recovery));
            }
            _ => {}
        }
    }

    fn migrated(&mut self, at: usize, migrated: &member::Migrated) {
        let id = migrated.migration_id;
        let Some(migrating) = self.migrating.as_mut().filter(|one| one.id == id) else {
            return;
        };
        if migrated.failure.is_empty() {
            assert_ne!(at, migrating.from);
            migrating.from_segment = migrated.from_segment;
            let from = migrating.from;
            let migration_id = id;
            self.order(
                from,
                coordinator::Kind::StopTablet(MigrationId { migration_id }),
            );
        } else {
            self.counts.full += usize::from(migrated.is_full);
            self.give_up();
        }
    }

    fn stopped(&mut self, at: usize, migration_id: u64) {
        let Some(migrating) = self.migrating.take_if(|one| one.id == migration_id) else {
            return;
        };
        assert_eq!(at, migrating.from);
        let to = 1 - migrating.from;
        self.owner = Some(to);
        self.sources = vec![(self.nodes.id(to), migrating.from_segment)];
        let id = MigrationId { migration_id };
        self.order(to, coordinator::Kind::CommitMigration(id));
        let tablet = WHOLE_TABLE;
        let drop = member::TabletOrder {
            sequence: 1,
            tablet,
        };
        self.order(migrating.from, coordinator::Kind::DropTablet(drop));
        self.counts.committed += 1;
    }

    /// A connection to the coordinator breaks, and is made again.
    fn reconnect(&mut self, at: usize) {
        self.give_up();
        if let Some(recovering) = &mut self.recovering {
            recovering.order.take_if(|(_, to)| *to == at);
        }
        self.welcome(at);
    }

    fn crash(&mut self, at: usize) {
        self.counts.crashed += 1;
        self.give_up();
        let dead = self.nodes.id(at);
        self.nodes.crash(at);
        for client in &mut self.clients {
            client.lost(at);
        }
        if let Some(recovering) = &mut self.recovering {
            recovering.order.take_if(|(_, to)| *to == at);
        }
        if self.owner == Some(at) {
            self.owner = None;
            self.recovering = Some(Recovering {
                fenced: self.sources.clone(),
                order: None,
            });
        } else if !self.sources.iter().any(|(log, _)| *log == dead) {
            self.nodes.fence(dead);
            self.nodes.forget_log(dead);
        }
    }

    fn recover(&mut self) {
        let Some(recovering) = &self.recovering else {
            return;
        };
        if recovering.order.is_some() {
            return;
        }
        let fenced = recovering.fenced.clone();
        let mut segments = Vec::new();
        for (log, from_segment) in fenced {
            if !self.nodes.found.contains_key(&log) {
                return self.nodes.fence(log);
            }
            let floor = self.floors.get(&log).copied().unwrap_or(0);
            segments.extend(self.nodes.segments(log, from_segment, floor));
        }
        self.last_id += 1;
        let (id, to) = (self.last_id, self.nodes.random.below(2));
        let order = member::Recover {
            recovery_id: id,
            tablets: vec![WHOLE_TABLE],
            segments,
            version_floor: 0,
        };
        self.order(to, coordinator::Kind::Recover(order));
        if let Some(recovering) = &mut self.recovering {
            recovering.order = Some((id, to));
        }
    }

    fn recovered(&mut self, at: usize, recovered: &member::Recovered) {
        let recovery_id = recovered.recovery_id;
        let Some(recovering) = &mut self.recovering else {
            return;
        };
        if recovering.order != Some((recovery_id, at)) {
            return;
        }
        if !recovered.failure.is_empty() {
            recovering.order = None;
            return;
        }
        self.recovering = None;
        self.owner = Some(at);
        self.sources
            .push((self.nodes.id(at), recovered.from_segment));
        self.nodes.nodes[at].recoveries.push(recovery_id);
        let id = RecoveryId { recovery_id };
        self.order(at, coordinator::Kind::CommitRecovery(id));
    }

    // ---- the end ----

    /// Nothing breaks any more: everything is answered in the end, and what is not owned is gone.
    fn end(mut self) -> Counts {
        self.nodes.is_flaky = false;
        self.give_up();
        for _ in 0..400_000 {
            let is_quiet = self.clients.iter().all(Client::is_idle) && self.recovering.is_none();
            if is_quiet {
                break;
            }
            let at = self.nodes.random.below(2);
            match self.nodes.random.below(20) {
                0..19 => self.settle_step(at),
                _ => {
                    if let (Some(owner), Some(which)) = (
                        self.owner,
                        self.clients.iter().position(|one| !one.is_idle()),
                    ) {
                        self.clients[which].send(&mut self.nodes, owner);
                    }
                }
            }
        }
        let waits = self.clients.iter().filter(|one| !one.is_idle()).count();
        assert_eq!(waits, 0, "never answered; owner {:?}", self.owner);
        for _ in 0..2000 {
            let at = self.nodes.random.below(2);
            self.settle_step(at);
        }
        let owner = self.owner.expect("it was brought back");
        for client in &self.clients {
            client.check_end(&mut self.nodes, owner);
            self.counts.operations += client.done;
        }
        let other = &self.nodes.nodes[1 - owner].driver.shard;
        assert_eq!((other.stats().objects, other.stats().rpc_results), (0, 0));
        for node in &self.nodes.nodes {
            assert_eq!(node.driver.shard.audit(), Ok(()));
        }
        self.counts
    }

    fn settle_step(&mut self, at: usize) {
        self.nodes.tick(at);
        self.nodes.replicate(at);
        self.nodes.migrate(at);
        self.nodes.read_source(at);
        self.nodes.order(at);
        self.hear(at);
        self.recover();
        self.nodes.pass(Duration::from_micros(200));
        self.take_replies(at);
    }
}

/// One history; panics if it is not as it should be.
pub fn run(seed: u64) -> Counts {
    let mut world = World::new(seed);
    // Some histories are calm, so that many migrations come to their end.
    let trouble = [400, 4000, usize::MAX][world.nodes.random.below(3)];
    for _ in 0..20_000 {
        world.step();
        if world.nodes.random.one_in(200) {
            world.begin_migration();
        }
        if world.nodes.random.one_in(trouble) {
            let at = world.nodes.random.below(2);
            match world.nodes.random.below(4) {
                0 => world.give_up(),
                1 => world.reconnect(at),
                2 => world.crash(at),
                _ => world.nodes.pass(Duration::from_millis(50)),
            }
        }
    }
    world.end()
}
