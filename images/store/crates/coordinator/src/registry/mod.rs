//! Who belongs to the store: members and their servers, which of these live, and what they say of themselves.

pub(crate) mod backups;
pub(crate) mod detection;
pub(crate) mod members;
pub(crate) mod newcomers;
pub mod ports;
