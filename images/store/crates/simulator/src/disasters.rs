//! The coordinators' state is lost, and the store is made again from its disks, as people would do it: docs/disaster.md. [`crate::put_back`] is about one
//! that is put back to an older state.

use wire::member::ToShard;
use wire::member::coordinator::Kind;

use crate::lateness::is_late;
use crate::leaders::coordinator_host;
use crate::put_back::PutBack;
use crate::random::Streams;
use crate::run::Profile;
use crate::scenario::Scenario;
use crate::world::{COORDINATOR, World};

/// What happens to the coordinators' state.
#[derive(Debug, Default)]
pub struct Disasters {
    /// All of it is lost with all processes, now and then.
    loses_state: bool,
    /// From now on coordinators are started to make the store again, until that is done.
    is_rebuilding: bool,
    pub put_back: PutBack,
}

impl Disasters {
    /// In every seed that is about that, and in half of those with several coordinators; in some of the others an older state is put back.
    pub fn draw(
        seed: u64,
        streams: &mut Streams,
        profile: Profile,
        scenario: &Scenario,
    ) -> Disasters {
        let mut random = streams.of("lost or older state").fork();
        let is_led = scenario.fail_over.is_some() && profile != Profile::Upgrade;
        let loses_state = scenario.rebuilds || is_led && random.chance(500);
        let is_put_back = is_led && !loses_state && random.chance(500) && !is_late(seed);
        Disasters {
            loses_state,
            is_rebuilding: false,
            put_back: match is_put_back {
                true => PutBack::with(random),
                false => PutBack::default(),
            },
        }
    }

    pub fn happen(&self) -> bool {
        self.loses_state || self.put_back.happens()
    }

    /// Coordinators are told to make the store again if there is no state.
    pub fn is_rebuilding(&self) -> bool {
        self.is_rebuilding
    }
}

impl World {
    /// Whether everything was lost but disks.
    pub fn state_is_lost(&mut self) -> bool {
        if !self.disasters.loses_state
            || !self.streams.of("losses of state").chance(250)
            || !self.has_checkpoint()
        {
            return false;
        }
        self.lose_all_but_disks();
        true
    }

    /// What the disks have of the coordinator's state is all that anybody relies on, and not too many of them were lost. (docs/rebuild.md says when
    /// it is not enough.)
    fn has_checkpoint(&mut self) -> bool {
        let kept_by = self.kept_by();
        // What was written while a member was away may be on the damaged disk alone.
        let is_on_good_disks = self.damages == 0 || self.is_safe();
        is_on_good_disks && kept_by.is_some_and(|members| self.lost_disks() < members)
    }

    /// So many members have a checkpoint that is current.
    pub fn kept_by(&self) -> Option<usize> {
        let (process, core) = self.leading()?;
        let is_deposed = self.api.as_ref().is_some_and(|api| !api.is_led_by(core));
        let now = self.clock(coordinator_host(process));
        let checkpoint = core.cluster_status(now).checkpoint;
        let checkpoint = checkpoint.filter(|it| it.is_current && !is_deposed)?;
        Some(checkpoint.members_wanted as usize)
    }

    pub fn lost_disks(&mut self) -> usize {
        let servers = 0..self.servers.len();
        servers
            .filter(|&server| self.has_empty_disk(server))
            .count()
    }

    /// Every process dies, and what the coordinators have noted is lost.
    pub fn lose_all_but_disks(&mut self) {
        self.note_fault(COORDINATOR, "and all others lose everything but disks", 0);
        self.crash_many(1000);
        for process in 0..self.coordinators.len() {
            self.crash_coordinator(process);
        }
        self.noted.clear();
        self.noted_count = 0;
        let incarnations = self.coordinators.iter().map(|it| it.incarnation);
        if let Some(api) = &mut self.api {
            api.lose_everything(incarnations.collect());
        }
        self.disasters.is_rebuilding = true;
    }

    /// Who makes the store again may have done so now.
    pub fn note_rebuilt(&mut self, process: usize) {
        if let Some(node) = &mut self.coordinators[process].node
            && let Some(state) = node.state()
            && state.is_rebuilding() != node.is_rebuilding
        {
            node.is_rebuilding = state.is_rebuilding();
            node.pass_over_tables();
        }
    }

    /// Nobody serves before the store that was made again is noted, and nobody is let in.
    pub fn note_made_again(&mut self, process: usize, message: &ToShard) {
        if !self.disasters.is_rebuilding || !matches!(message.kind, Some(Kind::Welcome(_))) {
            return;
        }
        let node = self.coordinators[process].node.as_ref();
        let Some(version_floor) = node.and_then(|node| Some(node.state()?.version_floor())) else {
            return;
        };
        self.disasters.is_rebuilding = false;
        self.coverage.hit(match self.scenario.fail_over {
            None => "stores made again from disks",
            Some(_) => "stores of several coordinators made again from disks",
        });
        let host = coordinator_host(process);
        self.note_fault(host, "has made the store again, number", self.stores);
        self.history.rebuild(self.now, version_floor);
    }
}
