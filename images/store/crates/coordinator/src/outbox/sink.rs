//! What takes the words of a coordinator.

use std::collections::{BTreeSet, VecDeque};

use base::ids::ReplyTo;
use wire::member::ToShard;

use super::effect::Effect;
use super::held::{Held, needs_no_commit};
use crate::reports::CoordinatorEvent;

/// Puts the coordinator's words where they wait, or where they leave at once.
pub struct Sink<'a, A, S> {
    pub(super) held: &'a mut Held<A, S>,
    pub(super) ready: &'a mut VecDeque<Effect<A, S>>,
    pub(super) closing: &'a mut BTreeSet<u64>,
    /// Nothing is noted any more, so that nothing waits.
    pub(super) is_over: bool,
    /// The cluster time that pings tell is noted.
    pub(super) passes_pings: bool,
    /// Replies show nothing that is noted.
    pub(super) passes_replies: bool,
}

impl<A, S> Sink<'_, A, S> {
    pub(super) fn put(&mut self, effect: Effect<A, S>) {
        match self.is_over {
            true => self.ready.push_back(effect),
            false => self.held.push(effect),
        }
    }
}

impl<A, S> crate::CoordinatorEffects for Sink<'_, A, S> {
    fn reply(&mut self, to: ReplyTo, payload: &[u8]) {
        let reply = Effect::Reply(to, payload.to_vec());
        match self.passes_replies {
            true => self.ready.push_back(reply),
            false => self.put(reply),
        }
    }

    fn send_member(&mut self, connection: u64, message: ToShard) {
        let effect = Effect::SendMember(connection, message);
        match &effect {
            Effect::SendMember(_, message) if self.passes_pings && needs_no_commit(message) => {
                self.ready.push_back(effect);
            }
            _ => self.put(effect),
        }
    }

    fn close_member(&mut self, connection: u64) {
        self.closing.insert(connection);
        self.put(Effect::CloseMember(connection));
    }

    fn report(&mut self, event: CoordinatorEvent) {
        self.ready.push_back(Effect::Report(event));
    }

    fn end_process(&mut self) {
        self.ready.push_back(Effect::EndProcess);
    }
}
