//! What must survive the coordinator's process, as key/value pairs: whatever would break a promise if it were forgotten.
//!
//! Connections, pings and replies under way are not part of it. Whoever keeps the pairs asks for the changes after events and
//! lets nothing out before they are safe: see [`crate::Coordinator::take_changes`].

mod batch;
pub mod checkpoint;
pub mod file;
pub(crate) mod gate;
#[cfg(test)]
mod golden;
pub mod journal;
pub(crate) mod keeping;
pub(crate) mod leading;
pub mod objects;
pub(crate) mod rebuild;

use prost::Message;

use crate::records::{Key, Record, Value};

/// What builds that do not say it have noted cluster time ahead by.
pub(crate) const FORMER_TIME_AHEAD_NS: u64 = 60_000_000_000;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct Pair {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// What happened to the pairs, all of it or nothing. No key is in both lists or twice in one.
#[derive(Clone, PartialEq, Message)]
pub struct Changes {
    #[prost(message, repeated, tag = "1")]
    pub puts: Vec<Pair>,
    /// Keys; such that nothing stood under are possible.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub deletes: Vec<Vec<u8>>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty()
    }
}

impl From<Record> for Pair {
    fn from(record: Record) -> Pair {
        let key = Key::of(&record).encode();
        let record = Some(record);
        Pair {
            key,
            value: Value { record }.encode_to_vec(),
        }
    }
}
