//! Tables, their tablets and which server owns each, and leases of clients.

pub(crate) mod leases;
pub(crate) mod tables;
