//! Watches how much room logs have for live data: what segments cost that were closed before they were full must come back, and soon. docs/cleaner.md,
//! "Unused ends", says what is promised.

use std::collections::BTreeMap;

use master::Room;

use crate::cluster::{Cluster, server_host};
use crate::scenario::SECOND;

/// The cleaner has so long from the last segment that was closed early, and from the last thing that kept it from working.
const MAX_WAIT: u64 = 10 * SECOND;
/// What live data may take then, of what it may take in a log in which nothing is.
const MIN_ROOM_PERCENT: u64 = 90;
/// Keys, headers, a tombstone and a result, which are appended together with a value: never more than this.
const APPENDED_WITH_VALUE: u64 = 1000;

/// What is known of each shard, by server and number.
#[derive(Debug, Default)]
pub struct Rooms(BTreeMap<(usize, usize), Watched>);

#[derive(Debug)]
struct Watched {
    /// Process, log of that process, and segments of it that were closed early so far.
    closings: (u64, u64, u64),
    /// Since then the cleaner has been free to bring back more than may be missing, and has not.
    could_since: u64,
    /// Since then more than may be missing is missing, in a store in which all is well.
    should_since: u64,
}

/// More than so much must not be missing.
fn max_missing(room: &Room) -> u64 {
    room.fresh_bytes * (100 - MIN_ROOM_PERCENT) / 100
}

impl Rooms {
    /// Looks at all logs.
    pub fn look(&mut self, cluster: &mut Cluster) {
        for server in 0..cluster.servers.len() {
            for shard in 0..cluster.servers[server].shards.len() {
                if let Err(text) = self.look_at_room(cluster, server, shard) {
                    let name = &cluster.servers[server].name;
                    let text = format!("shard {shard} of {name} has too little room: {text}");
                    return cluster.fail(text);
                }
            }
        }
    }

    fn look_at_room(
        &mut self,
        cluster: &mut Cluster,
        server: usize,
        shard: usize,
    ) -> Result<(), String> {
        let is_paused = cluster.machines[&server_host(server)].paused_until > cluster.now;
        let node = &cluster.servers[server];
        let core = node.shards[shard].core.shard();
        let room = core.room();
        let closings = (
            node.incarnation,
            node.shards[shard].epoch,
            room.closed_early,
        );
        // What packing costs depends on what is written: less than one append in each segment.
        let append = cluster.scenario.max_value_bytes + APPENDED_WITH_VALUE + room.digest_bytes;
        if room.full_end_bytes > u64::from(cluster.scenario.segments) * append {
            let text = format!("appends of at most {append} bytes leave this unused: {room:?}");
            return Err(text);
        }
        let is_short = room.early_end_bytes > max_missing(&room);
        if is_short {
            cluster
                .coverage
                .hit("logs with too little room, for a moment");
        }
        // Replicas that are missing are closed once they are there, and a migration reads what is pinned.
        let is_well = || {
            let report = core.replication_report();
            let is_short = report.is_some_and(|it| it.segments_short > 0 || it.waiting_bytes > 0);
            !is_short && cluster.is_whole()
        };
        let should = is_short && !is_paused && is_well();
        let could = room.reclaimable_bytes > max_missing(&room) && !is_paused;
        let now = cluster.now;
        let fresh = Watched {
            closings,
            could_since: now,
            should_since: now,
        };
        let watched = self.0.entry((server, shard)).or_insert(fresh);
        let is_same = std::mem::replace(&mut watched.closings, closings) == closings;
        if !is_same || !could {
            watched.could_since = now;
        }
        if !is_same || !should {
            watched.should_since = now;
        }
        if now - watched.could_since.min(watched.should_since) < MAX_WAIT {
            return Ok(());
        }
        Err(format!(
            "{} s after the last segment was closed early: {room:?}",
            MAX_WAIT / SECOND
        ))
    }
}

/// A run does not end before it is known that the room of all logs has come back; [`Rooms::look`] knows when that takes too long.
pub fn are_back(cluster: &Cluster) -> bool {
    let mut shards = cluster.servers.iter().flat_map(|server| &server.shards);
    shards.all(|shard| {
        let room = shard.core.shard().room();
        room.early_end_bytes <= max_missing(&room)
    })
}
