//! The whole store in one thread, from a seed.
//!
//! The coordinator, the shards, the clients and the framing are the crates that ship; only what drivers do is replaced: the
//! network, the clocks, the processes that come and go. A seed fixes everything, so that a failure can be looked at as often
//! as it takes. What clients saw is then checked: every key's history must be linearizable.

#![forbid(unsafe_code)]

mod clock;
mod cluster;
mod coverage;
mod event;
mod faults;
mod net;
mod oracles;
mod phases;
mod random;
mod run;
mod scenario;
mod trace;
mod watch;
mod world;

pub use coverage::{Coverage, REQUIRED};
pub use oracles::checker;
pub use run::{OVERWRITES, Options, Profile, Report, run};
