//! Builds that read different formats: upgrades that roll through the store, are taken back, and are finalized.

use coordinator::{Finalize, FinalizeError};
use wire::format::Formats;

use crate::cluster::Cluster;
use crate::cluster::builds::BuildHost;
use crate::cluster::coordinator_node::Core;
use crate::cluster::leaders::Heard;
use crate::event::Turn;
use crate::event::{Event, Phase};
use crate::random::{Random, Streams};
use crate::scenario::profile::Profile;
use crate::scenario::{MILLI, SECOND};

/// Of a thousand steps after an upgrade was finalized, in how many somebody starts the old build.
const MISTAKES: u64 = 400;

/// Which build is where, and what is done about that.
#[derive(Debug)]
pub struct Upgrades {
    random: Random,
    /// Between two steps, on average; 0: nothing is upgraded.
    interval: u64,
    /// What processes are brought to.
    goal: Formats,
    /// Of a thousand steps, in how many the goal becomes the other build.
    turns: u64,
}

impl Upgrades {
    pub fn happen(&self) -> bool {
        self.interval > 0
    }

    pub fn draw(streams: &mut Streams, is_upgrading: bool, profile: Profile) -> Upgrades {
        let mut random = streams.of("upgrades").fork();
        let interval = *random.pick(&[300 * MILLI, SECOND, 3 * SECOND]);
        let turns = *random.pick(&[0, 30, 150]);
        let happens = is_upgrading || profile == Profile::Upgrade;
        Upgrades {
            interval: if happens { interval } else { 0 },
            goal: Formats::NEXT,
            turns,
            random,
        }
    }
}

impl Upgrades {
    pub fn plan(&mut self, cluster: &mut Cluster) {
        let interval = self.interval;
        if interval > 0 {
            let after = self.random.between(interval / 10, 2 * interval);
            cluster.schedule_in(after, Event::Turn(Turn::Upgrade));
        }
    }

    /// One step of an upgrade.
    pub fn turn(&mut self, cluster: &mut Cluster) {
        if cluster.phase != Phase::Load {
            return;
        }
        self.plan(cluster);
        if cluster.is_only_late {
            return;
        }
        self.choose_goal(cluster);
        match self.random.between(0, 99) {
            0..30 => finalize(cluster),
            _ => self.roll(cluster),
        }
    }

    fn choose_goal(&mut self, cluster: &Cluster) {
        let is_over = cluster.builds.in_force == Formats::NEXT.newest;
        let turns = match (is_over, self.goal == Formats::NEXT) {
            (true, true) => MISTAKES,
            (true, false) => 1000,
            (false, _) => self.turns,
        };
        if self.random.chance(turns) {
            self.goal = match self.goal == Formats::NEXT {
                true => Formats::CURRENT,
                false => Formats::NEXT,
            };
        }
    }

    /// Brings one process to the build that is wanted; by mistake also when the store has left that behind.
    fn roll(&mut self, cluster: &mut Cluster) {
        let goal = self.goal;
        let servers = (0..cluster.servers.len()).map(BuildHost::Server);
        let coordinators = (0..cluster.coordinators.len()).map(BuildHost::Coordinator);
        // There are fewer coordinators, and much depends on them.
        let others: Vec<BuildHost> = servers
            .chain(coordinators.clone())
            .chain(coordinators)
            .filter(|place| cluster.build_at(*place) != goal)
            .collect();
        if others.is_empty() {
            return;
        }
        let place = *self.random.pick(&others);
        cluster.install(place, goal);
        cluster.coverage.hit(match goal == Formats::NEXT {
            true => "processes upgraded",
            false => "processes taken back",
        });
        match place {
            BuildHost::Server(server) => cluster.crash_server(server),
            BuildHost::Coordinator(process) => cluster.crash_coordinator(process),
        }
    }
}

/// Somebody thinks that it is time.
fn finalize(cluster: &mut Cluster) {
    let Some(process) = cluster.leading().map(|(process, _)| process) else {
        return;
    };
    let before = cluster.builds.in_force;
    let asked = Finalize::default();
    let mut ended = None;
    match cluster.coordinators[process]
        .node
        .as_ref()
        .map(|it| &it.core)
    {
        Some(Core::Alone(_)) => cluster.with_coordinator(|core, _, out| {
            ended = Some(core.finalize_upgrade(&asked, out));
        }),
        Some(Core::Leader(_)) => {
            ended = cluster.finalize_at_leader(process, &asked);
            cluster.coordinator_hears(process, Heard::Tick);
        }
        None => {}
    }
    match ended {
        Some(Ok(format)) if format > before => cluster.coverage.hit("upgrades finalized"),
        Some(Err(FinalizeError::OldMembers { .. })) => {
            cluster
                .coverage
                .hit("upgrades that could not be finalized yet");
        }
        _ => {}
    }
}
