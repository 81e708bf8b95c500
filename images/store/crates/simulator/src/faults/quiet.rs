//! Long, quiet lives: few clients overwrite few objects, members are restarted again and again, mostly the same one, backups are late, and operators give
//! orders while members are away. Not what must hold then: `rooms.rs` and `copies.rs` look at that, in all runs.

use crate::cluster::Cluster;
use crate::event::Event;
use crate::event::Turn;
use crate::faults::peers;
use crate::scenario::MILLI;

/// Of a thousand troubles, how many are a backup that is late; the others are restarts.
const LATE_BACKUPS: u64 = 400;
/// Of a thousand restarts, how many are surely of the last member.
const OF_THE_SAME: u64 = 700;
/// Of a thousand restarts, during how many an operator gives orders, if the member is away for that long.
const WITH_ORDERS: u64 = 600;
/// Of a hundred orders, how many are mistaken, and how many drain a member or take one back, where members are drained at all.
pub const MISTAKEN: u64 = 40;
pub const DRAINS: u64 = 20;

pub fn strike(cluster: &mut Cluster) {
    if cluster
        .streams
        .of("kinds of quiet troubles")
        .chance(LATE_BACKUPS)
    {
        let late = cluster.streams.of("late backups in a quiet life");
        let after = late.between(60 * MILLI, 400 * MILLI);
        return peers::trouble(cluster, after);
    }
    let servers = cluster.servers.len();
    let random = cluster.streams.of("restarts in a quiet life");
    let (is_the_same, any) = (random.chance(OF_THE_SAME), random.below(servers));
    let server = if is_the_same { servers - 1 } else { any };
    cluster.coverage.hit("restarts in a quiet life");
    cluster.crash_server(server);
    let orders = cluster.streams.of("whether a member is away during orders");
    if orders.chance(WITH_ORDERS) {
        let after = orders.between(MILLI, 300 * MILLI);
        cluster.schedule_in(after, Event::Turn(Turn::OrderWhileAway(server)));
    }
}
