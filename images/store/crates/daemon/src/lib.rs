//! What programs that serve have in common: threads that run reactors and end on a signal, questions to these threads, log lines, health and
//! metrics over HTTP, and what the process may use of its machine. What the programs decide is in the pure crates.

pub mod allocator;
pub mod container;
pub mod guarded;
pub mod http;
pub mod logging;
pub mod mailbox;
pub mod metrics;
pub mod random;
pub mod runtime;
pub mod secured;
pub mod security;
