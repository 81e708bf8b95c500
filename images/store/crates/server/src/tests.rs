//! A server with a coordinator, peers and clients that a test plays.

mod backup;
mod checkpoint;
mod harness;
mod membership;
mod together;
