//! Tablets that are moved about, and what goes wrong while they are.

use core::time::Duration;

use base::ids::ServerId;
use coordinator::status::Migration;
use coordinator::{
    Balancing, BalancingRules, MigrateError, MigrationOrder, MigrationTarget, TabletTable,
};

use crate::cluster::hosts::coordinator_host;
use crate::cluster::{COORDINATOR, Cluster, client_host, server_host};
use crate::event::Turn;
use crate::event::{Between, Event, Phase};
use crate::random::{Random, Streams};
use crate::scenario::profile::Profile;
use crate::scenario::{MICRO, MILLI, SECOND, Scenario};

/// More orders are not given while so many wait: in the end all of them have to be carried out.
const MAX_WAITING: usize = 3;

/// Nobody's pause is as long, but for a client that is away until its lease has expired.
const FAR_OFF: u64 = 60 * SECOND;

/// Which tablets move, when, and what is done to those who take part.
#[derive(Debug)]
pub struct Migrations {
    random: Random,
    /// Between two attempts, on average; 0: none.
    pub interval: u64,
    /// Of a thousand, in how many something happens to who takes part.
    strikes: u64,
    /// How fast tablets are copied, in bytes per second.
    bytes_per_second: u64,
    /// How coordinators move tablets by themselves.
    pub balancing: Balancing,
}

impl Migrations {
    /// Half of the seeds have them, but for those in which no tablet can move.
    pub fn draw(streams: &mut Streams, profile: Profile, scenario: &Scenario) -> Migrations {
        let mut random = streams.of("migrations").fork();
        let happen = match profile {
            _ if scenario.is_quiet => false,
            Profile::Any | Profile::FailOver | Profile::Rebuilding => random.chance(500),
            Profile::Migrating | Profile::Unreplicated => true,
            Profile::Upgrade | Profile::Draining => random.chance(500),
            Profile::Replicated | Profile::Overwriting | Profile::Quiet => false,
        };
        let interval = *random.pick(&[10 * MILLI, 100 * MILLI, 100 * MILLI, SECOND]);
        let happen = happen && scenario.can_migrate();
        Migrations {
            interval: if happen { interval } else { 0 },
            balancing: draw_balancing(&mut random, happen),
            strikes: match scenario.fault_interval {
                0 => 0,
                _ => *random.pick(&[0, 200, 500]),
            },
            // Small tablets, copied so slowly that much happens meanwhile; or at once.
            bytes_per_second: *random.pick(&[2_000, 50_000, 0]),
            random,
        }
    }
}

/// In half of the seeds in which tablets move, coordinators also even out what servers have, of which there is little here.
fn draw_balancing(random: &mut Random, happen: bool) -> Balancing {
    let interval = *random.pick(&[100 * MILLI, SECOND]);
    // Longer than it takes until it is known anew what each tablet has: of so little, what was known before is mostly wrong.
    let rest = *random.pick(&[4 * SECOND, 10 * SECOND, 300 * SECOND]);
    Balancing {
        evens_out: happen && random.chance(500),
        bytes_per_second: *random.pick(&[2_000, 50_000, 0]),
        interval: Duration::from_nanos(interval),
        rest: Duration::from_nanos(rest),
        pause: Duration::from_nanos(interval),
        longest_pause: Duration::from_nanos(8 * interval),
        rules: BalancingRules {
            min_bytes: 200,
            min_capacity_percent: 0,
            min_rate: 20,
            ..BalancingRules::default()
        },
    }
}

impl Migrations {
    pub fn plan(&mut self, cluster: &mut Cluster) {
        let mut interval = self.interval;
        if interval > 0 {
            // While a client is away for half an hour, a tablet moves now and then, not a hundred times in a second.
            if cluster.machines[&client_host(0)].paused_until > cluster.now + FAR_OFF {
                interval = interval.max(SECOND);
            }
            let random = &mut self.random;
            let after = random.between(interval / 10, 2 * interval);
            cluster.schedule_in(after, Event::Turn(Turn::Migrate));
        }
    }

    /// Some tablet is to go somewhere.
    pub fn turn(&mut self, cluster: &mut Cluster) {
        if cluster.phase != Phase::Load {
            return;
        }
        self.plan(cluster);
        let Some((process, order)) = self.draw_migration(cluster) else {
            return;
        };
        let newest = newest_migration(cluster, process);
        match order_migration(cluster, process, &order) {
            // One that is under way already may be asked for again.
            Some(Ok(migration)) if migration.id > newest => {
                cluster.coverage.hit("migrations ordered");
                if !migration.waits_for.is_empty() {
                    cluster.coverage.hit("migrations that waited");
                }
                let between = Between {
                    source: server_named(cluster, &migration.source_member),
                    target: server_named(cluster, &migration.target_member),
                };
                let random = cluster.streams.of("whether and when migrations are struck");
                if random.chance(self.strikes) {
                    let most = *random.pick(&[5 * MILLI, 50 * MILLI, SECOND]);
                    let after = random.between(MICRO, most);
                    cluster.schedule_in(after, Event::Turn(Turn::Strike(between)));
                }
            }
            _ => {}
        }
    }

    /// An order, and the coordinator that gets it: any that believes that it leads.
    fn draw_migration(&mut self, cluster: &mut Cluster) -> Option<(usize, MigrationOrder)> {
        let leading: Vec<usize> = cluster.leaders().map(|(process, _)| process).collect();
        if leading.is_empty() {
            return None;
        }
        let process = *self.random.pick(&leading);
        let core = cluster.coordinators[process].node.as_ref()?.state()?;
        let tables = core.tables(0, u32::MAX).tables;
        let status = core.cluster_status(cluster.clock(coordinator_host(process)));
        let shards = status.members.iter().flat_map(|member| &member.shards);
        let servers: Vec<u64> = shards.map(|shard| shard.server_id).collect();
        if tables.is_empty() || servers.is_empty() {
            return None;
        }
        let random = &mut self.random;
        let waiting = status.migrations.iter();
        if waiting.filter(|one| !one.waits_for.is_empty()).count() >= MAX_WAITING {
            return None;
        }
        let table = random.pick(&tables);
        let tablet = random.pick(&table.tablets);
        let order = MigrationOrder {
            table: TabletTable::Id(table.table_id),
            key_hash: random.between(tablet.start_key_hash, tablet.end_key_hash),
            target: MigrationTarget::Server(ServerId(*random.pick(&servers))),
            bytes_per_second: self.bytes_per_second,
            expected_cluster_id: 0,
        };
        Some((process, order))
    }
}

/// As whoever asks the admin API does.
fn order_migration(
    cluster: &mut Cluster,
    process: usize,
    order: &MigrationOrder,
) -> Option<Result<Migration, MigrateError>> {
    let mut begun = None;
    match cluster.scenario.fail_over {
        None => cluster.with_coordinator(|core, now, out| {
            begun = Some(core.migrate_tablet(now, order, out));
        }),
        Some(_) => cluster.with_leader(process, |leader, now| {
            begun = Some(leader.migrate_tablet(now, order));
        }),
    }
    begun
}

/// The highest number of those that this coordinator knows.
fn newest_migration(cluster: &Cluster, process: usize) -> u64 {
    let node = cluster.coordinators[process].node.as_ref();
    let state = node.and_then(|node| node.state());
    let status = state.map(|state| state.cluster_status(cluster.clock(coordinator_host(process))));
    let migrations = status.into_iter().flat_map(|status| status.migrations);
    migrations
        .map(|migration| migration.id)
        .max()
        .unwrap_or_default()
}

fn server_named(cluster: &Cluster, member: &str) -> usize {
    let mut servers = cluster.servers.iter();
    let at = servers.position(|server| server.name == member);
    at.expect("members are servers of this world")
}

fn cut_for_a_while(cluster: &mut Cluster, a: u32, b: u32) {
    cluster.note_fault(a, "is cut off from host", u64::from(b));
    let random = cluster.streams.of("cuts between who moves tablets");
    let most = *random.pick(&[20 * MILLI, SECOND, 6 * SECOND]);
    let after = random.between(MILLI, most);
    cluster.network.cut(a, b, cluster.now + after);
    cluster.network.cut(b, a, cluster.now + after);
    cluster.schedule_in(after, Event::Heal);
}

/// Something happens to those between whom a tablet is on its way, or was.
pub fn strike(cluster: &mut Cluster, between: Between) {
    let Between { source, target } = between;
    let (from, to) = (server_host(source), server_host(target));
    let crashes = cluster.scenario.crashes;
    let takes_over = cluster.scenario.fail_over.is_some();
    let (leading, host) = match cluster.leading() {
        Some((process, _)) => (process, coordinator_host(process)),
        None => (0, COORDINATOR),
    };
    match cluster.streams.of("kinds of strikes").between(0, 99) {
        0..20 if crashes => cluster.crash_server(source),
        20..40 if crashes => cluster.crash_server(target),
        40..45 if crashes => {
            cluster.crash_server(source);
            cluster.crash_server(target);
        }
        45..60 if cluster.scenario.coordinator_crashes || takes_over => {
            cluster.crash_coordinator(leading);
        }
        60..75 => cut_for_a_while(cluster, from, to),
        75..85 => cut_for_a_while(cluster, from, host),
        85..95 => cut_for_a_while(cluster, to, host),
        _ => {
            let random = cluster.streams.of("pauses of who moves tablets");
            let host = *random.pick(&[from, to]);
            let pause = random.between(MILLI, 2 * SECOND);
            cluster.note_fault(host, "is paused for ns", pause);
            cluster.pause_until(host, cluster.now + pause);
        }
    }
}
