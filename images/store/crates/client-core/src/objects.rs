//! Objects of multi-ops, as they are asked for.

use base::ids::TableId;
use wire::rpc::{Increment, RejectRules};

/// One object of a multi-write.
#[derive(Clone, Copy, Debug)]
pub struct WriteObject<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub rules: RejectRules,
}

/// One object of a multi-read or a multi-remove.
#[derive(Clone, Copy, Debug)]
pub struct KeyObject<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub rules: RejectRules,
}

/// One object of a multi-increment.
#[derive(Clone, Copy, Debug)]
pub struct IncrementObject<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub by: Increment,
    pub rules: RejectRules,
}
