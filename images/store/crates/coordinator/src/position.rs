//! Where in a store's life something was said.

use prost::Message;
pub use wire::member::Position;

/// Leaderships before the present one that a root remembers.
pub const MAX_PAST: usize = 32;

/// A leadership that is over.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Leadership {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(fixed64, tag = "2")]
    pub nonce: u64,
    /// Of what it wrote last.
    #[prost(uint64, tag = "3")]
    pub last_sequence: u64,
}

/// Whether what is at `own`, and came of the leaderships of `past`, came of what was at `position`. Exact for the leaderships that are
/// remembered; of older ones only the sequence number is left to compare.
pub fn covers(own: &Position, past: &[Leadership], position: &Position) -> bool {
    if own.is_of_same_leader(position) {
        return position.sequence <= own.sequence;
    }
    if position.term >= own.term {
        return false;
    }
    match past.iter().find(|past| past.term == position.term) {
        Some(past) => past.nonce == position.nonce && position.sequence <= past.last_sequence,
        None => past.first().is_some_and(|oldest| {
            position.term < oldest.term && position.sequence < oldest.last_sequence
        }),
    }
}

/// One more leadership is over; the oldest are forgotten.
pub fn remember(past: &mut Vec<Leadership>, former: Position) {
    past.push(Leadership {
        term: former.term,
        nonce: former.nonce,
        last_sequence: former.sequence,
    });
    let forgotten = past.len().saturating_sub(MAX_PAST);
    past.drain(..forgotten);
}
