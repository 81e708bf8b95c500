//! Time: what is to happen when, and to whom.

use std::cmp::Reverse;

use base::time::Time;

use crate::cluster::hosts::{FIRST_STANDBY, coordinator_host, machine_of};
use crate::cluster::{COORDINATOR, Cluster, FIRST_CLIENT, client_host, server_host};
use crate::event::{Event, Scheduled};
use crate::net::datagrams::place;
use crate::net::network::{Host, NetworkEvent};

impl Cluster {
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

    /// The next thing that happens; that is now.
    pub fn next_event(&mut self) -> Option<Event> {
        let Reverse(next) = self.queue.pop()?;
        self.now = next.at;
        Some(next.event)
    }

    /// What the network was given arrives later.
    pub fn schedule_packets(&mut self) {
        for (at, event) in std::mem::take(&mut self.network.due) {
            self.schedule(at, Event::Network(event));
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
            Event::Poll { owner, .. } => Some(machine_of(*owner)),
            Event::Enlist { server, .. }
            | Event::Flushed { server, .. }
            | Event::OpenBackup { server, .. }
            | Event::Synced { server, .. }
            | Event::Disk { server, .. } => Some(server_host(*server)),
            Event::GiveUpLink { connection } => self.network.host(*connection, 0),
            Event::ClientStep(client) | Event::PageStep(client) => Some(client_host(*client)),
            Event::Elect { process, .. } | Event::ApiAnswer { process, .. } => {
                Some(coordinator_host(*process))
            }
            Event::ApiExecute { .. }
            | Event::Publish { .. }
            | Event::Heal
            | Event::RepairDisks(_)
            | Event::GoOn { .. }
            | Event::Restart(_)
            | Event::Resume(_)
            | Event::Look
            | Event::Turn(_)
            | Event::PutBack(_) => None,
        }
    }

    /// What is not for whoever makes trouble, or looks on.
    pub fn handle(&mut self, event: Event) {
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
            Event::Disk {
                server,
                incarnation,
                shard,
                step,
            } => self.disk_goes_on(server, incarnation, shard, step),
            Event::Enlist {
                server,
                incarnation,
                shard,
            } => self.enlist(server, incarnation, shard),
            Event::GiveUpLink { connection } => self.give_up_link(connection),
            Event::ClientStep(client) => self.client_step(client),
            Event::PageStep(client) => self.page_step(client),
            Event::Heal => self.network.heal(self.now),
            Event::RepairDisks(server) => self.repair_disks(server),
            Event::GoOn {
                connection,
                direction,
            } => self.network.go_on(self.now, connection, direction),
            Event::Restart(host) => self.restart(host),
            Event::Resume(host) => self.resume(host),
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
            Event::PutBack(step) => self.put_back_step(step),
            Event::Turn(_) | Event::Look => {}
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
}
