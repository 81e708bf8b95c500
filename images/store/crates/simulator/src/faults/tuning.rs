//! Settings that people change while the store runs.

use coordinator::{SettingsError, SettingsOrder, SpecVersion};
use wire::member::{Settings, bounds};

use crate::cluster::Cluster;
use crate::event::{Phase, Turn};
use crate::faults::turns::schedule_turn;
use crate::random::{Random, Streams};
use crate::scenario::profile::Profile;
use crate::scenario::{MILLI, SECOND, Scenario};

/// How often they are changed.
#[derive(Debug)]
pub struct Tuning {
    random: Random,
    /// Of orders that nobody should give, which change nothing.
    of_errors: Random,
    /// Version of the specification that asks for the present settings.
    generation: i64,
    /// Between two changes, on average; 0: nobody changes anything.
    interval: u64,
}

impl Tuning {
    /// In one of four seeds with replicas, and in all quiet lives.
    pub fn draw(streams: &mut Streams, profile: Profile, scenario: &Scenario) -> Tuning {
        let mut random = streams.of("settings").fork();
        let happens = random.chance(250) && profile != Profile::Overwriting;
        let interval = *random.pick(&[50 * MILLI, 200 * MILLI, SECOND]);
        // There, settings change most often while a member is away.
        let (happens, interval) = match scenario.is_quiet {
            true => (true, 20 * SECOND),
            false => (happens, interval),
        };
        let is_possible = scenario.replicated.is_some();
        Tuning {
            interval: if happens && is_possible { interval } else { 0 },
            random,
            of_errors: streams.of("mistaken settings").fork(),
            generation: 0,
        }
    }
}

fn spec_version(generation: i64) -> SpecVersion {
    SpecVersion {
        uid: "spec".to_owned(),
        generation,
    }
}

impl Tuning {
    pub fn plan(&mut self, cluster: &mut Cluster) {
        schedule_turn(cluster, &mut self.random, self.interval, Turn::Tune);
    }

    /// Somebody changes his mind, now and again later.
    pub fn turn(&mut self, cluster: &mut Cluster) {
        self.plan(cluster);
        self.change_settings(cluster);
    }

    /// Somebody changes his mind; at the end all is as servers were started.
    pub(crate) fn change_settings(&mut self, cluster: &mut Cluster) {
        let settings = match cluster.phase {
            Phase::Load => self.draw_settings(cluster),
            _ => Settings::default(),
        };
        let Some((_, core)) = cluster.leading() else {
            return;
        };
        let is_news = !core.settings().is_same(&settings);
        if cluster.is_only_late {
            return;
        }
        self.order_by_mistake(cluster);
        let Some((_, core)) = cluster.leading() else {
            return;
        };
        if !is_news {
            return;
        }
        let fewer_than = Some(core.copies_in_force().replicas);
        self.generation += 1;
        let order = SettingsOrder {
            settings,
            asked_by: Some(spec_version(self.generation)),
            fewer_than,
            ..SettingsOrder::default()
        };
        if let Some(Ok(_)) = set_settings(cluster, &order) {
            cluster.coverage.hit("settings changed");
            cluster.asked.copies = settings.replicas;
            cluster.asked.settings += 1;
            if settings.replicas.is_some() {
                cluster.coverage.hit("numbers of copies changed");
            }
        }
    }

    /// An operator that is mistaken orders fewer copies: nothing changes.
    pub(crate) fn order_by_mistake(&mut self, cluster: &mut Cluster) {
        let Some((_, core)) = cluster.leading() else {
            return;
        };
        let in_force = core.settings();
        let copies = core.copies_in_force().replicas;
        let generation = core.copies_asked_by().map(|by| by.generation);
        let random = &mut self.of_errors;
        let (mistake, age) = (random.between(0, 3), random.between(0, 2) as i64);
        let with = |replicas| Settings {
            replicas,
            min_replicas: None,
            ..in_force
        };
        let fewer = (copies > 1).then(|| random.between(1, u64::from(copies) - 1) as u32);
        let (settings, asked_by, fewer_than) = match (mistake, fewer, generation) {
            // A member is away, and none of its copies are seen: the number is left out.
            (0, ..) => (with(None), None, None),
            // Of an older build, which says nothing of what it knows.
            (1, Some(_), _) => (with(fewer), None, None),
            // It believes in another number than the one in force.
            (2, Some(_), _) => (with(fewer), Some(i64::MAX), Some(copies + 1)),
            // With the version of the specification that asked for the present number, or an older one.
            (3, Some(_), Some(by)) => (with(fewer), Some(by - age), Some(copies)),
            _ => return,
        };
        let order = SettingsOrder {
            settings,
            asked_by: asked_by.map(spec_version),
            fewer_than,
            ..SettingsOrder::default()
        };
        match set_settings(cluster, &order) {
            // In a quiet life disks must show it: `copies.rs`.
            Some(Ok(set)) if !set.is_same(&in_force) && !cluster.scenario.is_quiet => {
                cluster.fail(format!(
                    "{order:?} made copies fewer: {in_force:?} was in force"
                ));
            }
            Some(Ok(_)) => cluster.coverage.hit("orders without copies that kept them"),
            Some(Err(SettingsError::FewerCopies { .. })) => {
                cluster
                    .coverage
                    .hit("orders for fewer copies without a reason");
            }
            Some(Err(SettingsError::OtherCopies { .. })) => {
                cluster.coverage.hit("orders for fewer copies by mistake");
            }
            Some(Err(SettingsError::NotNewer { .. })) => {
                cluster
                    .coverage
                    .hit("orders for fewer copies of old specifications");
            }
            Some(Err(_)) | None => {}
        }
    }

    /// Never fewer copies than servers were started with: what may be lost at a time counts on these.
    fn draw_settings(&mut self, cluster: &mut Cluster) -> Settings {
        let Some(replicated) = &cluster.scenario.replicated else {
            return Settings::default();
        };
        let (least, started_with) = (
            u32::from(replicated.min_replicas),
            u32::from(replicated.replicas),
        );
        let most = (cluster.scenario.members as u32 - 1).max(started_with);
        let random = &mut self.random;
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

fn set_settings(
    cluster: &mut Cluster,
    order: &SettingsOrder,
) -> Option<Result<Settings, SettingsError>> {
    let mut set = None;
    match cluster.leading_process() {
        Some(process) => cluster.with_leader(process, |leader, _| {
            set = Some(leader.set_settings(order));
        }),
        None => cluster.with_coordinator(|core, _, out| {
            set = Some(core.set_settings(order, out));
        }),
    }
    set
}
