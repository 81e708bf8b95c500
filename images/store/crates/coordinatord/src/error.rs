//! Why the program cannot start, or cannot go on.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use coordinator::RestoreError;
use daemon::http::HttpError;
use daemon::random::NoRandom;
use daemon::runtime::RuntimeError;
use daemon::security::SecurityError;
use program::NoRuntime;
use program::locators::{AddressError, PortBeyond};
use thiserror::Error;

use crate::driver::DriverError;
use crate::kubernetes::KubernetesError;
use crate::state_file::StateFileError;

#[derive(Debug, Error)]
pub enum CoordinatorError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    PortBeyond(#[from] PortBeyond),
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
    #[error(transparent)]
    NoRuntime(#[from] NoRuntime),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    StateFile(#[from] StateFileError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
    #[error("cannot poll: {0}")]
    Poll(#[source] io::Error),
    /// The records of the state say something that this version cannot use.
    #[error("cannot use {}: {error}", path.display())]
    State { path: PathBuf, error: RestoreError },
    #[error(
        "the store in {} has the cluster tag {found}, not {asked}: leave --clusterTag out, or name another directory",
        path.display()
    )]
    ClusterTag {
        path: PathBuf,
        found: u32,
        asked: u32,
    },
}

/// A port is not the program's.
#[derive(Debug, Error)]
#[error("cannot listen at {address} for {what}: {error}")]
pub struct ListenError {
    pub address: SocketAddrV4,
    pub what: &'static str,
    pub error: io::Error,
}

/// Why there is no admin API.
#[derive(Debug, Error)]
pub enum AdminError {
    #[error("cannot listen at {address} for the admin API: {error} (see --adminListen)")]
    Listen {
        address: SocketAddrV4,
        error: io::Error,
    },
    #[error("{0} is not an IPv4 address")]
    NotIpv4(SocketAddr),
    #[error("a listener does not know its address: {0}")]
    NoAddress(#[source] io::Error),
    #[error("cannot start a thread for handshakes: {0}")]
    NoThread(#[source] io::Error),
    #[error("admin API: {0}")]
    Serve(#[source] tonic::transport::Error),
}
