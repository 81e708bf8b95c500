//! How processes and machines end, and what comes after that.

use backup::BLOCK_BYTES;
use server::End;

use crate::cluster::hosts::coordinator_host;
use crate::cluster::server::Dies;
use crate::cluster::shards::whose;
use crate::cluster::{Cluster, server_host};
use crate::event::{Event, Party};
use crate::net::network::Host;
use crate::scenario::{MILLI, SECOND};

impl Cluster {
    /// Connections that a process is a party to.
    pub(crate) fn sides_of(&self, is_its: impl Fn(&Party) -> bool) -> Vec<(u64, usize)> {
        self.parties
            .iter()
            .filter(|(_, party)| is_its(party))
            .map(|(&side, _)| side)
            .collect()
    }

    /// All at once, or nearly: each with this probability in a thousand.
    pub(crate) fn crash_many(&mut self, per_mille: u64) {
        self.coverage.hit("crashes of several servers at once");
        for server in 0..self.servers.len() {
            if self.streams.of("crashes of many").chance(per_mille) {
                self.crash_server(server);
            }
        }
    }

    /// The machine stops: what was not synced is there in part.
    pub fn lose_power(&mut self, server: usize) {
        self.crash_server(server);
        self.coverage.hit("losses of power");
        let node = &mut self.servers[server];
        node.boots += 1;
        for disk in node.disks.values_mut() {
            disk.power_loss(|writes| {
                self.streams.of("losses of power").between(0, writes as u64) as usize
            });
        }
    }

    pub fn lose_all_power(&mut self) {
        for server in 0..self.servers.len() {
            self.lose_power(server);
        }
    }

    /// kill -9, or the loss of a machine: what only this process held is gone.
    pub(crate) fn crash_server(&mut self, server: usize) {
        if !self.servers[server].is_up {
            return;
        }
        let host = server_host(server);
        self.coverage.hit("server crashes");
        self.note_fault(
            host,
            "crashes, incarnation",
            self.servers[server].incarnation,
        );
        let sides = self.sides_of(|party| {
            matches!(party, Party::ShardClient { server: at, .. } | Party::ShardLink { server: at, .. }
                | Party::ShardPeer { server: at, .. } | Party::ShardToServer { server: at, .. } if *at == server)
        });
        for (connection, side) in sides {
            self.drop_party(connection, side);
        }
        let node = &mut self.servers[server];
        node.is_up = false;
        let mut shards = std::mem::take(&mut node.shards);
        node.take_disks(&mut shards);
        for disk in node.disks.values_mut() {
            disk.process_crash();
        }
        let name = node.name.clone();
        for shard in &shards {
            self.count_shard(shard);
        }
        if self.scenario.replicated.is_some() {
            self.history.move_tablets(self.now);
        } else {
            if self.history.has_come_to(&name) {
                self.coverage
                    .hit("servers without copies lost that tablets had come to");
            }
            let servers = shards.iter().map(whose).collect();
            self.history.lose(self.now, &name, servers);
        }
        let most = *self
            .streams
            .of("crashes")
            .pick(&[10 * MILLI, 300 * MILLI, 4 * SECOND]);
        let after = self.streams.of("crashes").between(MILLI, most);
        self.schedule_in(after, Event::Restart(host));
    }

    /// The end comes while a process writes to a disk.
    pub fn die_writing(&mut self, server: usize, shard: usize, dies: Dies) {
        match dies {
            Dies::Process => self.kill_writing(server, shard),
            Dies::Machine => self.lose_power(server),
            Dies::AllMachines => self.lose_all_power(),
        }
    }

    /// Some of the last write is there, and nobody heard of it.
    fn kill_writing(&mut self, server: usize, shard: usize) {
        let node = &mut self.servers[server];
        if let Some(backup) = node.shards[shard].core.backup_mut()
            && let Some((offset, bytes)) = backup.storage().last_write()
        {
            let block = u64::from(BLOCK_BYTES);
            let end = offset + bytes as u64;
            let mut ends = vec![offset, end];
            ends.extend((offset / block + 1..end.div_ceil(block)).map(|at| at * block));
            let torn_at = *self.streams.of("torn writes").pick(&ends);
            backup.storage_mut().process_crash_within_write(torn_at);
            self.coverage.hit("processes that died within a write");
        }
        self.crash_server(server);
    }

    /// A process finds that it is of no use any more.
    pub fn ends_itself(&mut self, server: usize, why: &End) {
        if why.is_succeeded() {
            self.coverage.hit("deposed servers that ended");
            self.crash_server(server);
        } else if self.has_builds() && self.is_too_old(server, why) {
            self.server_is_too_old(server);
        } else {
            self.storage_refused(server, why);
        }
    }

    pub(crate) fn crash_coordinator(&mut self, process: usize) {
        let is_led = self.scenario.fail_over.is_some();
        let it = &self.coordinators[process];
        if it.node.is_none() && !(is_led && it.is_up) {
            return;
        }
        let host = coordinator_host(process);
        if is_led && it.node.is_some() {
            self.coverage.hit("leaders killed");
        }
        self.coverage.hit("coordinator crashes");
        self.note_fault(host, "crashes, store", self.stores);
        self.end_coordinator(process);
        let most = *self.streams.of("crashes of coordinators").pick(&[
            10 * MILLI,
            300 * MILLI,
            4 * SECOND,
        ]);
        let after = self
            .streams
            .of("crashes of coordinators")
            .between(MILLI, most);
        self.schedule_in(after, Event::Restart(host));
    }

    pub fn restart(&mut self, host: Host) {
        self.note_fault(host, "starts again", 0);
        if let Some(process) = self.coordinator_of(host) {
            return match self.scenario.fail_over {
                None => self.start_coordinator(),
                Some(_) => self.start_standby(process),
            };
        }
        let mut shards = self.scenario.shards;
        if self.scenario.replicated.is_none() && self.streams.of("restarts").chance(300) {
            let other = self.streams.of("restarts").between(1, 3) as u32;
            if other != shards {
                self.coverage.hit("server restarts with other shard counts");
            }
            shards = other;
        }
        self.start_server(host as usize - 1, shards);
    }

    /// Ends a side of a connection without a word, as a dead process does.
    pub fn drop_party(&mut self, connection: u64, side: usize) {
        self.parties.remove(&(connection, side));
        self.network.lose_tail(connection, side);
        if self.streams.of("ends of processes").chance(750) {
            self.network.tell_broken(self.now, connection, 1 - side);
        }
        self.network.deafen(connection, side);
    }

    /// From now on nothing more goes wrong.
    pub fn end_faults(&mut self) {
        self.network.heal_all(self.now);
        self.end_pauses();
        self.end_coordinator_faults();
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.end_bad_weather();
        }
        for server in 0..self.servers.len() {
            self.repair_disks(server);
            self.servers[server].frames_taken_until = 0;
        }
    }
}
