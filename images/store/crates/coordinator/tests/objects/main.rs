//! The state in objects of an API server.

#[path = "../common/mod.rs"]
mod common;

mod growth;
mod oracle;
mod rules;
mod runs;
mod world;
