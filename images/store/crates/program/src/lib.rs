//! What every program of a store has in common: the version and the formats of this build, locators on a command line, exit codes,
//! and the runtime of a main thread. What only programs that serve have is in `daemon`.

pub mod locators;

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

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
pub fn report(result: Result<(), impl Display>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The runtime of a main thread cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the runtime: {0}")]
pub struct NoRuntime(io::Error);

/// The runtime of the main thread.
pub fn tokio_runtime() -> Result<tokio::runtime::Runtime, NoRuntime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(NoRuntime)
}
