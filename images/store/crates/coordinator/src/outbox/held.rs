//! What waits until what it may depend on is noted.

use std::collections::VecDeque;

use base::bugs::{Bug, is_planted};
use base::ids::ReplyTo;
use wire::member::{ToShard, coordinator};

use super::effect::Effect;

/// Memory that an effect takes beside its bytes.
const OVERHEAD_BYTES: usize = 64;

/// Outputs in the order in which they were put out, each with the commit that it waits for.
#[derive(Debug)]
pub struct Held<A, S> {
    waiting: VecDeque<(u64, Effect<A, S>)>,
    /// Of this round: which commit they wait for is not known yet.
    round: Vec<Effect<A, S>>,
    bytes: usize,
}

impl<A, S> Default for Held<A, S> {
    fn default() -> Held<A, S> {
        Held {
            waiting: VecDeque::new(),
            round: Vec::new(),
            bytes: 0,
        }
    }
}

fn bytes_of<A, S>(effect: &Effect<A, S>) -> usize {
    let bytes = match effect {
        Effect::Reply(_, payload) => payload.len(),
        Effect::SendMember(_, message) => prost::Message::encoded_len(message),
        _ => 0,
    };
    bytes + OVERHEAD_BYTES
}

/// The connection of a client or member that an effect is for.
fn connection_of<A, S>(effect: &Effect<A, S>) -> Option<u64> {
    match effect {
        Effect::Reply(ReplyTo { connection, .. }, _)
        | Effect::SendMember(connection, _)
        | Effect::CloseMember(connection) => Some(*connection),
        _ => None,
    }
}

/// Pings say nothing that anybody could take back: that this process is there, and a time that is noted.
pub fn needs_no_commit(message: &ToShard) -> bool {
    match message.kind {
        Some(coordinator::Kind::Ping(_)) => true,
        Some(coordinator::Kind::Welcome(_)) => is_planted(Bug::ObeyOldTerm),
        _ => false,
    }
}

impl<A, S> Held<A, S> {
    pub fn push(&mut self, effect: Effect<A, S>) {
        self.bytes += bytes_of(&effect);
        self.round.push(effect);
    }

    /// What was put out since the last call waits for this commit; numbers do not fall.
    pub fn end_round(&mut self, commit: u64) {
        let round = self.round.drain(..);
        self.waiting.extend(round.map(|effect| (commit, effect)));
    }

    /// What waits for this commit or an earlier one, in order.
    pub fn release(&mut self, committed: u64) -> impl Iterator<Item = Effect<A, S>> {
        let count = self
            .waiting
            .partition_point(|(commit, _)| *commit <= committed);
        let released = self.waiting.drain(..count);
        let bytes = &mut self.bytes;
        released.map(|(_, effect)| {
            *bytes -= bytes_of(&effect);
            effect
        })
    }

    /// A connection is gone: nothing needs to leave on it any more.
    pub fn forget(&mut self, connection: u64) {
        let is_for_others = |effect: &Effect<A, S>| connection_of(effect) != Some(connection);
        self.waiting.retain(|(_, effect)| is_for_others(effect));
        self.round.retain(is_for_others);
        let all = self.waiting.iter().map(|(_, effect)| effect);
        self.bytes = all.chain(&self.round).map(bytes_of).sum();
    }

    /// Nothing of it will ever leave.
    pub fn clear(&mut self) {
        *self = Held::default();
    }

    /// Whether something of earlier rounds waits.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn count(&self) -> usize {
        self.waiting.len() + self.round.len()
    }
}
