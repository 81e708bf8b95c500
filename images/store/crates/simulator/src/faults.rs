//! What goes wrong, and how it ends.

use crate::network::Host;
use crate::scenario::{MICRO, MILLI, SECOND};
use crate::server::ShardNode;
use crate::world::{COORDINATOR, Event, Party, Phase, World, client_host, host_name, server_host};

/// Long absences of client 0 in one run.
const MAX_ABSENCES: u32 = 2;

impl World {
    /// One fault, and the next one later.
    pub fn fault(&mut self) {
        if self.phase != Phase::Load || self.faults_left == 0 {
            return;
        }
        self.faults_left -= 1;
        match self.random.between(0, 99) {
            0..15 => self.reset_connection(),
            15..25 => self.stall_connection(),
            25..37 => self.silence_connection(),
            37..55 => self.partition(),
            55..75 => self.pause(),
            75..90 if self.scenario.crashes => {
                let server = self.random.below(self.servers.len());
                self.crash_server(server);
            }
            90.. if self.scenario.coordinator_crashes => self.crash_coordinator(),
            _ => self.reset_connection(),
        }
        let next = self.random.between(MICRO, 2 * self.scenario.fault_interval);
        self.schedule_in(next, Event::Fault);
    }

    fn note_fault(&mut self, host: Host, what: &str, number: u64) {
        self.trace.event(
            self.now,
            || host_name(host),
            "fault",
            &[u64::from(host), number],
            what.as_bytes(),
            || format!("{what} {number}"),
        );
    }

    fn some_connection(&mut self) -> Option<u64> {
        let ids = self.network.ids();
        (!ids.is_empty()).then(|| *self.random.pick(&ids))
    }

    fn reset_connection(&mut self) {
        if let Some(connection) = self.some_connection() {
            self.coverage.hit("connections reset");
            self.note_fault(COORDINATOR, "resets connection", connection);
            self.network.reset(self.now, connection);
        }
    }

    /// Nothing arrives any more, one way or both, and nobody is told.
    fn silence_connection(&mut self) {
        if let Some(connection) = self.some_connection() {
            self.coverage.hit("connections silenced");
            self.note_fault(COORDINATOR, "silences connection", connection);
            let direction = self.random.below(2);
            self.network.silence(connection, direction);
            if self.random.chance(500) {
                self.network.silence(connection, 1 - direction);
            }
        }
    }

    /// One way, nothing arrives for a while; longer than clients wait for an answer, often.
    fn stall_connection(&mut self) {
        if let Some(connection) = self.some_connection() {
            self.coverage.hit("connections stalled");
            self.note_fault(COORDINATOR, "stalls connection", connection);
            let direction = self.random.below(2);
            self.network.stall(connection, direction);
            let after = self.random.between(MILLI, 2 * SECOND);
            let go_on = Event::GoOn {
                connection,
                direction,
            };
            self.schedule_in(after, go_on);
        }
    }

    fn some_host(&mut self) -> Host {
        let servers = self.servers.len();
        let at = self.random.below(1 + servers + self.clients.len());
        match at {
            0 => COORDINATOR,
            _ if at <= servers => server_host(at - 1),
            _ => client_host(at - 1 - servers),
        }
    }

    fn partition(&mut self) {
        let (a, b) = (self.some_host(), self.some_host());
        if a == b {
            return;
        }
        self.coverage.hit("partitions");
        self.note_fault(a, "is cut off from host", u64::from(b));
        self.network.cut(a, b);
        if self.random.chance(600) {
            self.network.cut(b, a);
        }
        let most = *self
            .random
            .pick(&[20 * MILLI, 400 * MILLI, 2 * SECOND, 6 * SECOND]);
        let after = self.random.between(MILLI, most);
        self.schedule_in(after, Event::Heal);
    }

    /// A process gets no processor for a while.
    fn pause(&mut self) {
        let host = self.some_host();
        let most = *self
            .random
            .pick(&[5 * MILLI, 300 * MILLI, 1200 * MILLI, 5 * SECOND]);
        let pause = self.random.between(MICRO, most);
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
        let pause = self.random.between(1000 * SECOND, 2400 * SECOND);
        self.note_fault(host, "is away for ns", pause);
        self.pause_until(host, self.now + pause);
        let connections: Vec<u64> = self.clients[0]
            .sessions
            .values()
            .map(|(connection, _)| *connection)
            .collect();
        for connection in connections {
            if self.random.chance(700) {
                self.network.reset(self.now, connection);
            }
        }
        self.absences += 1;
        if self.absences < MAX_ABSENCES {
            let next = self.random.between(MILLI, 2 * SECOND);
            self.schedule(self.now + pause + next, Event::Absence);
        }
    }

    /// Connections that a process is a party to.
    fn sides_of(&self, is_its: impl Fn(&Party) -> bool) -> Vec<(u64, usize)> {
        self.parties
            .iter()
            .filter(|(_, party)| is_its(party))
            .map(|(&side, _)| side)
            .collect()
    }

    /// kill -9, or the loss of a machine: what only this process held is gone.
    fn crash_server(&mut self, server: usize) {
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
            matches!(party, Party::ShardClient { server: at, .. } | Party::ShardLink { server: at, .. } if *at == server)
        });
        for (connection, side) in sides {
            self.drop_party(connection, side);
        }
        let node = &mut self.servers[server];
        node.is_up = false;
        let shards = std::mem::take(&mut node.shards);
        let name = node.name.clone();
        for shard in &shards {
            self.count_shard(shard);
        }
        self.history.lose(self.now, &name);
        let most = *self.random.pick(&[10 * MILLI, 300 * MILLI, 4 * SECOND]);
        let after = self.random.between(MILLI, most);
        self.schedule_in(after, Event::Restart(host));
    }

    fn crash_coordinator(&mut self) {
        if self.coordinator.take().is_none() {
            return;
        }
        self.coverage.hit("coordinator crashes");
        self.note_fault(COORDINATOR, "crashes, store", self.stores);
        let sides = self
            .sides_of(|party| matches!(party, Party::CoordinatorClient | Party::CoordinatorMember));
        for (connection, side) in sides {
            self.drop_party(connection, side);
        }
        let most = *self.random.pick(&[10 * MILLI, 300 * MILLI, 4 * SECOND]);
        let after = self.random.between(MILLI, most);
        self.schedule_in(after, Event::Restart(COORDINATOR));
    }

    pub fn restart(&mut self, host: Host) {
        self.note_fault(host, "starts again", 0);
        if host == COORDINATOR {
            return self.start_coordinator();
        }
        let mut shards = self.scenario.shards;
        if self.random.chance(300) {
            let other = self.random.between(1, 3) as u32;
            if other != shards {
                self.coverage.hit("server restarts with other shard counts");
            }
            shards = other;
        }
        self.start_server(host as usize - 1, shards);
    }

    /// From now on nothing more goes wrong.
    pub fn end_faults(&mut self) {
        self.network.heal(self.now);
        self.end_pauses();
    }

    /// Takes over what a shard has counted.
    pub fn count_shard(&mut self, shard: &ShardNode) {
        let stats = shard.core.stats();
        let coverage = &mut self.coverage;
        coverage.add("reads", stats.reads);
        coverage.add("writes", stats.writes);
        coverage.add("removes", stats.removes);
        coverage.add("increments", stats.increments);
        coverage.add("results answered from record", stats.duplicates);
        coverage.add("log segments cleaned", stats.segments_cleaned);
        let opened = shard.core.head_position().0 / u64::from(self.scenario.segment_bytes);
        coverage.add("log segments opened", opened);
    }
}
