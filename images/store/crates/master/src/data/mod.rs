//! A shard's data: objects in the log, who owns which, and what clients were answered.
//!
//! Every operation on an object goes one way: [`Operation`] -> `admit` (may it begin?) -> `plan` (looks, changes nothing) -> `reserve` (takes room,
//! the only step that may refuse a plan) -> `apply` (cannot fail) -> [`Outcome`]. Requests become operations in `shard/codec.rs`. Here only
//! `response.rs` knows RAMCloud's words, because the log records answers in them.

mod admission;
mod apply;
mod entries;
pub(crate) mod gate;
mod keeper;
pub(crate) mod leases;
mod operation;
mod plan;
mod purge;
pub(crate) mod replay;
mod reserve;
mod response;
pub(crate) mod results;
mod store;
pub(crate) mod tablets;
pub(crate) mod walk;

pub(crate) use admission::{Access, Claim, NotAdmitted};
pub(crate) use entries::{HashedKey, object_view, place_of};
pub(crate) use operation::{Action, Operation, Outcome, Shown};
pub(crate) use store::{Found, Store};

#[cfg(test)]
mod tests;
