//! Backups that take the beginning of a replica, and nothing behind it.

use core::time::Duration;

use base::bugs::{Bug, plant};

use super::world::World;

/// One of the head's backups answers that it takes no more, right behind the request that has opened the head there and before that is answered. The
/// others have all that follows.
fn stop_behind_the_opening(seed: u64) {
    let mut world = World::new(3, 2, 3, seed);
    world.pass(Duration::from_millis(5));
    world.write(1, 100);
    world.pass(Duration::from_millis(1));
    world.stop_after_opening(seed as usize % 3, true);
    for round in 0..40 {
        world.write(round % 8, 400);
        world.pass(Duration::from_micros(200));
    }
    world.calm();
}

#[test]
fn a_replica_of_which_a_part_is_there_is_not_forgotten() {
    for seed in 0..60 {
        stop_behind_the_opening(seed);
    }
}

#[test]
#[should_panic(expected = "what was durable is gone")]
fn a_replica_that_is_forgotten_though_a_part_of_it_is_there_is_found() {
    plant(Some(Bug::ForgetOpenReplica));
    for seed in 0..60 {
        stop_behind_the_opening(seed);
    }
}
