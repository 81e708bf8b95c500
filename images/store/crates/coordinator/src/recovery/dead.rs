//! Logs of dead servers: what is noted of each.

use std::collections::BTreeMap;

use base::ids::ServerId;

use crate::directory::tables::Source;

/// A dead server whose log is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub member: String,
    /// Open replicas of heads with a smaller id do not count; `None`: it never acknowledged anything.
    pub floor: Option<u64>,
    /// What the first recovery that has ended took for its head. All others must take the same: what was in a longer replica was never
    /// acknowledged, and its versions have been used again since.
    pub head: Option<Head>,
    /// All that the log consists of any more, since somebody has accepted that the rest is lost.
    pub left: Option<Left>,
}

/// Up to where a dead server's log is believed: its newest segment, and so much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub segment_id: u64,
    pub bytes: u32,
}

/// What a log consists of since somebody has accepted that the rest is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Segment id and length.
    pub segments: BTreeMap<u64, u32>,
    /// The recovery that was ordered last before that: tablets of later ones have the losses already that were recorded.
    pub after_recovery: u64,
}

/// The log of the server that owned a tablet last.
pub(crate) fn last_owner(sources: &[Source]) -> ServerId {
    sources
        .last()
        .map_or(ServerId::INVALID, |source| source.log)
}
