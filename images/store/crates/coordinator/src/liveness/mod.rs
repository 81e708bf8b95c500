//! Which servers live, and which backups masters are told of.

pub(crate) mod backups;
pub(crate) mod detection;
