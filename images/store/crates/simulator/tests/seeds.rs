//! A few seeds, and that the simulator finds what is wrong with masters that are broken on purpose.

use base::bugs::Bug;
use simulator::{OVERWRITES, Options, Profile, run};

#[test]
fn a_seed_is_good_and_the_same_every_time() {
    for seed in 0..20 {
        let report = run(seed, Options::default());
        assert_eq!(report.failure, None, "seed {seed}");
        assert!(report.operations > 0, "seed {seed} did nothing");
        let again = run(seed, Options::default());
        assert_eq!(report.trace_hash, again.trace_hash, "seed {seed}");
    }
}

#[test]
fn different_seeds_are_different_runs() {
    let first = run(1, Options::default());
    let second = run(2, Options::default());
    assert_ne!(first.trace_hash, second.trace_hash);
}

/// Frames are taken and freed again and again, through crashes, cold starts and lost disks: nothing is lost, and no write waits for ever for one.
#[test]
fn disks_are_overwritten_again_and_again() {
    let options = Options {
        profile: Profile::Overwriting,
        ..Options::default()
    };
    for seed in 0..12 {
        let report = run(seed, options);
        assert_eq!(report.failure, None, "seed {seed}");
        assert!(report.overwritten >= OVERWRITES, "seed {seed}");
        println!(
            "seed {seed}: every disk was filled {:.1} times by {} operations",
            report.overwritten, report.operations
        );
    }
}

/// How often all of these seeds together, run twice, have met something.
fn met_by(profile: Profile, seeds: impl IntoIterator<Item = u64>, what: &[&str]) -> Vec<u64> {
    let options = Options {
        profile,
        ..Options::default()
    };
    let mut met = vec![0; what.len()];
    for seed in seeds {
        let report = run(seed, options);
        assert_eq!(report.failure, None, "seed {seed}");
        for (what, met) in what.iter().zip(&mut met) {
            let mut counts = report.coverage.iter();
            *met += counts.find(|(name, _)| name == what).map_or(0, |it| it.1);
        }
        let again = run(seed, options);
        assert_eq!(report.trace_hash, again.trace_hash, "seed {seed}");
    }
    met
}

#[test]
fn stores_are_made_again_from_their_disks() {
    // In seed 71 the newest checkpoint is with a member that an older one lists as dead.
    let seeds = [4, 8, 10, 11, 23, 24, 34, 48, 68, 71, 73];
    let what = ["stores made again from disks", "disks lost"];
    let met = met_by(Profile::Rebuilding, seeds, &what);
    assert!(met[0] >= 10, "only {} stores were made again", met[0]);
    assert!(met[1] > 0, "no disk was lost");
}

/// A panic is a failure with its text, and no test takes any text for the bug that it looks for.
fn assertion(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("an assertion failed: {}", text.unwrap_or("without a text"))
}

/// What is wrong in a seed: what an oracle says, or an assertion of the product.
fn failure_of(seed: u64, options: Options) -> Option<String> {
    let failure = std::panic::catch_unwind(|| run(seed, options).failure);
    failure.unwrap_or_else(|panic| Some(assertion(&*panic)))
}

/// Some of the first so many seeds find this bug, and say what it is: the oracle as `expected`, or the checker from what clients saw. Prints how
/// many do.
fn assert_found(bug: Bug, seeds: u64, expected: &str) {
    let options = Options {
        bug: Some(bug),
        ..Options::default()
    };
    let failure = |seed| failure_of(seed, options).map(|text| (seed, text));
    let found: Vec<(u64, String)> = (0..seeds).filter_map(failure).collect();
    for (seed, text) in &found {
        let is_expected = [expected, WRONG].iter().any(|mark| text.contains(mark));
        assert!(
            is_expected,
            "{bug:?} was found by seed {seed}, but not as what it is: {text}"
        );
    }
    let Some((first, _)) = found.first() else {
        panic!("{bug:?} was not found by {seeds} seeds");
    };
    let count = found.len();
    println!("{bug:?}: {count} of {seeds} seeds find it, the first is {first}");
}

#[test]
fn a_forgotten_rpc_result_is_found() {
    assert_found(Bug::ForgetRpcResult, 100, "not linearizable");
}

#[test]
fn a_reply_that_leaves_too_early_is_found() {
    assert_found(
        Bug::OpenGateEarly,
        20,
        "a reply left that shows the log up to",
    );
}

#[test]
fn a_removal_that_is_shown_too_early_is_found() {
    assert_found(
        Bug::DropTombstoneEarly,
        150,
        "a reply left that shows the log up to",
    );
}

#[test]
fn a_version_that_goes_back_is_found() {
    assert_found(Bug::VersionRestartsAfterRemove, 20, "not linearizable");
}

#[test]
fn an_increment_that_counts_twice_is_found() {
    assert_found(Bug::RepeatIncrement, 300, "not linearizable");
}

#[test]
fn a_scan_that_leaves_something_out_is_found() {
    assert_found(Bug::ScanSkipsAfterSplit, 300, "not linearizable");
}

#[test]
fn a_multi_write_that_hides_a_refusal_is_found() {
    assert_found(Bug::MultiWriteHidesRefusal, 20, "not linearizable");
}

// What follows breaks replication, backups and recovery, in seeds whose logs have replicas.

/// One of the first so many seeds finds this bug, and says what it is, in one of these ways. Prints which.
fn assert_found_with_replicas(bug: Bug, seeds: u64, expected: &[&str]) {
    assert_found_by(Profile::Replicated, bug, seeds, expected);
}

fn assert_found_by(profile: Profile, bug: Bug, seeds: u64, expected: &[&str]) {
    let options = Options {
        bug: Some(bug),
        profile,
        ..Options::default()
    };
    let failure = |seed| failure_of(seed, options).map(|text| (seed, text));
    let Some((seed, text)) = (0..seeds).find_map(failure) else {
        panic!("{bug:?} was not found by {seeds} seeds");
    };
    assert!(
        expected.iter().any(|mark| text.contains(mark)),
        "{bug:?} was found by seed {seed}, but not as what it is: {text}"
    );
    println!("{bug:?}: the first of {seeds} seeds that finds it is {seed}");
}

const WRONG: &str = "not linearizable";
const ANSWERED: &str = "a deposed master answered";
const TELLS: &str = "tells a recovery of what the loss of power can take";
const STUCK: &str = "no backup that answers has";

#[test]
fn a_refusal_that_leaves_early_is_found() {
    let expected = "a reply left that shows the log up to";
    assert_found(Bug::RefuseEarly, 40, expected);
}

#[test]
fn an_acknowledgement_before_the_last_replica_is_found() {
    assert_found_with_replicas(Bug::AcknowledgeBeforeLastReplica, 300, &[WRONG, STUCK]);
}

#[test]
fn a_master_that_serves_without_its_lease_is_found() {
    assert_found_with_replicas(Bug::SkipServingLease, 100, &[ANSWERED, WRONG]);
}

#[test]
fn a_stale_open_replica_that_is_believed_is_found() {
    // Another recovery of the same log may wait for the head that was believed first.
    assert_found_with_replicas(Bug::UseStaleOpenReplica, 150, &[WRONG, "not over"]);
}

#[test]
fn an_append_that_is_taken_after_fencing_is_found() {
    let grown = "has a replica of more than";
    let expected = [WRONG, ANSWERED, STUCK, TELLS, grown];
    assert_found_with_replicas(Bug::AppendAfterFencing, 500, &expected);
}

#[test]
fn a_fenced_backup_that_tells_of_what_it_can_lose_is_found() {
    assert_found_with_replicas(Bug::TellOfUnsynced, 300, &[TELLS]);
}

#[test]
fn a_tombstone_that_a_replay_passes_over_is_found() {
    assert_found_with_replicas(Bug::DropTombstoneInReplay, 100, &[WRONG]);
}

#[test]
fn a_version_that_is_used_again_after_a_replay_is_found() {
    assert_found_with_replicas(Bug::ReuseVersionAfterReplay, 150, &[WRONG]);
}

#[test]
fn a_replica_that_is_freed_early_is_found() {
    assert_found_with_replicas(Bug::FreeReplicaEarly, 200, &[STUCK, WRONG]);
}

#[test]
fn a_result_that_a_replay_passes_over_is_found() {
    assert_found_with_replicas(Bug::ForgetReplayedResult, 150, &[WRONG]);
}

#[test]
fn a_torn_frame_that_is_believed_is_found() {
    assert_found_with_replicas(Bug::BelieveTornFrame, 600, &["not over", WRONG]);
}

#[test]
fn a_digest_that_is_ignored_is_found() {
    assert_found_with_replicas(Bug::IgnoreDigest, 600, &[WRONG]);
}

#[test]
fn a_coordinator_that_obeys_orders_for_fewer_copies_is_found() {
    assert_found_with_replicas(Bug::ObeyFewerCopies, 20, &["made copies fewer"]);
}

// What follows is about quiet lives: members are restarted again and again, and clients do little.

/// The room in logs comes back, and orders that are given while members are away take no copies.
#[test]
fn quiet_lives_are_long() {
    let what = ["segments closed before they were full"];
    let met = met_by(Profile::Quiet, 0..5, &what);
    assert!(met[0] > 0, "nothing cost any room");
}

const NO_ROOM: &str = "has too little room";

#[test]
fn unused_ends_that_are_left_are_found() {
    assert_found_by(Profile::Quiet, Bug::LeaveUnusedEnds, 5, &[NO_ROOM]);
}

#[test]
fn ends_that_count_as_those_of_full_segments_are_found() {
    assert_found_by(Profile::Quiet, Bug::EarlyEndsCostRoom, 5, &[NO_ROOM]);
}

/// Not by what the coordinator answers: by the copies that are there.
#[test]
fn fewer_copies_by_an_order_while_a_member_is_away_are_found() {
    let expected = ["says that its log has all of its copies"];
    assert_found_by(Profile::Quiet, Bug::ObeyFewerCopies, 20, &expected);
}

// What follows breaks how coordinators take over from each other.

/// Two or three of them, killed, paused and cut off, over an API server that fails.
#[test]
fn coordinators_take_over_from_each_other() {
    let met = met_by(Profile::FailOver, 0..15, &["leaders killed"]);
    assert!(met[0] > 0, "no leader was killed");
}

#[test]
fn an_order_of_an_old_term_that_is_obeyed_is_found() {
    let expected = ["obeys a coordinator of term", WRONG];
    assert_found_by(Profile::FailOver, Bug::ObeyOldTerm, 100, &expected);
}

#[test]
fn a_root_that_is_written_whatever_its_version_is_found() {
    let expected = [
        "told cluster time",
        "RolledBack",
        "ended with Incomplete",
        "obeys a coordinator of term",
        // An older state is overwritten before its version tells of it.
        "that the API server was put back",
        WRONG,
    ];
    assert_found_by(Profile::FailOver, Bug::SwapWithoutVersion, 100, &expected);
}

#[test]
fn a_chunk_that_is_written_after_the_root_is_found() {
    assert_found_by(
        Profile::FailOver,
        Bug::NameChunkEarly,
        100,
        &["ended with Incomplete"],
    );
}

// What follows breaks migration, in seeds in which tablets move all the time.

#[test]
fn tablets_move_to_and_fro() {
    let what = ["migrations ended", "tablets made one again"];
    let met = met_by(Profile::Migrating, 40..60, &what);
    assert!(met[0] > 0, "no tablet moved");
    assert!(met[1] > 0, "no tablets became one again");
}

/// The same without copies: what a process held is lost with it, wherever it had come from, and nothing else is.
#[test]
fn tablets_move_between_servers_without_copies() {
    let what = [
        "migrations ended without copies",
        "servers without copies lost that tablets had come to",
    ];
    let met = met_by(Profile::Unreplicated, 0..40, &what);
    assert!(met.iter().all(|met| *met > 0), "moved and lost: {met:?}");
}

#[test]
fn a_version_that_is_used_again_after_a_loss_is_found() {
    let bug = Bug::ReuseVersionAfterLoss;
    assert_found_by(Profile::Unreplicated, bug, 300, &[WRONG]);
}

/// A member that is drained is lost with its disk, and nothing with it; a drain that nothing disturbs any more ends.
#[test]
fn members_are_drained() {
    let what = ["drained servers lost with their disks"];
    let met = met_by(Profile::Draining, 0..20, &what);
    assert!(met[0] > 0, "nobody was drained");
}

/// Tables are split by order, in the middle of everything else; nobody joins these parts, or forgets them.
#[test]
fn tables_are_split_by_order() {
    let what = ["tables split by order", "tablets made one again"];
    for profile in [Profile::Migrating, Profile::FailOver] {
        let met = met_by(profile, 0..8, &what);
        assert!(met[0] > 0, "{profile:?}: no table was split");
    }
}

const JOINED: &str = "and whoever ordered it was told that it has";

#[test]
fn a_split_that_ends_halfway_is_found() {
    assert_found_by(Profile::Migrating, Bug::SplitHalfway, 10, &[JOINED]);
}

#[test]
fn a_boundary_that_the_next_coordinator_takes_for_its_own_is_found() {
    let bug = Bug::ForgetOrderedBoundary;
    assert_found_by(Profile::Migrating, bug, 100, &[JOINED]);
}

#[test]
fn a_result_that_a_migration_leaves_behind_is_found() {
    assert_found_by(Profile::Migrating, Bug::ForgetMigratedResult, 300, &[WRONG]);
}

#[test]
fn a_write_of_a_frozen_tablet_is_found() {
    assert_found_by(Profile::Migrating, Bug::WriteAfterFreeze, 100, &[WRONG]);
}

#[test]
fn a_read_of_a_stopped_tablet_is_found() {
    let expected = &[WRONG, "answered for a tablet that has moved"];
    assert_found_by(Profile::Migrating, Bug::ReadAfterStop, 100, expected);
}

// What follows is about datagrams.

fn assert_found_by_datagrams(bug: Bug, seeds: u64, expected: &[&str]) {
    let options = Options {
        bug: Some(bug),
        fast: true,
        ..Options::default()
    };
    let failure = |seed| failure_of(seed, options).map(|text| (seed, text));
    let Some((seed, text)) = (0..seeds).find_map(failure) else {
        panic!("{bug:?} was not found by {seeds} seeds");
    };
    assert!(
        expected.iter().any(|mark| text.contains(mark)),
        "{bug:?} was found by seed {seed}, but not as what it is: {text}"
    );
    println!("{bug:?}: the first of {seeds} seeds that finds it is {seed}");
}

/// Lost, repeated, changed and late ones, ways that are dead for a while, and all other faults.
#[test]
fn a_store_is_reached_by_datagrams() {
    let options = Options {
        fast: true,
        ..Options::default()
    };
    let mut came_back = 0;
    for seed in 0..20 {
        let report = run(seed, options);
        assert_eq!(report.failure, None, "seed {seed}");
        let mut met = report.coverage.iter();
        came_back += met
            .find(|(what, _)| *what == "clients that came back to datagrams")
            .map_or(0, |(_, count)| count);
        let again = run(seed, options);
        assert_eq!(report.trace_hash, again.trace_hash, "seed {seed}");
    }
    assert!(came_back > 0, "no way was dead");
}

#[test]
fn a_lent_value_that_is_cleaned_away_is_found() {
    let expected = [
        "what was lent has changed",
        "given back more often than lent",
        "an object that nobody wrote",
        WRONG,
    ];
    assert_found_by_datagrams(Bug::CleanLent, 100, &expected);
}

#[test]
fn a_request_that_is_handed_over_again_is_found() {
    assert_found_by_datagrams(Bug::HandOverAgain, 20, &["was handed over twice", WRONG]);
}

// What follows is about builds that read different formats.

/// Servers and coordinators are upgraded, taken back, and the upgrade finalized; whoever comes too late is refused.
#[test]
fn a_store_is_upgraded_while_it_is_used() {
    let hashed = "tables made whose keys are hashed in another way";
    let met = met_by(Profile::Upgrade, 0..20, &["upgrades finalized", hashed]);
    assert!(met[0] > 0, "no upgrade was finalized");
    assert!(met[1] > 0, "no table had another hash function");
}

/// Objects are of two formats after an upgrade.
#[test]
fn a_reader_that_does_not_look_at_the_format_of_objects_is_found() {
    let bug = Bug::IgnoreObjectFormat;
    assert_found_by(Profile::Upgrade, bug, 50, &[WRONG, "the books of a shard"]);
}

#[test]
fn an_upgrade_that_is_finalized_too_early_is_found() {
    let expected = ["is told that format", "not over"];
    assert_found_by(Profile::Upgrade, Bug::FinalizeTooEarly, 50, &expected);
}
