//! Faults that stand alone, and the times at which faults strike.

use crate::cluster::Cluster;
use crate::event::{Event, Phase, Turn};
use crate::random::Random;
use crate::scenario::SECOND;

/// A fault that knows nothing of the others: it strikes now and again while clients use the store.
pub trait Fault {
    /// After how long it strikes, first or again; `None`: not any more.
    fn next(&mut self) -> Option<u64>;

    fn strike(&mut self, cluster: &mut Cluster);
}

/// Faults that know nothing of each other, each with its turns.
#[derive(Default)]
pub struct Faults(Vec<Box<dyn Fault>>);

impl Faults {
    pub fn new(faults: Vec<Box<dyn Fault>>) -> Faults {
        Faults(faults)
    }

    pub fn plan(&mut self, cluster: &mut Cluster) {
        for (number, fault) in self.0.iter_mut().enumerate() {
            if let Some(after) = fault.next() {
                cluster.schedule_in(after, Event::Turn(Turn::Alone(number)));
            }
        }
    }

    pub fn turn(&mut self, number: usize, cluster: &mut Cluster) {
        if cluster.phase != Phase::Load {
            return;
        }
        let fault = &mut self.0[number];
        if let Some(after) = fault.next() {
            cluster.schedule_in(after, Event::Turn(Turn::Alone(number)));
        }
        if !cluster.is_only_late {
            fault.strike(cluster);
        }
    }
}

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
