//! Times at which no datagram gets through, while byte streams do.

use crate::cluster::{Cluster, client_host, server_host};
use crate::faults::independent::Fault;
use crate::net::network::Host;
use crate::random::{Random, Streams};
use crate::scenario::{MICRO, MILLI, SECOND, Scenario};

/// Who gets no datagrams through, and when.
#[derive(Debug)]
pub struct DeadWays {
    random: Random,
    /// Between two times, on average; 0: that never happens.
    interval: u64,
    /// So often at most.
    left: u64,
}

impl DeadWays {
    pub fn draw(streams: &mut Streams, scenario: &Scenario) -> DeadWays {
        let (interval, left) = scenario
            .fast
            .map_or((0, 0), |it| (it.fault_interval, it.faults));
        DeadWays {
            random: streams.of("dead ways").fork(),
            interval,
            left,
        }
    }
}

impl Fault for DeadWays {
    fn next(&mut self) -> Option<u64> {
        if self.interval == 0 || self.left == 0 {
            return None;
        }
        self.left -= 1;
        Some(self.random.between(MICRO, 2 * self.interval))
    }

    /// For a while no datagram gets from one host to another, or to any; byte streams do.
    fn strike(&mut self, cluster: &mut Cluster) {
        let (servers, clients) = (cluster.servers.len(), cluster.clients.len());
        let host = |at: usize| match at < servers {
            true => server_host(at),
            false => client_host(at - servers),
        };
        let Some(datagrams) = &mut cluster.datagrams else {
            return;
        };
        let random = &mut self.random;
        let one = host(random.below(servers + clients));
        let others: Vec<Host> = match random.chance(400) {
            true => (0..servers + clients).map(host).collect(),
            false => vec![host(random.below(servers + clients))],
        };
        // Of both protocols, or of one: then there may be another that is faster than TCP.
        let kinds = *random.pick(&[&[0, 1][..], &[0], &[1]]);
        let is_both_ways = random.chance(600);
        let most = *random.pick(&[50 * MILLI, SECOND, 3 * SECOND, 8 * SECOND]);
        let until = cluster.now + random.between(MILLI, most);
        for &kind in kinds {
            for &other in &others {
                datagrams.kill(kind, one, other, until);
                if is_both_ways {
                    datagrams.kill(kind, other, one, until);
                }
            }
        }
        cluster.coverage.hit(match is_both_ways {
            true => "datagrams that got nowhere",
            false => "datagrams that got nowhere in one direction",
        });
        cluster.note_fault(one, "has dead ways, so many", others.len() as u64);
    }
}
