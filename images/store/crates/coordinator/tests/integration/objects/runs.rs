//! Random runs from seeds.

use std::time::Duration;

use base::bugs::{Bug, plant};
use coordinator::state::objects::Ending;
use coordinator::state::{Changes, Pair};

use super::oracle::{MARKER, marker};
use super::world::{Coverage, Met, Weather, World};

const SEEDS: u64 = 300;

/// Puts and deletes of a few keys; now and then many, or long ones.
fn some_changes(world: &mut World, nonce: u64, number: u64) -> Changes {
    let random = &mut world.random;
    let count = match random.u64(..20) {
        0 => 40,
        _ => 1 + random.u64(..4),
    };
    let most = if random.u64(..1000) < 50 { 3000 } else { 60 };
    let mut changes = Changes::default();
    for key in (0..60u8)
        .filter(|_| random.u64(..60) < count)
        .collect::<Vec<_>>()
    {
        match random.u64(..4) {
            0 => changes.deletes.push(vec![key]),
            _ => changes.puts.push(Pair {
                key: vec![key],
                value: vec![random.u64(..256) as u8; random.u64(..most) as usize],
            }),
        }
    }
    changes.puts.push(Pair {
        key: MARKER.to_vec(),
        value: marker(nonce, number),
    });
    changes
}

fn commit(world: &mut World, client: usize) {
    let nonce = world.clients[client].nonce;
    let number = world.asked[&nonce].len() as u64 + 1;
    let changes = match world.random.u64(..10) {
        0 => Changes::default(),
        _ => some_changes(world, nonce, number),
    };
    world.commit(client, changes);
}

fn pick(world: &mut World, which: impl Fn(&super::world::Client) -> bool) -> Option<usize> {
    let clients = world.clients.iter().enumerate();
    let some: Vec<usize> = clients
        .filter(|(_, client)| which(client))
        .map(|(at, _)| at)
        .collect();
    let count = some.len() as u64;
    (count > 0).then(|| some[world.random.u64(..count) as usize])
}

/// Something that people, the network or the machines do.
fn act(world: &mut World, may_roll_back: bool) {
    match world.random.u64(..100) {
        0..50 => {
            if let Some(client) = pick(world, |client| client.leads) {
                let count = if world.random.u64(..1000) < 150 { 8 } else { 1 };
                for _ in 0..count {
                    commit(world, client);
                }
            }
        }
        50..58 => {
            let alive = world.clients.iter().filter(|client| client.ended.is_none());
            if alive.count() < 3 {
                world.start();
            }
        }
        58..64 => {
            if let Some(client) = pick(world, |client| client.ended.is_none()) {
                world.kill(client);
            }
        }
        64..74 => {
            world.weather = match world.random.u64(..10) {
                0..6 => Weather::Calm,
                6..9 => Weather::Rough,
                _ => Weather::Away,
            };
        }
        74..78 => {
            if let Some(client) = pick(world, |client| client.ended.is_none()) {
                world.tell(client);
            }
        }
        78..80 => {
            world.server.touch_root();
            world.met(Met::RootTouched);
        }
        80..82 => {
            if world.weather == Weather::Away {
                world.met(Met::AwayForMinutes);
            }
            let minutes = 1 + world.random.u64(..5);
            world.run(Duration::from_secs(60 * minutes));
        }
        82 if may_roll_back => drop(world.roll_back()),
        _ => {}
    }
    let most = if world.random.u64(..1000) < 100 {
        5000
    } else {
        100
    };
    let pause = Duration::from_millis(world.random.u64(..most));
    world.run(pause);
}

/// Everything is well again: whoever leads next loads, commits, and sweeps all but what its root names.
fn heal(world: &mut World) {
    world.weather = Weather::Calm;
    for client in 0..world.clients.len() {
        world.kill(client);
    }
    world.run(Duration::from_secs(200));
    let told = world.told.filter(|told| !world.oracle.has(told));
    if told.is_some() && world.failure.is_none() {
        refuse(world);
        world.told = None;
    }
    for commits in [5, 0] {
        lead(world, commits);
        check_swept(world);
    }
}

/// One leader, alone, with so many commits and ten minutes' time.
fn lead(world: &mut World, commits: u64) {
    let client = world.start();
    world.tell(client);
    world.run(Duration::from_secs(30));
    for _ in 0..commits {
        if world.clients[client].leads {
            commit(world, client);
        }
        world.run(Duration::from_secs(1));
    }
    world.run(Duration::from_secs(600));
    let nonce = world.clients[client].nonce;
    let asked = world.asked[&nonce].len() as u64;
    let result = world.oracle.committed(nonce, asked);
    if world.failure.is_none() && (!world.clients[client].leads || result.is_err()) {
        world.failure = Some(format!("nobody leads in the end, or commits: {result:?}"));
    }
    world.kill(client);
}

fn check_swept(world: &mut World) {
    let Some(root) = world.server.root().filter(|_| world.failure.is_none()) else {
        return;
    };
    let mut named: Vec<_> = root.chunks().map(|chunk| chunk.id).collect();
    named.sort();
    let mut there = world.server.chunks();
    // Written by somebody whose own root was rolled back: until there is a leader of that term.
    there.retain(|id| id.term <= root.position.term);
    if named != there {
        world.failure = Some(format!(
            "not swept: there are {there:?}, and named {named:?}"
        ));
    }
}

/// Somebody was told of a root that was lost: whoever hears that ends, before it leads or after.
fn refuse(world: &mut World) {
    let client = world.start();
    if world.random.u64(..1000) < 500 {
        world.run(Duration::from_secs(60));
        commit_if_it_leads(world, client);
    }
    world.tell(client);
    world.run(Duration::from_secs(60));
    if world.clients[client].ended != Some(Ending::RolledBack) && world.failure.is_none() {
        world.failure = Some(format!(
            "the state was put back before {:?}, and {:?} leads",
            world.told, world.clients[client].keeper
        ));
    }
}

fn commit_if_it_leads(world: &mut World, client: usize) {
    let told = world.told;
    if world.clients[client].leads {
        commit(world, client);
        world.run(Duration::from_secs(10));
    }
    // Members keep what they were told first.
    world.told = told;
}

fn run(seed: u64) -> World {
    let mut world = World::new(seed);
    let may_roll_back = seed.is_multiple_of(3);
    let actions = 100 + world.random.u64(..200);
    for _ in 0..actions {
        if world.failure.is_none() {
            act(&mut world, may_roll_back);
        }
    }
    heal(&mut world);
    world
}

#[test]
fn whatever_happens_nothing_that_was_reported_is_lost() {
    let mut coverage = Coverage::new();
    for seed in 0..SEEDS {
        let world = run(seed);
        assert_eq!(world.failure, None, "seed {seed}");
        for (what, count) in world.coverage {
            *coverage.entry(what).or_default() += count;
        }
    }
    println!("{coverage:#?}");
    for what in [
        Met::Commit,
        Met::Conflict,
        Met::FailedNotExecuted,
        Met::FailedExecuted,
        Met::LateEffect,
        Met::LateRoot,
        Met::StaleList,
        Met::Sweep,
        Met::OrphanSwept,
        Met::StateWrittenAnew,
        Met::RunOfManyChunks,
        Met::KilledBetweenChunkAndRoot,
        Met::KilledInTakeover,
        Met::TwoLeaders,
        Met::Deposed,
        Met::RolledBack,
        Met::RootTouched,
        Met::AwayForMinutes,
    ] {
        assert!(coverage.contains_key(&what), "{what:?} was never met");
    }
}

#[test]
fn a_seed_is_the_same_every_time() {
    for seed in 0..10 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
    assert_ne!(run(1).trace, run(2).trace);
}

/// Some of the first so many seeds find this bug.
fn assert_found(bug: Bug, seeds: u64, expected: &str) {
    plant(Some(bug));
    let found = (0..seeds).find_map(|seed| Some((seed, run(seed).failure?)));
    plant(None);
    let Some((seed, text)) = found else {
        panic!("{bug:?} was not found by {seeds} seeds");
    };
    assert!(
        text.contains(expected),
        "{bug:?} was found by seed {seed}, but not as what it is: {text}"
    );
    println!("{bug:?}: seed {seed} of {seeds} finds it: {text}");
}

#[test]
fn a_swap_without_a_version_is_found() {
    assert_found(Bug::SwapWithoutVersion, 20, "was written over");
}

#[test]
fn a_chunk_that_is_named_too_early_is_found() {
    assert_found(Bug::NameChunkEarly, 20, "the root names");
}
