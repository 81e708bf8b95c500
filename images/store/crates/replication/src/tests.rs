//! A replicator with a real log and modelled backups, network and coordinator: whatever happens to these, what was durable is found by a
//! recovery that keeps the rules of docs/replication.md, and nobody serves once a recovery could have begun.

mod backup;
mod draining;
mod interruption;
mod orphans;
mod returning;
mod slow;
mod stopping;
mod store;
mod world;

use core::time::Duration;

use base::time::Time;
use proptest::prelude::*;

use crate::ReplicationEvent;
use world::{Outcome, World};

#[derive(Clone, Debug)]
enum Step {
    Write {
        key: u8,
        bytes: u16,
    },
    Remove {
        key: u8,
    },
    Clean {
        budget: u16,
    },
    Pass {
        us: u32,
    },
    Kill {
        backup: u8,
    },
    Start,
    Leave {
        backup: u8,
    },
    ComeBack {
        backup: u8,
        is_same: bool,
        /// This replica is damaged, or gone.
        harm: Option<(u8, bool)>,
    },
    Break {
        backup: u8,
    },
    Slow {
        backup: u8,
        ms: u16,
    },
    Full {
        backup: u8,
        is_full: bool,
    },
    StopAfterOpening {
        backup: u8,
        stops: bool,
    },
    Retire {
        backup: u8,
    },
    Drain {
        backup: u8,
        is_draining: bool,
    },
    /// A backup that is drained goes, with its disk.
    RemoveDrained,
    /// People want another number of replicas.
    Want {
        replicas: u8,
        is_least: bool,
    },
    /// The server list catches up with who is alive.
    Notice,
    CoordinatorGone {
        is_gone: bool,
    },
    /// A recovery reaches the backups of this mask.
    Recover {
        mask: u16,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (any::<u8>(), 0u16..1500).prop_map(|(key, bytes)| Step::Write { key: key % 40, bytes }),
        4 => any::<u8>().prop_map(|key| Step::Remove { key: key % 40 }),
        6 => (1u16..8000).prop_map(|budget| Step::Clean { budget }),
        20 => (1u32..400).prop_map(|us| Step::Pass { us }),
        6 => (1_000u32..120_000).prop_map(|us| Step::Pass { us }),
        2 => (100_000u32..400_000).prop_map(|us| Step::Pass { us }),
        3 => any::<u8>().prop_map(|backup| Step::Kill { backup }),
        3 => Just(Step::Start),
        4 => any::<u8>().prop_map(|backup| Step::Leave { backup }),
        4 => (any::<u8>(), any::<bool>(), prop::option::weighted(0.1, any::<(u8, bool)>()))
            .prop_map(|(backup, is_same, harm)| Step::ComeBack { backup, is_same, harm }),
        4 => any::<u8>().prop_map(|backup| Step::Break { backup }),
        4 => (any::<u8>(), 0u16..300).prop_map(|(backup, ms)| Step::Slow { backup, ms }),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(backup, is_full)| Step::Full { backup, is_full }),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(backup, stops)| Step::StopAfterOpening { backup, stops }),
        1 => any::<u8>().prop_map(|backup| Step::Retire { backup }),
        3 => (any::<u8>(), prop::bool::weighted(0.7))
            .prop_map(|(backup, is_draining)| Step::Drain { backup, is_draining }),
        3 => Just(Step::RemoveDrained),
        2 => (1u8..4, any::<bool>()).prop_map(|(replicas, is_least)| Step::Want { replicas, is_least }),
        4 => Just(Step::Notice),
        2 => any::<bool>().prop_map(|is_gone| Step::CoordinatorGone { is_gone }),
        6 => any::<u16>().prop_map(|mask| Step::Recover { mask }),
    ]
}

fn run(world: &mut World, step: &Step) {
    match *step {
        Step::Write { key, bytes } => world.write(key, bytes.into()),
        Step::Remove { key } => world.remove(key),
        Step::Clean { budget } => world.clean(budget.into()),
        Step::Pass { us } => world.pass(Duration::from_micros(us.into())),
        Step::Kill { backup } => world.kill(backup.into()),
        Step::Start => world.start_backup(),
        Step::Leave { backup } => world.leave(backup.into()),
        Step::ComeBack {
            backup,
            is_same,
            harm,
        } => {
            if let Some(id) = world.come_back(backup.into(), is_same)
                && let Some((which, is_damage)) = harm
            {
                // A process that never ended can find that a replica is damaged; it forgets none.
                world.harm(id, which.into(), is_damage || is_same);
            }
        }
        Step::Break { backup } => world.break_connection(backup.into()),
        Step::Slow { backup, ms } => world.slow(backup.into(), ms.into()),
        Step::Full { backup, is_full } => world.full(backup.into(), is_full),
        Step::StopAfterOpening { backup, stops } => world.stop_after_opening(backup.into(), stops),
        Step::Retire { backup } => world.retire(backup.into()),
        Step::Drain {
            backup,
            is_draining,
        } => world.drain(backup.into(), is_draining),
        Step::RemoveDrained => world.remove_drained(),
        Step::Want { replicas, is_least } => {
            let replicas = usize::from(replicas);
            let fewer = replicas.saturating_sub(1).max(1);
            world.want(replicas, if is_least { replicas } else { fewer });
        }
        Step::Notice => world.notice(),
        Step::CoordinatorGone { is_gone } => world.coordinator_gone(is_gone),
        Step::Recover { mask } => world.check(mask),
    }
}

/// PROPTEST_CASES asks for another number.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|number| number.parse().ok()).unwrap_or(400)
}

#[derive(Clone, Debug)]
struct History {
    replicas: usize,
    spare: usize,
    seed: u64,
    steps: Vec<Step>,
}

fn any_history() -> impl Strategy<Value = History> {
    let steps = proptest::collection::vec(any_step(), 1..150);
    (1usize..4, 0usize..3, any::<u64>(), steps).prop_map(|(replicas, spare, seed, steps)| History {
        replicas,
        spare,
        seed,
        steps,
    })
}

fn live(history: &History) {
    let replicas = history.replicas;
    let min_replicas = replicas.saturating_sub(1).max(1);
    let mut world = World::new(
        replicas,
        min_replicas,
        replicas + history.spare,
        history.seed,
    );
    for step in &history.steps {
        run(&mut world, step);
    }
    world.calm();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn what_is_durable_is_found_and_nobody_serves_beside_a_recovery(history in any_history()) {
        live(&history);
    }
}

#[test]
fn a_write_is_durable_when_all_backups_hold_it() {
    let mut world = World::new(3, 2, 3, 1);
    world.pass(Duration::from_millis(5));
    assert!(world.replicator.is_serving(world.now));
    world.write(1, 100);
    assert!(!world.is_all_durable());
    world.pass(Duration::from_millis(1));
    assert!(world.is_all_durable());
}

#[test]
fn an_idle_master_goes_on_serving_and_one_that_is_cut_off_stops() {
    let mut world = World::new(3, 2, 4, 2);
    world.pass(Duration::from_millis(5));
    for _ in 0..100 {
        world.pass(Duration::from_millis(20));
        assert!(world.replicator.is_serving(world.now));
    }
    world.cut_off();
    world.pass(Duration::from_millis(205));
    assert!(!world.replicator.is_serving(world.now));
}

#[test]
fn a_lost_backup_costs_a_new_head_and_no_write() {
    let mut world = World::new(3, 2, 4, 3);
    world.pass(Duration::from_millis(5));
    world.write(1, 100);
    world.pass(Duration::from_millis(1));
    let before = world.floor();
    let victim = world.backups_of_head()[0];
    world.kill_backup(victim);
    world.write(2, 100);
    world.pass(Duration::from_millis(10));
    assert!(world.is_all_durable());
    assert!(
        world.floor() > before,
        "the replica that was left behind counts no more"
    );
    assert!(!world.backups_of_head().contains(&victim));
    assert!(world.replicator.is_serving(world.now));
}

#[test]
fn a_slow_backup_is_replaced() {
    let mut world = World::new(2, 1, 3, 4);
    world.pass(Duration::from_millis(5));
    let victim = world.backups_of_head()[0];
    world.slow_backup(victim, 10_000);
    world.write(1, 100);
    world.pass(Duration::from_millis(40));
    assert!(!world.is_all_durable());
    world.pass(Duration::from_millis(60));
    assert!(world.is_all_durable());
    assert!(!world.backups_of_head().contains(&victim));
}

#[test]
fn a_backup_that_falls_silent_is_replaced_although_nobody_writes() {
    let mut world = World::new(2, 1, 3, 4);
    world.pass(Duration::from_millis(5));
    let victim = world.backups_of_head()[0];
    world.slow_backup(victim, 1_000_000);
    world.pass(Duration::from_millis(300));
    assert!(!world.backups_of_head().contains(&victim));
    assert!(world.replicator.is_serving(world.now));
    // Its connection is given up: the next one may be better.
    assert_eq!(world.replicator.report().backups, 3);
    world.pass(Duration::from_secs(6));
    assert_eq!(world.replicator.report().backups, 2);
}

#[test]
fn heads_that_end_early_again_and_again_do_not_use_up_memory() {
    let mut world = World::new(2, 1, 4, 6);
    world.pass(Duration::from_millis(5));
    world.write(1, 100);
    // Until there is no memory for one more head, while nobody can raise the floor.
    world.coordinator_gone(true);
    for _ in 0..100 {
        if let Some(&victim) = world.backups_of_head().first() {
            world.break_connection_of(victim);
        }
        world.pass(Duration::from_millis(50));
    }
    world.coordinator_gone(false);
    for _ in 0..100 {
        world.clean(1 << 20);
        world.pass(Duration::from_millis(50));
    }
    assert!(world.replicator.is_serving(world.now));
    assert!(world.is_all_durable());
}

#[test]
fn that_all_disks_are_full_is_said_and_appends_go_on_when_they_are_not() {
    let mut world = World::new(2, 1, 3, 7);
    for at in 0..3 {
        world.full(at, true);
    }
    world.write(1, 100);
    world.pass(Duration::from_secs(5));
    assert!(!world.is_all_durable());
    let said = |world: &World| {
        let events = world.reports.iter();
        let all_full = ReplicationEvent::BackupsFull { full: 3, known: 3 };
        events.filter(|event| **event == all_full).count()
    };
    assert_eq!(said(&world), 1, "{:?}", world.reports);
    for at in 0..3 {
        world.full(at, false);
    }
    world.pass(Duration::from_secs(20));
    assert!(world.is_all_durable());
    assert_eq!(said(&world), 1);
}

#[test]
fn without_enough_backups_appends_wait_and_go_on_when_they_come() {
    let mut world = World::new(3, 2, 1, 5);
    world.write(1, 100);
    world.pass(Duration::from_millis(50));
    assert!(!world.is_all_durable());
    assert!(!world.replicator.is_serving(world.now));
    world.start_backup();
    world.notice();
    world.pass(Duration::from_millis(50));
    assert!(world.is_all_durable(), "two of three are the least");
    assert!(world.replicator.report().segments_short > 0);
    world.start_backup();
    world.notice();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.replicator.report().segments_short, 0);
    assert_eq!(world.backups_of_head().len(), 3);
}

#[test]
fn without_a_coordinator_a_lost_backup_stops_acknowledgements_and_then_reads() {
    let mut world = World::new(2, 1, 3, 6);
    world.pass(Duration::from_millis(5));
    world.coordinator_gone(true);
    world.write(1, 100);
    world.pass(Duration::from_millis(5));
    assert!(
        world.is_all_durable(),
        "nothing is asked of the coordinator"
    );
    let victim = world.backups_of_head()[0];
    world.kill_backup(victim);
    world.write(2, 100);
    world.pass(Duration::from_millis(100));
    assert!(!world.is_all_durable());
    world.pass(Duration::from_millis(200));
    assert!(!world.replicator.is_serving(world.now));
    world.coordinator_gone(false);
    world.pass(Duration::from_millis(20));
    assert!(world.is_all_durable());
    assert!(world.replicator.is_serving(world.now));
}

#[test]
fn a_fenced_log_is_given_up() {
    let mut world = World::new(3, 2, 3, 7);
    world.write(1, 100);
    world.pass(Duration::from_millis(5));
    world.fence(world.backups_of_head()[0]);
    world.write(2, 100);
    world.pass(Duration::from_millis(5));
    assert!(world.replicator.is_deposed());
    assert!(!world.replicator.is_serving(world.now));
    assert!(!world.is_all_durable());
    assert_eq!(
        world
            .replicator
            .pump(world.now, &mut world.store.log, &mut world.out),
        Time::NEVER
    );
}

#[test]
fn replicas_spread_over_all_backups_and_over_domains() {
    let mut world = World::new(3, 2, 9, 8);
    for key in 0..200 {
        world.write(key, 800);
        world.pass(Duration::from_millis(2));
    }
    let counts = world.replica_counts();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 0 && most - least <= 10, "{counts:?}");
    world.assert_domains_differ();
}

#[test]
fn what_was_on_a_lost_backup_is_made_again() {
    let mut world = World::new(2, 1, 4, 9);
    for key in 0..60 {
        world.write(key, 800);
        world.pass(Duration::from_millis(2));
    }
    world.kill(0);
    world.kill(0);
    world.notice();
    world.pass(Duration::from_millis(500));
    assert_eq!(world.replicator.report().segments_short, 0);
    assert!(matches!(world.recover(u16::MAX), Outcome::Found { .. }));
}

#[test]
fn another_number_of_replicas_is_made_of_what_is_there_and_of_what_comes() {
    let mut world = World::new(2, 1, 4, 9);
    let write_all = |world: &mut World| {
        for key in 0..60 {
            world.write(key, 800);
            world.pass(Duration::from_millis(2));
        }
    };
    write_all(&mut world);
    for (replicas, min_replicas) in [(3, 3), (1, 1), (2, 2), (4, 3), (2, 1)] {
        world.want(replicas, min_replicas);
        // The open head, too: within a second there is another one.
        for _ in 0..80 {
            world.pass(Duration::from_millis(50));
        }
        assert_eq!(world.replicator.report().segments_short, 0);
        for (id, segment) in &world.replicator.segments {
            // An open side segment gets its replicas when it is closed.
            let expected = if segment.is_awaited() { replicas } else { 0 };
            let count = segment.replicas.len();
            assert_eq!(count, expected, "replicas of segment {id}");
        }
        assert!(world.replicator.segments.len() > 5);
        assert!(matches!(world.recover(u16::MAX), Outcome::Found { .. }));
        write_all(&mut world);
        world.pass(Duration::from_millis(20));
        assert!(world.is_all_durable());
    }
    world.calm();
}

#[test]
fn with_more_wanted_at_least_than_there_are_writes_wait_and_what_was_durable_stays() {
    let mut world = World::new(2, 1, 2, 9);
    world.write(1, 100);
    world.pass(Duration::from_millis(5));
    assert!(world.is_all_durable());
    world.want(3, 3);
    world.pass(Duration::from_millis(50));
    assert!(world.is_all_durable(), "what was said cannot be unsaid");
    world.write(2, 100);
    world.pass(Duration::from_secs(2));
    assert!(!world.is_all_durable());
    world.start_backup();
    world.notice();
    world.pass(Duration::from_secs(2));
    assert!(world.is_all_durable());
}

#[test]
fn lost_replicas_are_made_again_at_a_bounded_rate() {
    const BYTES_PER_SECOND: u64 = 50_000;
    let mut world = World::new(2, 1, 4, 9);
    world.replicator.config.repair_bytes_per_second = BYTES_PER_SECOND;
    for key in 0..60 {
        world.write(key, 800);
        world.pass(Duration::from_millis(2));
    }
    world.kill(0);
    world.notice();
    // The head is replaced at once, whatever the rate.
    world.pass(Duration::from_millis(20));
    let (before, short) = (world.sent_bytes, world.replicator.report().segments_short);
    assert!(short > 4, "{short}");
    world.pass(Duration::from_millis(200));
    // At any time one segment more than the rate allows may be on its way.
    let sent = world.sent_bytes - before;
    assert!((4096..=10_000 + 4096).contains(&sent), "{sent}");
    assert!(world.replicator.report().segments_short > 0);
    // What clients wait for does not wait.
    world.write(1, 100);
    world.pass(Duration::from_millis(2));
    assert!(world.is_all_durable());
    world.pass(Duration::from_secs(2));
    assert_eq!(world.replicator.report().segments_short, 0);
}

#[test]
fn while_the_master_replays_copies_go_out_a_piece_at_a_time() {
    let mut world = World::new(2, 1, 4, 9);
    for key in 0..60 {
        world.write(key, 800);
        world.pass(Duration::from_millis(2));
    }
    world.replicator.yield_to_replay(true);
    world.kill(0);
    world.notice();
    world.pass(Duration::from_millis(1));
    let mut most = 0;
    for _ in 0..200 {
        world.pass(Duration::from_micros(50));
        let backups = world.replicator.backups.values();
        most = most.max(backups.map(|backup| backup.background_bytes).sum());
    }
    // A piece to each of those that hold the same segment.
    let piece = world.replicator.config.copy_bytes;
    assert!((1..=2 * piece).contains(&most), "{most}");
    // What clients wait for does not wait, and the copies come.
    world.write(1, 100);
    world.pass(Duration::from_millis(2));
    assert!(world.is_all_durable());
    world.pass(Duration::from_secs(2));
    assert_eq!(world.replicator.report().segments_short, 0);
    world.replicator.yield_to_replay(false);
    world.calm();
}

#[test]
fn a_head_that_all_backups_were_slow_with_goes_on_where_it_was_durable() {
    let mut world = World::new(3, 2, 3, 11);
    // More of it is durable than goes into one request.
    for key in 0..4 {
        world.write(key, 800);
        world.pass(Duration::from_millis(2));
    }
    assert!(world.is_all_durable());
    for backup in world.backups_of_head() {
        world.slow_backup(backup, 1_500);
    }
    world.write(9, 100);
    world.pass(Duration::from_millis(1_300));
    for backup in world.infos() {
        world.slow_backup(backup.id, 0);
    }
    world.pass(Duration::from_secs(20));
    assert!(world.is_all_durable());
    assert_eq!(world.replicator.report().segments_short, 0);
}
