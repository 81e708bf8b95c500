//! The programs as real processes: one program for all tests, so that what they share is compiled and linked once, and tests that
//! wait leave the processors to others.

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
#[cfg(feature = "dpdk")]
mod ping;
mod programs;
mod prompt;
mod replication;
mod state;
mod trace;
