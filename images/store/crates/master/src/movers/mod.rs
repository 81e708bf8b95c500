//! Tablets that come from elsewhere or go there.

pub(crate) mod failed;
pub(crate) mod migration;
pub(crate) mod recovery;
pub(crate) mod settling;
