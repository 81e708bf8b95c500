//! Whether all is well in a store.

use std::collections::BTreeMap;

use coordinator::Coordinator;
use coordinator::status::{ClusterStatus, Member};
use wire::member::TabletRange;

use crate::cluster::hosts::coordinator_host;
use crate::cluster::server::{ServerNode, ShardNode, frame_count};
use crate::cluster::{Cluster, server_host};
use crate::scenario::SECOND;

impl Cluster {
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
        // A source drops its copy of a moved tablet a moment later.
        let is_over = |ended_ns| ended_ns > 0 && ended_ns + SECOND < status.cluster_time_ns;
        recoveries.all(|recovery| recovery.ended_ns > 0)
            && migrations.all(|migration| is_over(migration.ended_ns))
            && tables.all(is_served)
            && status.members.len() == self.servers.len()
            && status.members.iter().all(is_up)
            && drains_are_over(&status)
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

    /// Whether one disk more may lose something that was promised.
    pub(crate) fn survives_damage(&self) -> bool {
        let replicas = self.scenario.replicated.map_or(0, |it| it.replicas);
        self.damages + 1 < u32::from(replicas) && self.is_safe()
    }

    /// Whether everything has as many replicas as it should, and no more is needed than what lives.
    pub fn is_safe(&self) -> bool {
        let is_short = |shard: &ShardNode| {
            let report = shard.core.shard().replication_report();
            report.is_none_or(|report| report.segments_short > 0 || report.waiting_bytes > 0)
                || shard.core.backup().is_none()
                || !shard.core.shard().is_enlisted()
        };
        let mut shards = self.servers.iter().flat_map(|server| &server.shards);
        self.is_whole() && !shards.any(is_short)
    }

    /// A new master waits for its first floor, whatever its backups do.
    pub fn all_serve(&self) -> bool {
        let mut servers = self.servers.iter().enumerate();
        servers.all(|(server, node)| {
            let now = self.clock(server_host(server));
            let mut shards = node.shards.iter();
            shards.all(|shard| shard.core.shard().is_serving(now))
        })
    }

    /// Of several coordinators the one that is asked, if there is one.
    pub fn leading_process(&self) -> Option<usize> {
        let (process, _) = self.scenario.fail_over.and_then(|_| self.leading())?;
        Some(process)
    }

    /// As the coordinator shows them.
    pub fn known_members(&self) -> Vec<Member> {
        self.leading().map_or_else(Vec::new, |(process, core)| {
            let now = self.clock(coordinator_host(process));
            core.cluster_status(now).members
        })
    }

    /// How often so much was appended to each server's backups as these have room for; the least.
    pub fn overwritten(&self) -> f64 {
        let Some(replicated) = &self.scenario.replicated else {
            return 0.0;
        };
        let frames = frame_count(&self.scenario, replicated) * self.scenario.shards;
        let room = f64::from(frames) * f64::from(self.scenario.segment_bytes);
        let servers = self.servers.iter();
        servers
            .map(|server| server.appended_bytes() as f64 / room)
            .fold(f64::INFINITY, f64::min)
    }
}

/// Whether nobody needs anything any more that those have who are to leave.
fn drains_are_over(status: &ClusterStatus) -> bool {
    let mut draining = status
        .members
        .iter()
        .filter_map(|one| one.draining.as_ref());
    draining.all(|draining| draining.is_drained)
}
