//! The programs as real processes: one program for all tests, so that what they share is compiled and linked once, and tests that
//! wait leave the processors to others. The programs must have been built: `cargo test --workspace` and hack/test-programs.sh do that.

mod administration;
mod balancing;
mod behaviour;
mod cli;
mod client;
mod clusterperf;
mod common;
mod documents;
mod door;
mod failures;
mod fast;
mod golden;
mod huge_pages;
mod kubernetes;
mod migration;
mod programs;
mod prompt;
mod replication;
mod security;
mod splits;
mod state;
mod trace;
