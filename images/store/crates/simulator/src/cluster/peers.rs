//! What servers do with one another and with their disks: connections between them, opening and syncing of storages, processes that end themselves.

use backup::testing::MemoryStorage;
use backup::{Backup, Scope};
use base::ids::{ReplyTo, ServerId};
use master::Channel;
use server::links::{ConnectionRole, Dial};
use transport::rpc::RpcReader;
use wire::peer::{Answer, Request, Status};

use crate::cluster::hosts::machine_of;
use crate::cluster::ports::is_session;
use crate::cluster::server::PeerAction;
use crate::cluster::{Cluster, host_name, server_host};
use crate::event::{Event, Owner, Party};
use crate::scenario::{MICRO, MILLI};

/// A request to a backup, for people.
fn describe_peer(payload: &[u8]) -> String {
    match Request::decode(payload) {
        Ok(Request::Append(append)) => format!(
            "append to {} ({:?}) {}..{}{}",
            append.replica,
            append.role,
            append.offset,
            append.end(),
            if append.closes { ", closes" } else { "" }
        ),
        Ok(request) => format!("{request:?}"),
        Err(_) => format!("{} bytes", payload.len()),
    }
}

/// How long a disk takes to sync, at most, where it is not slow.
const SYNC: u64 = 2 * MILLI;
/// How long it takes to open a storage, at most.
const OPENING: u64 = 20 * MILLI;

impl Cluster {
    /// Carries out what a shard wants of other servers.
    pub fn apply_peers(&mut self, server: usize, shard: usize, actions: Vec<PeerAction>) {
        for action in actions {
            self.apply_peer(server, shard, action);
        }
    }

    fn apply_peer(&mut self, server: usize, shard: usize, action: PeerAction) {
        match action {
            PeerAction::Connect(channel, backup, list) => {
                let is_tried = self.with_links(server, shard, |links, now, dialer| {
                    let is_tried = links.connect_backup(now, channel, backup, &list, dialer);
                    links
                        .unreachable
                        .extend((!is_tried).then_some((channel, backup)));
                    is_tried
                });
                if !is_tried {
                    self.fail(format!("a server was given the locators {list:?}"));
                }
            }
            PeerAction::ConnectServer(number, list) => {
                self.open_to_server(server, shard, number, &list);
            }
            PeerAction::Disconnect(channel, backup) => {
                self.with_links(server, shard, |links, _, dialer| {
                    if let Some(connection) = links.remove_backup(channel, backup) {
                        dialer.hang_up(connection);
                    }
                });
            }
            PeerAction::CloseServer(number) => {
                let node = &mut self.servers[server].shards[shard];
                if let Some(connection) = node.connection_to_server(number) {
                    node.to_servers.remove(&connection);
                    self.with_links(server, shard, |_, _, dialer| dialer.hang_up(connection));
                }
            }
            PeerAction::Send(channel, backup, nonce, payload) => {
                let node = &self.servers[server].shards[shard];
                if let Some(connection) = node.links.of_backup(channel, backup) {
                    self.send_from_shard(server, shard, connection, nonce, &payload);
                }
            }
            PeerAction::SendServer(number, nonce, payload) => {
                let node = &self.servers[server].shards[shard];
                if let Some(connection) = node.connection_to_server(number) {
                    self.send_from_shard(server, shard, connection, nonce, &payload);
                }
            }
            PeerAction::Answer(to, payload) => {
                if Answer::decode(&payload).is_ok_and(|answer| answer.status == Status::Full) {
                    self.coverage.hit("answers that a backup is full");
                }
                if is_session(to.connection) || self.parties.contains_key(&(to.connection, 1)) {
                    self.note_peer(
                        server,
                        "answers",
                        to.connection,
                        to.nonce,
                        &payload,
                        |payload| format!("status {:?}, {} bytes", payload.first(), payload.len()),
                    );
                    self.answer_from_shard(server, shard, to, &payload);
                }
            }
            PeerAction::Close(connection) => {
                let node = &mut self.servers[server].shards[shard];
                if is_session(connection) {
                    node.links.remove(connection);
                    self.with_links(server, shard, |_, _, dialer| dialer.hang_up(connection));
                    return;
                }
                node.clients.remove(&connection);
                if self.parties.remove(&(connection, 1)).is_some() {
                    self.network.close(self.now, connection, 1);
                }
            }
        }
    }

    /// To another server's port for clients, over a byte stream.
    fn open_to_server(&mut self, server: usize, shard: usize, number: u64, list: &str) {
        let Some((host, port)) = self.resolve(list) else {
            return self.fail(format!("a server was given the locators {list:?}"));
        };
        let from = server_host(server);
        let connection = self.network.connect(self.now, from, host, port);
        let node = &mut self.servers[server].shards[shard];
        node.to_servers.insert(connection, number);
        node.readers.insert(connection, RpcReader::default());
        let party = Party::ShardToServer { server, shard };
        self.parties.insert((connection, 0), party);
    }

    fn send_from_shard(
        &mut self,
        server: usize,
        shard: usize,
        connection: u64,
        nonce: u64,
        payload: &[u8],
    ) {
        self.note_peer(server, "asks", connection, nonce, payload, |payload| {
            describe_peer(payload)
        });
        match is_session(connection) {
            true => {
                self.send_in_session(Owner::Shard { server, shard }, connection, nonce, payload)
            }
            false => self.send_payload(connection, 0, nonce, payload),
        }
    }

    /// Answers whoever asked a shard.
    pub fn answer_from_shard(&mut self, server: usize, shard: usize, to: ReplyTo, payload: &[u8]) {
        let ReplyTo { connection, nonce } = to;
        match is_session(connection) {
            true => {
                self.send_in_session(Owner::Shard { server, shard }, connection, nonce, payload)
            }
            false => self.send_payload(connection, 1, nonce, payload),
        }
    }

    pub fn send_in_session(&mut self, owner: Owner, connection: u64, nonce: u64, payload: &[u8]) {
        let now = self.clock(machine_of(owner));
        if let Some(ports) = self.ports(owner) {
            ports.send(now, connection, nonce, payload);
            self.stir(owner);
        }
    }

    fn note_peer(
        &mut self,
        server: usize,
        what: &str,
        connection: u64,
        nonce: u64,
        payload: &[u8],
        describe: impl FnOnce(&[u8]) -> String,
    ) {
        let host = server_host(server);
        self.trace.event(
            self.now,
            || host_name(host),
            what,
            &[connection, nonce],
            payload,
            || format!("{connection}/{nonce} {}", describe(payload)),
        );
    }

    /// A connection that a shard has opened to another server is there.
    pub fn reached(&mut self, server: usize, shard: usize, connection: u64) {
        let Some(node) = self.servers[server].shards.get(shard) else {
            return;
        };
        if let Some(&number) = node.to_servers.get(&connection) {
            return self.with_shard(server, shard, |node, _, out| {
                node.core.server_connected(number, out);
            });
        }
        match node.links.get(connection) {
            Some(ConnectionRole::Backup(channel, backup)) => {
                self.with_links(server, shard, |links, now, _| {
                    links.backup_opened(now, connection, channel, backup);
                });
                self.note_backup_way(server, shard, connection, channel, backup);
                self.with_shard(server, shard, |node, now, out| {
                    node.core.backup_connected(now, channel, backup, out);
                });
            }
            Some(ConnectionRole::Trial(channel, backup)) => {
                let is_wanted = self.with_links(server, shard, |links, now, dialer| {
                    links.faster_opened(now, connection, channel, backup, dialer)
                });
                // Its master asks for another connection, and gets this one.
                if is_wanted {
                    self.note_backup_way(server, shard, connection, channel, backup);
                    self.with_shard(server, shard, |node, now, out| {
                        node.core.backup_disconnected(now, channel, backup, out);
                    });
                }
            }
            Some(ConnectionRole::Server | ConnectionRole::Peer) | None => {}
        }
    }

    fn note_backup_way(
        &mut self,
        server: usize,
        shard: usize,
        connection: u64,
        channel: Channel,
        backup: ServerId,
    ) {
        let whom = format!("{channel:?} {backup}");
        self.note_way(Owner::Shard { server, shard }, whom, connection);
    }

    /// A connection with another server could not be made, or has ended.
    pub fn target_lost(&mut self, server: usize, shard: usize, connection: u64) {
        let Some(node) = self.servers[server].shards.get_mut(shard) else {
            return;
        };
        node.readers.remove(&connection);
        if let Some(number) = node.to_servers.remove(&connection) {
            return self.with_shard(server, shard, |node, _, out| {
                node.core.server_disconnected(number, out);
            });
        }
        let known = node.links.get(connection);
        if let Some(link @ (ConnectionRole::Backup(..) | ConnectionRole::Trial(..))) = known
            && self.with_links(server, shard, |links, now, dialer| {
                links.try_next(now, connection, link, dialer)
            })
        {
            self.servers[server].shards[shard].links.remove(connection);
            return;
        }
        let link = self.servers[server].shards[shard].links.remove(connection);
        match link {
            Some(ConnectionRole::Backup(channel, backup)) => {
                self.with_shard(server, shard, |node, now, out| {
                    node.core.backup_disconnected(now, channel, backup, out);
                });
            }
            Some(ConnectionRole::Trial(channel, backup)) => {
                self.with_shard(server, shard, |node, now, _| {
                    node.links.faster_failed(now, channel, backup);
                });
            }
            Some(ConnectionRole::Peer) => {
                self.with_shard(server, shard, |node, _, _| {
                    node.core.peer_closed(connection);
                });
            }
            Some(ConnectionRole::Server) | None => {}
        }
    }

    /// The other server answers.
    pub fn target_answers(&mut self, server: usize, shard: usize, from: ReplyTo, payload: &[u8]) {
        let ReplyTo { connection, nonce } = from;
        let Some(node) = self.servers[server].shards.get(shard) else {
            return;
        };
        let to_server = node.to_servers.get(&connection).copied();
        let link = node.links.get(connection);
        self.with_shard(server, shard, |node, now, out| match (to_server, link) {
            (Some(number), _) => node.core.server_answered(now, number, nonce, payload, out),
            (None, Some(ConnectionRole::Backup(channel, backup))) => {
                node.core
                    .backup_answer(now, channel, backup, nonce, payload, out);
            }
            (None, _) => {}
        });
    }

    /// A peer asks this shard's backup for something.
    pub fn peer_request(&mut self, server: usize, shard: usize, to: ReplyTo, payload: &[u8]) {
        if self.finds_no_frame(server, shard, payload) {
            let answer = Answer {
                status: Status::Full,
                bytes: 0,
            };
            let answer = PeerAction::Answer(to, answer.to_bytes().to_vec());
            return self.apply_peer(server, shard, answer);
        }
        self.with_shard(server, shard, |node, now, out| {
            node.core.peer_request(now, to, payload, out);
        });
    }

    /// A shard wants its disk; that takes a while.
    pub fn want_disk(&mut self, server: usize, shard: usize, config: backup::Config) {
        let incarnation = self.servers[server].incarnation;
        let opens = Event::OpenBackup {
            server,
            incarnation,
            shard,
            config,
        };
        let delay = self.streams.of("opening of disks").between(MICRO, OPENING);
        self.schedule_in(delay, opens);
    }

    pub fn open_backup(
        &mut self,
        server: usize,
        incarnation: u64,
        shard: usize,
        config: backup::Config,
    ) {
        let now = self.clock(server_host(server));
        let node = &mut self.servers[server];
        if node.incarnation != incarnation || !node.is_up {
            return;
        }
        let bytes = config.layout().total_bytes();
        let disk = node.disks.remove(&shard);
        let disk = disk.unwrap_or_else(|| MemoryStorage::new(bytes));
        // A failed attempt takes the storage with it, be it for a fault or because the build does not read the storage's format; what such an
        // attempt has written is nothing that was promised.
        let before = disk.clone();
        let opened = Backup::open(now, config, disk);
        let opened = match opened {
            Ok(mut backup) => {
                backup.storage_mut().is_late = self.late_disks.are_late();
                if let Some(bytes) = self.late_disks.most_bytes_under_way() {
                    backup.bound_under_way(bytes);
                }
                Ok(backup)
            }
            Err(error) => {
                node.disks.insert(shard, before);
                Err(error)
            }
        };
        self.with_shard(server, shard, |node, now, _| {
            node.core.backup_opened(now, opened)
        });
    }

    /// Has the syncs end that the shard's backup has begun.
    pub fn schedule_syncs(&mut self, server: usize, shard: usize) {
        let incarnation = self.servers[server].incarnation;
        let node = &mut self.servers[server].shards[shard];
        let Some(backup) = node.core.backup() else {
            return;
        };
        let begun = backup.storage().syncs_under_way();
        let fresh: Vec<Scope> = begun
            .into_iter()
            .filter(|scope| node.syncing.insert(*scope))
            .collect();
        let is_slow = self
            .streams
            .of("syncs")
            .chance(self.scenario.slow_syncs_per_mille);
        let most = if is_slow { 300 * MILLI } else { SYNC };
        for scope in fresh {
            let delay = self.streams.of("syncs").between(10 * MICRO, most);
            let synced = Event::Synced {
                server,
                incarnation,
                shard,
                scope,
            };
            self.schedule_in(delay, synced);
        }
    }

    pub fn synced(&mut self, server: usize, incarnation: u64, shard: usize, scope: Scope) {
        let node = &self.servers[server];
        if node.incarnation != incarnation || !node.is_up {
            return;
        }
        if let Some(later) = self.disk_goes_on_in(server, shard) {
            let synced = Event::Synced {
                server,
                incarnation,
                shard,
                scope,
            };
            return self.schedule_in(later, synced);
        }
        // The tick hears of it, unless the disk is late to tell.
        self.with_shard(server, shard, |node, _, _| {
            node.syncing.remove(&scope);
            if let Some(backup) = node.core.backup_mut() {
                backup.storage_mut().finish_sync(scope);
            }
        });
    }

    /// How many writes the shard's disk has seen.
    pub fn disk_writes(&self, server: usize, shard: usize) -> u64 {
        let node = self.servers[server].shards.get(shard);
        let backup = node.and_then(|node| node.core.backup());
        backup.map_or(0, |backup| backup.storage().writes())
    }
}
