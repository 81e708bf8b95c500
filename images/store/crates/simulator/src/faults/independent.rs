//! Faults that know nothing of each other.

use crate::cluster::Cluster;
use crate::event::{Event, Phase, Turn};

/// A fault that knows nothing of the others: it strikes now and again while clients use the store.
pub trait Fault {
    /// After how long it strikes, first or again; `None`: not any more.
    fn next(&mut self) -> Option<u64>;

    fn strike(&mut self, cluster: &mut Cluster);
}

/// All of them, each with its turns.
pub struct Independent(pub Vec<Box<dyn Fault>>);

impl Independent {
    pub fn plan(&mut self, cluster: &mut Cluster) {
        for (number, fault) in self.0.iter_mut().enumerate() {
            if let Some(after) = fault.next() {
                cluster.schedule_in(after, Event::Turn(Turn::Independent(number)));
            }
        }
    }

    pub fn turn(&mut self, number: usize, cluster: &mut Cluster) {
        if cluster.phase != Phase::Load {
            return;
        }
        let fault = &mut self.0[number];
        if let Some(after) = fault.next() {
            cluster.schedule_in(after, Event::Turn(Turn::Independent(number)));
        }
        if !cluster.is_only_late {
            fault.strike(cluster);
        }
    }
}
