//! The programs of a store: `coordinator`, `server`, `clusterperf` and `rcbox`. The only crate with threads of its own;
//! what they run is in the pure crates.

#[cfg(feature = "dpdk")]
mod attached;
pub mod clusterperf;
pub mod coordinator;
pub mod datagrams;
mod guarded;
pub mod http;
mod interfaces;
pub mod locators;
pub mod logging;
pub mod mailbox;
pub mod memory;
pub mod metrics;
pub mod pages;
pub mod random;
pub mod rcbox;
pub mod runtime;
pub mod server;

use wire::format::Formats;

/// Printed by `--version` and shown in status.
#[cfg(not(feature = "next-format"))]
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
#[cfg(feature = "next-format")]
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-next-format");

/// Formats that these programs read.
#[cfg(not(feature = "next-format"))]
pub const FORMATS: Formats = Formats::CURRENT;
#[cfg(feature = "next-format")]
pub const FORMATS: Formats = Formats::NEXT;

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
