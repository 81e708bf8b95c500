//! Reserving: the only step that may refuse what was planned, for want of room.

use log::NoRoom;
use wire::bugs::{Bug, is_planted};
use wire::status::Status;

use super::operation::Once;
use super::plan::{Change, Mutation, Plan};
use super::store::Store;

/// The room that a plan needs is there, until the store changes.
#[must_use]
pub(crate) struct Reserved(());

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Memory is full: only removing something helps.
    Full,
    /// There will be room.
    Later,
}

impl From<NoRoom> for Refusal {
    fn from(no_room: NoRoom) -> Refusal {
        match no_room {
            NoRoom::Full => Refusal::Full,
            NoRoom::Cleaning => Refusal::Later,
        }
    }
}

impl Refusal {
    pub fn status(self) -> Status {
        match self {
            Refusal::Full => Status::NoTableSpace,
            Refusal::Later => Status::Retry,
        }
    }
}

impl Store {
    /// Takes the room for everything that the plan appends and remembers, or none of it.
    pub fn reserve(&mut self, plan: &Plan<'_>) -> Result<Reserved, Refusal> {
        if let Some(record) = &plan.record {
            self.reserve_result(&record.once)?;
        }
        if !self.has_slots_for(plan) {
            return Err(Refusal::Full);
        }
        let needs = plan.needs;
        if needs.bytes > 0 {
            (self.log).prepare(needs.bytes, needs.growth_bytes, needs.admission)?;
        }
        Ok(Reserved(()))
    }

    /// In the hash table, for all new keys together.
    fn has_slots_for(&self, plan: &Plan<'_>) -> bool {
        let index = &self.keeper.index;
        let is_new = |mutation: &&Mutation<'_>| {
            mutation.entry.is_none() && matches!(mutation.change, Change::Put(_))
        };
        let new_keys = plan.mutations.iter().filter(is_new);
        let mut hashes = new_keys.map(|mutation| mutation.place.hash);
        if is_planted(Bug::ReserveKeysSeparately) {
            return hashes.all(|hash| index.has_room(hash));
        }
        index.has_room_for(hashes)
    }

    /// A slot among the client's results. Without one the RPC is not executed: nobody would know that it was.
    fn reserve_result(&mut self, once: &Once) -> Result<(), Refusal> {
        let (results, config) = (&mut self.keeper.results, &self.config);
        let has_room = results.has_room(once.lease_id, once.rpc_id, config.max_result_slots)
            && results.admit(once.lease_id, once.ask_at_ns, config.max_clients);
        match has_room {
            true => Ok(()),
            false => Err(Refusal::Later),
        }
    }
}
