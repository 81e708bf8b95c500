//! Tablets that come from elsewhere or go there.

pub(crate) mod migration;
pub(crate) mod orders;
pub(crate) mod recovery;
pub(crate) mod settling;
