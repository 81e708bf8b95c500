//! Members that are drained, taken back, and lost with their disks once nobody needs them any more.

use std::collections::BTreeSet;

use coordinator::status::{ClusterStatus, Draining, Member};
use coordinator::{Drain, DrainError};

use crate::disasters::Disasters;
use crate::leaders::coordinator_host;
use crate::random::{Random, Streams};
use crate::run::Profile;
use crate::scenario::{MILLI, SECOND, Scenario};
use crate::world::{Event, Phase, World};

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
        disasters: &Disasters,
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
        let is_possible = scenario.replicated.is_some() && !disasters.happen();
        Drains {
            interval: if happen && is_possible { interval } else { 0 },
            drained: BTreeSet::new(),
            random,
        }
    }
}

impl World {
    pub fn plan_drain(&mut self) {
        let interval = self.drains.interval;
        if interval > 0 {
            let after = match self.phase {
                Phase::Load => self.drains.random.between(interval / 10, 2 * interval),
                _ => SECOND,
            };
            self.schedule_in(after, Event::Drain);
        }
    }

    /// Something happens to a member, now and again later.
    pub fn drain(&mut self) {
        self.plan_drain();
        self.drain_or_take_back();
    }

    /// Something happens to a member; the coordinator sees to the rest.
    pub(crate) fn drain_or_take_back(&mut self) {
        let members = self.known_members();
        if members.is_empty() || self.is_only_late() {
            return;
        }
        if self.phase != Phase::Load {
            return self.end_hopeless_drains(&members);
        }
        let is_drained = |draining: &Draining| draining.is_drained;
        for member in &members {
            if member.draining.as_ref().is_some_and(is_drained) {
                self.drains.drained.insert(member.name.clone());
            }
        }
        let member = self.drains.random.pick(&members).clone();
        let was_drained = self.drains.drained.contains(&member.name);
        match (member.draining, self.drains.random.between(0, 99)) {
            (None, 0..25) => self.begin_drain(&member.name),
            // Whoever saw it takes his time.
            (Some(_), 0..40) if was_drained => self.lose_drained(&member.name),
            (Some(_), 40..50) => self.end_drain(&member.name),
            _ => {}
        }
    }

    pub(crate) fn has_drains(&self) -> bool {
        self.drains.interval > 0
    }

    /// As the coordinator shows them.
    fn known_members(&self) -> Vec<Member> {
        self.leading().map_or_else(Vec::new, |(process, core)| {
            let now = self.clock(coordinator_host(process));
            core.cluster_status(now).members
        })
    }

    fn begin_drain(&mut self, name: &str) {
        let drain = drain_of(name);
        let mut begun = None;
        match self.leading_process() {
            Some(process) => self.with_leader(process, |leader, now| {
                begun = Some(leader.drain_member(now, &drain));
            }),
            None => self.with_coordinator(|core, now, out| {
                begun = Some(core.drain_member(now, &drain, out));
            }),
        }
        match begun {
            Some(Ok(_)) => self.coverage.hit("members drained"),
            Some(Err(DrainError::CannotEnd { .. })) => self.coverage.hit("drains refused"),
            Some(Err(_)) | None => {}
        }
    }

    fn end_drain(&mut self, name: &str) {
        self.coverage.hit("members undrained");
        self.drains.drained.remove(name);
        let drain = drain_of(name);
        match self.leading_process() {
            // It may lead no more, and not know that.
            Some(process) => self.with_leader(process, |leader, _| {
                drop(leader.undrain_member(&drain));
            }),
            None => self.with_coordinator(|core, _, out| {
                let done = core.undrain_member(&drain, out);
                done.expect("a member that the status shows");
            }),
        }
    }

    /// Of several coordinators the one that is asked, if there is one.
    pub fn leading_process(&self) -> Option<usize> {
        let (process, _) = self.scenario.fail_over.and_then(|_| self.leading())?;
        Some(process)
    }

    /// The machine of a member that is drained burns down. That is no loss, whatever else has happened.
    fn lose_drained(&mut self, name: &str) {
        let mut servers = self.servers.iter();
        let at = servers.position(|server| server.name == name);
        let server = at.expect("members are servers of this world");
        self.coverage.hit("drained servers lost with their disks");
        self.crash_server(server);
        self.servers[server].disks.clear();
    }

    /// All is well again. Where fewer stay than are needed, which nobody could know while some were dead, one that leaves is taken back: one that says
    /// for what it waits, or one that is drained.
    fn end_hopeless_drains(&mut self, members: &[Member]) {
        let replicas = self.scenario.replicated.map_or(0, |it| it.replicas);
        let staying = members.iter().filter(|member| member.draining.is_none());
        if staying.count() > usize::from(replicas) {
            return;
        }
        let is_hopeless = |draining: &Draining| {
            let mut waits_for = draining.waits_for.iter();
            draining.is_drained || waits_for.any(|why| why.contains("start another member first"))
        };
        let mut hopeless = members
            .iter()
            .filter(|member| member.draining.as_ref().is_some_and(is_hopeless));
        if let Some(member) = hopeless.next() {
            self.coverage.hit("drains that could not end");
            self.end_drain(&member.name);
        }
    }
}

fn drain_of(name: &str) -> Drain {
    Drain {
        name: name.to_owned(),
        expected_cluster_id: 0,
    }
}

/// Whether nobody needs anything any more that those have who are to leave.
pub fn are_over(status: &ClusterStatus) -> bool {
    let mut draining = status
        .members
        .iter()
        .filter_map(|one| one.draining.as_ref());
    draining.all(|draining| draining.is_drained)
}

/// For the text of a failure.
pub fn what_is_left(status: &ClusterStatus) -> String {
    let members = status.members.iter();
    let draining = members.filter_map(|one| Some((&one.name, one.draining.as_ref()?)));
    let lines = draining.map(|(name, draining)| format!("\n  {name}: {draining:?}"));
    lines.collect()
}
