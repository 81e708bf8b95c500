//! Records what clients of a store do and see, for a checker of histories.
//!
//! Each client is a thread that does one operation after the other on a few keys that all share, and some that are its own (the ballast: written
//! once or, with `--overwrite`, all the time, and read back at the end). Standard output is lines of JSON: one for each operation ([`record::Record`]), and `{"phase":...}` when a
//! phase begins: `running` (the ballast is written), `reading` (everything is read back). The clients run until standard input ends.
//! With `--to` they go to a file instead, and there is also a line when an operation begins: a process that is killed leaves what nobody knows.
//!
//! Times are those of CLOCK_BOOTTIME, so that histories of several processes of one machine can be put together.

mod clients;
mod random;
mod record;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Records what clients of a store do and see; ends after standard input has.
#[derive(Parser, Debug)]
pub struct Options {
    /// Locator of the coordinator
    #[arg(short = 'C', long = "coordinator")]
    coordinator: String,
    /// The table; made unless it is there
    #[arg(long, default_value = "history")]
    table: String,
    /// Servers that the table is spread over
    #[arg(long, default_value_t = 4)]
    span: u32,
    /// Clients, each with a thread and connections of its own
    #[arg(long, default_value_t = 6)]
    clients: u32,
    /// Number of the first client; differs where several processes record
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..30_000))]
    first_client: u32,
    /// Choose that number at random: for processes that nobody counts
    #[arg(long, conflicts_with = "first_client")]
    any_client: bool,
    /// A folder, in which the history is a new file
    #[arg(long)]
    to: Option<PathBuf>,
    /// Keys that all clients share
    #[arg(long, default_value_t = 8)]
    keys: u32,
    /// Objects that are written before the clients begin and read back at the end
    #[arg(long, default_value_t = 0)]
    ballast: u32,
    /// Bytes of each of those
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    ballast_bytes: u32,
    /// The longest pause between two operations of a client; half of it on average
    #[arg(long, default_value_t = 4000)]
    think_micros: u64,
    /// An operation that is not over after this has an unknown outcome
    #[arg(long, default_value_t = 60_000)]
    timeout_ms: u64,
    /// How long a client waits on a silent connection before it tries another way
    #[arg(long, default_value_t = 500)]
    session_timeout_ms: u64,
    /// Change nothing: every operation is a read
    #[arg(long)]
    only_reads: bool,
    /// Overwrite the ballast, too, all the time and instead of anything else
    #[arg(long, conflicts_with = "only_reads")]
    overwrite: bool,
    /// What the random choices begin with
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.any_client {
        options.first_client = random::Random::new(net::now().0).below(30_000) as u32;
    }
    match clients::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
