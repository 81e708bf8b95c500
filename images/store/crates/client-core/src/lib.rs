//! A client of the store, without I/O: what to send to whom, what an answer means, when to try again.
//!
//! A driver owns the sockets and the clock. It starts operations, hands in what arrived with the time, calls
//! [`Client::tick`] when that asked to be called, and carries out what [`ClientEffects`] is told. Every operation that was started
//! completes exactly once, or never if it was cancelled; it may complete before the call that starts it has returned.

#![forbid(unsafe_code)]

mod cache;
mod checks;
mod client;
mod config;
mod effects;
mod error;
mod lease;
pub mod multi;
mod objects;
mod operation;
mod operation_id;
mod outcome;
mod owned;
mod random;
mod results;
mod rpc_ids;
mod sessions;
mod slab;
mod timer;

pub use client::{Client, Question};
pub use config::Config;
pub use effects::ClientEffects;
pub use error::Error;
pub use multi::Multi;
pub use objects::{IncrementObject, KeyObject, WriteObject};
pub use operation_id::OperationId;
pub use outcome::Outcome;
pub use owned::Owned;

#[cfg(test)]
mod tests;
