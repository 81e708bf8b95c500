//! Wire formats: client RPCs, member RPCs and log entries; encode and decode, nothing else.

#![forbid(unsafe_code)]

pub mod bugs;
pub mod cost;
pub mod entry;
pub mod format;
pub mod hash;
pub mod ids;
pub mod keys;
mod layout;
pub mod level;
pub mod locator;
pub mod map;
pub mod member;
pub mod opcode;
pub mod peer;
pub mod proto;
pub mod rpc;
pub mod status;
pub mod time;
