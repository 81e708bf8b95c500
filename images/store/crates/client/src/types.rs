//! What operations give.

use base::ids::ServerId;
use bytes::Bytes;

/// An object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Grows with every write of this key; never 0.
    pub version: u64,
    /// A long one lies where it was received: it was not copied.
    pub value: Bytes,
}

/// An object with all its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    pub version: u64,
    /// The primary one first; a secondary key that is missing is empty.
    pub keys: Vec<Vec<u8>>,
    /// Empty where only keys were asked for.
    pub value: Vec<u8>,
}

impl Keyed {
    /// The key by which the object is found.
    pub fn key(&self) -> &[u8] {
        self.keys.first().map_or(&[], Vec::as_slice)
    }
}

/// A value of 8 bytes after it was added to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Incremented<T> {
    pub version: u64,
    pub value: T,
}

/// A part of a table: a closed range of key hashes, and who owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tablet {
    pub start_key_hash: u64,
    pub end_key_hash: u64,
    pub server_id: Option<ServerId>,
    /// Empty while the server is gone.
    pub locator: String,
    /// False while it is being recovered.
    pub is_normal: bool,
}

/// A server of the store: one shard of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub id: ServerId,
    /// Bit n: offers service n (0 master, 1 backup, 3 admin).
    pub services: u32,
    pub locator: String,
    /// 0 up, 1 out of reach, 2 about to be removed.
    pub status: u32,
}

/// What a server answered to a control operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlOutput {
    pub server_id: ServerId,
    pub output: Vec<u8>,
}
