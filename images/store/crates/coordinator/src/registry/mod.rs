//! Who belongs to the store: members and their servers, those that ask to be let in, and the ports that servers tell of.

pub(crate) mod members;
pub(crate) mod newcomers;
pub mod ports;
