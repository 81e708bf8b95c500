//! Places for the requests of a session that are under way.

use base::time::Time;

use crate::grantable::Listed;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is under way. At the side that answers: what was asked last has been answered, and that has arrived.
    #[default]
    Idle,
    /// The request was sent, or is being sent; nothing of an answer has come.
    Asked,
    /// A message of several packets arrives here.
    Receiving,
    /// The request is here, and its answer is not.
    Executing,
    /// The answer was sent, or is being sent, and is kept.
    Answered,
}

/// One of the places for a request that is under way.
#[derive(Debug, Default)]
pub struct Slot {
    pub phase: Phase,
    /// The request's number in its session; 0: none yet.
    pub number: u32,
    /// What the side that asks calls it.
    pub nonce: u64,
    pub outgoing: Outgoing,
    pub incoming: Incoming,
    /// Under what the slot is listed among those that can send.
    pub send_rank: Option<usize>,
    /// Under what the slot is listed among those that wait for a grant.
    pub grant_rank: Option<Listed>,
    /// The length of the request that arrives, or waits for its predecessors, which its address was let have.
    pub admitted_bytes: usize,
    /// Under what the slot is listed among such requests, and since when.
    pub deadline: Option<Time>,
    pub admitted_at: Time,
    /// Memory of what arrives and of what is sent, as it was counted last.
    pub accounted: (usize, usize),
    pub asked_at: Time,
    pub retry_at: Time,
    pub retries: u32,
}
