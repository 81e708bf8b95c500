//! What a coordinator has others do.

use base::ids::ReplyTo;
use wire::member::{Refused, RefusedReason, ToShard, coordinator};
use wire::rpc::RetryResponse;

use crate::reports::CoordinatorEvent;

/// What a driver does for the coordinator.
pub trait CoordinatorEffects {
    /// Sends a response to a client. Does nothing if the connection is gone.
    fn reply(&mut self, to: ReplyTo, payload: &[u8]);
    /// Sends a message to the shard on this member connection.
    fn send_member(&mut self, connection: u64, message: ToShard);
    /// Closes a member connection after what was sent on it before. Not reported back by `member_closed`.
    fn close_member(&mut self, connection: u64);
    /// Something has happened that belongs in the log.
    fn report(&mut self, event: CoordinatorEvent);
    /// Ends the process at once, as a crash would. A driver that has no process to end leaves it out.
    fn end_process(&mut self) {}
}

/// Says something to the shard on a member connection.
pub(crate) fn send(connection: u64, kind: coordinator::Kind, out: &mut impl CoordinatorEffects) {
    out.send_member(connection, ToShard::from(kind));
}

/// Says why, and ends the session.
pub(crate) fn refuse(
    connection: u64,
    reason: RefusedReason,
    text: String,
    out: &mut impl CoordinatorEffects,
) {
    let refused = Refused {
        reason: reason.into(),
        text,
    };
    send(connection, coordinator::Kind::Refused(refused), out);
    out.close_member(connection);
}

/// A client is told why nobody leads here, and comes again: perhaps somebody does by then.
pub(crate) fn retry_response(why: &str) -> Vec<u8> {
    const MAX_MESSAGE_BYTES: usize = 500;
    let mut bytes = Vec::new();
    let retry = RetryResponse {
        min_delay_us: 1_000_000,
        max_delay_us: 2_000_000,
        message: &why.as_bytes()[..why.len().min(MAX_MESSAGE_BYTES)],
    };
    retry.encode(&mut bytes);
    bytes
}
