//! What goes wrong, and how it ends.

use backup::BLOCK_BYTES;

use crate::leaders::coordinator_host;
use crate::network::Host;
use crate::ports::Ports;
use crate::processes::whose;
use crate::scenario::Replicated;
use crate::scenario::{MICRO, MILLI, SECOND};
use crate::server::{Dies, ShardNode};
use crate::world::{COORDINATOR, Event, Party, Phase, World, client_host, host_name, server_host};

/// Long absences of client 0 in one run.
const MAX_ABSENCES: u32 = 2;

impl World {
    /// One fault, and the next one later.
    pub fn fault(&mut self) {
        if self.phase != Phase::Load || self.faults_left == 0 {
            return;
        }
        if !self.is_only_late() {
            self.faults_left -= 1;
            if self.is_put_back() {
                self.coordinator_fault();
            } else if self.scenario.is_quiet {
                self.quiet_fault();
            } else if !self.damage_if_safe() {
                self.some_fault();
            }
        }
        let next = self
            .streams
            .of("times of faults")
            .between(MICRO, 2 * self.scenario.fault_interval);
        self.schedule_in(next, Event::Fault);
    }

    fn some_fault(&mut self) {
        if self.scenario.fail_over.is_some() && self.streams.of("kinds of faults").chance(450) {
            return self.coordinator_fault();
        }
        if self.state_is_lost() {
            return;
        }
        match self.streams.of("kinds of faults").between(0, 99) {
            0..15 => self.reset_connection(),
            15..25 => self.stall_connection(),
            25..37 => self.silence_connection(),
            37..45 if self.scenario.replicated.is_some() => {
                let server = self
                    .streams
                    .of("isolated servers")
                    .below(self.servers.len());
                self.isolate(server);
            }
            37..55 => self.partition(),
            55..65 => self.pause(),
            65..75 if self.scenario.replicated.is_none() => self.pause(),
            65..90 if self.scenario.crashes => {
                let server = self
                    .streams
                    .of("crashing servers")
                    .below(self.servers.len());
                match self.scenario.replicated {
                    None => self.crash_server(server),
                    Some(replicated) => self.disaster(server, replicated),
                }
            }
            90.. if self.scenario.coordinator_crashes => self.crash_coordinator(0),
            _ => self.reset_connection(),
        }
    }

    pub(crate) fn note_fault(&mut self, host: Host, what: &str, number: u64) {
        self.trace.event(
            self.now,
            || host_name(host),
            "fault",
            &[u64::from(host), number],
            what.as_bytes(),
            || format!("{what} {number}"),
        );
    }

    fn some_connection(&mut self, of: &'static str) -> Option<u64> {
        let ids = self.network.ids();
        (!ids.is_empty()).then(|| *self.streams.of(of).pick(&ids))
    }

    fn reset_connection(&mut self) {
        if let Some(connection) = self.some_connection("resets of connections") {
            self.coverage.hit("connections reset");
            self.note_fault(COORDINATOR, "resets connection", connection);
            self.network.reset(self.now, connection);
        }
    }

    /// Nothing arrives any more, one way or both, and nobody is told.
    fn silence_connection(&mut self) {
        if let Some(connection) = self.some_connection("silent connections") {
            self.coverage.hit("connections silenced");
            self.note_fault(COORDINATOR, "silences connection", connection);
            let direction = self.streams.of("silent connections").below(2);
            self.network.silence(connection, direction);
            if self.streams.of("silent connections").chance(500) {
                self.network.silence(connection, 1 - direction);
            }
        }
    }

    /// One way, nothing arrives for a while; longer than clients wait for an answer, often.
    fn stall_connection(&mut self) {
        if let Some(connection) = self.some_connection("stalls") {
            self.coverage.hit("connections stalled");
            self.note_fault(COORDINATOR, "stalls connection", connection);
            let direction = self.streams.of("stalls").below(2);
            self.network.stall(connection, direction);
            let after = self.streams.of("stalls").between(MILLI, 2 * SECOND);
            let go_on = Event::GoOn {
                connection,
                direction,
            };
            self.schedule_in(after, go_on);
        }
    }

    fn some_host(&mut self, of: &'static str) -> Host {
        let servers = self.servers.len();
        let at = self.streams.of(of).below(1 + servers + self.clients.len());
        match at {
            0 if self.coordinators.len() > 1 => {
                coordinator_host(self.streams.of(of).below(self.coordinators.len()))
            }
            0 => COORDINATOR,
            _ if at <= servers => server_host(at - 1),
            _ => client_host(at - 1 - servers),
        }
    }

    fn partition(&mut self) {
        let (a, b) = (self.some_host("partitions"), self.some_host("partitions"));
        if a == b {
            return;
        }
        self.coverage.hit("partitions");
        self.note_fault(a, "is cut off from host", u64::from(b));
        let is_both_ways = self.streams.of("partitions").chance(600);
        let most =
            *self
                .streams
                .of("partitions")
                .pick(&[20 * MILLI, 400 * MILLI, 2 * SECOND, 6 * SECOND]);
        let after = self.streams.of("partitions").between(MILLI, most);
        self.network.cut(a, b, self.now + after);
        if is_both_ways {
            self.network.cut(b, a, self.now + after);
        }
        self.schedule_in(after, Event::Heal);
    }

    /// A process gets no processor for a while.
    fn pause(&mut self) {
        let host = self.some_host("pauses");
        let most =
            *self
                .streams
                .of("pauses")
                .pick(&[5 * MILLI, 300 * MILLI, 1200 * MILLI, 5 * SECOND]);
        let pause = self.streams.of("pauses").between(MICRO, most);
        self.coverage.hit("processes paused");
        self.note_fault(host, "is paused for ns", pause);
        self.pause_until(host, self.now + pause);
    }

    /// Client 0 is away for longer than its lease lasts, and some of its connections do not survive that.
    pub fn absence(&mut self) {
        if self.phase != Phase::Load {
            return;
        }
        let host = client_host(0);
        let pause = self
            .streams
            .of("absences")
            .between(1000 * SECOND, 2400 * SECOND);
        self.note_fault(host, "is away for ns", pause);
        self.pause_until(host, self.now + pause);
        let connections: Vec<u64> = self.clients[0]
            .sessions
            .values()
            .map(|(connection, _)| *connection)
            .collect();
        for connection in connections {
            if self.streams.of("absences").chance(700) {
                self.network.reset(self.now, connection);
            }
        }
        self.absences += 1;
        if self.absences < MAX_ABSENCES {
            let next = self.streams.of("absences").between(MILLI, 2 * SECOND);
            self.schedule(self.now + pause + next, Event::Absence);
        }
    }

    /// Connections that a process is a party to.
    pub(crate) fn sides_of(&self, is_its: impl Fn(&Party) -> bool) -> Vec<(u64, usize)> {
        self.parties
            .iter()
            .filter(|(_, party)| is_its(party))
            .map(|(&side, _)| side)
            .collect()
    }

    /// One of the things that a store with replicas must survive.
    fn disaster(&mut self, server: usize, replicated: Replicated) {
        // What was brought back is on the disks twice, and once more if it happens again before that has spread.
        if self.scenario.is_overwriting && self.streams.of("disasters").chance(500) {
            return self.crash_many(1000);
        }
        match self.streams.of("disasters").between(0, 99) {
            0..20 => self.crash_server(server),
            20..36 => self.servers[server].dies_writing = Some(Dies::Process),
            36..48 => self.isolate(server),
            48..55 => self.freeze_unheard(server),
            55..65 => self.fail_disk(server, replicated),
            65..77 if replicated.flushed => match self.streams.of("disasters").chance(700) {
                true => self.servers[server].dies_writing = Some(Dies::Machine),
                false => self.lose_power(server),
            },
            77..83 => self.crash_many(800),
            83.. if replicated.flushed => match self.streams.of("disasters").chance(700) {
                true => self.servers[server].dies_writing = Some(Dies::AllMachines),
                false => self.lose_all_power(),
            },
            _ => self.crash_server(server),
        }
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

    /// A server hears nothing of its store any more, and nobody there of it; some clients reach it, and others all the rest. Often for so long
    /// that what it held has come back elsewhere meanwhile.
    fn isolate(&mut self, server: usize) {
        if self.now < self.isolated_until {
            return self.partition();
        }
        self.coverage.hit("servers isolated with their clients");
        let host = server_host(server);
        self.note_fault(host, "is cut off from the store", 0);
        let others = (0..self.servers.len()).filter(|other| *other != server);
        let mut others: Vec<Host> = others.map(server_host).collect();
        others.extend(self.coordinator_hosts());
        // Who reads stays, as a rule: what is written here and cannot become durable would hide what is stale.
        let first_reader = self.clients.len() - self.scenario.readers;
        for client in 0..self.clients.len() {
            let is_far = self
                .streams
                .of("isolations")
                .chance(if client < first_reader { 850 } else { 150 });
            others.extend(is_far.then(|| client_host(client)));
        }
        let until_dead = self.scenario.silence_timeout + 2 * SECOND;
        let after = match self.streams.of("isolations").chance(300) {
            true => self
                .streams
                .of("isolations")
                .between(300 * MILLI, until_dead),
            false => until_dead + self.streams.of("isolations").between(MILLI, 5 * SECOND),
        };
        self.isolated_until = self.now + after;
        for other in others {
            self.network.cut(host, other, self.now + after);
            self.network.cut(other, host, self.now + after);
        }
        self.schedule_in(after, Event::Heal);
    }

    /// A server gets no processor for so long that it is taken for dead, and does not hear of that when it goes on.
    fn freeze_unheard(&mut self, server: usize) {
        self.coverage
            .hit("servers frozen and cut off from the coordinator");
        let host = server_host(server);
        let most = self.scenario.silence_timeout + 2 * SECOND;
        let pause = self.streams.of("freezes").between(800 * MILLI, most);
        self.note_fault(host, "is frozen and unheard for ns", pause);
        self.pause_until(host, self.now + pause);
        let after = pause + self.streams.of("freezes").between(MILLI, 2 * SECOND);
        for coordinator in self.coordinator_hosts() {
            self.network.cut(host, coordinator, self.now + after);
            self.network.cut(coordinator, host, self.now + after);
        }
        self.schedule_in(after, Event::Heal);
    }

    /// The machine stops: what was not synced is there in part.
    fn lose_power(&mut self, server: usize) {
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

    fn lose_all_power(&mut self) {
        for server in 0..self.servers.len() {
            self.lose_power(server);
        }
    }

    /// A disk loses something that was promised, sometimes. With R replicas the store survives R - 1 of these, if they come when all is well.
    fn damage_if_safe(&mut self) -> bool {
        if !self.scenario.crashes
            || !self.survives_damage()
            || self.streams.of("damage").chance(700)
        {
            return false;
        }
        self.damages += 1;
        let server = self.streams.of("damage").below(self.servers.len());
        match self.streams.of("damage").below(3) {
            0 => {
                self.crash_server(server);
                self.coverage.hit("disks lost");
                self.servers[server].disks.clear();
            }
            1 => {
                self.lose_power(server);
            }
            _ => self.rot(server),
        }
        true
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
    pub fn ends_itself(&mut self, server: usize, why: &str) {
        if why.contains("taken for dead") {
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

    /// From now on nothing more goes wrong.
    pub fn end_faults(&mut self) {
        self.network.heal_all(self.now);
        self.end_pauses();
        self.end_coordinator_faults();
        self.end_bad_weather();
        for server in 0..self.servers.len() {
            self.repair_disks(server);
            self.servers[server].frames_taken_until = 0;
        }
    }

    /// Takes over what a shard has counted.
    pub fn count_shard(&mut self, shard: &ShardNode) {
        let stats = shard.core.shard().stats();
        let coverage = &mut self.coverage;
        coverage.add("reads", stats.reads);
        coverage.add("writes", stats.writes);
        coverage.add("removes", stats.removes);
        coverage.add("increments", stats.increments);
        coverage.add("results answered from record", stats.duplicates);
        coverage.add("log segments cleaned", stats.segments_cleaned);
        let closed_early = shard.core.shard().room().closed_early;
        coverage.add("segments closed before they were full", closed_early);
        let report = shard.core.shard().replication_report();
        let last_resorts = report.map_or(0, |report| report.last_resorts);
        coverage.add(
            "copies on servers that leave for want of others",
            last_resorts,
        );
        let opened = shard.core.shard().head_position().0 / u64::from(self.scenario.segment_bytes);
        coverage.add("log segments opened", opened);
        if let Some(ports) = &shard.ports {
            self.count_ports(ports);
        }
    }

    /// The same for the ports of a process.
    pub fn count_ports(&mut self, ports: &Ports) {
        let coverage = &mut self.coverage;
        coverage.add("values lent", ports.loans);
        coverage.add("loans called back", ports.recalled);
        for port in &ports.ports {
            let counters = port.endpoint.counters();
            coverage.add("damaged datagrams dropped", counters.malformed);
            coverage.add("datagrams that came again or too late", counters.stale);
            coverage.add("requests repeated in a session", counters.retries);
            coverage.add("datagrams sent again", counters.resent);
        }
    }
}
