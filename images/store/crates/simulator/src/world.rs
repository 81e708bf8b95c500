//! The whole cluster, and the loop that lets time pass.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use client_core::{Client, Config as ClientConfig};
use coordinator::state::Pair;
use coordinator::{Config as CoordinatorConfig, Coordinator};
use wire::time::Time;

use crate::client::ClientNode;
use crate::clock::Clock;
use crate::coordinator_node::{CoordinatorNode, CoordinatorProcess, Core};
use crate::copies::Copies;
use crate::coverage::Coverage;
use crate::datagrams::{Datagrams, place};
use crate::deposed::Deposed;
use crate::disasters::Disasters;
use crate::drains::Drains;
use crate::event::Scheduled;
pub use crate::event::{Event, Party, Phase};
use crate::history::History;
use crate::lateness::Lateness;
use crate::leaders::{Api, FIRST_STANDBY, coordinator_host};
use crate::migrations::Migrations;
use crate::moved::Moved;
use crate::network::{Host, Network, NetworkEvent};
use crate::random::Streams;
use crate::rooms::Rooms;
use crate::scenario::{MILLI, Scenario};
use crate::server::{ServerNode, frame_count, protocols};
use crate::trace::Trace;
use crate::tuning::Tuning;
use crate::upgrades::Upgrades;

/// The coordinator's machine; servers' follow, clients' come from [`FIRST_CLIENT`] on.
pub const COORDINATOR: Host = 0;
pub const FIRST_CLIENT: Host = 1000;
pub const COORDINATOR_LOCATOR: &str = "tcp:host=coordinator,port=11100";

/// A process's clock, pauses and timer.
#[derive(Debug)]
pub struct Machine {
    pub clock: Clock,
    pub paused_until: u64,
    /// What it has to see to when it gets the processor back.
    held: Vec<Event>,
    /// The earliest tick that is scheduled.
    tick_at: u64,
}

pub struct World {
    pub now: u64,
    pub scenario: Scenario,
    pub streams: Streams,
    pub migrations: Migrations,
    pub upgrades: Upgrades,
    pub drains: Drains,
    pub tuning: Tuning,
    pub lateness: Lateness,
    pub network: Network,
    /// The network for datagrams, if there are any.
    pub datagrams: Option<Datagrams>,
    pub machines: BTreeMap<Host, Machine>,
    /// By connection and side.
    pub parties: BTreeMap<(u64, usize), Party>,
    /// One, or several of which one leads.
    pub coordinators: Vec<CoordinatorProcess>,
    /// Where the coordinators' state is, if there are several.
    pub api: Option<Api>,
    /// Coordinators so far; each is a store of its own.
    pub stores: u64,
    /// What the coordinator has noted.
    pub noted: BTreeMap<Vec<u8>, Vec<u8>>,
    /// How often it has.
    pub noted_count: u64,
    pub disasters: Disasters,
    pub servers: Vec<ServerNode>,
    pub clients: Vec<ClientNode>,
    pub history: History,
    pub deposed: Deposed,
    pub moved: Moved,
    pub rooms: Rooms,
    pub copies: Copies,
    pub coverage: Coverage,
    pub trace: Trace,
    pub phase: Phase,
    /// What went wrong; the run ends at the first.
    pub failure: Option<String>,
    /// Where in the history the reads at the end begin.
    pub first_final_read: usize,
    /// Objects that the shards counted at the end.
    pub objects: u64,
    /// Faults that are still to come.
    pub faults_left: u64,
    /// Disks that have lost something that was promised.
    pub damages: u32,
    /// A server is cut off from the others until then.
    pub isolated_until: u64,
    /// Long absences so far.
    pub absences: u32,
    pub(crate) phase_began: u64,
    /// Events so far.
    pub(crate) handled: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
}

/// What people do to a cluster beside using it, and what is done to all of it at once.
pub struct Interventions {
    pub migrations: Migrations,
    pub upgrades: Upgrades,
    pub drains: Drains,
    pub tuning: Tuning,
    pub disasters: Disasters,
    pub datagrams: Option<Datagrams>,
}

/// What a coordinator says that does not read the format of the state.
pub const TOO_OLD: &str = "by a newer build";
/// By then the servers are in, unless the network is slow.
pub const START_OF_LOAD: u64 = 100 * MILLI;
/// Events after which a run is taken for one that goes round in circles.
const MAX_EVENTS: u64 = 5_000_000;
/// The same with datagrams, of which each is one, and each round of a port: clients that are told to come again do so faster.
const MAX_EVENTS_WITH_DATAGRAMS: u64 = 20_000_000;
/// The same where nobody leads for minutes, and clients are told to come again thousands of times in a second.
const MAX_EVENTS_WITHOUT_LEADER: u64 = 60_000_000;

impl World {
    pub fn new(
        scenario: Scenario,
        interventions: Interventions,
        mut streams: Streams,
        prints: bool,
    ) -> World {
        let Interventions {
            migrations,
            upgrades,
            drains,
            tuning,
            disasters,
            datagrams,
        } = interventions;
        let network = Network::new(scenario.network, &mut streams);
        let mut world = World {
            now: 0,
            network,
            datagrams,
            machines: BTreeMap::new(),
            parties: BTreeMap::new(),
            coordinators: vec![CoordinatorProcess::default()],
            api: None,
            stores: 0,
            noted: BTreeMap::new(),
            noted_count: 0,
            disasters,
            servers: Vec::new(),
            clients: Vec::new(),
            history: History::default(),
            deposed: Deposed::default(),
            moved: Moved::default(),
            rooms: Rooms::default(),
            copies: Copies::default(),
            coverage: Coverage::default(),
            trace: Trace::new(prints),
            phase: Phase::Load,
            failure: None,
            first_final_read: 0,
            objects: 0,
            faults_left: streams.of("number of faults").between(1, 80),
            damages: 0,
            isolated_until: 0,
            absences: 0,
            phase_began: 0,
            handled: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            scenario,
            migrations,
            upgrades,
            drains,
            tuning,
            lateness: Lateness::default(),
            streams,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
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
        if self.scenario.fault_interval > 0 {
            let first = self
                .streams
                .of("times of faults")
                .between(0, 2 * self.scenario.fault_interval);
            self.schedule_in(START_OF_LOAD + first, Event::Fault);
        }
        self.plan_migration();
        self.plan_upgrade();
        self.plan_drain();
        self.plan_tuning();
        self.plan_put_back();
        self.plan_dead_ways();
        self.plan_look();
        if self.scenario.lease_expires {
            let at = START_OF_LOAD + self.streams.of("absences").between(MILLI, 300 * MILLI);
            self.schedule_in(at, Event::Absence);
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
        let is_made_again = !goes_on && self.disasters.is_rebuilding();
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
        config.balancing = self.migrations.balancing.clone();
        let now = self.clock(COORDINATOR);
        let incarnation = self.coordinators[0].incarnation;
        if is_made_again {
            let nonce = self.streams.of("names of stores").next();
            let core = Coordinator::rebuilding(config, nonce, true, now);
            let node = CoordinatorNode::new(Core::Alone(Box::new(core)));
            self.coordinators[0].node = Some(node);
            return self.schedule_in(0, Event::Tick(COORDINATOR));
        }
        let mut core = if goes_on {
            self.coverage
                .hit("coordinators that go on with what was noted");
            let pairs = self.noted.clone().into_iter();
            let pairs = pairs.map(|(key, value)| Pair { key, value });
            match Coordinator::restore(config, pairs, now) {
                Ok(core) => core,
                Err(text) if self.has_builds() && text.contains(TOO_OLD) => {
                    self.coordinator_is_too_old(0);
                    return self.schedule_in(MILLI, Event::Restart(COORDINATOR));
                }
                Err(text) => return self.fail(format!("the coordinator does not start: {text}")),
            }
        } else {
            Coordinator::new(config, now)
        };
        core.begin_term(self.stores << 32 | incarnation, self.noted_count);
        let node = CoordinatorNode::new(Core::Alone(Box::new(core)));
        self.coordinators[0].node = Some(node);
        self.schedule_in(0, Event::Tick(COORDINATOR));
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

    /// What this machine's clock shows now.
    pub fn clock(&self, host: Host) -> Time {
        self.machines[&host].clock.at(self.now)
    }

    pub fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled {
            at: at.max(self.now),
            sequence: self.scheduled,
            event,
        }));
    }

    pub fn schedule_in(&mut self, delay: u64, event: Event) {
        self.schedule(self.now + delay, event);
    }

    /// Sees to it that the machine ticks when its clock shows `shown`, and not in this very moment.
    pub fn tick_when(&mut self, host: Host, shown: Time) {
        let moment = self.machines[&host].clock.moment(shown);
        if moment == u64::MAX {
            return;
        }
        let at = moment.max(self.now + 1000);
        if let Some(machine) = self.machines.get_mut(&host)
            && at < machine.tick_at
        {
            machine.tick_at = at;
            self.schedule(at, Event::Tick(host));
        }
    }

    pub fn fail(&mut self, text: String) {
        if self.failure.is_none() {
            self.failure = Some(text);
        }
    }

    /// Runs to the end, or to the first failure.
    pub fn run(&mut self) {
        while self.failure.is_none() && self.phase != Phase::Over {
            let Some(Reverse(next)) = self.queue.pop() else {
                return self.fail("nothing will ever happen again".to_owned());
            };
            self.now = next.at;
            self.handle(next.event);
            for (at, event) in std::mem::take(&mut self.network.due) {
                self.schedule(at, Event::Network(event));
            }
            self.change_phase();
            self.handled += 1;
            let max_events = match self.scenario.fail_over {
                Some(_) => MAX_EVENTS_WITHOUT_LEADER,
                None if self.scenario.fast.is_some() => MAX_EVENTS_WITH_DATAGRAMS,
                None => MAX_EVENTS,
            };
            if self.handled > max_events {
                return self.fail(format!("no end after {max_events} events"));
            }
        }
    }

    /// Nothing will happen any more by itself.
    pub(crate) fn has_no_events(&self) -> bool {
        self.queue.is_empty()
    }

    /// The machine that an event concerns, which may be paused.
    fn host_of(&self, event: &Event) -> Option<Host> {
        match event {
            Event::Network(NetworkEvent::Arrive {
                connection,
                direction,
                ..
            }) => self.network.host(*connection, 1 - direction),
            Event::Network(NetworkEvent::Broken { connection, side }) => {
                self.network.host(*connection, *side)
            }
            Event::Tick(host) => Some(*host),
            Event::Datagram { to, .. } => Some(place(*to).1),
            Event::Poll { owner, .. } => Some(owner.host()),
            Event::Enlist { server, .. }
            | Event::Flushed { server, .. }
            | Event::OpenBackup { server, .. }
            | Event::Synced { server, .. } => Some(server_host(*server)),
            Event::GiveUpLink { connection } => self.network.host(*connection, 0),
            Event::ClientStep(client) | Event::PageStep(client) => Some(client_host(*client)),
            Event::Elect { process, .. } | Event::ApiAnswer { process, .. } => {
                Some(coordinator_host(*process))
            }
            Event::ApiExecute { .. }
            | Event::Publish { .. }
            | Event::Fault
            | Event::DeadWay
            | Event::Heal
            | Event::RepairDisks(_)
            | Event::GoOn { .. }
            | Event::Restart(_)
            | Event::Resume(_)
            | Event::Absence
            | Event::Migrate
            | Event::Drain
            | Event::Tune
            | Event::OrderWhileAway(_)
            | Event::Look
            | Event::Late
            | Event::Strike(_)
            | Event::Upgrade
            | Event::PutBack(_) => None,
        }
    }

    fn handle(&mut self, event: Event) {
        if let Some(machine) = self
            .host_of(&event)
            .and_then(|host| self.machines.get_mut(&host))
            && machine.paused_until > self.now
        {
            return machine.held.push(event);
        }
        match event {
            Event::Network(event) => self.network_event(event),
            Event::Datagram { from, to, bytes } => self.datagram(from, to, bytes),
            Event::Poll { owner, incarnation } => self.poll(owner, incarnation),
            Event::DeadWay => self.dead_way(),
            Event::Tick(host) => {
                if let Some(machine) = self.machines.get_mut(&host)
                    && machine.tick_at <= self.now
                {
                    machine.tick_at = u64::MAX;
                }
                self.tick(host);
            }
            Event::Flushed {
                server,
                incarnation,
                shard,
                epoch,
                position,
            } => self.flushed(server, incarnation, shard, epoch, position),
            Event::OpenBackup {
                server,
                incarnation,
                shard,
                config,
            } => self.open_backup(server, incarnation, shard, config),
            Event::Synced {
                server,
                incarnation,
                shard,
                scope,
            } => self.synced(server, incarnation, shard, scope),
            Event::Enlist {
                server,
                incarnation,
                shard,
            } => self.enlist(server, incarnation, shard),
            Event::GiveUpLink { connection } => self.give_up_link(connection),
            Event::ClientStep(client) => self.client_step(client),
            Event::PageStep(client) => self.page_step(client),
            Event::Fault => self.fault(),
            Event::Heal => self.network.heal(self.now),
            Event::RepairDisks(server) => self.repair_disks(server),
            Event::GoOn {
                connection,
                direction,
            } => self.network.go_on(self.now, connection, direction),
            Event::Restart(host) => self.restart(host),
            Event::Resume(host) => self.resume(host),
            Event::Absence => self.absence(),
            Event::Elect {
                process,
                incarnation,
            } => self.elect(process, incarnation),
            Event::Publish { process } => self.published(process),
            Event::ApiExecute {
                process,
                incarnation,
                id,
                request,
                is_waited_for,
            } => self.api_execute(process, incarnation, id, &request, is_waited_for),
            Event::ApiAnswer {
                process,
                incarnation,
                id,
                answer,
            } => self.api_answer(process, incarnation, id, *answer),
            Event::Migrate => self.migrate(),
            Event::Drain => self.drain(),
            Event::Tune => self.tune(),
            Event::OrderWhileAway(server) => self.order_while_away(server),
            Event::Look => self.look(),
            Event::Late => self.late(),
            Event::Strike(between) => self.strike(between),
            Event::Upgrade => self.upgrade(),
            Event::PutBack(step) => self.put_back_step(step),
        }
    }

    /// A process does not run until then.
    pub fn pause_until(&mut self, host: Host, until: u64) {
        if let Some(machine) = self.machines.get_mut(&host) {
            machine.paused_until = machine.paused_until.max(until);
            self.schedule(until, Event::Resume(host));
        }
    }

    /// Paused processes go on now.
    pub fn end_pauses(&mut self) {
        let hosts: Vec<Host> = self.machines.keys().copied().collect();
        for host in hosts {
            if let Some(machine) = self.machines.get_mut(&host) {
                machine.paused_until = machine.paused_until.min(self.now);
            }
            self.resume(host);
        }
    }

    fn resume(&mut self, host: Host) {
        let Some(machine) = self.machines.get_mut(&host) else {
            return;
        };
        if machine.paused_until <= self.now {
            for event in std::mem::take(&mut machine.held) {
                self.schedule(self.now, event);
            }
        }
    }

    /// Lets a process do what is due.
    pub fn tick(&mut self, host: Host) {
        match host {
            COORDINATOR | FIRST_STANDBY..FIRST_CLIENT => self.tick_coordinator(host),
            FIRST_CLIENT.. => self.tick_client((host - FIRST_CLIENT) as usize),
            _ => self.tick_server(host as usize - 1),
        }
    }

    /// How often so much was appended to each server's backups as these have room for; the least.
    pub fn overwritten(&self) -> f64 {
        let Some(replicated) = &self.scenario.replicated else {
            return 0.0;
        };
        let frames = frame_count(&self.scenario, replicated) * self.scenario.shards;
        let room = f64::from(frames) * f64::from(self.scenario.segment_bytes);
        let servers = self.servers.iter();
        servers
            .map(|server| server.appended_bytes() as f64 / room)
            .fold(f64::INFINITY, f64::min)
    }
}

pub fn server_host(server: usize) -> Host {
    server as Host + 1
}

pub fn client_host(client: usize) -> Host {
    FIRST_CLIENT + client as Host
}

/// What a host is called in locators and in the trace.
pub fn host_name(host: Host) -> String {
    match host {
        COORDINATOR => "coordinator".to_owned(),
        FIRST_STANDBY..FIRST_CLIENT => format!("standby{}", host - FIRST_STANDBY),
        FIRST_CLIENT.. => format!("client{}", host - FIRST_CLIENT),
        _ => format!("m{host}"),
    }
}
