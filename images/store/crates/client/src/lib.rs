//! A client of a store, for programs that wait for each answer.
//!
//! ```
//! use rcbox_client::{Cluster, Error};
//!
//! # test_store::with_store(|locator| {
//! // For example "tcp:host=127.0.0.1,port=11100".
//! let mut cluster = Cluster::connect(locator)?;
//! let table = cluster.create_table("fruit", 1)?;
//! let version = cluster.write(table, b"apple", b"green")?;
//! let object = cluster.read(table, b"apple")?;
//! assert_eq!((object.version, &object.value[..]), (version, &b"green"[..]));
//! cluster.remove(table, b"apple")?;
//! assert!(cluster.read(table, b"apple").is_err_and(|error| error.is_absent()));
//! # Ok::<(), Error>(())
//! # })
//! ```
//!
//! A [`Cluster`] belongs to one thread at a time; a program with several threads makes one for each. It keeps one
//! connection to the coordinator and one to each server it talks to, opened when first needed. While it waits for an answer
//! it spins for [`Options::spin`], then sleeps. Writes and removes take effect once, however often they have to be sent.

#![forbid(unsafe_code)]

mod asynchronous;
mod cluster;
mod driver;
mod error;
pub mod ops;
mod options;
mod scan;
mod types;

pub use asynchronous::{AsyncCluster, Pending};
pub use base::ids::{ServerId, TableId};
pub use client_core::{IncrementObject, KeyObject, Multi, OperationId, WriteObject};
pub use cluster::{Cluster, Ticket};
pub use error::Error;
pub use net::{Port, PortKind};
pub use options::Options;
pub use scan::Scan;
/// What a thread does, and when: `let recorder = trace::start("mine");` before, `recorder.read(1000)` after.
pub use trace;
pub use types::{ControlOutput, Incremented, Keyed, Object, Server, Tablet};
pub use wire::proto::{LogMetrics, ServerConfig, ServerStatistics};
pub use wire::rpc::{Increment, Lease, PerfStats, RejectRules, control_op};
pub use wire::status::Status;

/// For each object of a multi-op, in order, what came of it.
pub type Each<T> = Vec<Result<T, Error>>;
/// One object of a multi-read.
pub type ReadObject<'a> = KeyObject<'a>;
/// One object of a multi-remove.
pub type RemoveObject<'a> = KeyObject<'a>;
