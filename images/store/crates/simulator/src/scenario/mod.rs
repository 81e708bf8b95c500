//! What a seed stands for: sizes, faults and load of one run. Small on purpose, so that little things fill up and roll over.

pub mod conditions;
pub mod fast;
pub mod profile;
mod quiet;
mod upgrading;

use crate::random::Random;
use conditions::Conditions;
use fast::FastScenario;

pub const MICRO: u64 = 1_000;
pub const MILLI: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// How the shards' logs become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// At once.
    AtOnce,
    /// After a delay of up to so many nanoseconds.
    Later(u64),
}

/// Logs with replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicated {
    pub replicas: u8,
    pub min_replicas: u8,
    /// Lost replicas are made again within milliseconds, or over seconds.
    pub repair_bytes_per_second: u64,
    /// Appends are answered when they are on stable storage.
    pub flushed: bool,
}

/// Several coordinators, of which one leads, with their state in an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailOver {
    pub processes: usize,
    /// Nanoseconds by which cluster time is noted ahead.
    pub time_ahead: u64,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub members: usize,
    pub shards: u32,
    pub segment_bytes: u32,
    pub segments: u32,
    pub hash_table_bytes: usize,
    /// What one page of a scan looks at, and shows.
    pub enumerated_slots: usize,
    pub enumerated_bytes: usize,
    pub durable: Durable,
    pub replicated: Option<Replicated>,
    /// Of a thousand syncs, how many take long.
    pub slow_syncs_per_mille: u64,
    pub network: Conditions,
    pub clients: usize,
    /// Of the clients, the last so many only read.
    pub readers: usize,
    pub operations_per_client: u32,
    /// Operations that a client has under way at a time.
    pub concurrency: usize,
    pub max_think: u64,
    /// Of a thousand operations, how many split a tablet, and how many begin a scan.
    pub splits: u64,
    pub scans: u64,
    pub keys: usize,
    pub tables: usize,
    pub span: u32,
    pub max_value_bytes: u64,
    /// Clients write many keys that stay, until memory is full.
    pub fills_memory: bool,
    /// Time between faults, on average; 0: none.
    pub fault_interval: u64,
    pub crashes: bool,
    pub coordinator_crashes: bool,
    /// What the coordinator has noted is there when it starts again; otherwise each one is a new store.
    pub coordinator_keeps_state: bool,
    /// A client is cut off for longer than its lease lasts.
    pub lease_expires: bool,
    /// A member connection counts as gone when nothing was heard for so long.
    pub silence_timeout: u64,
    /// How much faster or slower than real time clocks run at most, in parts per million.
    pub max_clock_error_ppm: u64,
    pub fail_over: Option<FailOver>,
    /// All processes die and all that the coordinator has noted is lost, now and then: the store is made again from its disks.
    pub rebuilds: bool,
    /// Servers are reached by datagrams, too.
    pub fast: Option<FastScenario>,
    /// Clients go on until every disk was overwritten so often that it is no question of its size any more.
    pub is_overwriting: bool,
    /// A long life in which little happens but restarts.
    pub is_quiet: bool,
}

impl Scenario {
    /// Whether the simulation decides when logs are durable.
    pub fn is_gated(&self) -> bool {
        self.replicated.is_none() && matches!(self.durable, Durable::Later(_))
    }

    /// Whether tablets can move. Of a log whose durability the simulation decides nobody says when side segments are durable, and a migration
    /// into it does not end.
    pub fn can_migrate(&self) -> bool {
        !self.is_gated()
    }

    /// Half of the seeds have logs with replicas.
    pub fn draw(random: &mut Random) -> Scenario {
        let mut scenario = Scenario::draw_alone(random);
        if random.chance(500) {
            scenario.replicate(random);
        }
        scenario.coordinator_keeps_state = random.chance(500);
        if scenario.coordinator_keeps_state {
            scenario.coordinator_crashes = random.chance(400);
        }
        scenario
    }

    pub fn draw_replicated(random: &mut Random) -> Scenario {
        let mut scenario = Scenario::draw_alone(random);
        scenario.replicate(random);
        scenario
    }

    /// Two or three coordinators, killed and paused and cut off, and an API server that fails.
    pub fn draw_fail_over(random: &mut Random) -> Scenario {
        let mut scenario = Scenario::draw_replicated(random);
        scenario.fail_over = Some(FailOver {
            processes: random.between(2, 3) as usize,
            // The shorter it is, the more often it is renewed, and the more often time has to stand still.
            time_ahead: *random.pick(&[2 * SECOND, 20 * SECOND, 600 * SECOND]),
        });
        scenario.linger(random);
        // Tables come and go, which takes the coordinators.
        scenario.splits = *random.pick(&[10, 40]);
        scenario.fault_interval = *random.pick(&[200 * MILLI, SECOND, 3 * SECOND]);
        scenario.crashes = random.chance(700);
        scenario
    }

    /// The coordinator may die, and its next process goes on.
    pub fn draw_migrating(random: &mut Random) -> Scenario {
        let mut scenario = Scenario::draw_replicated(random);
        scenario.coordinator_keeps_state = true;
        scenario.coordinator_crashes = random.chance(500);
        scenario
    }

    /// Servers, and with them what they hold, come and go; the coordinator may die.
    pub fn draw_unreplicated(random: &mut Random) -> Scenario {
        let mut scenario = Scenario::draw_alone(random);
        scenario.durable = Durable::AtOnce;
        scenario.members = random.between(2, 4) as usize;
        if scenario.lease_expires {
            scenario.lease_expires = false;
            scenario.fault_interval = SECOND;
            scenario.silence_timeout = 3 * SECOND;
        }
        scenario.coordinator_keeps_state = random.chance(800);
        scenario.coordinator_crashes = random.chance(500);
        scenario
    }

    /// The coordinator may die, and now and then everything does, with all that was noted.
    pub fn draw_rebuilding(random: &mut Random) -> Scenario {
        let mut scenario = Scenario::draw_replicated(random);
        scenario.coordinator_keeps_state = true;
        scenario.coordinator_crashes = random.chance(500);
        scenario.crashes = true;
        scenario.rebuilds = true;
        scenario.linger(random);
        scenario.fault_interval = *random.pick(&[200 * MILLI, SECOND, 3 * SECOND]);
        scenario
    }

    /// More servers than copies are wanted on, so that one can leave.
    pub fn draw_draining(random: &mut Random) -> Scenario {
        let mut scenario = Scenario::draw_migrating(random);
        let replicas = scenario.replicated.map_or(0, |it| usize::from(it.replicas));
        scenario.members = scenario.members.max(replicas + 2);
        scenario
    }

    /// Objects that take up a good part of memory and are overwritten all the time, on disks of the size that servers choose for themselves.
    pub fn draw_overwriting(random: &mut Random) -> Scenario {
        let mut scenario = Scenario::draw_replicated(random);
        scenario.is_overwriting = true;
        if let Some(replicated) = &mut scenario.replicated {
            // As servers have it by themselves: where every write needs all copies, it waits whenever a server is away.
            replicated.min_replicas = (replicated.replicas - 1).max(1);
        }
        scenario.segment_bytes = 4 << 10;
        scenario.segments = random.between(14, 20) as u32;
        scenario.hash_table_bytes = 16 << 10;
        scenario.shards = 1;
        scenario.network.max_delay = *random.pick(&[20 * MICRO, 200 * MICRO]);
        scenario.max_think = scenario.network.max_delay;
        scenario.operations_per_client = 200_000;
        scenario.readers = 0;
        scenario.concurrency = random.between(4, 8) as usize;
        scenario.keys = random.between(20, 40) as usize;
        scenario.max_value_bytes = *random.pick(&[200, 900]);
        // These hold clients up.
        scenario.scans = 0;
        scenario.splits = 1;
        scenario.enumerated_slots = 1000;
        scenario.enumerated_bytes = 100 << 10;
        scenario.crashes = true;
        scenario.fault_interval = *random.pick(&[200 * MILLI, SECOND]);
        scenario
    }

    fn replicate(&mut self, random: &mut Random) {
        let replicas = *random.pick(&[1, 2, 2, 3]);
        let min_replicas = random.between(1, u64::from(replicas)) as u8;
        let flushed = random.chance(500);
        self.replicated = Some(Replicated {
            replicas,
            min_replicas,
            repair_bytes_per_second: if flushed { 100_000 } else { 1 << 40 },
            flushed,
        });
        self.durable = Durable::AtOnce;
        self.members = random.between(u64::from(replicas) + 1, 5) as usize;
        self.shards = *random.pick(&[1, 1, 2]);
        self.segment_bytes = *random.pick(&[4 << 10, 4 << 10, 8 << 10]);
        self.segments = random.between(10, 20) as u32;
        self.slow_syncs_per_mille = *random.pick(&[0, 20, 200]);
        self.coordinator_crashes = false;
        // A store that is full cannot take over what a dead server held, until that is back itself.
        self.fills_memory = false;
        self.lease_expires = false;
        self.silence_timeout = *random.pick(&[SECOND, SECOND, 3 * SECOND]);
        if random.chance(500) {
            self.linger(random);
        }
    }

    /// The load lasts longer than it takes to find a server dead and to recover it, and some clients have no reason to ask where anything is.
    pub(crate) fn linger(&mut self, random: &mut Random) {
        self.max_think = self.max_think.max(*random.pick(&[50 * MILLI, 150 * MILLI]));
        self.clients = random.between(3, 5) as usize;
        self.readers = random.between(1, self.clients as u64 / 2) as usize;
        self.operations_per_client = self.operations_per_client.max(120);
        if self.fault_interval > 0 {
            self.fault_interval = *random.pick(&[200 * MILLI, SECOND]);
        }
    }

    fn draw_alone(random: &mut Random) -> Scenario {
        let max_delay = *random.pick(&[20 * MICRO, 200 * MICRO, 2 * MILLI, 30 * MILLI]);
        let is_slow = max_delay > 2 * MILLI;
        let fills_memory = random.chance(200);
        let lease_expires = random.chance(80);
        let is_faulty = random.chance(850);
        Scenario {
            members: random.between(1, 4) as usize,
            shards: *random.pick(&[1, 1, 2, 3]),
            segment_bytes: *random.pick(&[4 << 10, 4 << 10, 8 << 10, 16 << 10]),
            segments: random.between(8, 20) as u32,
            hash_table_bytes: *random.pick(&[1 << 10, 4 << 10, 16 << 10]),
            // With a slow network, a full store in small pages would take longer to scan than anything else takes.
            enumerated_slots: match (fills_memory, is_slow) {
                (true, true) => 1000,
                (true, false) => *random.pick(&[8, 50]),
                (false, _) => *random.pick(&[1, 8, 1000]),
            },
            enumerated_bytes: match (fills_memory, is_slow) {
                (true, true) => 100 << 10,
                (true, false) => *random.pick(&[300, 3000]),
                (false, _) => *random.pick(&[1, 300, 100 << 10]),
            },
            durable: if random.chance(500) {
                Durable::Later(*random.pick(&[50 * MICRO, MILLI, 20 * MILLI]))
            } else {
                Durable::AtOnce
            },
            replicated: None,
            slow_syncs_per_mille: 0,
            network: Conditions {
                min_delay: 2 * MICRO,
                max_delay,
                split_per_mille: *random.pick(&[0, 20, 200]),
            },
            clients: random.between(2, 4) as usize,
            readers: 0,
            operations_per_client: random.between(60, 250) as u32,
            concurrency: random.between(1, 6) as usize,
            max_think: max_delay * random.between(1, 6),
            splits: *random.pick(&[3, 10, 40]),
            scans: *random.pick(&[3, 10, 30]),
            keys: random.between(1, 8) as usize,
            tables: random.between(1, 2) as usize,
            span: random.between(1, 4) as u32,
            max_value_bytes: *random.pick(&[16, 200, 900, 2000]),
            fills_memory,
            fault_interval: match (is_faulty, lease_expires) {
                (false, _) => 0,
                (true, true) => 20 * SECOND,
                (true, false) => *random.pick(&[30 * MILLI, 200 * MILLI, SECOND]),
            },
            crashes: random.chance(600),
            coordinator_crashes: random.chance(250),
            coordinator_keeps_state: false,
            lease_expires,
            // Half an hour must pass: with fewer pings that is cheap.
            silence_timeout: if lease_expires {
                100 * SECOND
            } else {
                3 * SECOND
            },
            max_clock_error_ppm: *random.pick(&[0, 100, 5000]),
            fail_over: None,
            rebuilds: false,
            fast: None,
            is_overwriting: false,
            is_quiet: false,
        }
    }
}
