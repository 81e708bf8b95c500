//! Which roots come of which.

use super::format::{Root, Run};
use crate::position::{Position, covers, remember};
use crate::state::batch::Batch;

/// What a root says to somebody who was at `known` before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is of the same leadership, and not older.
    Same,
    /// A later leadership went on from there.
    Later,
    /// It does not go back to `known`: that was lost.
    Lost,
}

impl Root {
    /// Whether the root at `position` was this one, or one that this one came of.
    pub fn covers(&self, position: &Position) -> bool {
        covers(&self.position, &self.past, position)
    }

    pub(super) fn standing(&self, known: &Position) -> Standing {
        match (self.covers(known), self.position.is_of_same_leader(known)) {
            (true, true) => Standing::Same,
            (true, false) => Standing::Later,
            (false, _) => Standing::Lost,
        }
    }

    /// The root that follows this one in the same leadership.
    pub(super) fn next(&self, runs: Vec<Run>, tail: Batch) -> Root {
        Root {
            cluster_id: self.cluster_id,
            position: Position {
                sequence: self.position.sequence + 1,
                ..self.position
            },
            past: self.past.clone(),
            leader: self.leader.clone(),
            runs,
            tail,
        }
    }

    /// The root with which `leader` takes over from whoever wrote this one.
    pub(super) fn succeed(&self, nonce: u64, leader: &str) -> Root {
        let mut root = self.clone();
        remember(&mut root.past, self.position);
        root.position = Position {
            term: self.position.term + 1,
            nonce,
            sequence: self.position.sequence + 1,
        };
        root.leader = leader.to_owned();
        root
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::MAX_PAST;

    fn at(term: u64, nonce: u64, sequence: u64) -> Position {
        Position {
            term,
            nonce,
            sequence,
        }
    }

    fn first() -> Root {
        Root {
            cluster_id: 1,
            position: at(1, 11, 1),
            past: Vec::new(),
            leader: "a".to_owned(),
            runs: Vec::new(),
            tail: Default::default(),
        }
    }

    #[test]
    fn a_root_covers_what_it_came_of_and_nothing_else() {
        let mut root = first();
        root.position.sequence = 5;
        let mut root = root.succeed(22, "b");
        root.position.sequence = 9;
        let root = root.succeed(33, "c");
        assert_eq!(root.position, at(3, 33, 10));
        for known in [at(1, 11, 1), at(1, 11, 5), at(2, 22, 6), at(2, 22, 9)] {
            assert_eq!(root.standing(&known), Standing::Later, "{known:?}");
        }
        assert_eq!(root.standing(&at(3, 33, 10)), Standing::Same);
        for lost in [
            at(1, 11, 6),
            at(1, 99, 3),
            at(2, 22, 10),
            at(2, 99, 7),
            at(3, 33, 11),
            at(3, 99, 10),
            at(4, 44, 11),
            at(4, 33, 2),
        ] {
            assert_eq!(root.standing(&lost), Standing::Lost, "{lost:?}");
        }
    }

    #[test]
    fn of_leaderships_that_are_forgotten_the_number_of_roots_counts() {
        let mut root = first();
        for nonce in 100..200 {
            root = root.succeed(nonce, "x");
        }
        assert_eq!(root.past.len(), MAX_PAST);
        let oldest = root.past[0];
        assert!(root.covers(&at(oldest.term, oldest.nonce, oldest.last_sequence)));
        assert!(root.covers(&at(oldest.term - 1, 5, oldest.last_sequence - 1)));
        assert!(!root.covers(&at(oldest.term - 1, 5, oldest.last_sequence)));
    }
}
