//! Upgrades that roll through a store.

use crate::random::Random;
use crate::scenario::Scenario;

impl Scenario {
    /// Servers and coordinators are upgraded one by one under load, with all other faults.
    pub fn draw_upgrading(random: &mut Random) -> Scenario {
        let several = random.chance(300);
        let mut scenario = match several {
            true => Scenario::draw_fail_over(random),
            false => Scenario::draw_migrating(random),
        };
        scenario.linger(random);
        scenario.coordinator_keeps_state = true;
        scenario
    }
}
