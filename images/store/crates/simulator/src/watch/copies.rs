//! Watches that a master which says that its log has all of its copies has as many as the specification asks for: on disks, whatever anybody says.

use std::collections::BTreeMap;

use base::ids::ServerId;

use crate::cluster::server::ServerNode;
use crate::cluster::{Cluster, server_host};
use crate::scenario::SECOND;

/// Whoever was told of another number, has lost a copy, or begins a segment says so, or has its copies, after this time.
const MAX_WAIT: u64 = 5 * SECOND;

/// Since when each log, by its server and shard, has fewer copies than asked for and its master does not say so.
#[derive(Debug, Default)]
pub struct Copies {
    short: BTreeMap<(usize, usize), (ServerId, u64)>,
    /// Settings that were accepted when it was looked last.
    settings: u64,
    /// What coordinators have noted may be lost.
    is_state_lost: bool,
}

/// Of the log's newest segment that has any.
fn copies_of(servers: &[ServerNode], log: ServerId) -> usize {
    let shards = servers.iter().flat_map(|server| &server.shards);
    let backups = shards.filter_map(|shard| shard.core.backup());
    let newest = backups.map(|backup| backup.segments(log).last().unwrap_or(0));
    let newest: Vec<u64> = newest.collect();
    let most = newest.iter().copied().max().unwrap_or(0);
    newest.iter().filter(|&&id| id == most && id > 0).count()
}

impl Copies {
    pub fn new(is_state_lost: bool) -> Copies {
        Copies {
            is_state_lost,
            ..Copies::default()
        }
    }

    /// Looks at all logs.
    pub fn look(&mut self, cluster: &mut Cluster) {
        let Some(asked) = self.asked_for(cluster) else {
            return;
        };
        // Another number is asked for.
        if std::mem::replace(&mut self.settings, cluster.asked.settings) != cluster.asked.settings {
            self.short.clear();
        }
        for server in 0..cluster.servers.len() {
            for shard in 0..cluster.servers[server].shards.len() {
                self.look_at(cluster, server, shard, asked);
            }
        }
    }

    /// How many copies the last order that was accepted asks for. `None`: nobody can say, because coordinators forget, or are several.
    fn asked_for(&self, cluster: &Cluster) -> Option<u32> {
        let replicated = cluster.scenario.replicated?;
        let forgets =
            cluster.scenario.coordinator_crashes && !cluster.scenario.coordinator_keeps_state;
        let is_known = !forgets && cluster.scenario.fail_over.is_none() && !self.is_state_lost;
        let started_with = u32::from(replicated.replicas);
        is_known.then(|| cluster.asked.copies.unwrap_or(started_with))
    }

    fn look_at(&mut self, cluster: &mut Cluster, server: usize, shard: usize, asked: u32) {
        let node = &cluster.servers[server].shards[shard];
        let core = node.core.shard();
        let log = core.server_id();
        let is_told = node.link.as_ref().is_some_and(|link| link.is_welcomed);
        let report = core.replication_report();
        let claims_all = report.is_some_and(|it| it.segments_short == 0 && it.waiting_bytes == 0);
        // A process that gets no processor notices nothing.
        let is_paused = cluster.machines[&server_host(server)].paused_until > cluster.now;
        let is_judged =
            is_told && claims_all && core.is_enlisted() && !core.is_deposed() && !is_paused;
        let copies = copies_of(&cluster.servers, log);
        if !is_judged || copies == 0 || copies >= asked as usize {
            if is_judged && copies > 0 {
                cluster
                    .coverage
                    .hit("looks at logs that had all of their copies");
            }
            self.short.remove(&(server, shard));
            return;
        }
        let first = (log, cluster.now);
        let (of, since) = *self.short.entry((server, shard)).or_insert(first);
        if of != log {
            self.short.insert((server, shard), first);
        } else if cluster.now - since >= MAX_WAIT {
            let name = &cluster.servers[server].name;
            cluster.fail(format!(
                "shard {shard} of {name} says that its log has all of its copies, and the newest segment has {copies}, where {asked} are asked for"
            ));
        }
    }
}
