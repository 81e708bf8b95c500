//! The API server is away, and backups are late: paused, cut off for a moment, behind a connection that stalls or breaks. Nothing dies and nothing is lost,
//! so every master must go on, though the coordinator can note nothing.

use master::LogPosition;

use crate::scenario::{MILLI, SECOND};
use crate::world::{Event, Party, Phase, World, server_host};

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

impl World {
    /// Decides whether the seed is about that.
    pub fn plan_lateness(&mut self, seed: u64) {
        if self.scenario.fail_over.is_none() || !is_late(seed) {
            return;
        }
        self.lateness.stage = Stage::Awaited;
        let after = self
            .streams
            .of("beginnings of lateness")
            .between(SECOND, 2 * SECOND);
        self.schedule_in(after, Event::Late);
    }

    /// Nothing else goes wrong meanwhile.
    pub fn is_only_late(&self) -> bool {
        !matches!(self.lateness.stage, Stage::Never | Stage::Over)
    }

    /// The next step.
    pub fn late(&mut self) {
        if self.phase != Phase::Load {
            self.lateness.stage = Stage::Over;
            return;
        }
        match std::mem::take(&mut self.lateness.stage) {
            Stage::Never | Stage::Over => {}
            Stage::Awaited => self.await_safety(),
            Stage::Away(until) if self.now < until => {
                self.some_lateness();
                let next = self
                    .streams
                    .of("times of lateness")
                    .between(MILLI, 500 * MILLI);
                self.schedule_in(next, Event::Late);
                self.lateness.stage = Stage::Away(until);
            }
            Stage::Away(_) => {
                self.lateness.stage = Stage::Calm(self.what_is_appended());
                self.schedule_in(CALM, Event::Late);
            }
            Stage::Calm(marks) => {
                self.lateness.stage = Stage::Over;
                self.check_that_masters_go_on(&marks);
            }
        }
    }

    fn await_safety(&mut self) {
        self.end_faults();
        if !self.is_safe() || !self.all_serve() || self.history.records.len() < MIN_OPERATIONS {
            self.lateness.stage = Stage::Awaited;
            let again = self
                .streams
                .of("beginnings of lateness")
                .between(MILLI, 300 * MILLI);
            return self.schedule_in(again, Event::Late);
        }
        for server in &mut self.servers {
            server.dies_writing = None;
        }
        self.coverage
            .hit("absences of the API server with late backups");
        let trouble = self
            .streams
            .of("lengths of lateness")
            .between(SECOND, 10 * SECOND);
        // With something to spare: it is back after all was looked at.
        self.api_is_away_for(trouble + CALM + SECOND);
        self.lateness.stage = Stage::Away(self.now + trouble);
        self.schedule_in(0, Event::Late);
    }

    /// A new master waits for its first floor, whatever its backups do.
    fn all_serve(&self) -> bool {
        let mut servers = self.servers.iter().enumerate();
        servers.all(|(server, node)| {
            let now = self.clock(server_host(server));
            let mut shards = node.shards.iter();
            shards.all(|shard| shard.core.shard().is_serving(now))
        })
    }

    fn some_lateness(&mut self) {
        let servers = self.servers.len();
        let random = self.streams.of("kinds of lateness");
        let (one, other) = (random.below(servers), random.below(servers));
        let (from, to) = (server_host(one), server_host(other));
        let after = random.between(60 * MILLI, 400 * MILLI);
        match random.below(4) {
            0 => {
                self.note_fault(from, "is paused for ns", after);
                self.pause_until(from, self.now + after);
            }
            1 if one != other => {
                self.note_fault(from, "is cut off from host", u64::from(to));
                self.network.cut(from, to, self.now + after);
                self.schedule_in(after, Event::Heal);
            }
            _ => self.trouble_of_peers(after),
        }
    }

    /// A connection between a master and a backup stalls, or breaks.
    pub(crate) fn trouble_of_peers(&mut self, after: u64) {
        let sides = self.sides_of(|party| matches!(party, Party::ShardPeer { .. }));
        if sides.is_empty() {
            return;
        }
        let random = self.streams.of("troubles between masters and backups");
        let (connection, direction) = *random.pick(&sides);
        let host = server_host(0);
        if random.chance(300) {
            self.note_fault(host, "resets connection", connection);
            return self.network.reset(self.now, connection);
        }
        self.note_fault(host, "stalls connection", connection);
        self.network.stall(connection, direction);
        let go_on = Event::GoOn {
            connection,
            direction,
        };
        self.schedule_in(after, go_on);
    }

    fn what_is_appended(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        for (server, node) in self.servers.iter().enumerate() {
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

    fn check_that_masters_go_on(&mut self, marks: &[Mark]) {
        for mark in marks {
            let node = &self.servers[mark.server];
            if node.incarnation != mark.incarnation {
                continue;
            }
            let now = self.clock(server_host(mark.server));
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
                return self.fail(text);
            }
            self.coverage.hit("masters that went on without a floor");
        }
    }
}
