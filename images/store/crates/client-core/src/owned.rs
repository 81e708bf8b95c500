//! Outcomes that outlive the call that brought them.

use core::time::Duration;

use base::ids::{ServerId, TableId};
use bytes::Bytes;
use wire::rpc::Lease;

use crate::error::Error;
use crate::outcome::Outcome;
use crate::results::Objects;

/// An [`Outcome`] that borrows nothing; fields in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owned {
    Table(TableId),
    Done,
    Object(u64, Bytes),
    Version(u64),
    Incremented(u64, [u8; 8]),
    Versions(Vec<Result<u64, Error>>),
    Objects(Objects),
    IncrementedAll(Vec<Result<(u64, [u8; 8]), Error>>),
    Enumerated {
        tablet_first_hash: u64,
        objects: Vec<u8>,
        iterator: Vec<u8>,
    },
    Message(Vec<u8>),
    Control(u32, u32, Vec<u8>),
    Controlled(ServerId, Vec<u8>),
    Server(ServerId),
    Took(Option<Duration>),
    Lease(Lease),
}

impl From<Outcome<'_>> for Owned {
    fn from(outcome: Outcome<'_>) -> Owned {
        match outcome {
            Outcome::Table(table) => Owned::Table(table),
            Outcome::Done => Owned::Done,
            Outcome::Object { version, value } => {
                Owned::Object(version, Bytes::copy_from_slice(value))
            }
            Outcome::Version(version) => Owned::Version(version),
            Outcome::Incremented { version, new_value } => Owned::Incremented(version, new_value),
            Outcome::Versions(versions) => Owned::Versions(versions),
            Outcome::Objects(objects) => Owned::Objects(objects),
            Outcome::IncrementedAll(all) => Owned::IncrementedAll(all),
            Outcome::Enumerated {
                tablet_first_hash,
                objects,
                iterator,
            } => Owned::Enumerated {
                tablet_first_hash,
                objects: objects.to_vec(),
                iterator: iterator.to_vec(),
            },
            Outcome::Message(message) => Owned::Message(message.to_vec()),
            Outcome::Control {
                server_count,
                response_count,
                responses,
            } => Owned::Control(server_count, response_count, responses.to_vec()),
            Outcome::Controlled { server_id, output } => {
                Owned::Controlled(server_id, output.to_vec())
            }
            Outcome::Server(id) => Owned::Server(id),
            Outcome::Took(took) => Owned::Took(took),
            Outcome::Lease(lease) => Owned::Lease(lease),
        }
    }
}
