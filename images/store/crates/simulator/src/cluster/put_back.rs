//! Whether, and when, somebody puts the coordinators' state back to an older one.

use coordinator::state::objects::testing::Objects;
use wire::member::Position;

use crate::random::Random;

/// Who does it, and when.
#[derive(Debug, Default)]
pub struct PutBack {
    pub(super) random: Option<Random>,
    pub(super) copy: Option<(Position, Objects)>,
    /// The store is made again from its disks afterwards, if they have all.
    pub(super) ends_in_rebuild: bool,
    pub(super) harm: Option<Harm>,
    /// The newer state was put back in turn: some may have heard of leaders that went on with the older one.
    pub(super) is_repaired: bool,
}

/// An older state is there.
#[derive(Debug)]
pub(super) struct Harm {
    pub(super) newer: Objects,
    pub(super) since: u64,
    pub(super) is_noticed: bool,
    /// The disks have all of the newer one, if fewer than so many are lost.
    pub(super) kept_by: Option<usize>,
}

impl PutBack {
    pub fn with(random: Random) -> PutBack {
        PutBack {
            random: Some(random),
            ..PutBack::default()
        }
    }

    pub fn happens(&self) -> bool {
        self.random.is_some()
    }
}
