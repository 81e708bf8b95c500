//! The programs of a store: `coordinator`, `server`, `clusterperf` and `rcbox`. The only crate with threads of its own;
//! what they run is in the pure crates.

#[cfg(feature = "dpdk")]
mod attached;
pub mod clusterperf;
mod container;
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
pub fn version() -> &'static str {
    if is_of_next_version() {
        concat!(env!("CARGO_PKG_VERSION"), "-next-format")
    } else {
        env!("CARGO_PKG_VERSION")
    }
}

/// Formats that these programs read.
pub fn formats() -> Formats {
    #[cfg(feature = "next-format")]
    if is_of_next_version() {
        return Formats::NEXT;
    }
    Formats::CURRENT
}

/// Whether this process behaves as one of a version that is yet to come. Tests of upgrades say so in its environment. Only programs
/// that are built with the tests look there: the feature is a dev-dependency's.
fn is_of_next_version() -> bool {
    cfg!(feature = "next-format") && std::env::var_os("RCBOX_TEST_NEXT_FORMAT").is_some()
}

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
