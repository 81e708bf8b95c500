//! Members that are drained, taken back, and lost with their disks once nobody needs them any more.
//!
//! Chance has its own source here: seeds in which nobody is drained are what they were before anybody could be.

use coordinator::Drain;
use coordinator::status::{ClusterStatus, Draining, Member};

use crate::coordinator_node::Core;
use crate::random::Random;
use crate::run::Profile;
use crate::scenario::{MILLI, Scenario};
use crate::world::{COORDINATOR, Event, Phase, World};

/// Who is drained, and when.
#[derive(Debug)]
pub struct Drains {
    random: Random,
    /// Between two looks, on average; 0: nobody is drained.
    interval: u64,
}

impl Drains {
    /// Only where they are asked for: what a store does of which too little would stay is not decided.
    pub fn draw(seed: u64, profile: Profile, scenario: &Scenario) -> Drains {
        let mut random = Random::new(seed.rotate_left(32) ^ !0);
        let happen = profile == Profile::Draining;
        let interval = *random.pick(&[30 * MILLI, 100 * MILLI, 400 * MILLI]);
        let is_possible = scenario.replicated.is_some() && scenario.fail_over.is_none();
        Drains {
            interval: if happen && is_possible { interval } else { 0 },
            random,
        }
    }
}

impl World {
    pub fn plan_drain(&mut self) {
        let interval = self.drains.interval;
        if interval > 0 {
            let after = self.drains.random.between(interval / 10, 2 * interval);
            self.schedule_in(after, Event::Drain);
        }
    }

    /// Something happens to a member; the coordinator sees to the rest.
    pub fn drain(&mut self) {
        if self.phase != Phase::Load {
            return;
        }
        self.plan_drain();
        let members = self.known_members();
        if members.is_empty() {
            return;
        }
        let member = self.drains.random.pick(&members).clone();
        match (member.draining, self.drains.random.between(0, 99)) {
            (None, 0..25) => self.begin_drain(&member.name),
            (
                Some(Draining {
                    is_drained: true, ..
                }),
                0..40,
            ) => self.lose_drained(&member.name),
            (Some(_), 40..50) => self.end_drain(&member.name),
            _ => {}
        }
    }

    /// As the coordinator shows them.
    fn known_members(&self) -> Vec<Member> {
        let node = self.coordinators[0].node.as_ref();
        match node.map(|node| &node.core) {
            Some(Core::Alone(core)) => core.cluster_status(self.clock(COORDINATOR)).members,
            _ => Vec::new(),
        }
    }

    fn begin_drain(&mut self, name: &str) {
        let drain = Drain {
            name: name.to_owned(),
            expected_cluster_id: 0,
        };
        let mut begun = None;
        self.with_coordinator(|core, now, out| {
            begun = Some(core.drain_member(now, &drain, out));
        });
        match begun {
            Some(Ok(_)) => self.coverage.hit("members drained"),
            Some(Err(_)) => self.coverage.hit("drains refused"),
            None => {}
        }
    }

    fn end_drain(&mut self, name: &str) {
        self.coverage.hit("members undrained");
        let drain = Drain {
            name: name.to_owned(),
            expected_cluster_id: 0,
        };
        self.with_coordinator(|core, _, out| {
            core.undrain_member(&drain, out)
                .expect("a member that the status shows");
        });
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
