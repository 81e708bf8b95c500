//! Disks that lose what was promised.

use crate::cluster::Cluster;
use crate::faults::disks;

/// A disk loses something that was promised, sometimes. With R replicas the store survives R - 1 of these, if they come when all is well.
pub fn strike(cluster: &mut Cluster) -> bool {
    if !cluster.scenario.crashes
        || !cluster.survives_damage()
        || cluster.streams.of("damage").chance(700)
    {
        return false;
    }
    cluster.damages += 1;
    let server = cluster.streams.of("damage").below(cluster.servers.len());
    match cluster.streams.of("damage").below(3) {
        0 => {
            cluster.crash_server(server);
            cluster.coverage.hit("disks lost");
            cluster.servers[server].disks.clear();
        }
        1 => {
            cluster.lose_power(server);
        }
        _ => disks::rot(cluster, server),
    }
    true
}
