//! What every machine has in common whose state outlives the process.

use core::fmt::Debug;
use std::collections::BTreeSet;

use crate::records::{Key, Record, Sorted};

/// A machine with records. Each change of its state is noted by the container that holds the state ([`crate::journaled`]).
pub(crate) trait Resource: Debug {
    /// Whether changes that nobody has taken yet are worth a checkpoint in volumes of their own; others go with the next one.
    fn is_worth_a_checkpoint(&self) -> bool;

    /// Keys of the records that have changed since the last call, or are gone.
    fn take_changed(&mut self) -> BTreeSet<Key>;

    /// What stands under `key` now; `None`: nothing, or it is another machine's.
    fn record(&self, key: &Key) -> Option<Record>;

    /// Everything, in no particular order.
    fn records(&self) -> Box<dyn Iterator<Item = Record> + '_>;

    /// Takes what was noted out of it, for a machine that needs nothing else. Of the others, `root/restore.rs` takes care.
    ///
    /// # Errors
    /// Says what contradicts what.
    fn load(&mut self, _sorted: &mut Sorted) -> Result<(), String> {
        Ok(())
    }

    /// What must hold of the machine alone between two rounds.
    ///
    /// # Errors
    /// Says what contradicts what.
    fn audit(&self) -> Result<(), String>;
}
