//! A client that is away for longer than its lease lasts.

use crate::cluster::{Cluster, START_OF_LOAD, client_host};
use crate::event::Turn;
use crate::event::{Event, Phase};
use crate::scenario::{MILLI, SECOND};

/// Long absences of client 0 in one run.
const MAX_ABSENCES: u32 = 2;

#[derive(Debug, Default)]
pub struct Absences {
    /// So far.
    count: u32,
}

impl Absences {
    pub fn begin(cluster: &mut Cluster) {
        if cluster.scenario.lease_expires {
            let at = START_OF_LOAD + cluster.streams.of("absences").between(MILLI, 300 * MILLI);
            cluster.schedule_in(at, Event::Turn(Turn::Absence));
        }
    }

    /// Client 0 is away for longer than its lease lasts, and some of its connections do not survive that.
    pub fn turn(&mut self, cluster: &mut Cluster) {
        if cluster.phase != Phase::Load {
            return;
        }
        let host = client_host(0);
        let pause = cluster
            .streams
            .of("absences")
            .between(1000 * SECOND, 2400 * SECOND);
        cluster.note_fault(host, "is away for ns", pause);
        cluster.pause_until(host, cluster.now + pause);
        let connections: Vec<u64> = cluster.clients[0]
            .sessions
            .values()
            .map(|(connection, _)| *connection)
            .collect();
        for connection in connections {
            if cluster.streams.of("absences").chance(700) {
                cluster.network.reset(cluster.now, connection);
            }
        }
        self.count += 1;
        if self.count < MAX_ABSENCES {
            let next = cluster.streams.of("absences").between(MILLI, 2 * SECOND);
            cluster.schedule(cluster.now + pause + next, Event::Turn(Turn::Absence));
        }
    }
}
