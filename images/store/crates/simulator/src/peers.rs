//! What servers do with one another and with their disks: connections between them, opening and syncing of storages, processes that end themselves.

use backup::testing::MemoryStorage;
use backup::{Backup, Scope};
use transport::rpc::RpcReader;
use wire::ids::ReplyTo;
use wire::peer::{Answer, Request, Status};

use crate::scenario::{MICRO, MILLI};
use crate::server::{PeerAction, Target};
use crate::world::{Event, Party, World, host_name, server_host};

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

impl World {
    /// Carries out what a shard wants of other servers.
    pub fn apply_peers(&mut self, server: usize, shard: usize, actions: Vec<PeerAction>) {
        for action in actions {
            self.apply_peer(server, shard, action);
        }
    }

    fn apply_peer(&mut self, server: usize, shard: usize, action: PeerAction) {
        match action {
            PeerAction::Connect(channel, backup, locator) => {
                self.open_to(server, shard, Target::Backup(channel, backup), &locator);
            }
            PeerAction::ConnectServer(number, locator) => {
                self.open_to(server, shard, Target::Server(number), &locator);
            }
            PeerAction::Disconnect(channel, backup) => {
                self.close_to(server, shard, Target::Backup(channel, backup));
            }
            PeerAction::CloseServer(number) => self.close_to(server, shard, Target::Server(number)),
            PeerAction::Send(channel, backup, nonce, payload) => {
                self.send_to(
                    server,
                    shard,
                    Target::Backup(channel, backup),
                    nonce,
                    &payload,
                );
            }
            PeerAction::SendServer(number, nonce, payload) => {
                self.send_to(server, shard, Target::Server(number), nonce, &payload);
            }
            PeerAction::Answer(to, payload) => {
                if Answer::decode(&payload).is_ok_and(|answer| answer.status == Status::Full) {
                    self.coverage.hit("answers that a backup is full");
                }
                if self.parties.contains_key(&(to.connection, 1)) {
                    self.note_peer(
                        server,
                        "answers",
                        to.connection,
                        to.nonce,
                        &payload,
                        |payload| format!("status {:?}, {} bytes", payload.first(), payload.len()),
                    );
                    self.send_payload(to.connection, 1, to.nonce, &payload);
                }
            }
            PeerAction::Close(connection) => {
                self.servers[server].shards[shard]
                    .clients
                    .remove(&connection);
                if self.parties.remove(&(connection, 1)).is_some() {
                    self.network.close(self.now, connection, 1);
                }
            }
        }
    }

    fn open_to(&mut self, server: usize, shard: usize, target: Target, locator: &str) {
        let Some((host, port)) = self.resolve(locator) else {
            return self.fail(format!("a server was given the locator {locator:?}"));
        };
        let from = server_host(server);
        let connection = self.network.connect(self.now, from, host, port);
        let node = &mut self.servers[server].shards[shard];
        if node.connection_to(target).is_some() {
            return self.fail(format!("two connections of a server to {target:?}"));
        }
        let reader = RpcReader::default();
        node.opened.insert(connection, (target, reader));
        let party = Party::ShardToServer { server, shard };
        self.parties.insert((connection, 0), party);
    }

    fn close_to(&mut self, server: usize, shard: usize, target: Target) {
        let node = &mut self.servers[server].shards[shard];
        if let Some(connection) = node.connection_to(target) {
            node.opened.remove(&connection);
            self.parties.remove(&(connection, 0));
            self.network.close(self.now, connection, 0);
        }
    }

    fn send_to(&mut self, server: usize, shard: usize, target: Target, nonce: u64, payload: &[u8]) {
        let node = &self.servers[server].shards[shard];
        if let Some(connection) = node.connection_to(target) {
            self.note_peer(server, "asks", connection, nonce, payload, |payload| {
                describe_peer(payload)
            });
            self.send_payload(connection, 0, nonce, payload);
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

    // ---- what comes on such connections ----

    /// A connection that a shard has opened to another server is there.
    pub fn reached(&mut self, server: usize, shard: usize, connection: u64) {
        let Some(target) = self.target(server, shard, connection) else {
            return;
        };
        self.with_shard(server, shard, |node, now, out| match target {
            Target::Backup(channel, backup) => {
                node.core.backup_connected(now, channel, backup, out);
            }
            Target::Server(number) => node.core.server_connected(number, out),
        });
    }

    /// It could not be made, or has ended.
    pub fn target_lost(&mut self, server: usize, shard: usize, connection: u64) {
        let Some(target) = self.target(server, shard, connection) else {
            return;
        };
        self.servers[server].shards[shard]
            .opened
            .remove(&connection);
        self.with_shard(server, shard, |node, now, out| match target {
            Target::Backup(channel, backup) => {
                node.core.backup_disconnected(now, channel, backup, out);
            }
            Target::Server(number) => node.core.server_disconnected(number, out),
        });
    }

    /// The other server answers.
    pub fn target_answers(&mut self, server: usize, shard: usize, from: ReplyTo, payload: &[u8]) {
        let Some(target) = self.target(server, shard, from.connection) else {
            return;
        };
        let nonce = from.nonce;
        self.with_shard(server, shard, |node, now, out| match target {
            Target::Backup(channel, backup) => {
                node.core
                    .backup_answer(now, channel, backup, nonce, payload, out);
            }
            Target::Server(number) => {
                node.core.server_answered(now, number, nonce, payload, out);
            }
        });
    }

    fn target(&self, server: usize, shard: usize, connection: u64) -> Option<Target> {
        let node = self.servers[server].shards.get(shard)?;
        node.opened.get(&connection).map(|(target, _)| *target)
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

    // ---- disks ----

    /// A shard wants its disk; that takes a while.
    pub fn want_disk(&mut self, server: usize, shard: usize, config: backup::Config) {
        let incarnation = self.servers[server].incarnation;
        let opens = Event::OpenBackup {
            server,
            incarnation,
            shard,
            config,
        };
        let delay = self.random.between(MICRO, OPENING);
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
        // A failed attempt takes the storage with it; what it has written is nothing that was promised.
        let before = disk.faults.is_some().then(|| disk.clone());
        let opened = Backup::open(now, config, disk);
        if opened.is_err() {
            node.disks.extend(before.map(|disk| (shard, disk)));
        }
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
        let is_slow = self.random.chance(self.scenario.slow_syncs_per_mille);
        let most = if is_slow { 300 * MILLI } else { SYNC };
        for scope in fresh {
            let delay = self.random.between(10 * MICRO, most);
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
        self.with_shard(server, shard, |node, now, out| {
            node.syncing.remove(&scope);
            let Some(backup) = node.core.backup_mut() else {
                return;
            };
            let result = backup.storage_mut().finish_sync(scope);
            node.core.synced(now, scope, result, out);
        });
    }

    /// How many writes the shard's disk has seen.
    pub fn disk_writes(&self, server: usize, shard: usize) -> u64 {
        let node = self.servers[server].shards.get(shard);
        let backup = node.and_then(|node| node.core.backup());
        backup.map_or(0, |backup| backup.storage().writes())
    }
}
