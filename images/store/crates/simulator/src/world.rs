//! A cluster, what goes wrong with it, and who looks on; and the loop that lets time pass.

use crate::cluster::Cluster;
use crate::event::{Event, Phase};
use crate::faults::Faults;
use crate::scenario::MILLI;
use crate::watch::boundaries;
use crate::watch::coordinators;
use crate::watch::copies::Copies;
use crate::watch::rooms::Rooms;

pub struct World {
    pub cluster: Cluster,
    pub faults: Faults,
    pub rooms: Rooms,
    pub copies: Copies,
    /// Where in the history the reads at the end begin.
    pub first_final_read: usize,
    /// Objects that the shards counted at the end.
    pub objects: u64,
    pub phase_began: u64,
    /// Events so far.
    pub handled: u64,
}

/// Between two looks.
const LOOK: u64 = 500 * MILLI;
/// Events after which a run is taken for one that goes round in circles.
const MAX_EVENTS: u64 = 5_000_000;
/// The same with datagrams, of which each is one, and each round of a port: clients that are told to come again do so faster.
const MAX_EVENTS_WITH_DATAGRAMS: u64 = 20_000_000;
/// The same where disks are filled again and again.
const MAX_EVENTS_OVERWRITING: u64 = 20_000_000;
/// The same where nobody leads for minutes, and clients are told to come again thousands of times in a second.
const MAX_EVENTS_WITHOUT_LEADER: u64 = 60_000_000;

impl World {
    pub fn new(seed: u64, cluster: Cluster, faults: Faults) -> World {
        let mut world = World {
            copies: Copies::new(faults.loses_state()),
            cluster,
            faults,
            rooms: Rooms::default(),
            first_final_read: 0,
            objects: 0,
            phase_began: 0,
            handled: 0,
        };
        world.faults.begin(seed, &mut world.cluster);
        world.plan_look();
        world
    }

    /// Runs to the end, or to the first failure.
    pub fn run(&mut self) {
        while self.cluster.failure.is_none() && self.cluster.phase != Phase::Over {
            let Some(event) = self.cluster.next_event() else {
                let text = "nothing will ever happen again";
                return self.cluster.fail(text.to_owned());
            };
            match event {
                Event::Turn(turn) => self.faults.turn(turn, &mut self.cluster),
                Event::Look => self.look(),
                event => self.cluster.handle(event),
            }
            self.cluster.schedule_packets();
            self.change_phase();
            self.handled += 1;
            let max_events = self.max_events();
            if self.handled > max_events {
                let text = format!("no end after {max_events} events");
                return self.cluster.fail(text);
            }
        }
    }

    fn max_events(&self) -> u64 {
        match self.cluster.scenario.fail_over {
            Some(_) => MAX_EVENTS_WITHOUT_LEADER,
            None if self.cluster.scenario.fast.is_some() => MAX_EVENTS_WITH_DATAGRAMS,
            None if self.cluster.scenario.is_overwriting => MAX_EVENTS_OVERWRITING,
            None => MAX_EVENTS,
        }
    }

    fn plan_look(&mut self) {
        self.cluster.schedule_in(LOOK, Event::Look);
    }

    fn look(&mut self) {
        // The observer's events must not hide that nothing else will happen any more.
        if self.cluster.phase == Phase::Over || self.cluster.has_no_events() {
            return;
        }
        self.plan_look();
        self.copies.look(&mut self.cluster);
        self.rooms.look(&mut self.cluster);
        coordinators::look(&mut self.cluster);
        boundaries::look(&mut self.cluster);
    }
}
