//! Wire formats: client RPCs, member RPCs and log entries; encode and decode, nothing else.

pub mod ids;
pub mod map;
pub mod member;
pub mod time;
