//! The `server` program: two threads per shard, of which one runs it, HTTP on another, and threads that wait for disks.

mod actions;
mod driver;
mod error;
mod handoff;
mod memory;
mod options;
mod pages;
mod port_report;
mod probe;
mod process;
mod processor;
mod session;
mod settings;
mod storage;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use daemon::allocator::give_back_at_once;
use daemon::http;
use daemon::runtime::{raise_file_limit, run_until_signal};
use program::locators::{HTTP_PORT_OFFSET, beside, tcp_listen_address};
use program::tokio_runtime;

use error::ServerError;
use memory::commit_ahead;
use options::{Options, check};
use process::Process;
use settings::Settings;

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(error) = check(&options) {
        eprintln!("error: {error}");
        return ExitCode::from(program::EXIT_USAGE);
    }
    program::report(run(&options))
}

/// Runs until a signal ends it.
fn run(options: &Options) -> Result<(), ServerError> {
    options.logging.start();
    raise_file_limit();
    give_back_at_once();
    let settings = Settings::new(options)?;
    let mut process = Process::new(options, settings)?;
    let mut loops = Vec::new();
    for index in 0..options.cores {
        loops.push(process.start_shard(index)?);
    }
    let Process {
        memory,
        mut probe,
        ports,
        security,
        ..
    } = process;
    if options.commit_ahead && !options.backup_only {
        let left = commit_ahead(memory, options.huge_pages).map_err(ServerError::Spawn)?;
        probe.set_to_commit(left);
    }
    let base = tcp_listen_address(&options.local)?;
    tokio_runtime()?.block_on(async {
        let http = http::bind(beside(options.http_listen, base, HTTP_PORT_OFFSET)?).await?;
        let address = http.local_addr().map_err(ServerError::NoHttpAddress)?;
        tracing::info!(http = %address, "serving health and metrics");
        if !ports.is_empty() {
            let ports = Arc::new(ports);
            probe.set_ports(Arc::clone(&ports));
            tokio::spawn(port_report::keep_telling(ports, probe.mailboxes()));
        }
        security.announce();
        tokio::spawn(security.stay_fresh());
        run_until_signal(loops, |stop| {
            http::serve(http, Arc::new(probe), stop.wait())
        })
        .await?;
        Ok(())
    })
}
