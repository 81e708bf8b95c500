//! The networks: byte streams, and datagrams.

pub mod datagrams;
pub mod network;
