//! What a driver is told to do.

use base::ids::ReplyTo;
use wire::member::ToShard;

use crate::reports::CoordinatorEvent;

/// What leaves an [`super::Outbox`]. `A` is the driver's own, see [`super::Outbox::defer`]; `S` concerns the state, and depends on where it is kept.
#[derive(Debug)]
pub enum Effect<A, S> {
    /// See [`crate::CoordinatorEffects::reply`].
    Reply(ReplyTo, Vec<u8>),
    /// See [`crate::CoordinatorEffects::send_member`].
    SendMember(u64, ToShard),
    /// See [`crate::CoordinatorEffects::close_member`]. Nothing that comes on the connection counts any more, also what came before this.
    CloseMember(u64),
    /// What was deferred: what it may show is noted.
    Deferred(A),
    /// See [`crate::CoordinatorEffects::report`].
    Report(CoordinatorEvent),
    /// See [`crate::CoordinatorEffects::end_process`].
    EndProcess,
    /// About the state.
    State(S),
}
