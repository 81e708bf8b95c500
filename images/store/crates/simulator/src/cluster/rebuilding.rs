//! Everything is lost but disks, and the store is made again from these.

use wire::member::ToShard;
use wire::member::coordinator::Kind;

use crate::cluster::hosts::coordinator_host;
use crate::cluster::{COORDINATOR, Cluster};

impl Cluster {
    /// So many members have a checkpoint that is current.
    pub fn kept_by(&self) -> Option<usize> {
        let (process, core) = self.leading()?;
        let is_deposed = self.api.as_ref().is_some_and(|api| !api.is_led_by(core));
        let now = self.clock(coordinator_host(process));
        let checkpoint = core.cluster_status(now).checkpoint;
        let checkpoint = checkpoint.filter(|it| it.is_current && !is_deposed)?;
        Some(checkpoint.members_wanted as usize)
    }

    pub fn lost_disks(&mut self) -> usize {
        let servers = 0..self.servers.len();
        servers
            .filter(|&server| self.has_empty_disk(server))
            .count()
    }

    /// Every process dies, and what the coordinators have noted is lost.
    pub fn lose_all_but_disks(&mut self) {
        self.note_fault(COORDINATOR, "and all others lose everything but disks", 0);
        self.crash_many(1000);
        for process in 0..self.coordinators.len() {
            self.crash_coordinator(process);
        }
        self.noted.clear();
        self.noted_count = 0;
        let incarnations = self.coordinators.iter().map(|it| it.incarnation);
        if let Some(api) = &mut self.api {
            api.lose_everything(incarnations.collect());
        }
        self.is_rebuilding = true;
        self.boundaries.forget();
    }

    /// Who makes the store again may have done so now.
    pub fn note_rebuilt(&mut self, process: usize) {
        if let Some(node) = &mut self.coordinators[process].node
            && let Some(state) = node.state()
            && state.is_rebuilding() != node.is_rebuilding
        {
            node.is_rebuilding = state.is_rebuilding();
            node.pass_over_tables();
        }
    }

    /// Nobody serves before the store that was made again is noted, and nobody is let in.
    pub fn note_made_again(&mut self, process: usize, message: &ToShard) {
        if !self.is_rebuilding || !matches!(message.kind, Some(Kind::Welcome(_))) {
            return;
        }
        let node = self.coordinators[process].node.as_ref();
        let Some(version_floor) = node.and_then(|node| Some(node.state()?.version_floor())) else {
            return;
        };
        self.is_rebuilding = false;
        self.boundaries.forget();
        self.coverage.hit(match self.scenario.fail_over {
            None => "stores made again from disks",
            Some(_) => "stores of several coordinators made again from disks",
        });
        let host = coordinator_host(process);
        self.note_fault(host, "has made the store again, number", self.stores);
        self.history.rebuild(self.now, version_floor);
    }
}
