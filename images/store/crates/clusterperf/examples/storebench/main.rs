//! Measures stores with copies of everything, each made of processes and files of its own on this machine.
//!
//! usage: storebench durable FOLDER SECONDS ROUNDS   writes with copies beside writes without
//!        storebench recovery FOLDER MB...           a server with so much data is killed: when is it back?
//!        storebench migration FOLDER MB...          a tablet with so much data moves: what do its clients and others notice?
//!        storebench replay FOLDER CRITERION         shows what the benchmark of replaying has left in criterion's folder
//!
//! Prints tables, and writes PART.json and the programs' logs to FOLDER. The programs are those beside this one's folder. Processes end
//! and files go when this one ends, whatever the reason, unless it is killed itself.

mod durable;
mod filler;
mod migration;
mod reader;
mod recovery;
mod replay;
mod store;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["durable", folder, seconds, rounds] => measure_durable(folder, seconds, rounds),
        ["recovery", folder, sizes @ ..] if !sizes.is_empty() => measure_recovery(folder, sizes),
        ["migration", folder, sizes @ ..] if !sizes.is_empty() => measure_migration(folder, sizes),
        ["replay", folder, criterion] => replay::show(folder.as_ref(), criterion.as_ref()),
        _ => Err(
            "usage: storebench durable FOLDER SECONDS ROUNDS | recovery FOLDER MB... | migration FOLDER MB... | replay FOLDER CRITERION".into(),
        ),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure_durable(folder: &str, seconds: &str, rounds: &str) -> Result<(), Failure> {
    let time = Duration::from_secs_f64(seconds.parse()?);
    let measured = durable::measure(Path::new(folder), time, rounds.parse()?);
    measured.map_err(|error| with_place(&error, folder))
}

fn measure_recovery(folder: &str, sizes: &[&str]) -> Result<(), Failure> {
    let sizes: Result<Vec<u64>, _> = sizes.iter().map(|mb| mb.parse()).collect();
    let measured = recovery::measure(Path::new(folder), &sizes?);
    measured.map_err(|error| with_place(&error, folder))
}

fn measure_migration(folder: &str, sizes: &[&str]) -> Result<(), Failure> {
    let sizes: Result<Vec<u64>, _> = sizes.iter().map(|mb| mb.parse()).collect();
    let measured = migration::measure(Path::new(folder), &sizes?);
    measured.map_err(|error| with_place(&error, folder))
}

fn with_place(error: &Failure, folder: &str) -> Failure {
    format!("{error}; what the programs said is in {folder}/*.log").into()
}

/// The value that so large a part of all are not above. `sorted` must be.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * part).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}
