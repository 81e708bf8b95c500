//! Who is in the store: members (named places), the processes that fill them, and their shards (servers on the wire).
//!
//! An incarnation is one process, named by (instance, process number). A process that was seen and then replaced, or whose
//! member was removed, is never let in again; a process that nobody knows is the member's next incarnation, and proves
//! that the one before it is dead, unless that one is connected.

mod durable;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::format::Formats;
use wire::ids::ServerId;
use wire::locator;
use wire::member::{BackupReport, Hello, Pong, RefusedReason};
use wire::time::Time;

use crate::Limits;
use crate::ports::Told;
use crate::state::records::Key;
use crate::upgrade::formats_of;

/// Highest generation: the version counter of an incarnation starts at `generation << 40`.
const MAX_GENERATION: u32 = (1 << 24) - 1;
/// Former processes of a member that are remembered one by one.
const MAX_PAST_PROCESSES: usize = 64;
const MAX_TEXT_BYTES: usize = 253;
/// Bounds the size of a table config, which names the locator with every tablet.
const MAX_LOCATOR_BYTES: usize = 256;

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

/// One shard's place. Its index is never given to another; its generation counts the processes that filled it.
#[derive(Debug)]
pub struct Server {
    pub id: ServerId,
    pub member: String,
    shard_index: u32,
    /// For clients; empty until this incarnation has said hello.
    pub locator: String,
    pub link: Option<Link>,
    /// Where its backup listens for masters; empty if it has none.
    pub backup_locator: String,
    /// Where it listens for other servers if it has no backup; empty if its build is older.
    pub peer_locator: String,
    /// What its backup reported last; `None` before it has opened its storage.
    pub backup: Option<BackupReport>,
    pub domain: String,
    /// Replicas that it wants of its log; 0: what it holds dies with it.
    pub replicas: u32,
    /// It takes no tablets.
    pub backup_only: bool,
    /// Open replicas of its log in older heads do not count; `None` before it had a head.
    pub open_floor: Option<u64>,
    pub log_capacity_bytes: u64,
    /// What it reported last, and when.
    pub pong: Pong,
    pub pong_heard: Option<Time>,
    /// When this coordinator heard it last on a connection that is gone.
    last_link_heard: Option<Time>,
    pub ports: Told,
}

impl Server {
    fn new(id: ServerId, member: &str, shard_index: u32) -> Server {
        Server {
            id,
            member: member.to_owned(),
            shard_index,
            locator: String::new(),
            link: None,
            backup_locator: String::new(),
            peer_locator: String::new(),
            backup: None,
            domain: String::new(),
            replicas: 0,
            backup_only: false,
            open_floor: None,
            log_capacity_bytes: 0,
            pong: Pong::default(),
            pong_heard: None,
            last_link_heard: None,
            ports: Told::default(),
        }
    }

    pub fn has_enlisted(&self) -> bool {
        !self.locator.is_empty()
    }

    /// Where other servers read tablets that leave; `None` of an older build that has no backup.
    pub fn reading_locator(&self) -> Option<&str> {
        let both = [&self.backup_locator, &self.peer_locator];
        let mut known = both.into_iter().filter(|locator| !locator.is_empty());
        known.next().map(String::as_str)
    }

    /// It has a backup, which has not said yet what it has.
    pub fn is_opening(&self) -> bool {
        self.link.is_some() && !self.backup_locator.is_empty() && self.backup.is_none()
    }

    /// When this coordinator heard it last; `None`: it knows it from the state only.
    pub fn last_heard(&self) -> Option<Time> {
        let link = self.link.as_ref().map(|link| link.last_heard);
        link.or(self.last_link_heard)
    }

    fn disconnect(&mut self) -> Option<Link> {
        self.last_link_heard = self.last_heard();
        self.link.take()
    }

    /// For people: what the store does when it is dead.
    pub fn what_becomes(&self) -> &'static str {
        match (self.backup_only, self.replicas) {
            (true, _) => "masters make the copies that it kept again at other servers",
            (false, 0) => "what it held is lost",
            (false, _) => "other servers bring back what it held, from copies",
        }
    }

    /// Whether the store goes on without it when it dies: what it holds is elsewhere, too.
    pub fn is_replaceable(&self) -> bool {
        self.replicas > 0 || self.backup_only
    }
}

/// The connection of a shard.
#[derive(Debug)]
pub struct Link {
    pub connection: u64,
    pub last_heard: Time,
    next_sequence: u64,
    /// Sequence number that was given out last when it was told which backups there are.
    told_at: u64,
    /// The build of its process takes settings.
    pub takes_settings: bool,
    /// It makes one tablet of several when it is told to.
    pub merges_tablets: bool,
    /// Orders and controls that were sent and not yet answered: sequence number to the operation that waits.
    pub unanswered: BTreeMap<u64, u64>,
}

impl Link {
    /// A sequence number for the next message.
    pub fn sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }

    /// What is sent now says which backups there are.
    pub fn note_told(&mut self) {
        self.told_at = self.next_sequence;
    }

    /// Whether the answer to a ping with this sequence number takes into account which backups there are.
    pub fn is_up_to_date(&self, sequence: u64) -> bool {
        sequence > self.told_at
    }
}

/// A process that has ended.
#[derive(Debug)]
pub struct Death {
    pub member: String,
    /// What its process said of itself.
    pub instance: String,
    /// Its servers as they were, by shard.
    pub servers: Vec<Server>,
    /// Server indexes of its successor, by shard; a prefix of the dead one's or an extension. Empty if there is none yet.
    pub successors: Vec<u32>,
}

/// A shard that was let in.
#[derive(Debug)]
pub struct Admission {
    pub index: u32,
    pub death: Option<Death>,
    /// An older connection of the same shard, which this one puts an end to.
    pub replaced: Option<Link>,
}

/// Why a shard was not let in.
#[derive(Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    Refused(Refusal),
    /// Its process would take the place of another: it has to show first that it is alive.
    MustShowLife,
}

impl From<Refusal> for NotAdmitted {
    fn from(refusal: Refusal) -> NotAdmitted {
        NotAdmitted::Refused(refusal)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: RefusedReason,
    pub text: String,
}

impl Refusal {
    pub(crate) fn invalid(text: impl Into<String>) -> Refusal {
        Refusal {
            reason: RefusedReason::Invalid,
            text: text.into(),
        }
    }
    fn superseded(text: impl Into<String>) -> Refusal {
        Refusal {
            reason: RefusedReason::Superseded,
            text: text.into(),
        }
    }
}

#[derive(Debug)]
pub struct Members {
    members: BTreeMap<String, Member>,
    servers: BTreeMap<u32, Server>,
    connections: BTreeMap<u64, u32>,
    /// (member, instance) pairs that are refused for ever.
    removed: BTreeSet<(String, String)>,
    last_index: u32,
    /// Processes that were let in or removed so far.
    changes: u64,
    /// Records that have changed since they were last asked for.
    changed: BTreeSet<Key>,
    limits: Limits,
}

impl Members {
    pub fn new(limits: Limits) -> Members {
        Members {
            members: BTreeMap::new(),
            servers: BTreeMap::new(),
            connections: BTreeMap::new(),
            removed: BTreeSet::new(),
            last_index: 0,
            changes: 0,
            changed: BTreeSet::new(),
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

    /// Every shard that is connected, in order of its index.
    pub fn linked(&mut self) -> impl Iterator<Item = (u32, &ServerId, &mut Link)> {
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

    /// Lets a shard in, or says why not. On success the shard's connection is `connection`. `is_alive`: its process has
    /// answered since it sent `hello`.
    pub fn admit(
        &mut self,
        now: Time,
        cluster_id: u64,
        connection: u64,
        hello: &Hello,
        is_alive: bool,
    ) -> Result<Admission, NotAdmitted> {
        check_hello(hello, self.limits.max_shards_per_member)?;
        let process = (hello.instance.clone(), hello.process);
        let held = ServerId(hello.server_id);
        let held = (hello.cluster_id == cluster_id && held.is_valid()).then_some(held);
        let death = self.settle_process(hello, &process, held, is_alive)?;
        let index = self.members[&hello.member].servers[hello.shard_index as usize];
        let link = Link {
            connection,
            last_heard: now,
            next_sequence: 0,
            told_at: 0,
            takes_settings: hello.takes_settings,
            merges_tablets: hello.merges_tablets,
            unanswered: BTreeMap::new(),
        };
        let server = self
            .servers
            .get_mut(&index)
            .expect("every member's servers exist");
        server.locator.clone_from(&hello.locator);
        server.backup_locator.clone_from(&hello.backup_locator);
        server.peer_locator.clone_from(&hello.peer_locator);
        server.domain.clone_from(&hello.domain);
        server.replicas = hello.replicas;
        server.backup_only = hello.backup_only;
        server.log_capacity_bytes = hello.log_capacity_bytes;
        // What it said on another connection says nothing of what it was told on this one.
        server.pong.sequence = 0;
        server.pong.on_draining = None;
        server.pong.settings = 0;
        let replaced = server.link.replace(link);
        if let Some(old) = &replaced {
            self.connections.remove(&old.connection);
        }
        self.connections.insert(connection, index);
        // Also if it says what it said before: a Welcome waits for a commit, and only who leads can commit.
        self.server_changed(index);
        Ok(Admission {
            index,
            death,
            replaced,
        })
    }

    /// Makes the process of `hello` its member's present one, unless it is that already or must not be.
    fn settle_process(
        &mut self,
        hello: &Hello,
        process: &Process,
        held: Option<ServerId>,
        is_alive: bool,
    ) -> Result<Option<Death>, NotAdmitted> {
        let name = &hello.member;
        if self
            .removed
            .contains(&(name.clone(), hello.instance.clone()))
        {
            return Err(NotAdmitted::Refused(Refusal::superseded(format!(
                "member {name:?} was removed from the store; a process of instance {:?} is not let in again: end it",
                hello.instance
            ))));
        }
        let Some(member) = self.members.get(name) else {
            if let Some(held) = held {
                return Err(NotAdmitted::Refused(Refusal::superseded(format!(
                    "server {held} of member {name:?} was removed from the store; end this process"
                ))));
            }
            self.add_member(hello)?;
            return Ok(None);
        };
        if member.process == *process && !member.is_dead {
            if member.shard_count != hello.shard_count as usize {
                return Err(NotAdmitted::Refused(Refusal::invalid(format!(
                    "this process of member {name:?} enlisted with {} shards before, and says {} now",
                    member.shard_count, hello.shard_count
                ))));
            }
            let known = self.servers[&member.servers[hello.shard_index as usize]].id;
            return match held {
                Some(held) if held != known => {
                    Err(NotAdmitted::Refused(Refusal::superseded(format!(
                        "shard {} of member {name:?} is server {known}, not {held}; restart this process",
                        hello.shard_index
                    ))))
                }
                _ => Ok(None),
            };
        }
        if member.is_dead && member.process == *process {
            return Err(NotAdmitted::Refused(Refusal::superseded(format!(
                "this process of member {name:?} did not answer and was declared dead; the store goes on without it: start it again"
            ))));
        }
        if held.is_some() || member.past.contains(process) {
            return Err(NotAdmitted::Refused(Refusal::superseded(format!(
                "a newer process (instance {:?}) has taken the place of this one as member {name:?}; end it, \
                 and give each running server its own --member",
                member.process.0
            ))));
        }
        if !member.is_dead && self.is_connected(member) {
            // Data that is there is not given up because somebody else says that it has the name.
            return Err(NotAdmitted::Refused(Refusal::invalid(format!(
                "member {name:?} has a process that is connected (instance {:?}); if that one is dead, its connection \
                 ends by itself soon; if not, give each running server its own --member",
                member.process.0
            ))));
        }
        if !is_alive {
            return Err(NotAdmitted::MustShowLife);
        }
        let highest = member.servers.iter();
        let highest = highest.map(|index| self.servers[index].id.generation());
        if highest.max() >= Some(MAX_GENERATION) {
            return Err(NotAdmitted::Refused(Refusal::invalid(format!(
                "member {name:?} has had {MAX_GENERATION} incarnations, which is the limit; use another name"
            ))));
        }
        let mut death = self.end_process(name);
        let successors = self.replace_process(hello);
        if let Some(death) = &mut death {
            death.successors = successors;
        }
        Ok(death)
    }

    fn add_member(&mut self, hello: &Hello) -> Result<(), Refusal> {
        if self.members.len() >= self.limits.max_members {
            return Err(Refusal::invalid(format!(
                "the store has {} members, which is its limit; remove one first",
                self.members.len()
            )));
        }
        let servers = (0..hello.shard_count)
            .map(|shard| self.add_server(&hello.member, shard))
            .collect();
        let member = Member {
            process: (hello.instance.clone(), hello.process),
            host_id: hello.host_id.clone(),
            build_version: hello.build_version.clone(),
            formats: formats_of(hello),
            servers,
            shard_count: hello.shard_count as usize,
            incarnations: 1,
            is_dead: false,
            is_draining: false,
            is_last_resort: false,
            past: VecDeque::new(),
        };
        self.members.insert(hello.member.clone(), member);
        self.changed.insert(Key::Member(hello.member.clone()));
        self.changes += 1;
        Ok(())
    }

    fn add_server(&mut self, member: &str, shard_index: u32) -> u32 {
        self.last_index += 1;
        let server = Server::new(ServerId::new(self.last_index, 0), member, shard_index);
        self.servers.insert(self.last_index, server);
        self.server_changed(self.last_index);
        self.last_index
    }

    /// The member's present process is dead. `None` if that is known already, or there is no such member.
    pub fn end_process(&mut self, name: &str) -> Option<Death> {
        let member = self.members.get_mut(name)?;
        if std::mem::replace(&mut member.is_dead, true) {
            return None;
        }
        self.changes += 1;
        if member.past.len() == MAX_PAST_PROCESSES {
            member.past.pop_front();
        }
        let instance = member.process.0.clone();
        member.past.push_back(member.process.clone());
        let mut servers = Vec::new();
        self.changed.insert(Key::Member(name.to_owned()));
        for (shard, index) in member.servers.iter().enumerate() {
            self.changed.insert(Key::Server(*index));
            let place = self.servers.get_mut(index)?;
            // Also for places that the process did not fill: a generation once given out never comes back.
            let next = ServerId::new(*index, place.id.generation() + 1);
            let next = Server::new(next, name, place.shard_index);
            let dead = std::mem::replace(place, next);
            if let Some(link) = &dead.link {
                self.connections.remove(&link.connection);
            }
            if shard < member.shard_count {
                servers.push(dead);
            }
        }
        Some(Death {
            member: name.to_owned(),
            instance,
            servers,
            successors: Vec::new(),
        })
    }

    /// The member's process is dead, and `hello`'s takes its place. Returns its servers' indexes.
    fn replace_process(&mut self, hello: &Hello) -> Vec<u32> {
        let known = self.members[&hello.member].servers.len();
        let new_count = hello.shard_count as usize;
        let added: Vec<u32> = (known..new_count)
            .map(|shard| self.add_server(&hello.member, shard as u32))
            .collect();
        let member = self
            .members
            .get_mut(&hello.member)
            .expect("looked up by the caller");
        member.servers.extend(added);
        member.shard_count = new_count;
        member.incarnations += 1;
        member.is_dead = false;
        self.changes += 1;
        member.host_id.clone_from(&hello.host_id);
        member.build_version.clone_from(&hello.build_version);
        member.formats = formats_of(hello);
        self.changed.insert(Key::Member(hello.member.clone()));
        member.process = (hello.instance.clone(), hello.process);
        member.servers().to_vec()
    }

    /// A connection is gone. Returns it if it was a shard's.
    pub fn disconnect(&mut self, connection: u64) -> Option<Link> {
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
        let Some(member) = self.members.get_mut(name) else {
            return false;
        };
        let was_draining = std::mem::replace(&mut member.is_draining, is_draining);
        if was_draining != is_draining {
            member.is_last_resort = is_draining;
            self.changed.insert(Key::Member(name.to_owned()));
        }
        was_draining != is_draining
    }

    /// A member gets no copies from now on, whatever happens.
    pub fn end_last_resort(&mut self, name: &str) {
        if let Some(member) = self.members.get_mut(name) {
            member.is_last_resort = false;
            self.changed.insert(Key::Member(name.to_owned()));
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
        servers.any(|index| self.servers[index].link.is_some())
    }

    /// Whether all of these shards are connected.
    pub fn is_up(&self, servers: &[u32]) -> bool {
        servers
            .iter()
            .all(|index| self.servers[index].link.is_some())
    }

    /// Whether one more member can be removed.
    pub fn can_remember_removal(&self) -> bool {
        self.removed.len() + MAX_PAST_PROCESSES + 1 < self.limits.max_removed
    }

    /// Forgets a member, and refuses its instances from now on; also `instance`, unless that is empty. Returns the connections
    /// that it had.
    pub fn remove(&mut self, name: &str, instance: &str) -> Vec<Link> {
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
        self.changed.insert(Key::Member(name.to_owned()));
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
        let name = name.to_owned();
        self.changed
            .insert(Key::Removed(name.clone(), instance.clone()));
        self.removed.insert((name, instance));
    }
}

/// Whether what a shard says of itself can be.
pub(crate) fn check_hello(hello: &Hello, max_shards: u32) -> Result<(), Refusal> {
    for (what, text, may_be_empty) in [
        ("member name", &hello.member, false),
        ("instance", &hello.instance, false),
        ("host id", &hello.host_id, true),
        ("build version", &hello.build_version, true),
        ("domain", &hello.domain, true),
        ("backup's locator", &hello.backup_locator, true),
        ("locator for other servers", &hello.peer_locator, true),
    ] {
        if text.is_empty() && !may_be_empty {
            return Err(Refusal::invalid(format!("the {what} is empty")));
        }
        if text.len() > MAX_TEXT_BYTES {
            return Err(Refusal::invalid(format!(
                "the {what} is {} bytes long; at most {MAX_TEXT_BYTES} are allowed",
                text.len()
            )));
        }
    }
    if hello.shard_count == 0
        || hello.shard_count > max_shards
        || hello.shard_index >= hello.shard_count
    {
        return Err(Refusal::invalid(format!(
            "shard {} of {} makes no sense: a member has 1 to {max_shards} shards, numbered from 0",
            hello.shard_index, hello.shard_count
        )));
    }
    if hello.locator.len() > MAX_LOCATOR_BYTES {
        return Err(Refusal::invalid(format!(
            "the service locator is {} bytes long; at most {MAX_LOCATOR_BYTES} are allowed",
            hello.locator.len()
        )));
    }
    match locator::parse_list(&hello.locator) {
        Ok(list) if !list.is_empty() => Ok(()),
        Ok(_) => Err(Refusal::invalid("the service locator is empty")),
        Err(error) => Err(Refusal::invalid(format!(
            "the service locator {:?} is wrong: {error}",
            hello.locator
        ))),
    }
}
