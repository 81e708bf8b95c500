//! How processes start.

use core::time::Duration;

use client_core::{Client, Config as ClientConfig};
use coordinator::state::Pair;
use coordinator::{Config as CoordinatorConfig, Coordinator, RestoreError};

use crate::clock::Clock;
use crate::cluster::api::Api;
use crate::cluster::client::ClientNode;
use crate::cluster::coordinator_node::{CoordinatorNode, CoordinatorProcess, Core, sessions_of};
use crate::cluster::hosts::coordinator_host;
use crate::cluster::server::{ServerNode, protocols};
use crate::cluster::{
    COORDINATOR, COORDINATOR_LOCATOR, Cluster, Machine, START_OF_LOAD, client_host, server_host,
};
use crate::event::Event;
use crate::net::network::Host;
use crate::oracles::moved::Moved;
use crate::scenario::MILLI;

impl Cluster {
    pub fn populate(&mut self) {
        self.add_machine(COORDINATOR);
        match self.scenario.fail_over {
            None => self.start_coordinator(),
            Some(fail_over) => self.start_coordinators(fail_over.processes),
        }
        for server in 0..self.scenario.members {
            self.servers
                .push(ServerNode::new(format!("m{}", server + 1)));
            self.add_machine(server_host(server));
            self.start_server(server, self.scenario.shards);
        }
        for client in 0..self.scenario.clients {
            let host = client_host(client);
            self.add_machine(host);
            let seed = self.streams.of("clients").next();
            let mut config = ClientConfig::new(COORDINATOR_LOCATOR, seed)
                .expect("the locator is one of this file");
            config.protocols = protocols(&self.scenario);
            let core = Client::new(config, self.clock(host));
            let random = self.streams.of("clients").fork();
            let mut node = ClientNode::new(client as u32, core, &self.scenario, random);
            node.open_ports(&self.scenario, host, &mut self.datagrams);
            self.clients.push(node);
            self.schedule_in(START_OF_LOAD, Event::ClientStep(client));
        }
    }

    fn add_machine(&mut self, host: Host) {
        let limit = self.scenario.max_clock_error_ppm;
        let error = self.streams.of("clocks").between(0, 2 * limit) as i64 - limit as i64;
        let offset = self.streams.of("clocks").between(0, 1 << 50);
        let machine = Machine {
            clock: Clock::new(offset, error),
            paused_until: 0,
            held: Vec::new(),
            tick_at: u64::MAX,
        };
        self.machines.insert(host, machine);
    }

    fn start_coordinators(&mut self, count: usize) {
        self.api = Some(Api::new());
        self.coordinators
            .resize_with(count, CoordinatorProcess::default);
        for process in 0..count {
            if process > 0 {
                self.add_machine(coordinator_host(process));
            }
            self.start_standby(process);
        }
    }

    pub fn start_coordinator(&mut self) {
        let cluster_id = self.streams.of("names of stores").next() | 1;
        let goes_on = self.scenario.coordinator_keeps_state && !self.noted.is_empty();
        let is_made_again = !goes_on && self.is_rebuilding;
        if !goes_on && !is_made_again {
            self.stores += 1;
            // It gives out the same ids again.
            self.moved = Moved::default();
            self.noted.clear();
            self.noted_count = 0;
        }
        // Tag 0 would do as well; two stores of one run must only differ.
        let mut config = CoordinatorConfig::new(cluster_id, self.stores as u32, "simulated");
        config.silence_timeout = Duration::from_nanos(self.scenario.silence_timeout);
        config.ping_interval = config.silence_timeout / 15;
        config.formats = self.coordinators[0].installed;
        config.balancing = self.balancing.clone();
        let now = self.clock(COORDINATOR);
        let incarnation = self.coordinators[0].incarnation;
        if is_made_again {
            let nonce = self.streams.of("names of stores").next();
            let core = Coordinator::rebuilding(config, nonce, true, now);
            self.lead_alone(core);
            return self.schedule_in(0, Event::Tick(COORDINATOR));
        }
        let mut core = if goes_on {
            self.coverage
                .hit("coordinators that go on with what was noted");
            let pairs = self.noted.clone().into_iter();
            let pairs = pairs.map(|(key, value)| Pair { key, value });
            match Coordinator::restore(config, pairs, now) {
                Ok(core) => core,
                Err(RestoreError::NewerFormat { .. }) if self.has_builds() => {
                    self.coordinator_is_too_old(0);
                    return self.schedule_in(MILLI, Event::Restart(COORDINATOR));
                }
                Err(error) => return self.fail(format!("the coordinator does not start: {error}")),
            }
        } else {
            Coordinator::new(config, now)
        };
        core.begin_term(self.stores << 32 | incarnation, self.noted_count);
        self.lead_alone(core);
        self.schedule_in(0, Event::Tick(COORDINATOR));
    }

    fn lead_alone(&mut self, core: Coordinator) {
        let process = &self.coordinators[0];
        // Another store's coordinator knows nothing of this one's sessions.
        let sessions = sessions_of(0, self.stores << 20 | process.incarnation);
        let numbers_messages = self.numbers_messages(process.installed);
        let core = Core::Alone(Box::new(core));
        let node = CoordinatorNode::new(core, sessions, numbers_messages);
        self.coordinators[0].node = Some(node);
    }

    pub fn start_server(&mut self, server: usize, shards: u32) {
        let now = self.clock(server_host(server));
        let node = &mut self.servers[server];
        let host = server_host(server);
        node.start(&self.scenario, host, shards, now, &mut self.datagrams);
        let incarnation = node.incarnation;
        for shard in 0..shards as usize {
            let enlist = Event::Enlist {
                server,
                incarnation,
                shard,
            };
            let delay = self.streams.of("enlisting").between(0, MILLI);
            self.schedule_in(delay, enlist);
        }
        self.schedule_in(0, Event::Tick(server_host(server)));
    }
}
