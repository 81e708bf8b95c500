//! Disks that stop for a while, from milliseconds to seconds, and go on as if nothing had been.

use crate::cluster::{Cluster, server_host};
use crate::faults::independent::Fault;
use crate::random::{Random, Streams};
use crate::scenario::{MICRO, MILLI, SECOND, Scenario};

/// How often a disk stops.
#[derive(Debug)]
pub struct Stalls {
    random: Random,
    /// Between two stalls, on average; 0: there are none.
    interval: u64,
}

impl Stalls {
    /// In one of three seeds whose logs have copies.
    pub fn draw(streams: &mut Streams, scenario: &Scenario) -> Stalls {
        let mut random = streams.of("stalls of disks").fork();
        let has_disks = scenario.replicated.is_some() && scenario.fault_interval > 0;
        let interval = match random.chance(333) && has_disks {
            true => *random.pick(&[300 * MILLI, 2 * SECOND, 8 * SECOND]),
            false => 0,
        };
        Stalls { random, interval }
    }
}

impl Fault for Stalls {
    fn next(&mut self) -> Option<u64> {
        let most = 2 * self.interval;
        (most > 0).then(|| self.random.between(MICRO, most))
    }

    fn strike(&mut self, cluster: &mut Cluster) {
        let server = self.random.below(cluster.servers.len());
        let shard = self.random.below(cluster.scenario.shards as usize);
        let most = *self.random.pick(&[20 * MILLI, SECOND, 6 * SECOND]);
        let time = self.random.between(MILLI, most);
        if !cluster.late_disks.are_late() {
            return;
        }
        cluster.coverage.hit("disks that stalled");
        cluster.note_fault(server_host(server), "has a disk that stalls for ns", time);
        let until = cluster.now + time;
        cluster.late_disks.stall(server, shard, until);
    }
}
