//! Those that look at a running cluster, and know what must hold.

pub mod boundaries;
pub mod coordinators;
pub mod copies;
pub mod rooms;
