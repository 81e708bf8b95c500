//! Long, quiet lives: few clients overwrite few objects.

use crate::random::Random;
use crate::scenario::{MICRO, MILLI, SECOND, Scenario};

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
