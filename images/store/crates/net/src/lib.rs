//! The kernel-TCP driver: one thread, one [`Reactor`], any number of connections.
//!
//! A reactor owns sockets and buffers and hands complete frames to a [`Handler`], which answers through [`Io`]. It speaks
//! both framings of the `transport` crate, listens and connects, so that a shard (clients in, coordinator out), a
//! coordinator (clients and members in) and a client (everything out) run on the same code. Nothing in it waits but the
//! one place where an idle thread sleeps.
//!
//! Polling is adaptive: while traffic came within the last [`Options::spin`], the thread reads the sockets that were active
//! straight away, without asking the kernel which are ready; after that it blocks in epoll.

#![forbid(unsafe_code)]

mod address;
mod clock;
mod connection;
mod io;
mod reactor;
mod spin;

pub use address::Address;
pub use clock::now;
pub use connection::{CloseReason, Protocol};
pub use io::{Counters, Io, Limits};
pub use reactor::{Handler, Options, Reactor, Remote};
