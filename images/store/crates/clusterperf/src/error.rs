//! Why a measurement has failed, and which options do not go together.

use std::io;

use daemon::http::HttpError;
use daemon::runtime::RuntimeError;
use ports::PortsError;
use program::NoRuntime;
use thiserror::Error;

use crate::plot::PlotError;

#[derive(Debug, Error)]
pub enum PerfError {
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the HTTP listener does not know its address: {0}")]
    NoHttpAddress(#[source] io::Error),
    #[error("cannot start a thread: {0}")]
    Spawn(#[source] io::Error),
    #[error("too many clients for one process")]
    TooManyClients,
    #[error(transparent)]
    Ports(#[from] PortsError),
    #[error(transparent)]
    Client(#[from] client::Error),
    #[error("{test}: {error}")]
    Test { test: String, error: client::Error },
    #[error("client {index}: {error}")]
    OtherClient { index: u32, error: client::Error },
    #[error("a client ended unexpectedly")]
    ClientPanicked,
    #[error("drop table {table}: {error}")]
    DropTable { table: String, error: client::Error },
    #[error("log message to all servers: {0}")]
    LogMessage(#[source] client::Error),
    #[error("control operation {operation} for all servers: {error}")]
    Control {
        operation: u32,
        error: client::Error,
    },
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// Options that the command line parser takes, and that make no sense.
#[derive(Debug, Error)]
pub enum UsageError {
    #[error("there is no test {test:?} in this version; there are: {there_are}")]
    NoTest { test: String, there_are: String },
    #[error("{0} needs others to measure beside: --numClients 2 or more")]
    NeedsOthers(String),
    #[error("{0} is for one client: leave --numClients out")]
    ForOneClient(String),
    #[error("--breakdown is for {of}; run {test} without it")]
    NotBrokenDown { of: String, test: String },
    #[error("--dropTables needs --tablePrefix: other tables may be somebody else's")]
    DropsAll,
    #[error("--numClients: from 1 to {0}")]
    NumClients(u32),
    #[error("--clientIndex: from 0 to {last}, for there are --numClients {count}")]
    ClientIndex { last: u32, count: u32 },
    #[error("--seconds: a number above 0, at most 3600")]
    Seconds,
    #[error("--size: from 1 to {0} bytes")]
    Size(usize),
    #[error("{0}: at least 1")]
    Zero(&'static str),
    #[error("--workload: one of {0}")]
    Workload(String),
    #[error("--plot: a file whose name ends with .svg or .png")]
    PlotName,
}
