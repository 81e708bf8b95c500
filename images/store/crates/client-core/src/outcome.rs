//! What operations give.

use core::time::Duration;

use base::ids::{ServerId, TableId};
use wire::rpc::Lease;

use crate::error::Error;
use crate::results::Objects;

/// What a successful operation gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Of `create_table` and `table_id`.
    Table(TableId),
    /// Of `drop_table`.
    Done,
    /// Of `read`. Of `read_keys_and_value`, with the whole object as it travels in place of the value.
    Object { version: u64, value: &'a [u8] },
    /// Of `write`: the version written. Of `remove`: the version removed, 0 if there was none.
    Version(u64),
    /// Of `increment`: version and value as they are now.
    Incremented { version: u64, new_value: [u8; 8] },
    /// Of `multi_write` and `multi_remove`: for each object, in order, its version as of `write` or `remove`, or why there is none.
    Versions(Vec<Result<u64, Error>>),
    /// Of `multi_read`: for each object, in order, version and whole object, or why it was not read.
    Objects(Objects),
    /// Of `multi_increment`: for each object, in order, version and value as they are now, or why it was not changed.
    IncrementedAll(Vec<Result<(u64, [u8; 8]), Error>>),
    /// Of `enumerate`: some objects, and where and with what to go on.
    Enumerated {
        tablet_first_hash: u64,
        objects: &'a [u8],
        iterator: &'a [u8],
    },
    /// A message of its own, as the protocol has it; of `echo`, the bytes that came back.
    Message(&'a [u8]),
    /// Of `server_control`.
    Controlled {
        server_id: ServerId,
        output: &'a [u8],
    },
    /// Of `server_id`.
    Server(ServerId),
    /// Of `proxy_ping`: how long it took; `None` if there was no answer in time.
    Took(Option<Duration>),
    /// Of `control_all`: complete SERVER_CONTROL responses, back to back.
    Control {
        server_count: u32,
        response_count: u32,
        responses: &'a [u8],
    },
    /// Of `acquire_lease`.
    Lease(Lease),
}
