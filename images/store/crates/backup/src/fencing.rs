//! The fences of a backup, and how far they have got to its storage.

use crate::commit::Start;
use crate::copies::{Copies, Syncs};
use crate::fences::Fences;

/// The second writing comes when the first is durable: rot of one place brings no old fences back.
const WRITINGS: u8 = 2;

/// A sync of the superblock, from when that is written or being written.
pub(crate) struct Carried {
    pub fences: Fences,
    pub start: Start,
}

pub(crate) struct Fencing {
    /// Who is refused.
    pub fences: Fences,
    /// The part of that which no crash takes.
    pub durable: Fences,
    /// What the sync under way carries.
    pub carried: Option<Carried>,
    /// Another sync has failed meanwhile, and may have taken along what this one was to carry.
    pub is_doubtful: bool,
    pub copies: Copies,
    pub syncs: Syncs,
    /// How often the superblock is still to be written.
    pub writings: u8,
}

impl Fencing {
    /// As found on a storage.
    pub fn found(fences: Fences, copies: Copies) -> Fencing {
        Fencing {
            durable: fences.clone(),
            fences,
            carried: None,
            is_doubtful: false,
            copies,
            syncs: Syncs::OPENED,
            writings: 0,
        }
    }

    /// Whether a sync waits for this write, or a later one.
    pub fn has_to_start(&self, ticket: u64) -> bool {
        let carried = self.carried.as_ref();
        carried.is_some_and(|carried| carried.start.waits_for(ticket))
    }

    pub fn durable(&self) -> &Fences {
        &self.durable
    }

    /// There is something to note in the superblock.
    pub fn changed(&mut self) {
        self.writings = WRITINGS;
    }

    /// A sync of everything has succeeded while no other was begun.
    pub fn synced_with_all(&mut self) {
        self.syncs.begun += 1;
        self.syncs.completed = self.syncs.begun;
    }
}
