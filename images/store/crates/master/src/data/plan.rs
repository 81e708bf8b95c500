//! Planning: what an operation will change and come to. It looks, and changes nothing.

use base::bugs::{Bug, is_planted};
use log::{Admission, Reference};
use smallvec::SmallVec;
use wire::entry::{Object, RpcResult, Tombstone};
use wire::keys::KeysAndValue;
use wire::rpc::{Increment, IncrementResponse, MAX_VALUE_BYTES, RejectRules};
use wire::status::Status;

use super::entries::{HashedKey, Known};
use super::operation::{Action, Once, Operation, Outcome, Shown};
use super::store::{Found, Store};

/// What the record of an RPC takes in the log, at most.
const RESULT_BYTES: usize = RpcResult::entry_bytes_of(IncrementResponse::FIXED_BYTES);

/// What one operation will do: all of it, or nothing. Good until the store changes.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// Of different keys; the outcome's version is that of the last.
    pub mutations: SmallVec<[Mutation<'a>; 1]>,
    /// To be recorded with the mutations, with the place that the record goes with.
    pub record: Option<Record>,
    /// The outcome; where something is appended, its version and position are known only once the plan is applied.
    pub outcome: Outcome,
    pub needs: Needs,
}

/// A change of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutation<'a> {
    pub place: HashedKey<'a>,
    /// `None`: the key has no slot.
    pub known: Option<Known>,
    /// Of the object that is there, or 0: there is none.
    pub version: u64,
    pub change: Change<'a>,
}

impl Mutation<'_> {
    /// The object that is there; `None` too where a tombstone holds the slot.
    pub fn object(&self) -> Option<Reference> {
        self.known
            .filter(|_| self.version > 0)
            .map(|known| known.entry)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    Put(Content<'a>),
    Remove,
}

/// Keys and value of an object that is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    Sent(KeysAndValue<'a>),
    /// The mutation's own key, and these bytes.
    Number([u8; 8]),
}

/// The record of a numbered RPC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub once: Once,
    pub table_id: base::ids::TableId,
    pub key_hash: u64,
}

/// What a plan asks of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Of entries, at most; 0: nothing is appended.
    pub bytes: usize,
    /// See [`log::Log::prepare`].
    pub growth_bytes: i64,
    pub admission: Admission,
}

impl Needs {
    const NOTHING: Needs = Needs {
        bytes: 0,
        growth_bytes: 0,
        admission: Admission::Remove,
    };
}

impl<'a> Plan<'a> {
    pub(super) fn has_distinct_keys(&self) -> bool {
        let same = |one: &HashedKey<'_>, other: &HashedKey<'_>| {
            (one.hash, one.table_id, one.key) == (other.hash, other.table_id, other.key)
        };
        let mut places = self.mutations.iter().map(|mutation| &mutation.place);
        while let Some(place) = places.next() {
            if places.clone().any(|other| same(place, other)) {
                return false;
            }
        }
        true
    }

    /// Nothing changes, and nothing is recorded.
    fn only(outcome: Outcome) -> Plan<'a> {
        Plan {
            mutations: SmallVec::new(),
            record: None,
            outcome,
            needs: Needs::NOTHING,
        }
    }
}

impl Store {
    /// What this operation would do now. `once`: under which numbers its outcome is recorded.
    pub fn plan<'a>(&self, operation: &Operation<'a>, once: Option<Once>) -> Plan<'a> {
        let Operation { place, action, .. } = operation;
        if let Action::Write(content) = action
            && content.value().len() > MAX_VALUE_BYTES
        {
            return Plan::only(Outcome::refused(action, Status::RequestTooLarge));
        }
        let found = self.look_up(place);
        let refused = operation.rules.check(found.version).err();
        match (*action, refused) {
            (Action::Read, _) => Plan::only(read_outcome(&found, refused)),
            (_, Some(status)) => {
                let shown = Shown::nothing_of(action);
                self.no_change(place, (status, shown), &found, once)
            }
            (Action::Write(content), None) => {
                let change = Change::Put(Content::Sent(content));
                self.change(place, change, Shown::Nothing, &found, once)
            }
            (Action::Remove, None) if found.object.is_none() => {
                self.no_change(place, (Status::Ok, Shown::Nothing), &found, once)
            }
            (Action::Remove, None) => {
                self.change(place, Change::Remove, Shown::Nothing, &found, once)
            }
            (Action::Increment(by), None) => self.plan_increment(operation, by, &found, once),
        }
    }

    /// The outcome of a read, without a plan around it.
    #[inline]
    pub(super) fn read(&self, place: &HashedKey<'_>, rules: &RejectRules) -> Outcome {
        let found = self.look_up(place);
        read_outcome(&found, rules.check(found.version).err())
    }

    fn plan_increment<'a>(
        &self,
        operation: &Operation<'a>,
        by: Increment,
        found: &Found,
        once: Option<Once>,
    ) -> Plan<'a> {
        let old = match found.object {
            None => Ok([0; 8]),
            Some(at) => <[u8; 8]>::try_from(self.object(at).value),
        };
        let Ok(old) = old else {
            let outcome = (Status::InvalidObject, Shown::Number([0; 8]));
            return self.no_change(&operation.place, outcome, found, once);
        };
        if KeysAndValue::single(operation.place.key, &old).is_err() {
            let status = Status::RequestFormatError;
            return Plan::only(Outcome::refused(&operation.action, status));
        }
        let new = by.apply(old);
        let once = once.filter(|_| !is_planted(Bug::RepeatIncrement));
        let change = Change::Put(Content::Number(new));
        self.change(&operation.place, change, Shown::Number(new), found, once)
    }

    /// The outcome is recorded even though no object changes: it must not come out differently when the RPC is repeated.
    fn no_change<'a>(
        &self,
        place: &HashedKey<'a>,
        (status, shown): (Status, Shown),
        found: &Found,
        once: Option<Once>,
    ) -> Plan<'a> {
        let record = once.map(|once| Record::of(once, place));
        Plan {
            mutations: SmallVec::new(),
            needs: Needs {
                bytes: record.map_or(0, |_| RESULT_BYTES),
                ..Needs::NOTHING
            },
            record,
            outcome: Outcome {
                status,
                version: found.version,
                shown,
                seen: found.seen,
            },
        }
    }

    fn change<'a>(
        &self,
        place: &HashedKey<'a>,
        change: Change<'a>,
        shown: Shown,
        found: &Found,
        once: Option<Once>,
    ) -> Plan<'a> {
        assert_eq!(found.object.is_some(), found.version > 0);
        assert!(found.known.is_some() || found.object.is_none());
        let mutation = Mutation {
            place: *place,
            known: found.known,
            version: found.version,
            change,
        };
        Plan {
            needs: self.needs_of(core::slice::from_ref(&mutation)),
            mutations: SmallVec::from_buf([mutation]),
            record: once.map(|once| Record::of(once, place)),
            outcome: Outcome {
                status: Status::Ok,
                version: found.version,
                shown,
                seen: found.seen,
            },
        }
    }

    /// What these changes, and the record of an RPC, ask of the log together.
    pub(super) fn needs_of(&self, mutations: &[Mutation<'_>]) -> Needs {
        let mut needs = Needs {
            bytes: RESULT_BYTES,
            ..Needs::NOTHING
        };
        for mutation in mutations {
            // Counted for new objects too: whatever can be written can then be removed.
            needs.bytes += Tombstone::entry_bytes_of(mutation.place.key.len());
            let Change::Put(content) = &mutation.change else {
                continue;
            };
            let object_bytes = Object::entry_bytes_of(content.bytes(&mutation.place));
            let dying = mutation.object().map(|old| self.log.entry(old).bytes.len());
            needs.bytes += object_bytes;
            needs.growth_bytes += object_bytes as i64 - dying.unwrap_or(0) as i64;
            needs.admission = Admission::Write;
        }
        needs
    }
}

/// A read is not recorded: repeated, it may have another outcome.
#[inline]
fn read_outcome(found: &Found, refused: Option<Status>) -> Outcome {
    let (status, object) = match (found.object, refused) {
        (None, _) => (Status::ObjectDoesntExist, None),
        (Some(_), Some(status)) => (status, None),
        (object, None) => (Status::Ok, object),
    };
    Outcome {
        status,
        version: found.version,
        shown: Shown::Object(object),
        seen: found.seen,
    }
}

impl Record {
    fn of(once: Once, place: &HashedKey<'_>) -> Record {
        Record {
            once,
            table_id: place.table_id,
            key_hash: place.hash,
        }
    }
}

impl<'a> Content<'a> {
    /// Of the object of this place.
    pub fn with<T>(&self, place: &HashedKey<'a>, then: impl FnOnce(KeysAndValue<'_>) -> T) -> T {
        match self {
            Content::Sent(content) => then(*content),
            Content::Number(value) => {
                let content = KeysAndValue::single(place.key, value);
                then(content.expect("planning looked whether the key is good"))
            }
        }
    }

    fn bytes(&self, place: &HashedKey<'a>) -> usize {
        self.with(place, |content| content.encoded_bytes())
    }
}
