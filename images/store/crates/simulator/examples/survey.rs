//! How many of the first so many seeds find each bug of [`base::bugs`]: the figures of docs/simulator.md.
//!
//! `cargo run --release -p simulator --example survey -- 300` looks at all bugs; names after the number choose some. `JOBS` seeds run at a time, one per processor by default.
use std::panic;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use base::bugs::Bug;
use simulator::{Options, Profile, run};

/// Bugs of what only datagrams meet.
const FAST: &[Bug] = &[Bug::CleanLent, Bug::HandOverAgain, Bug::AdmitWithoutRoom];

/// The bug, and the seeds that can meet it.
const BUGS: &[(Bug, Profile)] = &[
    (Bug::ForgetRpcResult, Profile::Any),
    (Bug::OpenGateEarly, Profile::Any),
    (Bug::DropTombstoneEarly, Profile::Any),
    (Bug::VersionRestartsAfterRemove, Profile::Any),
    (Bug::RepeatIncrement, Profile::Any),
    (Bug::ScanSkipsAfterSplit, Profile::Any),
    (Bug::MultiWriteHidesRefusal, Profile::Any),
    (Bug::RefuseEarly, Profile::Any),
    (Bug::AcknowledgeBeforeLastReplica, Profile::Replicated),
    (Bug::SkipServingLease, Profile::Replicated),
    (Bug::UseStaleOpenReplica, Profile::Replicated),
    (Bug::IgnoreDigest, Profile::Replicated),
    (Bug::AppendAfterFencing, Profile::Replicated),
    (Bug::TellOfUnsynced, Profile::Replicated),
    (Bug::AnswerUnwritten, Profile::Replicated),
    (Bug::SyncUnwritten, Profile::Replicated),
    (Bug::OvertakeWrite, Profile::Replicated),
    (Bug::BelieveOldCompletion, Profile::Replicated),
    (Bug::DropTombstoneInReplay, Profile::Replicated),
    (Bug::ReuseVersionAfterReplay, Profile::Replicated),
    (Bug::FreeReplicaEarly, Profile::Replicated),
    (Bug::ForgetReplayedResult, Profile::Replicated),
    (Bug::BelieveTornFrame, Profile::Replicated),
    (Bug::ObeyOldTerm, Profile::FailOver),
    (Bug::SwapWithoutVersion, Profile::FailOver),
    (Bug::NameChunkEarly, Profile::FailOver),
    (Bug::ForgetMigratedResult, Profile::Migrating),
    (Bug::WriteAfterFreeze, Profile::Migrating),
    (Bug::ReadAfterStop, Profile::Migrating),
    (Bug::FinalizeTooEarly, Profile::Upgrade),
    (Bug::FreeDrainedReplicaEarly, Profile::Draining),
    (Bug::LeaveUnusedEnds, Profile::Quiet),
    (Bug::EarlyEndsCostRoom, Profile::Quiet),
    (Bug::ObeyFewerCopies, Profile::Quiet),
    (Bug::CleanLent, Profile::Any),
    (Bug::HandOverAgain, Profile::Any),
    (Bug::AdmitWithoutRoom, Profile::Any),
];

/// What the seed says of the bug, its first line.
fn finding(bug: Option<Bug>, profile: Profile, seed: u64) -> Option<String> {
    let options = Options {
        bug,
        profile,
        fast: bug.is_some_and(|bug| FAST.contains(&bug)),
        ..Options::default()
    };
    match panic::catch_unwind(|| run(seed, options).failure) {
        Ok(failure) => failure.map(|text| text.lines().next().unwrap_or_default().to_owned()),
        Err(_) => Some("an assertion failed".to_owned()),
    }
}

fn survey(bug: Option<Bug>, profile: Profile, seeds: u64) -> Vec<(u64, String)> {
    let next = AtomicU64::new(0);
    let found = Mutex::new(Vec::new());
    let jobs = std::env::var("JOBS")
        .ok()
        .and_then(|jobs| jobs.parse().ok());
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    if let Some(text) = finding(bug, profile, seed)
                        && let Ok(mut found) = found.lock()
                    {
                        found.push((seed, text));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort();
    found
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(seeds) = arguments.next().and_then(|text| text.parse().ok()) else {
        eprintln!("usage: survey SEEDS [BUG...]    example: survey 300 SkipServingLease");
        return ExitCode::from(2);
    };
    let names: Vec<String> = arguments.collect();
    panic::set_hook(Box::new(|_| {}));
    // The first shows what seeds say where nothing is broken: nothing.
    let planted = BUGS.iter().map(|&(bug, profile)| (Some(bug), profile));
    let sound = [
        (None, Profile::Replicated),
        (None, Profile::FailOver),
        (None, Profile::Migrating),
        (None, Profile::Upgrade),
        (None, Profile::Draining),
        (None, Profile::Quiet),
    ];
    let all = sound.into_iter().chain(planted);
    let name = |bug: Option<Bug>| bug.map_or("None".to_owned(), |bug| format!("{bug:?}"));
    for (bug, profile) in all {
        let name = name(bug);
        if !names.is_empty() && !names.contains(&name) {
            continue;
        }
        let found = survey(bug, profile, seeds);
        let first: Vec<u64> = found.iter().take(8).map(|(seed, _)| *seed).collect();
        let seen = found.first().map_or("", |(_, text)| text.as_str());
        let seen: String = seen.chars().take(60).collect();
        println!("{name}: {} of {seeds}, first {first:?} {seen}", found.len());
    }
    ExitCode::SUCCESS
}
