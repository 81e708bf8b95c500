//! Stores of which everything is lost but disks.

use crate::cluster::Cluster;
use crate::cluster::put_back::PutBack;
use crate::faults::lateness::is_late;
use crate::random::Streams;
use crate::scenario::Scenario;
use crate::scenario::profile::Profile;

#[derive(Clone, Copy, Debug)]
pub struct StateLoss {
    pub happens: bool,
}

impl StateLoss {
    /// Whether everything was lost but disks.
    pub fn strike(self, cluster: &mut Cluster) -> bool {
        if !self.happens
            || !cluster.streams.of("losses of state").chance(250)
            || !has_checkpoint(cluster)
        {
            return false;
        }
        cluster.lose_all_but_disks();
        true
    }
}

/// What the disks have of the coordinator's state is all that anybody relies on, and not too many of them were lost. (docs/rebuild.md says when
/// it is not enough.)
fn has_checkpoint(cluster: &mut Cluster) -> bool {
    let kept_by = cluster.kept_by();
    // What was written while a member was away may be on the damaged disk alone.
    let is_on_good_disks = cluster.damages == 0 || cluster.is_safe();
    is_on_good_disks && kept_by.is_some_and(|members| cluster.lost_disks() < members)
}

/// In every seed that is about that, and in half of those with several coordinators; in some of the others an older state is put back.
pub fn draw(
    seed: u64,
    streams: &mut Streams,
    profile: Profile,
    scenario: &Scenario,
) -> (StateLoss, PutBack) {
    let mut random = streams.of("lost or older state").fork();
    let is_led = scenario.fail_over.is_some() && profile != Profile::Upgrade;
    let happens = scenario.rebuilds || is_led && random.chance(400);
    let is_put_back = is_led && !happens && random.chance(700) && !is_late(seed);
    let put_back = match is_put_back {
        true => PutBack::with(random),
        false => PutBack::default(),
    };
    (StateLoss { happens }, put_back)
}
