//! Connections to backups that break, and are made again at once or late.

use core::time::Duration;

use base::bugs::{Bug, plant};

use super::world::World;
use crate::interruption::GRACE;

/// A log that serves, with a write that is under way.
fn writing(seed: u64) -> World {
    let mut world = World::new(3, 2, 4, seed);
    world.pass(Duration::from_millis(5));
    world.write(1, 100);
    world.pass(Duration::from_millis(1));
    assert!(world.is_all_durable());
    world.write(2, 100);
    world
}

/// A hundred times, a connection of the head breaks while a write is under way.
fn break_again_and_again(seed: u64) {
    let mut world = writing(seed);
    let (floor, backups) = (world.floor(), world.backups_of_head());
    for round in 0..100 {
        // So few that the head does not get full.
        if round % 3 == 0 {
            world.write(3 + round % 8, 10);
        }
        world.break_connection_of(backups[usize::from(round) % backups.len()]);
        world.pass(Duration::from_millis(5));
        assert!(world.is_all_durable(), "round {round}");
        assert_eq!(world.backups_of_head(), backups, "round {round}");
        world.pass(Duration::from_secs(1));
        assert!(world.replicator.is_serving(world.now));
    }
    assert_eq!(world.floor(), floor, "the head was not replaced");
    world.calm();
}

#[test]
fn a_connection_that_is_made_again_costs_no_replica_and_no_head() {
    for seed in 0..20 {
        break_again_and_again(seed);
    }
}

#[test]
#[should_panic(expected = "what was durable is gone")]
fn data_that_counts_because_it_was_sent_is_found() {
    plant(Some(Bug::TakeSentForHeld));
    for seed in 0..20 {
        break_again_and_again(seed);
    }
}

#[test]
fn a_backup_that_cannot_be_reached_is_waited_for_no_longer_than_the_grace() {
    let mut world = writing(31);
    let victim = world.backups_of_head()[0];
    // It lives, and answers nothing any more.
    world.slow_backup(victim, 1_000_000);
    world.break_connection_of(victim);
    world.pass(GRACE - Duration::from_millis(1));
    assert!(world.backups_of_head().contains(&victim));
    world.pass(Duration::from_millis(10));
    assert!(!world.backups_of_head().contains(&victim));
    assert!(world.is_all_durable());
}

#[test]
fn a_process_that_has_ended_is_not_waited_for() {
    let mut world = writing(32);
    let victim = world.backups_of_head()[0];
    world.kill_backup(victim);
    world.pass(Duration::from_millis(1));
    assert!(!world.backups_of_head().contains(&victim));
}

#[test]
fn a_connection_that_breaks_again_at_once_is_not_forgiven_twice() {
    let mut world = writing(33);
    let victim = world.backups_of_head()[0];
    world.break_connection_of(victim);
    world.pass(Duration::from_millis(5));
    assert!(world.backups_of_head().contains(&victim) && world.is_all_durable());
    world.break_connection_of(victim);
    world.pass(Duration::from_millis(5));
    assert!(!world.backups_of_head().contains(&victim));
    assert!(world.is_all_durable());
    world.calm();
}

#[test]
fn a_backup_that_has_lost_what_it_acknowledged_gets_no_head_without_it() {
    let mut world = writing(34);
    world.pass(Duration::from_millis(1));
    let victim = world.backups_of_head()[0];
    // The newest is the head's.
    let newest = world.replicas_of(victim).len() - 1;
    world.harm(victim, newest, false);
    world.break_connection_of(victim);
    world.pass(Duration::from_millis(5));
    assert!(!world.backups_of_head().contains(&victim));
    assert!(world.is_all_durable());
}
