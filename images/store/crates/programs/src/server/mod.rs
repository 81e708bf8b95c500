//! The `server` program: one thread per shard, HTTP on another, and threads that wait for disks.

mod actions;
mod driver;
mod options;
mod port_report;
mod probe;
mod process;
mod session;
mod settings;
mod storage;

use std::sync::Arc;

pub use options::{Options, check};

use crate::http;
use crate::locators::{HTTP_PORT_OFFSET, beside, tcp_listen_address};
use crate::memory::{commit_ahead, give_back_at_once};
use crate::runtime::{raise_file_limit, run_until_signal, tokio_runtime};
use process::Process;
use settings::Settings;

/// Runs until a signal ends it.
pub fn run(options: &Options) -> Result<(), String> {
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
        ..
    } = process;
    if options.commit_ahead && !options.backup_only {
        probe.set_to_commit(commit_ahead(memory, options.huge_pages)?);
    }
    let base = tcp_listen_address(&options.local)?;
    tokio_runtime()?.block_on(async {
        let http = http::bind(beside(options.http_listen, base, HTTP_PORT_OFFSET)?).await?;
        let address = http.local_addr().map_err(|error| error.to_string())?;
        tracing::info!(http = %address, "serving health and metrics");
        if !ports.is_empty() {
            let ports = Arc::new(ports);
            probe.set_ports(Arc::clone(&ports));
            tokio::spawn(port_report::keep_telling(ports, probe.mailboxes()));
        }
        run_until_signal(loops, |stop| {
            http::serve(http, Arc::new(probe), stop.wait())
        })
        .await
    })
}
