//! Why the program cannot start, or cannot go on.

use std::io;
use std::net::SocketAddrV4;

use daemon::http::HttpError;
use daemon::random::NoRandom;
use daemon::runtime::RuntimeError;
use daemon::security::SecurityError;
use ports::PortsError;
use program::NoRuntime;
use program::locators::{AddressError, PortBeyond};
use thiserror::Error;

use crate::pages::PagesError;
use crate::settings::SettingsError;
use crate::storage::NoStorage;

#[derive(Debug, Error)]
pub enum ServerError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    PortBeyond(#[from] PortBeyond),
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error(transparent)]
    Ports(#[from] PortsError),
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the HTTP listener does not know its address: {0}")]
    NoHttpAddress(#[source] io::Error),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Pages(#[from] PagesError),
    #[error("cannot poll: {0}")]
    Poll(#[source] io::Error),
    #[error("cannot listen at {address} for {what}: {error}{advice}")]
    Listen {
        address: SocketAddrV4,
        what: &'static str,
        error: io::Error,
        advice: &'static str,
    },
    #[error("cannot use {locator}: {error}")]
    Port { locator: String, error: io::Error },
    #[error("cannot start a thread: {0}")]
    Spawn(#[source] io::Error),
    #[error(transparent)]
    Storage(#[from] NoStorage),
}
