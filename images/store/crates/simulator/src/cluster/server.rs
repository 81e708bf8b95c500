//! A server process: its shards with their backups, and what a driver would keep for each.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use backup::testing::MemoryStorage;
use backup::{Durability as BackupDurability, Scope};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use fast::Loan;
use master::{Channel, Config, Durability, Identity, Lender, LogPosition, Replication, ShardEvent};
use server::links::Links;
use server::{BackupConfig, Server, ServerEvent};
use transport::member::MemberReader;
use transport::rpc::RpcReader;
use transport::session::ShardSession;
use wire::format::Formats;
use wire::member::ToCoordinator;

use crate::cluster::ports::{PROTOCOLS, Ports};
use crate::event::DiskStep;
use crate::net::datagrams::Datagrams;
use crate::net::network::Host;
use crate::oracles::oracle::Oracle;
use crate::scenario::{Durable, Replicated, Scenario};

/// First client port of a server; shard i listens i further.
pub const FIRST_PORT: u16 = 12100;
/// First port for peers, in the same way.
pub const FIRST_PEER_PORT: u16 = 12200;
/// Copies that nobody waits for go out in pieces of this size.
const COPY_BYTES: u32 = 1 << 10;

/// Room for a few checkpoints of the coordinator's state, in frames as small as they are here.
const CHECKPOINT_FRAMES: u32 = 16;

/// What a shard told its driver to do with other servers.
pub enum PeerAction {
    Connect(Channel, ServerId, String),
    Disconnect(Channel, ServerId),
    Send(Channel, ServerId, u64, Vec<u8>),
    Answer(ReplyTo, Vec<u8>),
    Close(u64),
    ConnectServer(u64, String),
    SendServer(u64, u64, Vec<u8>),
    CloseServer(u64),
}

/// What a shard told its driver to do.
#[derive(Default)]
pub struct ShardActions {
    pub replies: Vec<(ReplyTo, Vec<u8>)>,
    pub to_coordinator: Vec<ToCoordinator>,
    pub peers: Vec<PeerAction>,
    pub opens: Option<backup::Config>,
    pub events: Vec<ServerEvent>,
    /// Of connections to other servers.
    pub last_number: u64,
    /// The shard's, while it does something: loans are taken and given back at once.
    pub ports: Option<Box<Ports>>,
    /// Answers of which the end was lent.
    pub lent: Vec<LentReply>,
}

/// An answer that consists of `head` and what lies in the log.
pub struct LentReply {
    pub to: ReplyTo,
    pub head: Vec<u8>,
    pub token: u64,
    pub length: usize,
}

impl ShardActions {
    /// For a shard that does something now: takes its ports, until [`ShardActions::end`].
    pub fn begin(node: &mut ShardNode) -> ShardActions {
        ShardActions {
            last_number: node.last_number,
            ports: node.ports.take(),
            ..ShardActions::default()
        }
    }

    /// What was lent just now, as whole answers: it is to stay what it is until it is given back.
    pub fn note_lent(&mut self, core: &Server<MemoryStorage>) -> Vec<(ReplyTo, Vec<u8>)> {
        let mut replies = Vec::new();
        for reply in std::mem::take(&mut self.lent) {
            let value = core.lent(reply.token, reply.length).unwrap_or_default();
            if let Some(ports) = &mut self.ports {
                ports.lent.add(reply.token, value.to_vec());
            }
            replies.push((reply.to, [&reply.head, value].concat()));
        }
        replies
    }

    pub fn end(&mut self, node: &mut ShardNode) {
        node.last_number = self.last_number;
        node.ports = self.ports.take();
    }

    /// As an empty one, with the same ports.
    pub fn fresh(&mut self) -> ShardActions {
        ShardActions {
            last_number: self.last_number,
            ports: self.ports.take(),
            ..ShardActions::default()
        }
    }

    pub fn append(&mut self, mut other: ShardActions) {
        self.ports = other.ports.take();
        self.lent.append(&mut other.lent);
        self.replies.append(&mut other.replies);
        self.to_coordinator.append(&mut other.to_coordinator);
        self.peers.append(&mut other.peers);
        self.events.append(&mut other.events);
        self.opens = self.opens.take().or(other.opens);
        self.last_number = other.last_number;
    }
}

impl master::ShardEffects for ShardActions {
    fn reply(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.replies.push((to, parts.concat()));
    }
    fn reply_lent(&mut self, to: ReplyTo, head: &[u8], token: u64, length: usize) -> bool {
        let loan = Loan { token, length };
        let is_lent = self
            .ports
            .as_mut()
            .is_some_and(|ports| ports.send_lent(to.connection, to.nonce, head, loan));
        if is_lent {
            self.lent.push(LentReply {
                to,
                head: head.to_vec(),
                token,
                length,
            });
        }
        is_lent
    }
    fn recall<'l>(&mut self, tokens: Range<u64>, lend: &Lender<'l>) {
        if let Some(ports) = &mut self.ports {
            ports.recall(&tokens, lend);
        }
    }
    fn send_coordinator(&mut self, message: ToCoordinator) {
        self.to_coordinator.push(message);
    }
    fn report(&mut self, event: ShardEvent) {
        self.events.push(event.into());
    }
    fn connect_backup(&mut self, channel: Channel, backup: ServerId, locator: &str) {
        let locator = locator.to_owned();
        self.peers
            .push(PeerAction::Connect(channel, backup, locator));
    }
    fn disconnect_backup(&mut self, channel: Channel, backup: ServerId) {
        self.peers.push(PeerAction::Disconnect(channel, backup));
    }
    fn send_backup(&mut self, channel: Channel, backup: ServerId, nonce: u64, parts: &[&[u8]]) {
        let payload = parts.concat();
        self.peers
            .push(PeerAction::Send(channel, backup, nonce, payload));
    }
    fn connect_server(&mut self, locator: &str) -> Option<u64> {
        self.last_number += 1;
        let locator = locator.to_owned();
        self.peers
            .push(PeerAction::ConnectServer(self.last_number, locator));
        Some(self.last_number)
    }
    fn send_server(&mut self, connection: u64, nonce: u64, payload: &[u8]) {
        self.peers
            .push(PeerAction::SendServer(connection, nonce, payload.to_vec()));
    }
    fn close_server(&mut self, connection: u64) {
        self.peers.push(PeerAction::CloseServer(connection));
    }
}

impl server::ServerEffects for ShardActions {
    fn open_backup(&mut self, config: backup::Config) {
        self.opens = Some(config);
    }
    fn answer_peer(&mut self, to: ReplyTo, parts: &[&[u8]]) {
        self.peers.push(PeerAction::Answer(to, parts.concat()));
    }
    fn close_peer(&mut self, connection: u64) {
        self.peers.push(PeerAction::Close(connection));
    }
    fn report_server(&mut self, event: ServerEvent) {
        self.events.push(event);
    }
}

/// The connection of a shard to the coordinator.
pub struct MemberConnection {
    pub connection: u64,
    pub reader: MemberReader,
    pub is_open: bool,
    /// The coordinator has let the shard in; from then on the shard itself watches for silence.
    pub is_welcomed: bool,
}

pub struct ShardNode {
    pub core: Server<MemoryStorage>,
    pub link: Option<MemberConnection>,
    /// With the coordinator, over one link after another.
    pub session: ShardSession,
    /// Of the coordinator that has welcomed it last.
    pub obeyed_term: u64,
    /// Connections in a row on which the shard was not let in.
    pub failed_links: u32,
    /// Connections of clients, and of peers to the backup.
    pub clients: BTreeMap<u64, RpcReader>,
    /// Byte streams that this shard has opened to other servers.
    pub readers: BTreeMap<u64, RpcReader>,
    /// Of these, those that are not to backups, with the numbers that the shard knows them by.
    pub to_servers: BTreeMap<u64, u64>,
    pub links: Links,
    /// If it speaks by datagrams, too.
    pub ports: Option<Box<Ports>>,
    pub last_number: u64,
    /// Syncs whose end is scheduled.
    pub syncing: BTreeSet<Scope>,
    /// Steps of its disk that are scheduled.
    pub disk_steps: BTreeSet<DiskStep>,
    pub oracle: Oracle,
    /// The log is durable up to here.
    pub durable: LogPosition,
    /// The log's head when its durability was last put on its way.
    pub flushing: LogPosition,
    /// Counts how often the shard began anew, for another store or as another server; then its log begins anew, too.
    pub epoch: u64,
    /// Ticks in a row after which the shard still had more to do.
    pub busy_ticks: u32,
    /// When the flush that was started last ends: flushes end in order.
    pub last_flush_ends: u64,
}

impl ShardNode {
    /// Tells the shard what became of connections without any wait, as a driver does in its next round.
    pub fn tell_links(&mut self, now: Time, out: &mut ShardActions) {
        for (channel, backup) in std::mem::take(&mut self.links.unreachable) {
            self.core.backup_disconnected(now, channel, backup, out);
        }
        for (channel, backup) in self.links.take_opened() {
            self.core.backup_connected(now, channel, backup, out);
        }
    }

    pub fn connection_to_server(&self, number: u64) -> Option<u64> {
        let mut opened = self.to_servers.iter();
        let found = opened.find(|(_, other)| **other == number);
        found.map(|(connection, _)| *connection)
    }
}

/// What dies at once.
#[derive(Clone, Copy, Debug)]
pub enum Dies {
    Process,
    /// With what its page cache holds.
    Machine,
    AllMachines,
}

/// A server, running or not.
pub struct ServerNode {
    pub name: String,
    /// Counts processes; what was meant for an earlier one is ignored.
    pub incarnation: u64,
    pub is_up: bool,
    /// What the present process reads.
    pub formats: Formats,
    /// What the build reads that is started next.
    pub installed: Formats,
    pub shards: Vec<ShardNode>,
    /// Counts the machine's starts.
    pub boots: u64,
    /// Of each shard, while its backup does not have it.
    pub disks: BTreeMap<usize, MemoryStorage>,
    /// Its backups have no free frame until then.
    pub frames_taken_until: u64,
    /// What dies in the middle of the next write to a disk.
    pub dies_writing: Option<Dies>,
    /// What earlier processes have appended to backups.
    appended_bytes: u64,
}

impl ServerNode {
    pub fn new(name: String) -> ServerNode {
        ServerNode {
            name,
            incarnation: 0,
            is_up: false,
            formats: Formats::CURRENT,
            installed: Formats::CURRENT,
            shards: Vec::new(),
            boots: 0,
            disks: BTreeMap::new(),
            frames_taken_until: 0,
            dies_writing: None,
            appended_bytes: 0,
        }
    }

    /// Data that was ever appended to backups of this server.
    pub fn appended_bytes(&self) -> u64 {
        let backups = self.shards.iter().filter_map(|shard| shard.core.backup());
        let now: u64 = backups.map(|backup| backup.stats().bytes_appended).sum();
        self.appended_bytes + now
    }

    /// Starts a process with this many shards.
    pub fn start(
        &mut self,
        scenario: &Scenario,
        host: Host,
        shards: u32,
        now: Time,
        datagrams: &mut Option<Datagrams>,
    ) {
        self.incarnation += 1;
        self.is_up = true;
        self.dies_writing = None;
        self.formats = self.installed;
        let formats = self.formats;
        let incarnation = self.incarnation;
        self.shards = (0..shards)
            .map(|shard| {
                let port = |first: u16| u32::from(first) + shard;
                let ports = open_ports(scenario, host, FIRST_PORT + shard as u16, datagrams);
                let fast = ports
                    .as_ref()
                    .map_or_else(String::new, |ports| ports.locators());
                let identity = Identity {
                    member: self.name.clone(),
                    instance: format!("{}-{incarnation}", self.name),
                    process: incarnation,
                    host_id: self.name.clone(),
                    shard_index: shard,
                    shard_count: shards,
                    locator: format!("tcp:host={},port={}{fast}", self.name, port(FIRST_PORT)),
                    coordinator: "tcp:host=127.0.0.1,port=11100".to_owned(),
                    build_version: "simulated".to_owned(),
                    backup_locator: scenario.replicated.map_or_else(String::new, |_| {
                        format!(
                            "tcp:host={},port={}{fast}",
                            self.name,
                            port(FIRST_PEER_PORT)
                        )
                    }),
                    peer_locator: match scenario.replicated {
                        Some(_) => String::new(),
                        None => format!("tcp:host={},port={}", self.name, port(FIRST_PEER_PORT)),
                    },
                    domain: String::new(),
                };
                let config = server_config(scenario, self.boots, formats);
                let mut core: Server<MemoryStorage> = Server::new(config, identity, now);
                let disk = self.disks.get_mut(&(shard as usize));
                core.volume_belongs_to(disk.and_then(backup::owner).unwrap_or(0));
                ShardNode {
                    durable: LogPosition::START,
                    flushing: core.shard().head_position(),
                    epoch: 0,
                    busy_ticks: 0,
                    last_flush_ends: 0,
                    core,
                    link: None,
                    session: ShardSession::default(),
                    obeyed_term: 0,
                    failed_links: 0,
                    clients: BTreeMap::new(),
                    readers: BTreeMap::new(),
                    to_servers: BTreeMap::new(),
                    links: Links::new(protocols(scenario), now.0 + u64::from(shard)),
                    ports,
                    last_number: 0,
                    syncing: BTreeSet::new(),
                    disk_steps: BTreeSet::new(),
                    oracle: Oracle::default(),
                }
            })
            .collect();
    }

    /// What is on the disks when the process is gone.
    pub fn take_disks(&mut self, shards: &mut [ShardNode]) {
        for (index, shard) in shards.iter_mut().enumerate() {
            if let Some(backup) = shard.core.backup_mut() {
                self.appended_bytes += backup.stats().bytes_appended;
                let disk = std::mem::take(backup.storage_mut());
                self.disks.insert(index, disk);
            }
        }
    }
}

/// What processes speak, the fastest first.
pub fn protocols(scenario: &Scenario) -> Vec<&'static str> {
    let kinds = scenario.fast.map_or(0, |fast| fast.kinds);
    let fast = PROTOCOLS[PROTOCOLS.len() - kinds..].iter().copied();
    fast.chain(["tcp"]).collect()
}

/// The ports of a process that speaks by datagrams.
pub fn open_ports(
    scenario: &Scenario,
    host: Host,
    udp_port: u16,
    datagrams: &mut Option<Datagrams>,
) -> Option<Box<Ports>> {
    let (fast, datagrams) = (scenario.fast?, datagrams.as_mut()?);
    let secret = || datagrams.secret();
    let ports = Ports::new(host, udp_port, fast.kinds, fast.config, secret);
    Some(Box::new(ports))
}

fn server_config(scenario: &Scenario, boots: u64, formats: Formats) -> server::Config {
    let master = Config {
        formats,
        ..shard_config(scenario)
    };
    let backup = scenario.replicated.map(|replicated| {
        let mut boot_id = [0; 16];
        boot_id[..8].copy_from_slice(&boots.to_le_bytes());
        BackupConfig {
            segment_bytes: scenario.segment_bytes,
            frame_count: frame_count(scenario, &replicated),
            durability: if replicated.flushed {
                BackupDurability::Flushed
            } else {
                BackupDurability::Buffered
            },
            boot_id,
        }
    });
    server::Config {
        master,
        backup,
        backup_only: false,
    }
}

/// Room for all logs, their predecessors that are being recovered, and as much again; or as much as servers have by default.
pub fn frame_count(scenario: &Scenario, replicated: &Replicated) -> u32 {
    if scenario.is_overwriting {
        return BackupConfig::frames_needed(&shard_config(scenario));
    }
    let of_log = scenario.segments * 3 / 2 + 2;
    4 * of_log * u32::from(replicated.replicas) + CHECKPOINT_FRAMES
}

fn shard_config(scenario: &Scenario) -> Config {
    Config {
        segment_bytes: scenario.segment_bytes,
        log_bytes: scenario.segment_bytes as usize * scenario.segments as usize,
        hash_table_bytes: scenario.hash_table_bytes,
        durability: match (scenario.durable, scenario.replicated) {
            (Durable::AtOnce, None) => Durability::Unreplicated,
            _ => Durability::External,
        },
        replication: scenario.replicated.map(|replicated| Replication {
            replicas: replicated.replicas,
            min_replicas: replicated.min_replicas,
            copy_bytes: COPY_BYTES,
            repair_bytes_per_second: replicated.repair_bytes_per_second,
        }),
        max_clients: 100,
        max_result_slots: 100 * 512,
        max_held_replies: 100,
        enumerated_slots: scenario.enumerated_slots,
        enumerated_bytes: scenario.enumerated_bytes,
        migrated_bytes: scenario.enumerated_bytes,
        lend_bytes: scenario.fast.map_or(usize::MAX, |fast| fast.lend_bytes),
        allow_test_rpcs: false,
        formats: Formats::CURRENT,
    }
}
