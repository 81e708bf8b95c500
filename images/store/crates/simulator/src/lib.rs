//! The whole store in one thread, from a seed.
//!
//! The coordinator, the shards, the clients and the framing are the crates that ship; only what drivers do is replaced: the
//! network, the clocks, the processes that come and go. A seed fixes everything, so that a failure can be looked at as often
//! as it takes. What clients saw is then checked: every key's history must be linearizable.

#![forbid(unsafe_code)]

mod attempts;
pub mod checker;
mod client;
mod clock;
mod coordinator_faults;
mod coordinator_node;
mod copies;
mod coverage;
mod datagrams;
mod deposed;
mod describe;
mod disasters;
mod disks;
mod drains;
mod endings;
mod event;
mod faults;
mod history;
mod lateness;
mod leaders;
mod migrations;
mod moved;
mod network;
mod notes;
mod oracle;
mod peers;
mod phases;
mod ports;
mod processes;
mod put_back;
mod quiet;
mod random;
mod rooms;
mod rounds;
mod run;
mod scan;
mod scenario;
mod server;
mod told;
mod trace;
mod tuning;
mod upgrades;
mod values;
mod wires;
mod workload;
mod world;

pub use coverage::{Coverage, REQUIRED};
pub use run::{OVERWRITES, Options, Profile, Report, run};
