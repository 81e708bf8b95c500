//! The API server is away, and backups are late: paused, cut off for a moment, behind a connection that stalls or breaks. Nothing dies and nothing is lost,
//! so every master must go on, though the coordinator can note nothing.

use master::LogPosition;

use crate::cluster::{Cluster, server_host};
use crate::event::Turn;
use crate::event::{Event, Phase};
use crate::faults::peers;
use crate::scenario::{MILLI, SECOND};

/// One in so many seeds with several coordinators is about that.
const OF_SEEDS: u64 = 3;
/// From the last trouble to the moment at which all must be well: backups that were late are avoided for a second, and connections tried again after two.
const CALM: u64 = 6 * SECOND;

/// Clients have begun, and have tables.
const MIN_OPERATIONS: usize = 30;

/// How far it is.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Never,
    /// Until the store is well: what was lost before would stand in the way.
    Awaited,
    /// The API server is away until then.
    Away(u64),
    /// What each shard had appended when the trouble ended is durable then.
    Calm(Vec<Mark>),
    Over,
}

#[derive(Debug)]
struct Mark {
    server: usize,
    incarnation: u64,
    shard: usize,
    appended: LogPosition,
}

/// Whether a seed with several coordinators is about that.
pub fn is_late(seed: u64) -> bool {
    seed % OF_SEEDS == 1
}

#[derive(Debug, Default)]
pub struct Lateness {
    stage: Stage,
}

impl Lateness {
    /// Decides whether the seed is about that.
    pub fn begin(&mut self, cluster: &mut Cluster, seed: u64) {
        if cluster.scenario.fail_over.is_none() || !is_late(seed) {
            return;
        }
        self.stage = Stage::Awaited;
        cluster.is_only_late = self.is_under_way();
        let after = cluster
            .streams
            .of("beginnings of lateness")
            .between(SECOND, 2 * SECOND);
        cluster.schedule_in(after, Event::Turn(Turn::Late));
    }

    /// Nothing else goes wrong meanwhile.
    fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::Never | Stage::Over)
    }

    /// The next step.
    pub fn turn(&mut self, cluster: &mut Cluster) {
        self.step(cluster);
        cluster.is_only_late = self.is_under_way();
    }

    fn step(&mut self, cluster: &mut Cluster) {
        if cluster.phase != Phase::Load {
            self.stage = Stage::Over;
            return;
        }
        match std::mem::take(&mut self.stage) {
            Stage::Never | Stage::Over => {}
            Stage::Awaited => self.await_safety(cluster),
            Stage::Away(until) if cluster.now < until => {
                some_lateness(cluster);
                let next = cluster
                    .streams
                    .of("times of lateness")
                    .between(MILLI, 500 * MILLI);
                cluster.schedule_in(next, Event::Turn(Turn::Late));
                self.stage = Stage::Away(until);
            }
            Stage::Away(_) => {
                self.stage = Stage::Calm(what_is_appended(cluster));
                cluster.schedule_in(CALM, Event::Turn(Turn::Late));
            }
            Stage::Calm(marks) => {
                self.stage = Stage::Over;
                check_that_masters_go_on(cluster, &marks);
            }
        }
    }

    fn await_safety(&mut self, cluster: &mut Cluster) {
        cluster.end_faults();
        if !cluster.is_safe()
            || !cluster.all_serve()
            || cluster.history.records.len() < MIN_OPERATIONS
        {
            self.stage = Stage::Awaited;
            let again = cluster
                .streams
                .of("beginnings of lateness")
                .between(MILLI, 300 * MILLI);
            return cluster.schedule_in(again, Event::Turn(Turn::Late));
        }
        for server in &mut cluster.servers {
            server.dies_writing = None;
        }
        cluster
            .coverage
            .hit("absences of the API server with late backups");
        let trouble = cluster
            .streams
            .of("lengths of lateness")
            .between(SECOND, 10 * SECOND);
        // With something to spare: it is back after all was looked at.
        cluster.api_is_away_for(trouble + CALM + SECOND);
        self.stage = Stage::Away(cluster.now + trouble);
        cluster.schedule_in(0, Event::Turn(Turn::Late));
    }
}

fn some_lateness(cluster: &mut Cluster) {
    let servers = cluster.servers.len();
    let random = cluster.streams.of("kinds of lateness");
    let (one, other) = (random.below(servers), random.below(servers));
    let (from, to) = (server_host(one), server_host(other));
    let after = random.between(60 * MILLI, 400 * MILLI);
    match random.below(4) {
        0 => {
            cluster.note_fault(from, "is paused for ns", after);
            cluster.pause_until(from, cluster.now + after);
        }
        1 if one != other => {
            cluster.note_fault(from, "is cut off from host", u64::from(to));
            cluster.network.cut(from, to, cluster.now + after);
            cluster.schedule_in(after, Event::Heal);
        }
        _ => peers::trouble(cluster, after),
    }
}

fn what_is_appended(cluster: &Cluster) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (server, node) in cluster.servers.iter().enumerate() {
        for (shard, it) in node.shards.iter().enumerate() {
            marks.push(Mark {
                server,
                incarnation: node.incarnation,
                shard,
                appended: it.core.shard().head_position(),
            });
        }
    }
    marks
}

fn check_that_masters_go_on(cluster: &mut Cluster, marks: &[Mark]) {
    for mark in marks {
        let node = &cluster.servers[mark.server];
        if node.incarnation != mark.incarnation {
            continue;
        }
        let now = cluster.clock(server_host(mark.server));
        let shard = node.shards[mark.shard].core.shard();
        if shard.is_deposed() {
            continue;
        }
        let durable = shard.durable_position();
        if !shard.is_serving(now) || durable < mark.appended {
            let text = format!(
                "shard {} of {} stands still while the API server is away, though its backups all answer: durable {durable:?}, appended {:?}, \
                 serving until {:?} at {now:?}",
                mark.shard,
                node.name,
                mark.appended,
                shard.serving_until()
            );
            return cluster.fail(text);
        }
        cluster.coverage.hit("masters that went on without a floor");
    }
}
