//! One operation that is under way.

use base::ids::TableId;

use crate::multi::Multi;

/// Where an operation goes.
#[derive(Debug)]
pub enum Kind {
    /// To the coordinator.
    Coordinator(ResponseKind),
    /// To the owner of a key, or of a hash.
    OnKey(ResponseKind),
    /// As [`Kind::OnKey`], with lease and RPC id, so that it takes effect once.
    Once(ResponseKind),
    /// To the server at this locator, once.
    At(String, ResponseKind),
    /// To the owners of many keys.
    Multi(Multi),
    Lease,
}

/// How the answer is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    TableId,
    Done,
    Object,
    Version,
    Increment,
    Enumerate,
    Message,
    Echo,
    LeaseInfo,
    ControlAll,
    Control,
    ServerId,
    ProxyPing,
}

#[derive(Debug)]
pub struct Operation {
    pub kind: Kind,
    /// The request as it goes out each time; for writes and removes with the lease and the RPC id that it got first.
    pub request: Vec<u8>,
    pub table: TableId,
    pub key_hash: u64,
    /// 0 until it has one, and for operations that have none.
    pub rpc_id: u64,
    /// Of the lease that it was sent under; 0 as above.
    pub lease_id: u64,
    /// Of the table config that led to the server.
    pub config_generation: u64,
    /// Connections that failed in a row.
    pub failures: u32,
}
