//! The open floor: below which id open replicas of heads do not count.

use base::ids::ServerId;
use base::time::Time;
use wire::peer::Role;

use crate::segment::Replica;

/// A replica of a head that was given up while it was open. Until the floor is above it, a recovery could believe it.
#[derive(Debug)]
pub struct Orphan {
    pub segment_id: u64,
    pub replica: Replica,
    /// From when on its backup keeps the log from recovery, as far as was known when it was given up.
    pub lease_from: Time,
    /// What was sent of it has arrived or is on its way, so that the rest can follow.
    pub is_in_step: bool,
    /// All that there is of a head that was discarded.
    pub discarded: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub struct Floor {
    /// What the coordinator has noted. `None`: nothing, and so nothing was ever acknowledged.
    pub raised: Option<u64>,
    /// What it was asked to note.
    asked: Option<u64>,
    pub orphans: Vec<Orphan>,
}

impl Floor {
    /// Whether the head `segment_id`, and nothing older, may be found open.
    pub fn covers(&self, segment_id: u64) -> bool {
        let is_below = |orphan: &Orphan| orphan.segment_id < segment_id;
        self.raised.is_some() && !self.orphans.iter().any(is_below)
    }

    /// Whether what this head holds can count: no replica of it or of an older one was given up that a recovery would believe instead.
    pub fn lets_be_durable(&self, segment_id: u64) -> bool {
        self.covers(segment_id) && !self.has_orphans(segment_id)
    }

    /// Whether an open replica of this head would be believed.
    pub fn lets_count(&self, segment_id: u64) -> bool {
        self.raised <= Some(segment_id)
    }

    /// Whether a replica of this head was given up: nothing more counts as durable there until the floor is above it.
    pub fn has_orphans(&self, segment_id: u64) -> bool {
        self.orphans
            .iter()
            .any(|orphan| orphan.segment_id == segment_id)
    }

    /// Whether a backup's replica of this head was given up.
    pub fn has_orphan(&self, segment_id: u64, backup: ServerId) -> bool {
        self.orphans
            .iter()
            .any(|orphan| orphan.segment_id == segment_id && orphan.replica.backup == backup)
    }

    /// Whether to ask for a floor now; each is asked for once.
    pub fn ask(&mut self, segment_id: u64) -> bool {
        let is_new = self.asked.max(self.raised) < Some(segment_id);
        if is_new {
            self.asked = Some(segment_id);
        }
        is_new
    }

    /// The coordinator may not have got the question: it is asked again.
    pub fn ask_again(&mut self) -> Option<u64> {
        self.asked.filter(|&asked| Some(asked) > self.raised)
    }

    pub fn orphan_mut(&mut self, segment_id: u64, backup: ServerId) -> Option<&mut Orphan> {
        self.orphans
            .iter_mut()
            .find(|orphan| orphan.segment_id == segment_id && orphan.replica.backup == backup)
    }

    /// A head was discarded, and its replicas were given up.
    pub fn keep_bytes(&mut self, segment_id: u64, bytes: &[u8]) {
        let orphans = self.orphans.iter_mut();
        for orphan in orphans.filter(|orphan| orphan.segment_id == segment_id) {
            orphan.discarded = Some(bytes.to_vec());
        }
    }

    /// The orphan of a segment at a backup, which gets its place among the replicas again, as far as it is known how to go on with it.
    pub fn revive(&mut self, segment_id: u64, backup: ServerId) -> Option<Replica> {
        let orphan = self.orphan_mut(segment_id, backup)?;
        if !orphan.is_in_step {
            return None;
        }
        self.take_orphan(segment_id, backup)
            .map(|orphan| orphan.replica)
    }

    /// A backup's replica of this head misleads nobody any more.
    pub fn take_orphan(&mut self, segment_id: u64, backup: ServerId) -> Option<Orphan> {
        let is_it =
            |orphan: &Orphan| orphan.segment_id == segment_id && orphan.replica.backup == backup;
        let at = self.orphans.iter().position(is_it)?;
        Some(self.orphans.swap_remove(at))
    }

    /// A backup has said what it holds. Of what it had acknowledged and holds no more it gets a copy at most: a recovery would believe an open head with
    /// a part of it.
    pub fn listed(&mut self, backup: ServerId, is_there: impl Fn(u64) -> bool) {
        let orphans = self.orphans.iter_mut();
        for orphan in orphans.filter(|orphan| orphan.replica.backup == backup) {
            if orphan.replica.is_open() && !is_there(orphan.segment_id) {
                orphan.replica = Replica::new(backup, Role::Side);
            }
        }
    }

    /// Orphans that count no more from then on.
    pub fn raise(&mut self, segment_id: u64) -> Vec<Orphan> {
        self.raised = self.raised.max(Some(segment_id));
        let counts_no_more = |orphan: &mut Orphan| Some(orphan.segment_id) < self.raised;
        self.orphans.extract_if(.., counts_no_more).collect()
    }
}
