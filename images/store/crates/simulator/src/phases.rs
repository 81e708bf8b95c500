//! When the load ends, when faults do, and when a run is over: at the end every operation is complete, every shard is in the store, and every log has its
//! room.

use crate::cluster::client::ClientNode;
use crate::cluster::hosts::coordinator_host;
use crate::cluster::server_host;
use crate::event::Phase;
use crate::run::OVERWRITES;
use crate::scenario::SECOND;
use crate::watch::rooms;
use crate::world::World;
use coordinator::status::ClusterStatus;

/// Simulated time after which the load ends, whatever was done of it.
const MAX_LOAD: u64 = 90 * SECOND;
/// The same of a quiet life.
const MAX_QUIET_LOAD: u64 = 200 * SECOND;
/// Simulated time in which everything has to end once faults have stopped. The longest thing there is: a client that was
/// told "no masters in cluster" waits 5 to 10 s.
const MAX_DRAIN: u64 = 100 * SECOND;
/// Beyond the silence timeout, the time that passes in any case before the end is looked at: what is still under way in the
/// network arrives, and connections that broke unnoticed are made anew.
const SETTLE: u64 = 5 * SECOND;
/// Events after which it is looked at how much was written.
const OVERWRITTEN_STEP: u64 = 256;

impl World {
    pub(crate) fn change_phase(&mut self) {
        let for_now = self.cluster.now - self.phase_began;
        let is_idle = self.cluster.clients.iter().all(ClientNode::is_idle);
        let settle = self.cluster.scenario.silence_timeout + SETTLE;
        match self.cluster.phase {
            Phase::Load => {
                let is_done = self
                    .cluster
                    .clients
                    .iter()
                    .all(|client| client.remaining == 0)
                    || self.cluster.scenario.is_overwriting
                        && self.handled.is_multiple_of(OVERWRITTEN_STEP)
                        && self.cluster.overwritten() >= OVERWRITES;
                let max_load = match (
                    self.cluster.scenario.lease_expires,
                    self.cluster.scenario.is_overwriting,
                ) {
                    (true, _) => 6000 * SECOND,
                    (_, true) => 10 * MAX_LOAD,
                    _ if self.cluster.scenario.is_quiet => MAX_QUIET_LOAD,
                    _ => MAX_LOAD,
                };
                if is_done || for_now > max_load {
                    self.enter(Phase::Drain);
                    self.cluster.end_faults();
                }
            }
            // A while for copies of requests that nobody waits for any more.
            Phase::Drain
                if is_idle
                    && for_now > settle
                    && self.cluster.is_whole()
                    && self.cluster.still_over_streams().is_none() =>
            {
                self.enter(Phase::FinalReads);
                self.first_final_read = self.cluster.history.records.len();
                self.cluster.read_everything();
            }
            Phase::FinalReads
                if is_idle && rooms::are_back(&self.cluster) && self.cluster.is_whole() =>
            {
                self.enter(Phase::Over);
            }
            Phase::Drain | Phase::FinalReads if for_now > MAX_DRAIN + settle => {
                let text = self.what_hangs();
                self.cluster.fail(text);
            }
            _ => {}
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.cluster.phase = phase;
        self.phase_began = self.cluster.now;
        self.cluster.trace.event(
            self.cluster.now,
            || "run".to_owned(),
            "phase",
            &[phase as u64],
            &[],
            || format!("{phase:?}"),
        );
    }

    fn what_hangs(&self) -> String {
        let mut text = format!(
            "not over {} s of simulated time after the last fault",
            (self.cluster.now - self.phase_began) / SECOND
        );
        for client in &self.cluster.clients {
            for purpose in client.under_way.values() {
                text.push_str(&format!("\n  client {}: {purpose:?}", client.number));
            }
        }
        if !self.cluster.is_whole() {
            text.push_str(
                "\n  not every shard is in the store, not every tablet served, or a shard has other tablets than the coordinator says",
            );
        }
        text.extend(
            self.cluster
                .still_over_streams()
                .map(|who| format!("\n  {who}")),
        );
        for (number, server) in self.cluster.servers.iter().enumerate() {
            let now = self.cluster.clock(server_host(number));
            for shard in &server.shards {
                let core = shard.core.shard();
                text.push_str(&format!(
                    "\n  {} is server {}: serving {}, {:?}",
                    server.name,
                    core.server_id(),
                    core.is_serving(now),
                    core.replication_report()
                ));
            }
        }
        if let Some((process, coordinator)) = self.cluster.leading() {
            let status = coordinator.cluster_status(self.cluster.clock(coordinator_host(process)));
            text.push_str(&drains_that_are_left(&status));
            for recovery in status.recoveries {
                text.push_str(&format!("\n  {recovery:?}"));
            }
            let migrations = status.migrations.iter();
            for migration in migrations.filter(|migration| migration.ended_ns == 0) {
                text.push_str(&format!("\n  {migration:?}"));
            }
        }
        text
    }
}

/// For the text of a failure.
fn drains_that_are_left(status: &ClusterStatus) -> String {
    let members = status.members.iter();
    let draining = members.filter_map(|one| Some((&one.name, one.draining.as_ref()?)));
    let lines = draining.map(|(name, draining)| format!("\n  {name}: {draining:?}"));
    lines.collect()
}
