//! Backups that answer nothing for a while, though they can be reached.

use core::time::Duration;

use base::ids::ServerId;

use super::world::World;

/// Backups of a machine that has two of them.
fn of_one_host(world: &World) -> Vec<ServerId> {
    let infos = world.infos();
    let shares = |host: &str| infos.iter().filter(|info| info.host == host).count() > 1;
    let sharing = infos.iter().filter(|info| shares(&info.host));
    sharing.map(|info| info.id).collect()
}

/// A head has a replica on a machine whose backups have stopped, with a write that is under way; whether it had one there.
fn stop_a_host_of_the_head(seed: u64, backups: usize) -> Option<World> {
    let mut world = World::new(3, 1, backups, seed);
    world.pass(Duration::from_millis(5));
    world.write(1, 100);
    world.pass(Duration::from_millis(1));
    assert!(world.is_all_durable());
    let stopped = of_one_host(&world);
    let head = world.backups_of_head();
    if !head.iter().any(|id| stopped.contains(id)) {
        return None;
    }
    for id in stopped {
        world.slow_backup(id, 1_000_000);
    }
    world.write(2, 100);
    Some(world)
}

#[test]
fn a_machine_whose_backups_have_stopped_costs_writes_little() {
    let mut met = 0;
    for seed in 0..60 {
        let Some(mut world) = stop_a_host_of_the_head(seed, 5) else {
            continue;
        };
        met += 1;
        world.pass(Duration::from_millis(300));
        assert!(world.is_all_durable(), "seed {seed}");
    }
    assert!(met > 20, "{met}");
}

#[test]
fn a_copy_that_a_new_head_waits_for_is_moved_when_its_backup_stops() {
    let mut met = 0;
    for seed in 0..60 {
        let mut world = World::new(2, 1, 5, seed);
        world.pass(Duration::from_millis(5));
        world.write(1, 100);
        world.pass(Duration::from_millis(1));
        // The copy for the one that ends may go to one of these; the other has the head.
        let head = world.backups_of_head();
        let infos = world.infos();
        let others: Vec<ServerId> = infos.iter().map(|info| info.id).collect();
        let mut others = others.iter().filter(|id| !head.contains(id));
        if let Some(&stopped) = others.next() {
            world.slow_backup(stopped, 1_000_000);
        }
        world.kill_backup(head[0]);
        world.write(2, 100);
        world.pass(Duration::from_millis(1));
        met += usize::from(!world.is_all_durable());
        world.pass(Duration::from_millis(1500));
        assert!(world.is_all_durable(), "seed {seed}");
    }
    assert!(met > 10, "{met}");
}

#[test]
fn where_there_are_no_others_the_machine_of_a_slow_backup_is_taken() {
    let mut met = 0;
    for seed in 0..60 {
        // Of the third machine, which has two of them; the second one is left out.
        let mut world = World::new(2, 2, 5, seed);
        let shared = of_one_host(&world);
        let infos = world.infos();
        let alone = infos.iter().find(|info| !shared.contains(&info.id));
        let alone = alone.map(|info| info.id);
        let kept = |id| shared.contains(&id) || Some(id) == alone;
        world.set(infos.into_iter().filter(|info| kept(info.id)).collect());
        world.pass(Duration::from_millis(5));
        world.write(1, 100);
        world.pass(Duration::from_millis(1));
        let head = world.backups_of_head();
        let Some(&slow) = head.iter().find(|id| shared.contains(id)) else {
            continue;
        };
        met += 1;
        world.slow_backup(slow, 1_000_000);
        world.write(2, 100);
        world.pass(Duration::from_millis(300));
        assert!(world.is_all_durable(), "seed {seed}");
    }
    assert!(met > 10, "{met}");
}
