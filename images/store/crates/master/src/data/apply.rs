//! Applying: the change itself, which cannot fail any more. All entries of a plan are one append: durable together, or not at all.

use base::bugs::{Bug, is_planted};
use log::{Durability, Reference, Slot};
use trace::Event;
use wire::entry::{Object, RpcResult};

use super::admission::Admitted;
use super::entries::Known;
use super::operation::{Action, Once, Operation, Outcome};
use super::plan::{Change, Content, Mutation, Record};
use super::reserve::{Refusal, Reserved};
use super::store::{Removed, Store};

impl Store {
    /// The way of an operation that was admitted.
    #[inline]
    pub fn execute(&mut self, operation: &Operation<'_>, admitted: Admitted) -> Outcome {
        match operation.action {
            // There is nothing to reserve and to apply: its plan is its outcome.
            Action::Read => self.read(&operation.place, &operation.rules),
            Action::Write(_) | Action::Remove | Action::Increment(_) => {
                self.execute_change(operation, admitted)
            }
        }
    }

    fn execute_change(&mut self, operation: &Operation<'_>, admitted: Admitted) -> Outcome {
        let plan = self.plan(operation, admitted.once());
        match self.reserve(&plan) {
            Ok(reserved) => self.apply(reserved),
            Err(refusal) => {
                if let Some(record) = &plan.record {
                    self.remember_refusal(&record.once, refusal);
                }
                Outcome::refused(&operation.action, refusal.status())
            }
        }
    }

    /// Does what was planned; nothing has changed since it was planned.
    pub fn apply(&mut self, reserved: Reserved<'_, '_>) -> Outcome {
        let plan = reserved.plan();
        let mut outcome = plan.outcome;
        let appended = self.log.appended().bytes;
        for mutation in &plan.mutations {
            match mutation.change {
                Change::Put(content) => outcome.version = self.put(mutation, content),
                Change::Remove => self.remove(mutation),
            }
        }
        if let Some(record) = &plan.record {
            self.record(record, &outcome);
        }
        let appended = self.log.appended().bytes - appended;
        assert!(
            appended <= plan.needs.bytes as u64,
            "more was appended than was reserved"
        );
        if plan.needs.bytes > 0 {
            outcome.seen = self.log.head_position();
            trace::record(Event::Appended, outcome.seen.0);
        }
        outcome
    }

    /// Puts an object where the plan found the key, and answers its version.
    fn put(&mut self, mutation: &Mutation<'_>, content: Content<'_>) -> u64 {
        let place = &mutation.place;
        let version = match mutation.version {
            0 => self.log.take_safe_version(),
            old => (old + 1).max(self.version_floor),
        };
        assert!(version > mutation.version, "versions of a key only grow");
        self.next_version = self.next_version.max(version + 1);
        let table_id = place.table_id;
        let at = content.with(place, |content| {
            self.log.append(&Object {
                table_id,
                version,
                expires_ns: None,
                content,
            })
        });
        if let Some(old) = mutation.object() {
            if self.log.needs_tombstone(old) {
                (self.log).append_tombstone(table_id, mutation.version, place.key, old);
            }
            self.log.kill(old);
        } else {
            self.object_count += 1;
        }
        match mutation.known {
            Some(known) => {
                let slot = self.slot_of(place.hash, known);
                self.keeper.index.set(slot, at);
            }
            None => {
                let inserted = self.keeper.index.insert(place.hash, at);
                inserted.expect("room was reserved");
            }
        }
        version
    }

    fn remove(&mut self, mutation: &Mutation<'_>) {
        let (place, version) = (&mutation.place, mutation.version);
        assert!(version > 0, "what is not there is not removed");
        let known = mutation.known.expect("what is there has a slot");
        let old = known.entry;
        let tombstone = (self.log).append_tombstone(place.table_id, version, place.key, old);
        self.log.kill(old);
        assert!(self.object_count > 0);
        self.object_count -= 1;
        if !is_planted(Bug::VersionRestartsAfterRemove) {
            self.log.raise_safe_version(version + 1);
        }
        let slot = self.slot_of(place.hash, known);
        self.vacate(slot, place.hash, tombstone);
    }

    fn slot_of(&self, hash: u64, known: Known) -> Slot {
        let slot = (self.keeper.index).find_again(known.slot, hash, known.entry);
        slot.expect("the plan found the key")
    }

    /// Takes a removed key's slot away, now or when its tombstone is durable.
    fn vacate(&mut self, slot: Slot, hash: u64, tombstone: Reference) {
        let at_once = self.config.durability == Durability::Unreplicated
            || is_planted(Bug::DropTombstoneEarly);
        if at_once {
            self.keeper.index.remove(slot);
            return;
        }
        self.keeper.index.set(slot, tombstone);
        self.removed.push_back(Removed {
            position: self.log.position_of(tombstone),
            hash,
            tombstone,
        });
    }

    /// Appends the record of a numbered RPC.
    fn record(&mut self, record: &Record, outcome: &Outcome) {
        let once = &record.once;
        let at = self.log.append(&RpcResult {
            lease_id: once.lease_id,
            rpc_id: once.rpc_id,
            ack_id: once.ack_id,
            table_id: record.table_id,
            key_hash: record.key_hash,
            response: outcome.response(0).as_bytes(),
        });
        if is_planted(Bug::ForgetRpcResult) {
            self.log.kill(at);
        } else {
            let results = &mut self.keeper.results;
            results.record(once.lease_id, once.rpc_id, once.ack_id, at);
        }
    }

    /// An operation had no effect for want of room. If its client takes that for the outcome, the outcome has to stay so.
    fn remember_refusal(&mut self, once: &Once, refusal: Refusal) {
        if refusal == Refusal::Full {
            let results = &mut self.keeper.results;
            results.record_refusal(once.lease_id, once.rpc_id, once.ack_id);
        }
    }
}
