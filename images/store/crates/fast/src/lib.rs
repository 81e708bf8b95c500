//! The `fast` protocol: remote calls over datagrams, without any socket.
//!
//! An [`Endpoint`] is one UDP address. It takes `(now, datagram)` and gives events; what is to be sent goes to a
//! [`transport::datagram::Transmit`]. A session is opened by one side, which sends requests; the other side answers each once. A
//! request is handed over at most once, whatever the network repeats. Messages have 1 to N packets; the receiver of a long one
//! says when more of it may be sent, and says so to the shortest first. Whoever asked repeats what was lost: the
//! side that answers has no timer for it.
//!
//! The page docs/fast.md describes packets, rules and bounds, and what was not taken.

#![forbid(unsafe_code)]

mod arrivals;
mod calls;
mod cookie;
mod endpoint;
mod grantable;
mod handshake;
mod holders;
mod incoming;
mod names;
mod outgoing;
pub mod packet;
mod rank;
mod role;
mod serving;
mod session;
mod shared;
mod slot;

use core::fmt;
use core::time::Duration;
use std::borrow::Cow;

pub use endpoint::Endpoint;
pub use packet::Refusal;
pub use shared::Counters;
pub use transport::{Lender, Loan};

/// How an endpoint behaves, and what it may use.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The longest datagram of the port: its MTU without the headers of IPv4 and UDP.
    pub datagram_bytes: usize,
    /// Sessions that others open, at one time.
    pub sessions: usize,
    /// Requests of one session that may be under way at a time; more wait at the side that asks.
    pub slots: u16,
    /// What senders may have on their way here in all, of messages that need a grant: as much as fits between two polls of the port.
    pub window_bytes: usize,
    /// Memory of messages that are not complete, or not known to have arrived, of sessions that others open.
    pub buffer_bytes: usize,
    /// The same of sessions that are opened from here.
    pub own_buffer_bytes: usize,
    /// Requests of one session that wait for a slot may take so much.
    pub queue_bytes: usize,
    /// The longest message that is accepted.
    pub message_bytes: usize,
    /// Which sessions others may open: those that keep the order of requests, and those that do not.
    pub accepts_ordered: bool,
    pub accepts_unordered: bool,
    /// How long a session may take to open.
    pub connect_timeout: Duration,
    /// Nobody repeats a request earlier than this; later, if the peer is known to take longer.
    pub retry_min: Duration,
    /// The longest time between two repetitions.
    pub retry_max: Duration,
    /// A peer that owes answers and is silent for so long is dead.
    pub dead_after: Duration,
    /// A request of several packets, of which more may come and nothing does for so long, ends its session. One that takes longer than this may have
    /// to end for others that have waited for memory for so long.
    pub halted_after: Duration,
    /// It is here after this, or its session ends.
    pub message_timeout: Duration,
    /// The side that opened a session asks after so much silence whether somebody is still there.
    pub keep_alive: Duration,
    /// The other side forgets a session after so much silence.
    pub expire_after: Duration,
    /// When there are too many sessions, one that was silent for so long, and to which nothing is owed, makes room for another.
    pub idle_timeout: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            datagram_bytes: 1472,
            sessions: 4096,
            slots: 64,
            window_bytes: 64 << 10,
            buffer_bytes: 512 << 20,
            own_buffer_bytes: 512 << 20,
            queue_bytes: 64 << 20,
            message_bytes: wire::rpc::MAX_RPC_BYTES,
            accepts_ordered: true,
            accepts_unordered: true,
            connect_timeout: Duration::from_millis(200),
            retry_min: Duration::from_millis(1),
            retry_max: Duration::from_millis(50),
            dead_after: Duration::from_millis(500),
            halted_after: Duration::from_secs(2),
            message_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(10),
            expire_after: Duration::from_secs(35),
            idle_timeout: Duration::from_secs(10),
        }
    }
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A session is open: messages may be sent.
    Opened {
        session: u64,
        is_accepted: bool,
        is_ordered: bool,
    },
    /// A request (of a session that was accepted) or an answer (of one that was opened from here), whole. A request's nonce is to be given with the answer.
    Message {
        session: u64,
        nonce: u64,
        payload: Cow<'a, [u8]>,
    },
    /// A session has ended that was not closed from here.
    Closed { session: u64, reason: Reason },
    /// What was lent for an answer is not needed any more.
    Returned { token: u64 },
}

/// Why a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody answers there.
    Unreachable,
    /// The peer has owed an answer, and said nothing, for too long.
    Silent,
    Refused(Refusal),
    /// The peer knows nothing of the session: it was started anew, or has forgotten it.
    Forgotten,
    /// The peer was started anew, and has opened another.
    Restarted,
    Closed,
    /// The peer does what the protocol forbids.
    Nonsense,
    /// More requests wait than may.
    QueueFull,
    /// All sessions together hold as much memory as they may, and this one the most.
    OutOfBuffers,
    /// It was the one that was silent for longest when another needed its place.
    Displaced,
    /// What was lent for an answer is gone.
    Lost,
    /// A request of several packets did not get complete in time.
    Unfinished,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Unreachable => f.write_str("nobody answers there"),
            Reason::Silent => f.write_str("the peer owes an answer and is silent"),
            Reason::Refused(Refusal::Version) => f.write_str(
                "the peer speaks another version of this protocol: run builds that are at most one version apart",
            ),
            Reason::Refused(Refusal::Full) => f.write_str("the peer has too many sessions"),
            Reason::Refused(Refusal::Invalid) => {
                f.write_str("the peer refuses what was asked of it")
            }
            Reason::Forgotten => f.write_str("the peer knows nothing of the session any more"),
            Reason::Restarted => f.write_str("the peer was started anew"),
            Reason::Closed => f.write_str("the peer closed the session"),
            Reason::Nonsense => f.write_str("the peer sent what makes no sense"),
            Reason::QueueFull => f.write_str("the peer does not answer as fast as it is asked"),
            Reason::OutOfBuffers => f.write_str(
                "the buffers of all sessions together are full, and this one's are the largest",
            ),
            Reason::Lost => f.write_str("the answer that was being sent is not there any more"),
            Reason::Unfinished => f.write_str("a request that was begun did not get complete in time"),
            Reason::Displaced => {
                f.write_str("it was silent for longest when another needed its place")
            }
        }
    }
}

/// What is sent of a message of several packets before its receiver has said anything: as many whole packets as fit in this, at least one. Part of
/// the protocol: both sides count with it.
const UNSCHEDULED_BYTES: usize = 16 << 10;

fn unscheduled(piece_bytes: usize) -> usize {
    (UNSCHEDULED_BYTES / piece_bytes).max(1) * piece_bytes
}

#[cfg(test)]
mod tests;
