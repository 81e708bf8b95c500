//! Who is in the store: members (named places), the processes that fill them, and their shards (servers on the wire).
//!
//! An incarnation is one process, named by (instance, process number). A process that was seen and then replaced, or whose
//! member was removed, is never let in again; a process that nobody knows is the member's next incarnation, and proves
//! that the one before it is dead, unless that one is connected.

mod admission;
mod audit;
mod durable;
mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::ids::ServerId;
use wire::format::Formats;
use wire::member::{OpenFloor, ToShard, coordinator};

use crate::config::Limits;
use crate::effects::CoordinatorEffects;
use crate::journaled::Journaled;
use crate::reports::MemberEvent;

pub use admission::{Death, NotAdmitted, check_hello, formats_of};
pub use server::{MemberSession, Server};

/// Highest generation: the version counter of an incarnation starts at `generation << 40`.
const MAX_GENERATION: u32 = (1 << 24) - 1;
/// Former processes of a member that are remembered one by one.
const MAX_PAST_PROCESSES: usize = 64;
/// A process: what the member's owner calls it, and its own random number.
pub type Process = (String, u64);

#[derive(Debug)]
pub struct Member {
    pub process: Process,
    pub host_id: String,
    pub build_version: String,
    /// What that build reads.
    pub formats: Formats,
    /// Server indexes by shard index. Only the first `shard_count` are of the present process.
    servers: Vec<u32>,
    shard_count: usize,
    pub incarnations: u64,
    /// `process` is dead, and no other has come yet.
    pub is_dead: bool,
    /// It is to leave the store: it gets no tablets, and what it has goes elsewhere. Holds for its processes to come, too.
    pub is_draining: bool,
    /// Though it is to leave it gets copies where the others are too few. Not any more once nobody seems to need it.
    pub is_last_resort: bool,
    past: VecDeque<Process>,
}

impl Member {
    /// Indexes of the present process's servers, by shard.
    pub fn servers(&self) -> &[u32] {
        &self.servers[..self.shard_count]
    }
}

#[derive(Debug)]
pub struct Members {
    members: Journaled<String, Member>,
    servers: BTreeMap<u32, Server>,
    connections: BTreeMap<u64, u32>,
    /// (member, instance) pairs that are refused for ever.
    removed: Journaled<(String, String), ()>,
    last_index: u32,
    /// Processes that were let in or removed so far.
    changes: u64,
    /// Servers of which something durable has changed since that was last asked for. Most of what is known of them is not.
    changed_servers: BTreeSet<u32>,
    limits: Limits,
}

impl Members {
    pub fn new(limits: Limits) -> Members {
        Members {
            members: Journaled::default(),
            servers: BTreeMap::new(),
            connections: BTreeMap::new(),
            removed: Journaled::default(),
            last_index: 0,
            changes: 0,
            changed_servers: BTreeSet::new(),
            limits,
        }
    }

    /// Grows whenever a process is let in for the first time or a member is removed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn get(&self, name: &str) -> Option<&Member> {
        self.members.get(name)
    }
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Member)> {
        self.members.iter()
    }
    pub fn server(&self, index: u32) -> Option<&Server> {
        self.servers.get(&index)
    }
    pub fn server_mut(&mut self, index: u32) -> Option<&mut Server> {
        self.servers.get_mut(&index)
    }
    /// Every server of a process that has enlisted.
    pub fn enlisted(&self) -> impl Iterator<Item = (&Server, &Member)> {
        let enlisted = self.servers.values().filter(|server| server.has_enlisted());
        enlisted.filter_map(|server| Some((server, self.members.get(&server.member)?)))
    }
    pub fn server_of(&self, connection: u64) -> Option<u32> {
        self.connections.get(&connection).copied()
    }

    /// Every server, whether its process lives or not.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.values()
    }

    /// Backups that have opened their storage and are connected: server and connection.
    pub fn linked_backups(&self) -> impl Iterator<Item = (ServerId, u64)> {
        let with_backup = self
            .servers
            .values()
            .filter(|server| server.backup.is_some());
        with_backup.filter_map(|server| Some((server.id, server.link.as_ref()?.connection)))
    }

    /// Member and shard of each backup that the store had, and of each member that was dead: it may have come back with its volume since, and have a
    /// newer checkpoint for which others had no room.
    pub fn places_of_backups(&self) -> Vec<(String, u32)> {
        let mut places = Vec::new();
        for (name, member) in self.members.iter() {
            for (shard, index) in (0..).zip(member.servers()) {
                let server = self.servers.get(index);
                let has_backup = server.is_some_and(|server| !server.backup_locator.is_empty());
                if has_backup || member.is_dead {
                    places.push((name.clone(), shard));
                }
            }
        }
        places
    }

    /// For people: members whose backups may have what is missed, since they are away, or have not opened their storage yet.
    pub fn who_is_away(&self) -> String {
        const NAMED: usize = 16;
        let name = |what: &str, is_meant: &dyn Fn(&Member) -> bool| {
            let members = self.members.iter();
            let meant: Vec<&str> = members
                .filter(|(_, member)| is_meant(member))
                .map(|(name, _)| name.as_str())
                .collect();
            let named = meant[..meant.len().min(NAMED)].join(", ");
            (!meant.is_empty()).then(|| format!("{what} ({}): {named}", meant.len()))
        };
        let is_up = |member: &Member| self.is_up(member.servers());
        let is_opening = |index: &u32| {
            let server = self.servers.get(index);
            server.is_some_and(|one| one.backup.is_none() && !one.backup_locator.is_empty())
        };
        let away = name("members that are not connected", &|member| !is_up(member));
        let opening = name(
            "members whose backups have not opened their storage yet",
            &|member| is_up(member) && member.servers().iter().any(is_opening),
        );
        match (away, opening) {
            (None, None) => "all members are connected".to_owned(),
            (Some(one), None) | (None, Some(one)) => one,
            (Some(away), Some(opening)) => format!("{away}; {opening}"),
        }
    }

    /// A master has given a replica of its head up, or has its first head.
    pub fn raise_open_floor(
        &mut self,
        index: u32,
        floor: OpenFloor,
        out: &mut impl CoordinatorEffects,
    ) {
        let Some(server) = self.servers.get_mut(&index) else {
            return;
        };
        if server.open_floor > Some(floor.segment_id) {
            out.report(MemberEvent::LowerFloor { server: server.id }.into());
        }
        let raised = server.open_floor.max(Some(floor.segment_id));
        server.open_floor = raised;
        let connection = server.link.as_ref().map(|link| link.connection);
        self.server_changed(index);
        let raised = OpenFloor {
            segment_id: raised.unwrap_or(floor.segment_id),
        };
        if let Some(connection) = connection {
            let message = ToShard::from(coordinator::Kind::OpenFloorRaised(raised));
            out.send_member(connection, message);
        }
    }

    /// A server says how many copies its log has from now on; `None`: it does not.
    pub fn note_replicas(&mut self, index: u32, replicas: Option<u32>) {
        let server = self.servers.get_mut(&index);
        if let (Some(server), Some(replicas)) = (server, replicas)
            && server.replicas != replicas
        {
            server.replicas = replicas;
            self.server_changed(index);
        }
    }

    /// Every shard that is connected, in order of its index.
    pub fn linked(&mut self) -> impl Iterator<Item = (u32, &ServerId, &mut MemberSession)> {
        self.servers.iter_mut().filter_map(|(&index, server)| {
            let Server { id, link, .. } = server;
            link.as_mut().map(|link| (index, &*id, link))
        })
    }

    /// All connections are gone.
    pub fn disconnect_all(&mut self) {
        self.connections.clear();
        for server in self.servers.values_mut() {
            server.disconnect();
        }
    }

    /// A connection is gone. Returns it if it was a shard's.
    pub fn disconnect(&mut self, connection: u64) -> Option<MemberSession> {
        let index = self.connections.remove(&connection)?;
        self.servers.get_mut(&index)?.disconnect()
    }

    /// Whether this server's member is to leave the store.
    pub fn is_draining(&self, index: u32) -> bool {
        let server = self.servers.get(&index);
        let member = server.and_then(|server| self.members.get(&server.member));
        member.is_some_and(|member| member.is_draining)
    }

    /// A member is to leave the store, or is not any more. Answers whether that is news.
    pub fn set_draining(&mut self, name: &str, is_draining: bool) -> bool {
        let member = self.members.get(name);
        let is_news = member.is_some_and(|member| member.is_draining != is_draining);
        if is_news && let Some(member) = self.members.get_mut(name) {
            member.is_draining = is_draining;
            member.is_last_resort = is_draining;
        }
        is_news
    }

    /// A member gets no copies from now on, whatever happens.
    pub fn end_last_resort(&mut self, name: &str) {
        if let Some(member) = self.members.get_mut(name) {
            member.is_last_resort = false;
        }
    }

    /// Members that are to leave and may get copies still.
    pub fn last_resorts(&self) -> Vec<String> {
        let members = self.members.iter();
        let open = members.filter(|(_, member)| member.is_last_resort);
        open.map(|(name, _)| name.clone()).collect()
    }

    /// Members that take tablets and have every shard connected: each one's server indexes, in order of the first.
    pub fn up(&self) -> Vec<&[u32]> {
        let takes_tablets = |index: &u32| !self.servers[index].backup_only;
        let mut up: Vec<&[u32]> = self
            .members
            .values()
            .filter(|member| !member.is_draining)
            .map(Member::servers)
            .filter(|servers| self.is_up(servers) && servers.iter().all(takes_tablets))
            .collect();
        up.sort_unstable_by_key(|servers| servers[0]);
        up
    }

    /// Whether a shard of the member's present process is connected.
    fn is_connected(&self, member: &Member) -> bool {
        let mut servers = member.servers().iter();
        servers.any(|index| self.servers[index].is_connected())
    }

    /// Whether all of these shards are connected.
    pub fn is_up(&self, servers: &[u32]) -> bool {
        servers
            .iter()
            .all(|index| self.servers[index].is_connected())
    }

    /// Whether one more member can be removed.
    pub fn can_remember_removal(&self) -> bool {
        self.removed.len() + MAX_PAST_PROCESSES + 1 < self.limits.max_removed
    }

    /// Forgets a member, and refuses its instances from now on; also `instance`, unless that is empty. Returns the connections
    /// that it had.
    pub fn remove(&mut self, name: &str, instance: &str) -> Vec<MemberSession> {
        if !instance.is_empty() {
            self.refuse_for_ever(name, instance.to_owned());
        }
        let Some(member) = self.members.remove(name) else {
            return Vec::new();
        };
        self.changes += 1;
        for (instance, _) in member.past.into_iter().chain([member.process]) {
            self.refuse_for_ever(name, instance);
        }
        let mut ended = Vec::new();
        for index in member.servers {
            self.server_changed(index);
            if let Some(link) = self.servers.remove(&index).and_then(|server| server.link) {
                self.connections.remove(&link.connection);
                ended.push(link);
            }
        }
        ended
    }

    fn refuse_for_ever(&mut self, name: &str, instance: String) {
        self.removed.insert((name.to_owned(), instance), ());
    }
}
