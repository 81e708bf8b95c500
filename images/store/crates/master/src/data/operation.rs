//! What the store can do with one object, and what comes of it.

use log::{LogPosition, Reference};
use wire::keys::KeysAndValue;
use wire::rpc::{Increment, RejectRules};
use wire::status::Status;

use super::entries::HashedKey;
use super::tablets::Use;

/// One operation on one object. A request for many is a sequence of these, each planned and applied before the next is planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation<'a> {
    pub place: HashedKey<'a>,
    /// By the object's version: when the operation is refused.
    pub rules: RejectRules,
    pub action: Action<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action<'a> {
    Read,
    /// Makes the object, or overwrites it.
    Write(KeysAndValue<'a>),
    /// An object that is not there counts as removed.
    Remove,
    /// Adds to the 8 bytes of the object, or of zeros if there is none. The object has its primary key only after that.
    Increment(Increment),
}

#[cfg(test)]
impl<'a> Operation<'a> {
    /// Whatever the object's version.
    pub fn new(place: HashedKey<'a>, action: Action<'a>) -> Operation<'a> {
        Operation {
            place,
            rules: RejectRules::default(),
            action,
        }
    }
}

impl Action<'_> {
    /// What it does with its key's tablet.
    pub fn use_of_tablet(&self) -> Use {
        match self {
            Action::Read => Use::Read,
            Action::Write(_) | Action::Remove | Action::Increment(_) => Use::Write,
        }
    }
}

/// Of an RPC that takes effect once: the outcome is recorded under these numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Once {
    pub lease_id: u64,
    pub rpc_id: u64,
    /// The client is done with RPCs up to this one.
    pub ack_id: u64,
    /// Cluster time at which to ask whether the client's lease has ended.
    pub ask_at_ns: u64,
}

/// What an operation came to. [`Status::Retry`] means that it had no effect and left no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub status: Status,
    /// Of the object as it is now, or as it was when it was removed. 0: there is none.
    pub version: u64,
    pub shown: Shown,
    /// What must be durable before this is shown.
    pub seen: LogPosition,
}

/// What an outcome shows beside status and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Of a write or remove.
    Nothing,
    /// Of an increment: the 8 bytes as they are now, or zeros if it was refused.
    Number([u8; 8]),
    /// Of a read: where the object lies, unless it was refused.
    Object(Option<Reference>),
}

impl Shown {
    /// By an operation that was refused.
    pub fn nothing_of(action: &Action<'_>) -> Shown {
        match action {
            Action::Read => Shown::Object(None),
            Action::Write(_) | Action::Remove => Shown::Nothing,
            Action::Increment(_) => Shown::Number([0; 8]),
        }
    }
}

impl Outcome {
    /// Nothing happened, and nothing was looked at that a crash could take back.
    pub fn refused(action: &Action<'_>, status: Status) -> Outcome {
        Outcome {
            status,
            version: 0,
            shown: Shown::nothing_of(action),
            seen: LogPosition::START,
        }
    }
}
