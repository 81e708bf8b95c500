//! The next sync of the frames and the one under way: who waits for them, and which frames they are about.

use std::collections::BTreeSet;

use base::ids::{ReplyTo, ServerId};
use base::time::Time;

/// An append that is answered when what it wrote is durable.
pub(crate) struct Waiting {
    pub to: ReplyTo,
    pub log: ServerId,
    /// Of the replica, with this append.
    pub bytes: u32,
}

/// What the next sync is for, and what the one under way carries.
#[derive(Default)]
pub(crate) struct Commit {
    pub waiting: Vec<Waiting>,
    /// Frames that were written to, or whose header is there only once.
    pub unsettled: BTreeSet<u32>,
    /// Somebody waits for the next sync who is not answered by it.
    pub is_urgent: bool,
    pub settle_at: Option<Time>,
    pub under_way: Option<Carried>,
}

pub(crate) struct Carried {
    pub waiting: Vec<Waiting>,
    pub frames: BTreeSet<u32>,
}
