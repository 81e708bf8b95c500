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

/// A sync from when it is due: what is written from then on is left to the next one.
pub(crate) struct Carried {
    pub waiting: Vec<Waiting>,
    pub frames: BTreeSet<u32>,
    pub start: Start,
}

/// When a sync begins, or has begun.
#[derive(Clone, Copy)]
pub(crate) enum Start {
    /// When writes up to this one have ended.
    After(u64),
    Since(Time),
}

impl Start {
    /// Whether it waits for this write, or a later one.
    pub fn waits_for(self, ticket: u64) -> bool {
        matches!(self, Start::After(after) if after >= ticket)
    }

    pub fn since(self) -> Option<Time> {
        match self {
            Start::After(_) => None,
            Start::Since(time) => Some(time),
        }
    }
}

impl Commit {
    /// Whether a sync waits for this write, or a later one.
    pub fn has_to_start(&self, ticket: u64) -> bool {
        let carried = self.under_way.as_ref();
        carried.is_some_and(|carried| carried.start.waits_for(ticket))
    }
}
