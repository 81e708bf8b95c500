//! Strangers that tell the coordinator that servers have crashed, whether they have or not.

use base::ids::{ReplyTo, ServerId};
use wire::rpc::HintServerCrashedRequest;

use crate::cluster::Cluster;
use crate::faults::independent::Fault;
use crate::random::{Random, Streams};
use crate::scenario::{MICRO, MILLI, SECOND};

/// Nobody waits for the answer.
const NOBODY: ReplyTo = ReplyTo {
    connection: u64::MAX,
    nonce: 0,
};

/// How often a hint comes.
#[derive(Debug)]
pub struct Hints {
    random: Random,
    /// Between two hints, on average; 0: there are none.
    interval: u64,
}

impl Hints {
    /// In one of four seeds.
    pub fn draw(streams: &mut Streams) -> Hints {
        let mut random = streams.of("hints").fork();
        let interval = match random.chance(250) {
            true => *random.pick(&[10 * MILLI, 100 * MILLI, SECOND]),
            false => 0,
        };
        Hints { random, interval }
    }
}

impl Fault for Hints {
    fn next(&mut self) -> Option<u64> {
        let most = 2 * self.interval;
        (most > 0).then(|| self.random.between(MICRO, most))
    }

    fn strike(&mut self, cluster: &mut Cluster) {
        let random = &mut self.random;
        // The indexes of servers go on with each that is added; few have more than two generations.
        let index = random.below(4 * cluster.servers.len()) as u32 + 1;
        let server_id = ServerId::new(index, random.below(3) as u32);
        let mut hint = Vec::new();
        HintServerCrashedRequest { server_id }.encode(&mut hint);
        let leading = cluster.leading().map(|(process, _)| process);
        if let Some(process) = leading {
            cluster.coverage.hit("hints that a server has crashed");
            cluster.coordinator_request(process, NOBODY, &hint);
        }
    }
}
