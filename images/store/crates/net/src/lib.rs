//! One thread, one [`Reactor`], any number of connections: over kernel TCP, and sessions of the `fast` protocol over ports for datagrams.
//!
//! A reactor owns sockets and buffers and hands complete frames to a [`Handler`], which answers through [`Io`]. It speaks
//! both framings of the `transport` crate, listens and connects, so that a shard (clients in, coordinator out), a
//! coordinator (clients and members in) and a client (everything out) run on the same code. Nothing in it waits but the
//! one place where an idle thread sleeps.
//!
//! Polling is adaptive: while traffic came within the last [`Options::spin`], the thread reads the sockets that were active
//! straight away, without asking the kernel which are ready; after that it blocks in epoll.

#![forbid(unsafe_code)]

mod accounts;
mod address;
mod budget;
mod clock;
mod connection;
mod flush;
mod handler;
mod handshakes;
mod heat;
mod io;
mod ports;
mod reactor;
mod security;
mod spin;
mod stream;
mod target;

pub use address::Address;
pub use budget::Audience;
pub use clock::now;
pub use connection::{CloseReason, Protocol};
pub use handler::Handler;
pub use handshakes::{Door, HandshakeError, Secure};
pub use io::{Counters, FastCounters, Io, Limits};
pub use ports::{Port, PortListeners, Way, fast_config};
pub use reactor::{Options, Reactor, Remote, Round};
pub use stream::Peer;
pub use target::{FastPeer, PortKind, Target, mac_address, mac_text, protocols};

/// The protocol on datagrams, and the kernel's sockets below it.
pub use fast::{Config as FastConfig, Loan};
pub use udp::{USUAL_MTU, open as open_udp};
