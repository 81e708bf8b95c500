//! Wire formats: client RPCs, member RPCs and log entries; encode and decode, nothing else.

#![forbid(unsafe_code)]

pub mod cost;
pub mod entry;
pub mod format;
pub mod hash;
pub mod keys;
pub mod locator;
pub mod member;
pub mod opcode;
pub mod peer;
pub mod proto;
pub mod rpc;
pub mod status;
