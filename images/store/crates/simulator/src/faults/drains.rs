//! Members that are drained, taken back, and lost with their disks once nobody needs them any more.

use std::collections::BTreeSet;

use coordinator::status::{Draining, Hindrance, Member};
use coordinator::{Drain, DrainError};

use crate::cluster::Cluster;
use crate::event::{Phase, Turn};
use crate::faults::turns::schedule_turn;
use crate::random::{Random, Streams};
use crate::scenario::profile::Profile;
use crate::scenario::{MILLI, SECOND, Scenario};

/// Who is drained, and when.
#[derive(Debug)]
pub struct Drains {
    random: Random,
    /// Between two looks, on average; 0: nobody is drained.
    interval: u64,
    /// Members that were drained when somebody looked, and that nobody has taken back since.
    drained: BTreeSet<String>,
}

impl Drains {
    /// In one of four seeds with replicas, and in half of the quiet lives. Not where what the coordinators have noted is lost: who has seen a member drained before that has to look again,
    /// and disks are lost by another count.
    pub fn draw(
        streams: &mut Streams,
        profile: Profile,
        scenario: &Scenario,
        is_state_safe: bool,
    ) -> Drains {
        let mut random = streams.of("drains").fork();
        let happen = match profile {
            _ if scenario.is_quiet => random.chance(500),
            Profile::Draining => true,
            Profile::Any
            | Profile::Replicated
            | Profile::Migrating
            | Profile::FailOver
            | Profile::Upgrade => random.chance(250),
            Profile::Rebuilding | Profile::Overwriting | Profile::Unreplicated | Profile::Quiet => {
                false
            }
        };
        let interval = match scenario.is_quiet {
            true => 10 * SECOND,
            false => *random.pick(&[30 * MILLI, 100 * MILLI, 400 * MILLI]),
        };
        let is_possible = scenario.replicated.is_some() && is_state_safe;
        Drains {
            interval: if happen && is_possible { interval } else { 0 },
            drained: BTreeSet::new(),
            random,
        }
    }
}

fn drain_of(name: &str) -> Drain {
    Drain {
        name: name.to_owned(),
        expected_cluster_id: 0,
    }
}

impl Drains {
    pub fn plan(&mut self, cluster: &mut Cluster) {
        schedule_turn(cluster, &mut self.random, self.interval, Turn::Drain);
    }

    /// Something happens to a member, now and again later.
    pub fn turn(&mut self, cluster: &mut Cluster) {
        self.plan(cluster);
        self.drain_or_take_back(cluster);
    }

    /// Something happens to a member; the coordinator sees to the rest.
    pub(crate) fn drain_or_take_back(&mut self, cluster: &mut Cluster) {
        let members = cluster.known_members();
        if members.is_empty() || cluster.is_only_late {
            return;
        }
        if cluster.phase != Phase::Load {
            return self.end_hopeless_drains(cluster, &members);
        }
        let is_drained = |draining: &Draining| draining.is_drained;
        for member in &members {
            if member.draining.as_ref().is_some_and(is_drained) {
                self.drained.insert(member.name.clone());
            }
        }
        let member = self.random.pick(&members).clone();
        let was_drained = self.drained.contains(&member.name);
        match (member.draining, self.random.between(0, 99)) {
            (None, 0..25) => begin_drain(cluster, &member.name),
            // The person who saw this takes some time.
            (Some(_), 0..40) if was_drained => lose_drained(cluster, &member.name),
            (Some(_), 40..50) => self.end_drain(cluster, &member.name),
            _ => {}
        }
    }

    pub(crate) fn has_drains(&self) -> bool {
        self.interval > 0
    }

    fn end_drain(&mut self, cluster: &mut Cluster, name: &str) {
        cluster.coverage.hit("members undrained");
        self.drained.remove(name);
        let drain = drain_of(name);
        match cluster.leading_process() {
            // It may lead no more, and not know that.
            Some(process) => cluster.with_leader(process, |leader, _| {
                drop(leader.undrain_member(&drain));
            }),
            None => cluster.with_coordinator(|core, _, out| {
                let done = core.undrain_member(&drain, out);
                done.expect("a member that the status shows");
            }),
        }
    }

    /// All is well again. Where fewer stay than are needed, which nobody could know while some were dead, one that leaves is taken back: one that says
    /// for what it waits, or one that is drained.
    fn end_hopeless_drains(&mut self, cluster: &mut Cluster, members: &[Member]) {
        let replicas = cluster.scenario.replicated.map_or(0, |it| it.replicas);
        let staying = members.iter().filter(|member| member.draining.is_none());
        if staying.count() > usize::from(replicas) {
            return;
        }
        let is_hopeless = |draining: &Draining| {
            let mut waits_for = draining.waits_for.iter();
            draining.is_drained || waits_for.any(Hindrance::lacks_machines)
        };
        let mut hopeless = members
            .iter()
            .filter(|member| member.draining.as_ref().is_some_and(is_hopeless));
        if let Some(member) = hopeless.next() {
            cluster.coverage.hit("drains that could not end");
            self.end_drain(cluster, &member.name);
        }
    }
}

fn begin_drain(cluster: &mut Cluster, name: &str) {
    let drain = drain_of(name);
    let mut begun = None;
    match cluster.leading_process() {
        Some(process) => cluster.with_leader(process, |leader, now| {
            begun = Some(leader.drain_member(now, &drain));
        }),
        None => cluster.with_coordinator(|core, now, out| {
            begun = Some(core.drain_member(now, &drain, out));
        }),
    }
    match begun {
        Some(Ok(_)) => cluster.coverage.hit("members drained"),
        Some(Err(DrainError::CannotEnd { .. })) => cluster.coverage.hit("drains refused"),
        Some(Err(_)) | None => {}
    }
}

/// The machine of a member that is drained burns down. That is no loss, whatever else has happened.
fn lose_drained(cluster: &mut Cluster, name: &str) {
    let mut servers = cluster.servers.iter();
    let at = servers.position(|server| server.name == name);
    let server = at.expect("members are servers of this world");
    cluster
        .coverage
        .hit("drained servers lost with their disks");
    cluster.crash_server(server);
    cluster.servers[server].disks.clear();
}
