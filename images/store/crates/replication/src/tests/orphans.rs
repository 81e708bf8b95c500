//! Backups that were given up, and answer after all while the coordinator notes nothing.

use core::time::Duration;

use proptest::prelude::*;

use super::world::World;
use super::{Step, cases, run};

/// A log that serves, with a write that two of three backups have, and a coordinator that is gone.
fn with_late_backup(seed: u64, ms: u64) -> World {
    let mut world = World::new(3, 2, 4, seed);
    world.pass(Duration::from_millis(5));
    world.write(1, 100);
    world.pass(Duration::from_millis(1));
    assert!(world.is_all_durable());
    world.coordinator_gone(true);
    world.slow_backup(world.backups_of_head()[0], ms);
    world.write(2, 100);
    world
}

#[test]
fn a_slow_backup_holds_appends_up_only_until_it_answers() {
    let mut world = with_late_backup(21, 300);
    let (victim, floor) = (world.backups_of_head()[0], world.floor());
    world.pass(Duration::from_millis(200));
    assert!(!world.backups_of_head().contains(&victim));
    assert!(!world.is_all_durable(), "its replica is open still");
    world.pass(Duration::from_millis(600));
    assert!(world.is_all_durable());
    assert!(world.replicator.is_serving(world.now));
    assert_eq!(world.floor(), floor, "nobody could raise it");
    // Later floors are not in the way of what was done without one.
    world.coordinator_gone(false);
    world.calm();
}

#[test]
fn one_that_is_reached_again_is_sent_everything_once_more() {
    for is_bare in [false, true] {
        let mut world = with_late_backup(22, 1_000_000);
        world.pass(Duration::from_millis(200));
        if is_bare {
            // The new head holds nothing, and loses a backup as well.
            world.slow_backup(world.backups_of_head()[0], 1_000_000);
            world.pass(Duration::from_millis(200));
        }
        let orphans = &world.replicator.floor.orphans;
        let is_discarded = orphans.iter().any(|orphan| orphan.discarded.is_some());
        assert_eq!(is_discarded, is_bare);
        for backup in world.infos() {
            world.slow_backup(backup.id, 0);
            world.break_connection_of(backup.id);
        }
        world.forget_late_arrivals();
        world.pass(Duration::from_secs(3));
        assert!(world.is_all_durable(), "{:?}", world.replicator.floor);
        assert!(world.replicator.is_serving(world.now));
        world.calm();
    }
}

#[test]
fn one_that_does_not_come_back_is_waited_for() {
    let mut world = with_late_backup(23, 0);
    let victim = world.backups_of_head()[0];
    world.kill_backup(victim);
    world.pass(Duration::from_secs(20));
    assert!(!world.is_all_durable());
    world.coordinator_gone(false);
    world.pass(Duration::from_millis(20));
    assert!(world.is_all_durable());
}

/// Nothing is lost for ever: backups are slow, cannot be reached, or lose their connections.
fn passing_trouble() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (any::<u8>(), 0u16..1500).prop_map(|(key, bytes)| Step::Write { key: key % 40, bytes }),
        4 => any::<u8>().prop_map(|key| Step::Remove { key: key % 40 }),
        6 => (1u16..8000).prop_map(|budget| Step::Clean { budget }),
        20 => (1u32..400).prop_map(|us| Step::Pass { us }),
        10 => (1_000u32..200_000).prop_map(|us| Step::Pass { us }),
        8 => (any::<u8>(), 0u16..300).prop_map(|(backup, ms)| Step::Slow { backup, ms }),
        4 => any::<u8>().prop_map(|backup| Step::Break { backup }),
        2 => any::<u8>().prop_map(|backup| Step::Leave { backup }),
        2 => any::<u8>().prop_map(|backup| Step::ComeBack { backup, is_same: true, harm: None }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn whose_backups_all_answer_in_the_end_needs_no_coordinator(
        (replicas, spare, seed) in (1usize..4, 0usize..3, any::<u64>()),
        steps in proptest::collection::vec(passing_trouble(), 1..100),
    ) {
        let min_replicas = replicas.saturating_sub(1).max(1);
        let mut world = World::new(replicas, min_replicas, replicas + spare, seed);
        world.pass(Duration::from_millis(50));
        world.coordinator_gone(true);
        for step in &steps {
            run(&mut world, step);
        }
        world.calm_without_coordinator();
        world.calm();
    }
}
