//! Long, quiet lives: few clients overwrite few objects, members are restarted again and again, mostly the same one, backups are late, and operators give
//! orders while members are away. Not what must hold then: `rooms.rs` and `copies.rs` look at that, in all runs.

use crate::random::Random;
use crate::scenario::{MICRO, MILLI, SECOND, Scenario};
use crate::world::{Event, Phase, World};

/// Of a thousand troubles, how many are a backup that is late; the others are restarts.
const LATE_BACKUPS: u64 = 400;
/// Of a thousand restarts, how many are surely of the last member.
const OF_THE_SAME: u64 = 700;
/// Of a thousand restarts, during how many an operator gives orders, if the member is away for that long.
const WITH_ORDERS: u64 = 600;
/// Of a hundred orders, how many are mistaken, and how many drain a member or take one back, where members are drained at all.
const MISTAKEN: u64 = 40;
const DRAINS: u64 = 20;

impl Scenario {
    /// One server more than copies need: more copies can be asked for, and one server can leave.
    pub fn draw_quiet(random: &mut Random) -> Scenario {
        let mut scenario = Scenario::draw_draining(random);
        scenario.is_quiet = true;
        scenario.coordinator_crashes = false;
        scenario.shards = 1;
        // So large that it never fills by itself.
        scenario.segment_bytes = *random.pick(&[8 << 10, 16 << 10]);
        scenario.segments = random.between(20, 40) as u32;
        scenario.hash_table_bytes = 16 << 10;
        scenario.network.max_delay = *random.pick(&[20 * MICRO, 200 * MICRO]);
        scenario.clients = 2;
        scenario.readers = 0;
        scenario.concurrency = 1;
        scenario.keys = random.between(10, 60) as usize;
        scenario.max_value_bytes = *random.pick(&[16, 100]);
        scenario.max_think = *random.pick(&[200 * MILLI, SECOND]);
        scenario.operations_per_client = random.between(150, 400) as u32;
        scenario.splits = 1;
        scenario.scans = 3;
        scenario.crashes = true;
        scenario.fault_interval = *random.pick(&[SECOND, 3 * SECOND]);
        scenario.silence_timeout = 3 * SECOND;
        scenario
    }
}

impl World {
    pub(crate) fn quiet_fault(&mut self) {
        if self
            .streams
            .of("kinds of quiet troubles")
            .chance(LATE_BACKUPS)
        {
            let late = self.streams.of("late backups in a quiet life");
            let after = late.between(60 * MILLI, 400 * MILLI);
            return self.trouble_of_peers(after);
        }
        let servers = self.servers.len();
        let random = self.streams.of("restarts in a quiet life");
        let (is_the_same, any) = (random.chance(OF_THE_SAME), random.below(servers));
        let server = if is_the_same { servers - 1 } else { any };
        self.coverage.hit("restarts in a quiet life");
        self.crash_server(server);
        let orders = self.streams.of("whether a member is away during orders");
        if orders.chance(WITH_ORDERS) {
            let after = orders.between(MILLI, 300 * MILLI);
            self.schedule_in(after, Event::OrderWhileAway(server));
        }
    }

    pub(crate) fn order_while_away(&mut self, server: usize) {
        if self.servers[server].is_up || self.phase != Phase::Load {
            return;
        }
        self.coverage.hit("orders while a member was away");
        let kind = self
            .streams
            .of("orders while a member is away")
            .between(0, 99);
        if kind < MISTAKEN {
            self.order_by_mistake();
        } else if kind < MISTAKEN + DRAINS && self.has_drains() {
            self.drain_or_take_back();
        } else {
            self.change_settings();
        }
    }
}
