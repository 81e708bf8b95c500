//! Requests of several steps: what of each must be remembered until its next step. There are never too many of them, and none waits for ever.

pub(crate) mod fill;
pub(crate) mod migrations;
pub(crate) mod proxies;
mod table;
