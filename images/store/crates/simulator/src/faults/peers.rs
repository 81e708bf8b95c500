//! What goes wrong between masters and backups.

use crate::cluster::{Cluster, server_host};
use crate::event::{Event, Party};

/// A connection between a master and a backup stalls, or breaks.
pub fn trouble(cluster: &mut Cluster, after: u64) {
    let sides = cluster.sides_of(|party| matches!(party, Party::ShardPeer { .. }));
    if sides.is_empty() {
        return;
    }
    let random = cluster.streams.of("troubles between masters and backups");
    let (connection, direction) = *random.pick(&sides);
    let host = server_host(0);
    if random.chance(300) {
        cluster.note_fault(host, "resets connection", connection);
        return cluster.network.reset(cluster.now, connection);
    }
    cluster.note_fault(host, "stalls connection", connection);
    cluster.network.stall(connection, direction);
    let go_on = Event::GoOn {
        connection,
        direction,
    };
    cluster.schedule_in(after, go_on);
}
