//! Sessions of the member protocol, which outlive their connections.
//!
//! A connection between a shard and its coordinator can break while both sides go on: a switch restarts, a certificate is changed. Whoever
//! takes that for the end of the session gives up what it had ordered and what it was doing. So both sides number their messages, keep those
//! that the other side has not heard yet, and send these once more on the next connection: each message is heard once and in order, whatever
//! becomes of connections.
//!
//! ```text
//! shard                                coordinator
//!   Hello                        ->
//!                                <-    Welcome                     session 7, number 1
//!   Pong        number 1         ->
//!                                <-    TakeTablet                  number 2    (lost with the connection)
//!   Hello       session 7, has heard 1 ->
//!                                <-    (nothing)                   session 7, has heard 1: the session goes on
//!                                <-    TakeTablet                  number 2
//! ```
//!
//! A coordinator that does not know the session (it is another one, or has ended it) answers the Hello like any other, and the shard begins anew.
//! Builds that do not number anything lose their session with the connection. How long a session without a connection lasts is not decided here:
//! both sides end it when nothing was heard for too long.

mod coordinator;
mod numbered;
mod shard;
#[cfg(test)]
mod tests;

pub use coordinator::{Closed, Incoming, Sessions, Tokens, What};
pub use numbered::MAX_UNHEARD_BYTES;
pub use shard::{Heard, ShardSession};
