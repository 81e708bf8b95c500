//! The state in objects of an API server.

mod growth;
mod oracle;
mod rules;
mod runs;
mod world;
