//! What goes wrong, and what people do to a store beside using it. Each has a file, a stream of chance, and its own turns; one that was not
//! drawn for a seed does nothing.

use coordinator::Balancing;

use crate::cluster::put_back::PutBack;
use crate::cluster::{Cluster, START_OF_LOAD};
use crate::event::{Between, Event, Phase, Turn};
use crate::faults::absences::Absences;
use crate::faults::dead_ways::DeadWays;
use crate::faults::drains::Drains;
use crate::faults::hints::Hints;
use crate::faults::independent::Independent;
use crate::faults::late_disks::Stalls;
use crate::faults::lateness::Lateness;
use crate::faults::migrations::Migrations;
use crate::faults::splits::Splits;
use crate::faults::state_loss::StateLoss;
use crate::faults::tuning::Tuning;
use crate::faults::upgrades::Upgrades;
use crate::faults::usual::Usual;
use crate::random::Streams;
use crate::scenario::profile::Profile;
use crate::scenario::{MICRO, Scenario};

pub mod absences;
pub mod coordinators;
pub mod damage;
pub mod dead_ways;
pub mod disks;
pub mod drains;
pub mod hints;
mod independent;
pub mod late_disks;
pub mod lateness;
pub mod migrations;
pub mod peers;
pub mod quiet;
pub mod splits;
pub mod state_loss;
pub mod tuning;
mod turns;
pub mod upgrades;
pub mod usual;

/// All that may go wrong in a run.
pub struct Faults {
    /// Usual ones that are still to come.
    left: u64,
    usual: Usual,
    absences: Absences,
    independent: Independent,
    state_loss: StateLoss,
    lateness: Lateness,
    migrations: Migrations,
    upgrades: Upgrades,
    drains: Drains,
    tuning: Tuning,
}

/// Faults that know nothing of each other. Another one is a file, and a line here.
fn independent(streams: &mut Streams, profile: Profile, scenario: &Scenario) -> Independent {
    Independent(vec![
        Box::new(DeadWays::draw(streams, scenario)),
        Box::new(Hints::draw(streams)),
        Box::new(Splits::draw(streams, profile, scenario)),
        Box::new(Stalls::draw(streams, scenario)),
    ])
}

impl Faults {
    /// Draws all, and what the cluster begins with for their sake.
    pub fn draw(
        seed: u64,
        streams: &mut Streams,
        profile: Profile,
        is_upgrading: bool,
        scenario: &Scenario,
    ) -> (Faults, PutBack) {
        let (state_loss, put_back) = state_loss::draw(seed, streams, profile, scenario);
        let is_state_safe = !state_loss.happens && !put_back.happens();
        let faults = Faults {
            left: streams.of("number of faults").between(1, 80),
            usual: Usual::default(),
            absences: Absences::default(),
            independent: independent(streams, profile, scenario),
            state_loss,
            lateness: Lateness::default(),
            migrations: Migrations::draw(streams, profile, scenario),
            upgrades: Upgrades::draw(streams, is_upgrading, profile),
            drains: Drains::draw(streams, profile, scenario, is_state_safe),
            tuning: Tuning::draw(streams, profile, scenario),
        };
        (faults, put_back)
    }

    pub fn balancing(&self) -> Balancing {
        self.migrations.balancing.clone()
    }

    pub fn has_builds(&self) -> bool {
        self.upgrades.happen()
    }

    pub fn loses_state(&self) -> bool {
        self.state_loss.happens
    }

    /// Plans the first turn of each.
    pub fn begin(&mut self, seed: u64, cluster: &mut Cluster) {
        let interval = cluster.scenario.fault_interval;
        if interval > 0 {
            let first = cluster
                .streams
                .of("times of faults")
                .between(0, 2 * interval);
            cluster.schedule_in(START_OF_LOAD + first, Event::Turn(Turn::Next));
        }
        self.migrations.plan(cluster);
        self.upgrades.plan(cluster);
        self.drains.plan(cluster);
        self.tuning.plan(cluster);
        self.independent.plan(cluster);
        Absences::begin(cluster);
        self.lateness.begin(cluster, seed);
    }

    pub fn turn(&mut self, turn: Turn, cluster: &mut Cluster) {
        match turn {
            Turn::Next => self.next(cluster),
            Turn::Independent(number) => self.independent.turn(number, cluster),
            Turn::Absence => self.absences.turn(cluster),
            Turn::Migrate => self.migrations.turn(cluster),
            Turn::Strike(between) => self.strike(between, cluster),
            Turn::Drain => self.drains.turn(cluster),
            Turn::Tune => self.tuning.turn(cluster),
            Turn::OrderWhileAway(server) => self.order_while_away(cluster, server),
            Turn::Late => self.lateness.turn(cluster),
            Turn::Upgrade => self.upgrades.turn(cluster),
        }
    }

    /// One fault, and the next one later.
    fn next(&mut self, cluster: &mut Cluster) {
        if cluster.phase != Phase::Load || self.left == 0 {
            return;
        }
        if !cluster.is_only_late {
            self.left -= 1;
            if cluster.is_put_back() {
                coordinators::strike(cluster);
            } else if cluster.scenario.is_quiet {
                quiet::strike(cluster);
            } else if !damage::strike(cluster) {
                self.usual.strike(self.state_loss, cluster);
            }
        }
        let most = 2 * cluster.scenario.fault_interval;
        let next = cluster.streams.of("times of faults").between(MICRO, most);
        cluster.schedule_in(next, Event::Turn(Turn::Next));
    }

    fn strike(&mut self, between: Between, cluster: &mut Cluster) {
        let is_calm = cluster.is_only_late || cluster.is_put_back();
        if cluster.phase != Phase::Load || self.left == 0 || is_calm {
            return;
        }
        self.left -= 1;
        migrations::strike(cluster, between);
    }

    fn order_while_away(&mut self, cluster: &mut Cluster, server: usize) {
        if cluster.servers[server].is_up || cluster.phase != Phase::Load {
            return;
        }
        cluster.coverage.hit("orders while a member was away");
        let kind = cluster
            .streams
            .of("orders while a member is away")
            .between(0, 99);
        if kind < quiet::MISTAKEN {
            self.tuning.order_by_mistake(cluster);
        } else if kind < quiet::MISTAKEN + quiet::DRAINS && self.drains.has_drains() {
            self.drains.drain_or_take_back(cluster);
        } else {
            self.tuning.change_settings(cluster);
        }
    }
}
