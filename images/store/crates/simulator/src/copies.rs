//! Watches that a master which says that its log has all of its copies has as many as the specification asks for: on disks, whatever anybody says.

use std::collections::BTreeMap;

use wire::ids::ServerId;

use crate::scenario::SECOND;
use crate::server::ServerNode;
use crate::world::{World, server_host};

/// Whoever was told of another number, has lost a copy, or begins a segment says so, or has its copies, after this time.
const MAX_WAIT: u64 = 5 * SECOND;

/// Since when each log, by its server and shard, has fewer copies than asked for and its master does not say so.
#[derive(Debug, Default)]
pub struct Copies(BTreeMap<(usize, usize), (ServerId, u64)>);

impl Copies {
    /// Another number is asked for.
    pub fn begin_anew(&mut self) {
        self.0.clear();
    }
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

impl World {
    /// How many copies the last order that was accepted asks for. `None`: nobody can say, because coordinators forget, or are several.
    fn copies_asked_for(&self) -> Option<u32> {
        let replicated = self.scenario.replicated?;
        let forgets = self.scenario.coordinator_crashes && !self.scenario.coordinator_keeps_state;
        let is_known = !forgets && self.scenario.fail_over.is_none() && !self.disasters.happen();
        let started_with = u32::from(replicated.replicas);
        is_known.then(|| self.tuning.copies.unwrap_or(started_with))
    }

    pub(crate) fn look_at_copies(&mut self) {
        let Some(asked) = self.copies_asked_for() else {
            return;
        };
        for server in 0..self.servers.len() {
            for shard in 0..self.servers[server].shards.len() {
                self.look_at_copies_of(server, shard, asked);
            }
        }
    }

    fn look_at_copies_of(&mut self, server: usize, shard: usize, asked: u32) {
        let node = &self.servers[server].shards[shard];
        let core = node.core.shard();
        let log = core.server_id();
        let is_told = node.link.as_ref().is_some_and(|link| link.is_welcomed);
        let report = core.replication_report();
        let claims_all = report.is_some_and(|it| it.segments_short == 0 && it.waiting_bytes == 0);
        // A process that gets no processor notices nothing.
        let is_paused = self.machines[&server_host(server)].paused_until > self.now;
        let is_judged =
            is_told && claims_all && core.is_enlisted() && !core.is_deposed() && !is_paused;
        let copies = copies_of(&self.servers, log);
        if !is_judged || copies == 0 || copies >= asked as usize {
            if is_judged && copies > 0 {
                self.coverage
                    .hit("looks at logs that had all of their copies");
            }
            self.copies.0.remove(&(server, shard));
            return;
        }
        let first = (log, self.now);
        let (of, since) = *self.copies.0.entry((server, shard)).or_insert(first);
        if of != log {
            self.copies.0.insert((server, shard), first);
        } else if self.now - since >= MAX_WAIT {
            let name = &self.servers[server].name;
            self.fail(format!(
                "shard {shard} of {name} says that its log has all of its copies, and the newest segment has {copies}, where {asked} are asked for"
            ));
        }
    }
}
