//! What goes wrong with servers, connections and the network in most runs.

use crate::cluster::hosts::coordinator_host;
use crate::cluster::server::Dies;
use crate::cluster::{COORDINATOR, Cluster, client_host, server_host};
use crate::event::Event;
use crate::faults::state_loss::StateLoss;
use crate::faults::{coordinators, disks};
use crate::net::network::Host;
use crate::scenario::{MICRO, MILLI, Replicated, SECOND};

/// The usual faults.
#[derive(Debug, Default)]
pub struct Usual {
    /// A server is cut off from the others until then.
    isolated_until: u64,
}

impl Usual {
    pub fn strike(&mut self, state_loss: StateLoss, cluster: &mut Cluster) {
        if cluster.scenario.fail_over.is_some() && cluster.streams.of("kinds of faults").chance(450)
        {
            return coordinators::strike(cluster);
        }
        if state_loss.strike(cluster) {
            return;
        }
        match cluster.streams.of("kinds of faults").between(0, 99) {
            0..15 => reset_connection(cluster),
            15..25 => stall_connection(cluster),
            25..37 => silence_connection(cluster),
            37..45 if cluster.scenario.replicated.is_some() => {
                let server = cluster
                    .streams
                    .of("isolated servers")
                    .below(cluster.servers.len());
                self.isolate(cluster, server);
            }
            37..55 => partition(cluster),
            55..65 => pause(cluster),
            65..75 if cluster.scenario.replicated.is_none() => pause(cluster),
            65..90 if cluster.scenario.crashes => {
                let server = cluster
                    .streams
                    .of("crashing servers")
                    .below(cluster.servers.len());
                match cluster.scenario.replicated {
                    None => cluster.crash_server(server),
                    Some(replicated) => self.disaster(cluster, server, replicated),
                }
            }
            90.. if cluster.scenario.coordinator_crashes => cluster.crash_coordinator(0),
            _ => reset_connection(cluster),
        }
    }

    /// One of the things that a store with replicas must survive.
    fn disaster(&mut self, cluster: &mut Cluster, server: usize, replicated: Replicated) {
        // The objects that came back are on the disks twice, and once more if it happens again before that has spread.
        if cluster.scenario.is_overwriting && cluster.streams.of("disasters").chance(500) {
            return cluster.crash_many(1000);
        }
        match cluster.streams.of("disasters").between(0, 99) {
            0..20 => cluster.crash_server(server),
            20..36 => cluster.servers[server].dies_writing = Some(Dies::Process),
            36..48 => self.isolate(cluster, server),
            48..55 => freeze_unheard(cluster, server),
            55..65 => disks::fail(cluster, server, replicated),
            65..77 if replicated.flushed => match cluster.streams.of("disasters").chance(700) {
                true => cluster.servers[server].dies_writing = Some(Dies::Machine),
                false => cluster.lose_power(server),
            },
            77..83 => cluster.crash_many(800),
            83.. if replicated.flushed => match cluster.streams.of("disasters").chance(700) {
                true => cluster.servers[server].dies_writing = Some(Dies::AllMachines),
                false => cluster.lose_all_power(),
            },
            _ => cluster.crash_server(server),
        }
    }

    /// A server hears nothing of its store any more, and nobody there of it; some clients reach it, and others all the rest. Often for so long
    /// that what it held has come back elsewhere meanwhile.
    fn isolate(&mut self, cluster: &mut Cluster, server: usize) {
        if cluster.now < self.isolated_until {
            return partition(cluster);
        }
        cluster.coverage.hit("servers isolated with their clients");
        let host = server_host(server);
        cluster.note_fault(host, "is cut off from the store", 0);
        let others = (0..cluster.servers.len()).filter(|other| *other != server);
        let mut others: Vec<Host> = others.map(server_host).collect();
        others.extend(cluster.coordinator_hosts());
        // Who reads stays, as a rule: what is written here and cannot become durable would hide what is stale.
        let first_reader = cluster.clients.len() - cluster.scenario.readers;
        for client in 0..cluster.clients.len() {
            let is_far = cluster
                .streams
                .of("isolations")
                .chance(if client < first_reader { 850 } else { 150 });
            others.extend(is_far.then(|| client_host(client)));
        }
        let until_dead = cluster.scenario.silence_timeout + 2 * SECOND;
        let after = match cluster.streams.of("isolations").chance(300) {
            true => cluster
                .streams
                .of("isolations")
                .between(300 * MILLI, until_dead),
            false => until_dead + cluster.streams.of("isolations").between(MILLI, 5 * SECOND),
        };
        self.isolated_until = cluster.now + after;
        for other in others {
            cluster.network.cut(host, other, cluster.now + after);
            cluster.network.cut(other, host, cluster.now + after);
        }
        cluster.schedule_in(after, Event::Heal);
    }
}

fn some_connection(cluster: &mut Cluster, of: &'static str) -> Option<u64> {
    let ids = cluster.network.ids();
    (!ids.is_empty()).then(|| *cluster.streams.of(of).pick(&ids))
}

fn reset_connection(cluster: &mut Cluster) {
    if let Some(connection) = some_connection(cluster, "resets of connections") {
        cluster.coverage.hit("connections reset");
        cluster.note_fault(COORDINATOR, "resets connection", connection);
        cluster.network.reset(cluster.now, connection);
    }
}

/// Nothing arrives any more, one way or both, and nobody is told.
fn silence_connection(cluster: &mut Cluster) {
    if let Some(connection) = some_connection(cluster, "silent connections") {
        cluster.coverage.hit("connections silenced");
        cluster.note_fault(COORDINATOR, "silences connection", connection);
        let direction = cluster.streams.of("silent connections").below(2);
        cluster.network.silence(connection, direction);
        if cluster.streams.of("silent connections").chance(500) {
            cluster.network.silence(connection, 1 - direction);
        }
    }
}

/// One way, nothing arrives for a while; longer than clients wait for an answer, often.
fn stall_connection(cluster: &mut Cluster) {
    if let Some(connection) = some_connection(cluster, "stalls") {
        cluster.coverage.hit("connections stalled");
        cluster.note_fault(COORDINATOR, "stalls connection", connection);
        let direction = cluster.streams.of("stalls").below(2);
        cluster.network.stall(connection, direction);
        let after = cluster.streams.of("stalls").between(MILLI, 2 * SECOND);
        let go_on = Event::GoOn {
            connection,
            direction,
        };
        cluster.schedule_in(after, go_on);
    }
}

fn some_host(cluster: &mut Cluster, of: &'static str) -> Host {
    let servers = cluster.servers.len();
    let at = cluster
        .streams
        .of(of)
        .below(1 + servers + cluster.clients.len());
    match at {
        0 if cluster.coordinators.len() > 1 => {
            coordinator_host(cluster.streams.of(of).below(cluster.coordinators.len()))
        }
        0 => COORDINATOR,
        _ if at <= servers => server_host(at - 1),
        _ => client_host(at - 1 - servers),
    }
}

fn partition(cluster: &mut Cluster) {
    let (a, b) = (
        some_host(cluster, "partitions"),
        some_host(cluster, "partitions"),
    );
    if a == b {
        return;
    }
    cluster.coverage.hit("partitions");
    cluster.note_fault(a, "is cut off from host", u64::from(b));
    let is_both_ways = cluster.streams.of("partitions").chance(600);
    let most =
        *cluster
            .streams
            .of("partitions")
            .pick(&[20 * MILLI, 400 * MILLI, 2 * SECOND, 6 * SECOND]);
    let after = cluster.streams.of("partitions").between(MILLI, most);
    cluster.network.cut(a, b, cluster.now + after);
    if is_both_ways {
        cluster.network.cut(b, a, cluster.now + after);
    }
    cluster.schedule_in(after, Event::Heal);
}

/// A process gets no processor for a while.
fn pause(cluster: &mut Cluster) {
    let host = some_host(cluster, "pauses");
    let most =
        *cluster
            .streams
            .of("pauses")
            .pick(&[5 * MILLI, 300 * MILLI, 1200 * MILLI, 5 * SECOND]);
    let pause = cluster.streams.of("pauses").between(MICRO, most);
    cluster.coverage.hit("processes paused");
    cluster.note_fault(host, "is paused for ns", pause);
    cluster.pause_until(host, cluster.now + pause);
}

/// A server gets no processor for so long that it is taken for dead, and does not hear of that when it goes on.
fn freeze_unheard(cluster: &mut Cluster, server: usize) {
    cluster
        .coverage
        .hit("servers frozen and cut off from the coordinator");
    let host = server_host(server);
    let most = cluster.scenario.silence_timeout + 2 * SECOND;
    let pause = cluster.streams.of("freezes").between(800 * MILLI, most);
    cluster.note_fault(host, "is frozen and unheard for ns", pause);
    cluster.pause_until(host, cluster.now + pause);
    let after = pause + cluster.streams.of("freezes").between(MILLI, 2 * SECOND);
    for coordinator in cluster.coordinator_hosts() {
        cluster.network.cut(host, coordinator, cluster.now + after);
        cluster.network.cut(coordinator, host, cluster.now + after);
    }
    cluster.schedule_in(after, Event::Heal);
}
