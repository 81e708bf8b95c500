//! What there is, and whose it is: tables, their tablets, and leases of clients.

pub(crate) mod leases;
pub(crate) mod tables;
