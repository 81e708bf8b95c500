//! Settings that people change while the store runs.
//!
//! Chance has its own source here: seeds in which nobody changes any are what they were before anybody could.

use coordinator::SettingsOrder;
use wire::member::{Settings, bounds};

use crate::random::Random;
use crate::run::Profile;
use crate::scenario::{MILLI, SECOND, Scenario};
use crate::world::{Event, Phase, World};

/// How often they are changed.
#[derive(Debug)]
pub struct Tuning {
    random: Random,
    /// Between two changes, on average; 0: nobody changes anything.
    interval: u64,
}

impl Tuning {
    /// In one of four seeds with replicas.
    pub fn draw(seed: u64, profile: Profile, scenario: &Scenario) -> Tuning {
        let mut random = Random::new(seed.rotate_left(16) ^ !1);
        let happens = random.chance(250) && profile != Profile::Overwriting;
        let interval = *random.pick(&[50 * MILLI, 200 * MILLI, SECOND]);
        let is_possible = scenario.replicated.is_some();
        Tuning {
            interval: if happens && is_possible { interval } else { 0 },
            random,
        }
    }
}

impl World {
    pub fn plan_tuning(&mut self) {
        let interval = self.tuning.interval;
        if interval > 0 {
            let after = match self.phase {
                Phase::Load => self.tuning.random.between(interval / 10, 2 * interval),
                _ => SECOND,
            };
            self.schedule_in(after, Event::Tune);
        }
    }

    /// Somebody changes his mind; at the end all is as servers were started.
    pub fn tune(&mut self) {
        self.plan_tuning();
        let settings = match self.phase {
            Phase::Load => self.draw_settings(),
            _ => Settings::default(),
        };
        let Some((_, core)) = self.leading() else {
            return;
        };
        if self.is_only_late() || core.settings().is_same(&settings) {
            return;
        }
        let order = SettingsOrder {
            settings,
            expected_cluster_id: 0,
        };
        let mut set = None;
        match self.leading_process() {
            Some(process) => self.with_leader(process, |leader, _| {
                set = Some(leader.set_settings(&order));
            }),
            None => self.with_coordinator(|core, _, out| {
                set = Some(core.set_settings(&order, out));
            }),
        }
        if let Some(Ok(_)) = set {
            self.coverage.hit("settings changed");
            if settings.replicas.is_some() {
                self.coverage.hit("numbers of copies changed");
            }
        }
    }

    /// Never fewer copies than servers were started with: what may be lost at a time counts on these.
    fn draw_settings(&mut self) -> Settings {
        let Some(replicated) = &self.scenario.replicated else {
            return Settings::default();
        };
        let (least, started_with) = (
            u32::from(replicated.min_replicas),
            u32::from(replicated.replicas),
        );
        let most = (self.scenario.members as u32 - 1).max(started_with);
        let random = &mut self.tuning.random;
        let most = most.min(started_with + 2).min(*bounds::REPLICAS.end());
        let replicas = random.between(started_with.into(), most.into()) as u32;
        let min_replicas = random.between(least.into(), replicas.into()) as u32;
        let has_replicas = random.chance(700);
        let free = random.between(1, 50) as u32;
        let repair = *random.pick(&[1, 100, 100_000]);
        Settings {
            number: 0,
            replicas: has_replicas.then_some(replicas),
            min_replicas: (has_replicas && random.chance(500)).then_some(min_replicas),
            repair_mbps: random.chance(300).then_some(repair),
            poll_micros: None,
            cleaner_free_percent: random.chance(300).then_some(free),
            max_connections: None,
            log_level: None,
            rebalance_mbps: random.chance(300).then_some(random.between(0, 50) as u32),
        }
    }
}
