//! A backup that is to leave: what it has is made again elsewhere first.

use core::time::Duration;

use base::bugs::{Bug, plant};
use base::ids::ServerId;
use proptest::test_runner::{Config, TestRunner};

use super::world::{Outcome, World};

/// A log with segments on each of these backups.
fn with_segments(replicas: usize, backups: usize) -> World {
    let mut world = World::new(replicas, replicas.saturating_sub(1).max(1), backups, 9);
    for key in 0..60 {
        world.write(key, 800);
        world.pass(Duration::from_millis(2));
    }
    world
}

fn drain(world: &mut World, at: usize, is_draining: bool) -> ServerId {
    world.drain(at, is_draining);
    world.notice();
    world.infos()[at].id
}

#[test]
fn what_it_has_is_copied_first_and_then_freed() {
    for replicas in 1..=3 {
        let mut world = with_segments(replicas, 4);
        let before = world.replica_counts()[0];
        assert!(before > 3, "{before}");
        let id = drain(&mut world, 0, true);
        assert!(world.replicator.segments_at(id) >= before as u64);
        for _ in 0..40 {
            world.pass(Duration::from_millis(50));
            assert_eq!(world.replicator.report().segments_short, 0);
        }
        assert_eq!(world.replicator.segments_at(id), 0);
        assert_eq!(world.replicas_of(id), []);
        assert!(!world.backups_of_head().contains(&id));
        world.end_last_resorts();
        world.notice();
        world.remove_drained();
        assert!(matches!(world.recover(u16::MAX), Outcome::Found { .. }));
        world.write(1, 100);
        world.pass(Duration::from_millis(5));
        assert!(world.is_all_durable());
        world.calm();
    }
}

#[test]
fn copies_go_out_at_the_rate_of_repairs_and_writes_do_not_wait() {
    let mut world = with_segments(2, 4);
    world.replicator.config.repair_bytes_per_second = 50_000;
    let id = drain(&mut world, 0, true);
    world.pass(Duration::from_millis(20));
    let before = world.sent_bytes;
    world.pass(Duration::from_millis(200));
    let sent = world.sent_bytes - before;
    assert!((4096..=10_000 + 4096).contains(&sent), "{sent}");
    assert!(world.replicator.segments_at(id) > 0);
    world.write(1, 100);
    world.pass(Duration::from_millis(2));
    assert!(world.is_all_durable());
    world.pass(Duration::from_secs(4));
    assert_eq!(world.replicator.segments_at(id), 0);
}

#[test]
fn what_has_no_place_elsewhere_stays() {
    let mut world = with_segments(3, 3);
    let id = drain(&mut world, 0, true);
    world.pass(Duration::from_secs(2));
    let stays = world.replicator.segments_at(id);
    assert!(stays > 3, "{stays}");
    assert!(
        world.backups_of_head().contains(&id),
        "it would have fewer copies"
    );
    assert_eq!(world.replicator.report().segments_short, 0);
    world.write(1, 100);
    world.pass(Duration::from_millis(2));
    assert!(world.is_all_durable());
    world.start_backup();
    world.notice();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.replicator.segments_at(id), 0);
}

/// All are drained, and one with the head's replica is away.
fn nowhere_to_go(replicas: usize) -> World {
    let mut world = with_segments(replicas, replicas + 1);
    for at in 0..=replicas {
        drain(&mut world, at, true);
    }
    world
}

fn lose_a_replica_of_the_head(world: &mut World) -> ServerId {
    let lost = world.backups_of_head()[0];
    world.leave_backup(lost);
    world.notice();
    world.write(1, 100);
    world.pass(Duration::from_millis(50));
    lost
}

#[test]
fn one_that_leaves_is_better_than_none() {
    for replicas in 1..=3 {
        let mut world = nowhere_to_go(replicas);
        let lost = lose_a_replica_of_the_head(&mut world);
        assert!(world.is_all_durable());
        let head = world.backups_of_head();
        // As few as there must be.
        assert_eq!(head.len(), replicas.saturating_sub(1).max(1));
        assert!(!head.contains(&lost));
        // There are better ones.
        for _ in 0..=replicas {
            world.start_backup();
        }
        world.notice();
        world.pass(Duration::from_secs(3));
        for id in head {
            assert_eq!(world.replicator.segments_at(id), 0);
        }
        world.calm();
    }
}

#[test]
fn one_that_is_about_to_be_drained_is_not_taken_even_then() {
    let mut world = nowhere_to_go(2);
    world.end_last_resorts();
    world.notice();
    lose_a_replica_of_the_head(&mut world);
    world.pass(Duration::from_secs(2));
    assert!(!world.is_all_durable());
    world.start_backup();
    world.notice();
    world.pass(Duration::from_secs(2));
    assert!(world.is_all_durable());
    let head = world.backups_of_head();
    assert!(head.iter().all(|id| !world.replicator.is_draining(*id)));
    world.calm();
}

#[test]
fn one_that_stays_comes_first() {
    let mut world = with_segments(2, 3);
    drain(&mut world, 0, true);
    drain(&mut world, 1, true);
    let stays = world.infos()[2].id;
    let lost = world.backups_of_head();
    let lost = lost.into_iter().find(|id| *id != stays).unwrap();
    world.leave_backup(lost);
    world.notice();
    world.write(1, 100);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.backups_of_head(), [stays]);
    world.calm();
}

#[test]
fn one_that_stays_after_all_keeps_what_it_has() {
    let mut world = with_segments(2, 4);
    world.replicator.config.repair_bytes_per_second = 50_000;
    let id = drain(&mut world, 0, true);
    world.pass(Duration::from_millis(100));
    let there = world.replicas_of(id);
    assert!(there.len() > 3, "{there:?}");
    drain(&mut world, 0, false);
    world.pass(Duration::from_secs(2));
    assert!(world.replicas_of(id).len() >= there.len() - 1);
    // Nothing has more copies than it should.
    let segments = world.replicator.segments.values();
    assert!(segments.clone().all(|segment| segment.replicas.len() == 2));
    world.calm();
}

#[test]
fn one_that_is_away_may_have_what_is_needed() {
    let mut world = with_segments(1, 3);
    let id = drain(&mut world, 0, true);
    let needed = world.replicator.segments_at(id);
    world.leave_backup(id);
    world.notice();
    // Another process with its disk, of which nobody knows yet what it has.
    let again = world.come_back_as(id, false);
    world.replicator.config.repair_bytes_per_second = 1;
    world.notice();
    let unknown = world.replicator.segments_at(again);
    assert!(
        unknown > 0 && unknown + 2 >= needed,
        "{unknown} of {needed}"
    );
    world.replicator.config.repair_bytes_per_second = 1 << 40;
    world.pass(Duration::from_secs(2));
    assert_eq!(world.replicator.segments_at(again), 0);
    world.calm();
}

/// The random test of all that can happen, with a bug in the code.
#[test]
fn freeing_what_is_drained_too_early_is_found() {
    let found = std::panic::catch_unwind(|| {
        plant(Some(Bug::FreeDrainedReplicaEarly));
        let mut runner = TestRunner::new(Config {
            cases: 400,
            failure_persistence: None,
            max_shrink_iters: 0,
            ..Config::default()
        });
        runner.run(&super::any_history(), |history| {
            super::live(&history);
            Ok(())
        })
    });
    plant(None);
    // The world's own assertions fail within the runner, which tells of them.
    let text = match found {
        Ok(Ok(())) => panic!("not found by 400 histories"),
        Ok(Err(error)) => error.to_string(),
        Err(_) => panic!("it failed outside the histories"),
    };
    let expected = ["is freed at", "would wait for ever"];
    assert!(expected.iter().any(|mark| text.contains(mark)), "{text}");
}
