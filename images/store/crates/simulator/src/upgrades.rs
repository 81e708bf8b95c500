//! Builds that read different formats: upgrades that roll through the store, are taken back, and are finalized.

use coordinator::{Finalize, FinalizeError};
use wire::format::Formats;
use wire::member::{ToShard, coordinator::Kind};

use crate::coordinator_node::Core;
use crate::leaders::{Heard, coordinator_host};
use crate::random::{Random, Streams};
use crate::run::Profile;
use crate::scenario::{MILLI, SECOND, Scenario};
use crate::world::{Event, Phase, World, host_name, server_host};

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
    /// The format in force, as far as anybody was told.
    in_force: u32,
}

impl Upgrades {
    pub fn draw(streams: &mut Streams, is_upgrading: bool, profile: Profile) -> Upgrades {
        let mut random = streams.of("upgrades").fork();
        let interval = *random.pick(&[300 * MILLI, SECOND, 3 * SECOND]);
        let turns = *random.pick(&[0, 30, 150]);
        let happens = is_upgrading || profile == Profile::Upgrade;
        Upgrades {
            interval: if happens { interval } else { 0 },
            goal: Formats::NEXT,
            turns,
            in_force: Formats::CURRENT.newest,
            random,
        }
    }
}

/// Somebody who runs a build.
#[derive(Clone, Copy, Debug)]
enum Place {
    Server(usize),
    Coordinator(usize),
}

impl World {
    pub fn plan_upgrade(&mut self) {
        let interval = self.upgrades.interval;
        if interval > 0 {
            let after = self.upgrades.random.between(interval / 10, 2 * interval);
            self.schedule_in(after, Event::Upgrade);
        }
    }

    /// One step of an upgrade.
    pub fn upgrade(&mut self) {
        if self.phase != Phase::Load {
            return;
        }
        self.plan_upgrade();
        if self.is_only_late() {
            return;
        }
        self.choose_goal();
        match self.upgrades.random.between(0, 99) {
            0..30 => self.finalize(),
            _ => self.roll(),
        }
    }

    fn choose_goal(&mut self) {
        let upgrades = &mut self.upgrades;
        let is_over = upgrades.in_force == Formats::NEXT.newest;
        let turns = match (is_over, upgrades.goal == Formats::NEXT) {
            (true, true) => MISTAKES,
            (true, false) => 1000,
            (false, _) => upgrades.turns,
        };
        if upgrades.random.chance(turns) {
            upgrades.goal = match upgrades.goal == Formats::NEXT {
                true => Formats::CURRENT,
                false => Formats::NEXT,
            };
        }
    }

    /// Brings one process to the build that is wanted; by mistake also when the store has left that behind.
    fn roll(&mut self) {
        let goal = self.upgrades.goal;
        let servers = (0..self.servers.len()).map(Place::Server);
        let coordinators = (0..self.coordinators.len()).map(Place::Coordinator);
        // There are fewer coordinators, and much depends on them.
        let others: Vec<Place> = servers
            .chain(coordinators.clone())
            .chain(coordinators)
            .filter(|place| self.build_at(*place) != goal)
            .collect();
        if others.is_empty() {
            return;
        }
        let place = *self.upgrades.random.pick(&others);
        self.install(place, goal);
        self.coverage.hit(match goal == Formats::NEXT {
            true => "processes upgraded",
            false => "processes taken back",
        });
        match place {
            Place::Server(server) => self.crash_server(server),
            Place::Coordinator(process) => self.crash_coordinator(process),
        }
    }

    fn build_at(&self, place: Place) -> Formats {
        match place {
            Place::Server(server) => self.servers[server].installed,
            Place::Coordinator(process) => self.coordinators[process].installed,
        }
    }

    /// The next process there is of this build.
    fn install(&mut self, place: Place, formats: Formats) {
        let host = match place {
            Place::Server(server) => {
                self.servers[server].installed = formats;
                server_host(server)
            }
            Place::Coordinator(process) => {
                self.coordinators[process].installed = formats;
                coordinator_host(process)
            }
        };
        self.note_fault(host, "gets the build up to format", formats.newest.into());
    }

    /// Somebody thinks that it is time.
    fn finalize(&mut self) {
        let Some(process) = self.leading().map(|(process, _)| process) else {
            return;
        };
        let before = self.upgrades.in_force;
        let asked = Finalize::default();
        let mut ended = None;
        match self.coordinators[process].node.as_ref().map(|it| &it.core) {
            Some(Core::Alone(_)) => self.with_coordinator(|core, _, out| {
                ended = Some(core.finalize_upgrade(&asked, out));
            }),
            Some(Core::Leader(_)) => {
                ended = self.finalize_at_leader(process, &asked);
                self.coordinator_hears(process, Heard::Tick);
            }
            None => {}
        }
        match ended {
            Some(Ok(format)) if format > before => self.coverage.hit("upgrades finalized"),
            Some(Err(FinalizeError::OldMembers { .. })) => {
                self.coverage
                    .hit("upgrades that could not be finalized yet");
            }
            _ => {}
        }
    }

    /// The coordinator tells a shard which format is in force.
    pub fn note_format(&mut self, message: &ToShard) {
        let format = match &message.kind {
            Some(Kind::Welcome(welcome)) => welcome.format,
            Some(Kind::Activate(order)) => order.format,
            _ => return,
        };
        // What a leader that was deposed says late is not heard any more.
        if self.scenario.fail_over.is_some() {
            self.upgrades.in_force = format.max(self.upgrades.in_force);
            return;
        }
        if format < self.upgrades.in_force {
            let text = format!(
                "a coordinator says that format {format} is in force, after {} was",
                self.upgrades.in_force
            );
            return self.fail(text);
        }
        self.upgrades.in_force = format;
    }

    /// A shard hears it: whoever has a part in the store reads what others write.
    pub fn hold_format(&mut self, server: usize, message: &ToShard) {
        let format = match &message.kind {
            Some(Kind::Welcome(welcome)) => welcome.format,
            Some(Kind::Activate(order)) => order.format,
            _ => return,
        };
        let formats = self.servers[server].formats;
        if !formats.reads(format) {
            let name = host_name(server_host(server));
            self.fail(format!(
                "{name} is told that format {format} is in force, and reads {formats}"
            ));
        }
    }

    /// Whether a server ends because the store has left its build behind: the coordinator says so, or its own disk, while the store is made again by
    /// somebody who does not know yet which format was in force.
    pub fn is_too_old(&self, server: usize, why: &str) -> bool {
        let reads_it = self.servers[server].formats.reads(self.upgrades.in_force);
        why.contains("there is no way back") || !reads_it && why.contains("and this build reads")
    }

    /// A server of a build that the store has left behind was not let in: somebody starts the right one.
    pub fn server_is_too_old(&mut self, server: usize) {
        self.coverage.hit("servers of an old build refused");
        self.install(Place::Server(server), Formats::NEXT);
        self.crash_server(server);
    }

    /// Likewise a coordinator.
    pub fn coordinator_is_too_old(&mut self, process: usize) {
        self.coverage.hit("coordinators of an old build refused");
        self.install(Place::Coordinator(process), Formats::NEXT);
    }

    /// Whether these seeds have several builds at all.
    pub fn has_builds(&self) -> bool {
        self.upgrades.interval > 0
    }
}

impl Scenario {
    /// Servers and coordinators are upgraded one by one under load, with all other faults.
    pub fn draw_upgrading(random: &mut Random) -> Scenario {
        let several = random.chance(300);
        let mut scenario = match several {
            true => Scenario::draw_fail_over(random),
            false => Scenario::draw_migrating(random),
        };
        scenario.linger(random);
        scenario.coordinator_keeps_state = true;
        scenario
    }
}
