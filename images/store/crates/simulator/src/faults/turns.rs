//! When a fault strikes that depends on others.

use crate::cluster::Cluster;
use crate::event::{Event, Phase, Turn};
use crate::random::Random;
use crate::scenario::SECOND;

/// About `interval` from now in the load, and each second afterwards; never if there is none.
pub(super) fn schedule_turn(cluster: &mut Cluster, random: &mut Random, interval: u64, turn: Turn) {
    if interval > 0 {
        let after = match cluster.phase {
            Phase::Load => random.between(interval / 10, 2 * interval),
            _ => SECOND,
        };
        cluster.schedule_in(after, Event::Turn(turn));
    }
}
