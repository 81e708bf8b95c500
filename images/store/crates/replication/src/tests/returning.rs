//! Backups that come back with what they held.

use core::time::Duration;

use base::bugs::{Bug, plant};
use base::ids::ServerId;

use super::world::World;
use crate::ReplicationEvent;

/// A log of many segments on `backups`, and the first of them.
fn filled(replicas: usize, backups: usize, seed: u64) -> (World, ServerId) {
    let mut world = World::new(replicas, 1, backups, seed);
    world.pass(Duration::from_millis(5));
    for key in 0..40 {
        world.write(key, 800);
        world.pass(Duration::from_millis(2));
    }
    let first = world.infos()[0].id;
    (world, first)
}

/// Segments of which this backup has a replica, as far as the master knows.
fn known_on(world: &World, id: ServerId) -> Vec<u64> {
    let segments = world.replicator.segments.iter();
    let held = segments.filter(|(_, segment)| segment.replica(id).is_some());
    held.map(|(segment_id, _)| *segment_id).collect()
}

#[test]
fn what_is_complete_counts_again_and_is_not_sent_again() {
    for is_same in [true, false] {
        let (mut world, id) = filled(2, 2, 11);
        let held = known_on(&world, id).len();
        assert!(held > 5, "{held}");
        world.leave_backup(id);
        world.notice();
        world.pass(Duration::from_millis(100));
        assert!(world.replicator.report().segments_short >= held as u64);
        let sent = world.sent_bytes;
        let id = world.come_back_as(id, is_same);
        world.notice();
        world.pass(Duration::from_secs(2));
        assert_eq!(world.replicator.report().segments_short, 0);
        assert!(known_on(&world, id).len() >= held);
        let sent = world.sent_bytes - sent;
        assert!(
            sent < 4 * 4096,
            "{sent} bytes: heads that were open then, and no more"
        );
        world.calm();
    }
}

#[test]
fn what_was_made_again_elsewhere_is_freed() {
    for is_same in [true, false] {
        let (mut world, id) = filled(2, 4, 12);
        world.leave_backup(id);
        world.notice();
        world.pass(Duration::from_secs(1));
        assert_eq!(world.replicator.report().segments_short, 0);
        let id = world.come_back_as(id, is_same);
        assert!(!world.replicas_of(id).is_empty());
        world.notice();
        world.pass(Duration::from_secs(1));
        assert_eq!(world.replicas_of(id), known_on(&world, id));
    }
}

/// The coordinator was put back to an older state, and gives out an id that a server had before. (The simulator found a log that no backup had a place for.)
#[test]
fn replicas_of_another_log_with_the_same_id_make_room() {
    let mut world = World::new(2, 1, 2, 24);
    for backup in world.infos() {
        world.leave_behind(backup.id, 1);
    }
    world.pass(Duration::from_secs(1));
    assert!(world.replicator.is_serving(world.now));
    world.write(1, 100);
    world.pass(Duration::from_secs(1));
    assert!(world.is_all_durable());
    world.calm();
}

/// What a log does with its id whose segments 6 and 7 are there already: whether it ends, and what is left of them.
fn with_namesake() -> (bool, Vec<u64>) {
    let mut world = World::new(2, 1, 2, 25);
    let backup = world.infos()[0].id;
    for segment_id in [6, 7] {
        world.leave_behind(backup, segment_id);
    }
    world.pass(Duration::from_secs(1));
    (world.replicator.is_deposed(), world.replicas_of(backup))
}

/// The simulator found a store that waited for segments for ever: the second log of the id had freed them, before all servers and the coordinator lost
/// everything but their disks.
#[test]
fn a_log_whose_id_another_one_had_ends_and_frees_nothing() {
    let (is_deposed, left) = with_namesake();
    assert!(is_deposed);
    assert!(left.contains(&6) && left.contains(&7), "{left:?}");
    plant(Some(Bug::IgnoreNamesake));
    let (is_deposed, left) = with_namesake();
    plant(None);
    assert!(
        !is_deposed && !left.contains(&6),
        "the planted bug is not found"
    );
}

#[test]
fn nothing_is_freed_because_of_copies_that_cannot_be_reached() {
    let (mut world, id) = filled(2, 3, 19);
    let held = known_on(&world, id);
    world.leave_backup(id);
    world.notice();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.replicator.report().segments_short, 0);
    let infos = world.infos();
    let other = infos[1].id;
    world.leave_backup(other);
    world.come_back_as(id, true);
    // The list of servers still has the one that cannot be reached.
    world.set(infos.clone());
    world.pass(Duration::from_secs(1));
    let left = world.replicas_of(id);
    let is_kept = |segment_id: &u64| {
        let is_needed = world.replicator.segments.contains_key(segment_id);
        !is_needed || left.contains(segment_id)
    };
    // What was an open head then is below the floor.
    let kept = held.iter().filter(|segment_id| is_kept(segment_id)).count();
    assert!(kept + 1 >= held.len(), "{held:?} {left:?}");
    world.come_back_as(other, true);
    world.set(infos);
    world.pass(Duration::from_secs(4));
    assert_eq!(world.replicas_of(id), known_on(&world, id));
}

#[test]
fn what_was_freed_while_it_was_away_is_freed_when_it_is_back() {
    let (mut world, id) = filled(2, 4, 13);
    world.leave_backup(id);
    let held = world.replicas_of(id);
    for round in 0..6 {
        for key in 0..40 {
            world.write(key, 700 + round);
            world.clean(1 << 20);
            world.pass(Duration::from_millis(2));
        }
    }
    let is_known =
        |world: &World, segment_id: &u64| world.replicator.segments.contains_key(segment_id);
    assert!(!held.iter().any(|segment_id| is_known(&world, segment_id)));
    let id = world.come_back_as(id, false);
    world.notice();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.replicas_of(id), known_on(&world, id));
}

#[test]
fn what_is_not_as_it_was_is_not_taken() {
    let (mut world, id) = filled(2, 2, 14);
    world.leave_backup(id);
    world.notice();
    world.pass(Duration::from_millis(10));
    let forged = world.forge(id);
    let id = world.come_back_as(id, false);
    world.notice();
    world.pass(Duration::from_secs(1));
    assert!(known_on(&world, id).contains(&forged));
    assert!(!world.is_forged(id, forged), "freed, and sent once more");
    assert_eq!(world.replicator.report().segments_short, 0);
}

#[test]
fn a_replica_that_is_not_there_any_more_is_made_again() {
    for is_damage in [true, false] {
        let (mut world, id) = filled(2, 3, 15);
        let before = known_on(&world, id);
        world.leave_backup(id);
        world.harm(id, 0, is_damage);
        world.come_back_as(id, true);
        world.pass(Duration::from_secs(3));
        let gone = ReplicationEvent::ReplicaGone {
            backup: id,
            segment_id: before[0],
        };
        assert!(world.reports.contains(&gone), "{:?}", world.reports);
        assert_eq!(world.replicator.report().segments_short, 0);
    }
}

#[test]
fn of_two_processes_with_one_storage_the_younger_counts() {
    let (mut world, id) = filled(2, 2, 16);
    let mut infos = world.infos();
    world.leave_backup(id);
    let younger = world.come_back_as(id, false);
    infos.push(world.infos().pop().unwrap());
    world.set(infos);
    world.pass(Duration::from_secs(2));
    assert!(known_on(&world, id).is_empty());
    assert!(!known_on(&world, younger).is_empty());
    assert_eq!(world.replicator.report().segments_short, 0);
}

#[test]
fn backups_with_smaller_frames_and_retired_ones_get_nothing_and_the_text_says_what_to_do() {
    let mut world = World::new(2, 1, 0, 17);
    for _ in 0..4 {
        world.start_backup();
    }
    let mut infos = world.infos();
    infos[0].segment_bytes = 2048;
    infos[1].is_retired = true;
    for _ in 0..3 {
        world.set(infos.clone());
    }
    world.pass(Duration::from_millis(20));
    for key in 0..40 {
        world.write(key, 800);
        world.pass(Duration::from_millis(2));
    }
    assert!(world.is_all_durable());
    let [small, retired, ..] = &infos[..] else {
        panic!("four backups");
    };
    assert!(world.replicas_of(small.id).is_empty());
    assert!(world.replicas_of(retired.id).is_empty());
    let too_small = ReplicationEvent::FramesTooSmall {
        backup: small.id,
        host: small.host.clone(),
        frame_bytes: 2048,
        segment_bytes: 4096,
    };
    let gone = ReplicationEvent::BackupRetired {
        backup: retired.id,
        host: retired.host.clone(),
    };
    for expected in [too_small, gone] {
        let reported = world.reports.iter().filter(|event| **event == expected);
        assert_eq!(reported.count(), 1, "{expected:?}: {:?}", world.reports);
        let text = expected.to_string();
        let says_what_to_do = text.contains("start its server with larger segments")
            || text.contains("replace its storage and restart its server");
        assert!(says_what_to_do, "{text}");
    }

    // One that retires later loses what it has.
    let id = infos[2].id;
    assert!(!known_on(&world, id).is_empty());
    infos[2].is_retired = true;
    world.set(infos);
    assert!(known_on(&world, id).is_empty());
}

#[test]
fn an_attempt_to_connect_that_ends_in_nothing_is_made_again() {
    let mut world = World::new(2, 2, 2, 18);
    let silent = world.infos()[0].id;
    world.slow_backup(silent, 1_000_000);
    world.break_connection(0);
    world.pass(Duration::from_millis(50));
    world.slow_backup(silent, 0);
    world.forget_late_arrivals();
    world.pass(Duration::from_secs(8));
    assert!(world.replicator.is_serving(world.now));
}

#[test]
fn a_head_whose_closing_was_not_heard_of_is_not_waited_for_for_ever() {
    for seed in 0..40 {
        let mut world = World::new(2, 2, 2, seed);
        world.pass(Duration::from_millis(5));
        for key in 0..40 {
            world.write(key, 800);
            world.pass(Duration::from_micros(17 * (1 + seed % 5)));
            if key % 8 == 7 {
                world.break_connection((seed % 2) as usize);
                world.pass(Duration::from_millis(60));
            }
        }
        world.pass(Duration::from_secs(5));
        assert!(world.is_all_durable(), "seed {seed}");
        assert!(world.replicator.is_serving(world.now), "seed {seed}");
    }
}

/// What a backup has lost of a head that is durable it gets as a copy: as an open head, with a part of it, a recovery would believe it.
#[test]
fn what_a_backup_has_lost_of_a_head_it_gets_as_a_copy() {
    let mut world = World::new(2, 1, 2, 5);
    world.pass(Duration::from_millis(5));
    for key in 0..3 {
        world.write(key, 1000);
        world.pass(Duration::from_millis(1));
    }
    assert!(world.is_all_durable());
    // The floor stays where it is, so that the head counts.
    world.coordinator_gone(true);
    let backup = world.backups_of_head()[1];
    let at = world.infos().iter().position(|info| info.id == backup);
    world.harm(backup, 0, true);
    world.break_connection_of(backup);
    for _ in 0..5000 {
        world.pass(Duration::from_micros(10));
        world.check(1 << at.unwrap());
    }
    let segments = world.replicator.segments.values();
    assert!(segments.clone().any(|segment| segment.is_closed));
    assert!(!world.replicas_of(backup).is_empty());
    world.calm();
}
