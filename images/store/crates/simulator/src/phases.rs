//! When the load ends, when faults do, and when a run is over: at the end every operation is complete, every shard is in the store, and every log has its
//! room.

use std::collections::BTreeMap;

use coordinator::Coordinator;
use wire::member::TabletRange;

use crate::client::ClientNode;
use crate::drains;
use crate::leaders::coordinator_host;
use crate::run::OVERWRITES;
use crate::scenario::SECOND;
use crate::server::ServerNode;
use crate::world::{Phase, World, server_host};

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
        let for_now = self.now - self.phase_began;
        let is_idle = self.clients.iter().all(ClientNode::is_idle);
        let settle = self.scenario.silence_timeout + SETTLE;
        match self.phase {
            Phase::Load => {
                let is_done = self.clients.iter().all(|client| client.remaining == 0)
                    || self.scenario.is_overwriting
                        && self.handled.is_multiple_of(OVERWRITTEN_STEP)
                        && self.overwritten() >= OVERWRITES;
                let max_load = match (self.scenario.lease_expires, self.scenario.is_overwriting) {
                    (true, _) => 6000 * SECOND,
                    (_, true) => 10 * MAX_LOAD,
                    _ if self.scenario.is_quiet => MAX_QUIET_LOAD,
                    _ => MAX_LOAD,
                };
                if is_done || for_now > max_load {
                    self.enter(Phase::Drain);
                    self.end_faults();
                }
            }
            // A while for copies of requests that nobody waits for any more.
            Phase::Drain
                if is_idle
                    && for_now > settle
                    && self.is_whole()
                    && self.still_over_streams().is_none() =>
            {
                self.enter(Phase::FinalReads);
                self.first_final_read = self.history.records.len();
                self.read_everything();
            }
            Phase::FinalReads if is_idle && self.rooms_are_back() && self.is_whole() => {
                self.enter(Phase::Over);
            }
            Phase::Drain | Phase::FinalReads if for_now > MAX_DRAIN + settle => {
                let text = self.what_hangs();
                self.fail(text);
            }
            _ => {}
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.phase_began = self.now;
        self.trace.event(
            self.now,
            || "run".to_owned(),
            "phase",
            &[phase as u64],
            &[],
            || format!("{phase:?}"),
        );
    }

    /// Every process runs, and every shard is in the present store and knows it.
    pub fn is_whole(&self) -> bool {
        let Some((process, coordinator)) = self.leading() else {
            return false;
        };
        let status = coordinator.cluster_status(self.clock(coordinator_host(process)));
        let is_up = |member: &coordinator::status::Member| {
            member.state == coordinator::status::MemberState::Up
        };
        let is_in = |server: &ServerNode| {
            server.is_up
                && server
                    .shards
                    .iter()
                    .all(|shard| shard.core.hello().cluster_id == status.cluster_id)
        };
        let mut tables = coordinator.tables(0, u32::MAX).tables.into_iter();
        let is_served = |table: coordinator::status::Table| {
            let mut tablets = table.tablets.iter();
            tablets.all(|tablet| tablet.state == coordinator::status::TabletState::Normal)
        };
        let mut recoveries = status.recoveries.iter();
        let mut migrations = status.migrations.iter();
        // What a tablet leaves behind at its source goes a moment later.
        let is_over = |ended_ns| ended_ns > 0 && ended_ns + SECOND < status.cluster_time_ns;
        recoveries.all(|recovery| recovery.ended_ns > 0)
            && migrations.all(|migration| is_over(migration.ended_ns))
            && tables.all(is_served)
            && status.members.len() == self.servers.len()
            && status.members.iter().all(is_up)
            && drains::are_over(&status)
            && self.servers.iter().all(is_in)
            && self.tablets_agree(coordinator)
    }

    /// Every shard owns exactly the tablets that the coordinator counts as its own, whatever was cut, moved and made one again.
    fn tablets_agree(&self, coordinator: &Coordinator) -> bool {
        let mut named: BTreeMap<u64, Vec<TabletRange>> = BTreeMap::new();
        for table in coordinator.tables(0, u32::MAX).tables {
            for tablet in table.tablets {
                let range = TabletRange {
                    table_id: table.table_id,
                    start_key_hash: tablet.start_key_hash,
                    end_key_hash: tablet.end_key_hash,
                };
                named.entry(tablet.server_id).or_default().push(range);
            }
        }
        let mut shards = self.servers.iter().flat_map(|server| &server.shards);
        shards.all(|shard| {
            let shard = shard.core.shard();
            let named = named.get(&shard.server_id().0);
            named.map_or(&[][..], Vec::as_slice) == shard.tablets()
        })
    }

    fn what_hangs(&self) -> String {
        let mut text = format!(
            "not over {} s of simulated time after the last fault",
            (self.now - self.phase_began) / SECOND
        );
        for client in &self.clients {
            for purpose in client.under_way.values() {
                text.push_str(&format!("\n  client {}: {purpose:?}", client.number));
            }
        }
        if !self.is_whole() {
            text.push_str(
                "\n  not every shard is in the store, not every tablet served, or a shard has other tablets than the coordinator says",
            );
        }
        text.extend(self.still_over_streams().map(|who| format!("\n  {who}")));
        for (number, server) in self.servers.iter().enumerate() {
            let now = self.clock(server_host(number));
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
        if let Some((process, coordinator)) = self.leading() {
            let status = coordinator.cluster_status(self.clock(coordinator_host(process)));
            text.push_str(&drains::what_is_left(&status));
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
