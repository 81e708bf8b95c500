//! Tablets that move between two masters while they are used.

mod clients;
mod orders;
mod random;
mod world;

#[test]
fn nothing_is_lost_and_nothing_happens_twice() {
    let mut sums = random::Counts::default();
    for seed in 0..50 {
        let counts = random::run(seed);
        sums.operations += counts.operations;
        sums.committed += counts.committed;
        sums.given_up += counts.given_up;
        sums.full += counts.full;
        sums.crashed += counts.crashed;
    }
    let least = |count: usize, least| assert!(count >= least, "{sums:?}");
    least(sums.operations, 10_000);
    least(sums.committed, 50);
    least(sums.given_up, 50);
    least(sums.full, 10);
    least(sums.crashed, 50);
}

/// Each is found by one of the first twenty seeds.
#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_are_found() {
    use base::bugs::{Bug, plant};
    for bug in [
        Bug::ForgetMigratedResult,
        Bug::WriteAfterFreeze,
        Bug::ReadAfterStop,
    ] {
        let is_found = |seed: &u64| {
            let seed = *seed;
            let run = || {
                plant(Some(bug));
                random::run(seed);
            };
            let found = std::panic::catch_unwind(run).is_err();
            plant(None);
            found
        };
        let found = (0..20).find(is_found);
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
