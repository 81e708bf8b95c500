//! Reserving: the only step that may refuse what was planned, for want of room.

use base::bugs::{Bug, is_planted};
use log::NoRoom;
use wire::status::Status;

use super::operation::Once;
use super::plan::{Change, Mutation, Plan};
use super::store::Store;

/// A plan, and the room that it needs; until the store changes.
#[must_use]
pub(crate) struct Reserved<'p, 'a> {
    plan: &'p Plan<'a>,
}

impl<'p, 'a> Reserved<'p, 'a> {
    pub fn plan(&self) -> &'p Plan<'a> {
        self.plan
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Memory is full: only removing something helps.
    Full,
    /// There will be room.
    Later,
    /// No log of this size ever has room.
    TooLarge,
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
            Refusal::TooLarge => Status::RequestTooLarge,
        }
    }
}

impl Store {
    /// Takes the room for everything that the plan appends and remembers, or none of it. A client whose RPC is refused stays known: the refusal is
    /// remembered with it.
    pub fn reserve<'p, 'a>(&mut self, plan: &'p Plan<'a>) -> Result<Reserved<'p, 'a>, Refusal> {
        if plan.needs.bytes > self.log.config().max_append_bytes() {
            return Err(Refusal::TooLarge);
        }
        assert!(
            plan.has_distinct_keys(),
            "two changes of one key in one plan"
        );
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
        Ok(Reserved { plan })
    }

    /// In the hash table, for all new keys together.
    fn has_slots_for(&self, plan: &Plan<'_>) -> bool {
        let index = &self.keeper.index;
        let is_new = |mutation: &&Mutation<'_>| {
            mutation.known.is_none() && matches!(mutation.change, Change::Put(_))
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
