//! The programs of a store: `coordinator`, `server`, `clusterperf` and `rcbox`. The only crate with threads of its own;
//! what they run is in the pure crates.

pub mod clusterperf;
pub mod coordinator;
mod guarded;
pub mod http;
pub mod locators;
pub mod logging;
pub mod mailbox;
pub mod memory;
pub mod metrics;
pub mod random;
pub mod rcbox;
pub mod runtime;
pub mod server;

/// Printed by `--version` and shown in status.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Exit code for a wrong command line; 1 is for everything that fails later.
pub const EXIT_USAGE: u8 = 2;

/// Ends a program that failed: the text goes to standard error.
pub fn report(result: Result<(), String>) -> std::process::ExitCode {
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            std::process::ExitCode::FAILURE
        }
    }
}
