//! The ledger of a log: the changes that its replicas must follow, and the cleaned segments whose replicas are still needed. docs/replication.md,
//! "Cleaning and frames".

use std::collections::{BTreeSet, VecDeque};

use wire::entry::{self, Digest};
use wire::peer::Role;

use crate::position::LogPosition;

/// What a log's replicas must follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Opened {
        segment_id: u64,
        role: Role,
    },
    /// It has all the entries that it will ever have.
    Closed {
        segment_id: u64,
    },
    /// A head that held nothing, and whose place another has taken. No digest names it.
    Discarded {
        segment_id: u64,
        /// What stood in it: a header and a digest.
        bytes: Vec<u8>,
    },
    /// No recovery will ask for it: its replicas can go.
    Freed {
        segment_id: u64,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub changes: VecDeque<Change>,
    /// Side segments that are open, or closed and not settled.
    pub unsettled_sides: BTreeSet<u64>,
    /// Cleaned segments that every digest so far names, in the order in which they were cleaned.
    pub cleaned: VecDeque<Cleaned>,
    /// Cleaned segments that the digest left out that ends at this position.
    pub left_out: VecDeque<(LogPosition, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cleaned {
    pub segment_id: u64,
    /// Its entries went into side segments up to this one.
    pub last_side_id: u64,
    /// It has lost a replica: a digest shall leave it out as soon as one can.
    pub hurries: bool,
}

impl Ledger {
    /// Cleaned segments whose replicas are still needed.
    pub fn held_count(&self) -> usize {
        self.cleaned.len() + self.left_out.len()
    }

    /// Cleaned segments that the next digest may leave out. Only from the front on: a tombstone that was dropped with its
    /// segment must not be gone before the segment with its dead object is.
    pub fn ready_count(&self) -> usize {
        let first_unsettled = self.unsettled_sides.first().copied().unwrap_or(u64::MAX);
        let is_ready = |cleaned: &&Cleaned| cleaned.last_side_id < first_unsettled;
        self.cleaned.iter().take_while(is_ready).count()
    }
}

/// The last digest among entries, and everything that a scan of them finds wrong on the way.
pub fn last_digest(mut entries: &[u8]) -> Result<Option<Vec<u64>>, entry::EntryError> {
    let mut last = None;
    while !entries.is_empty() {
        let entry = entry::RawEntry::read_checked(entries)?;
        if entry.kind == entry::Kind::Digest {
            last = Some(entry.decode::<Digest<'_>>()?);
        }
        entries = &entries[entry.bytes.len()..];
    }
    Ok(last.map(|digest| digest.segment_ids().collect()))
}
