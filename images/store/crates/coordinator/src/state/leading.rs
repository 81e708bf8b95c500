//! Which of a store's leaders this coordinator is, and whether it may lead at all.

use wire::member::Position;

use crate::records::{Meta, Rebuilt};
use crate::state::objects::{Leadership, covers, described, remember};

/// Where this coordinator stands among all that the store has had.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// What it tells others. `None`: nobody has said yet.
    position: Option<Position>,
    /// What it came of, as far as it is noted with the state; of a state in objects the root knows instead.
    past: Vec<Leadership>,
    /// Term and nonce are noted with the state.
    is_noted: bool,
    /// The store was made again from volumes in this term; 0: never.
    rebuilt_term: u64,
    /// When it was last, and from what.
    rebuilt: Option<Rebuilt>,
    /// Why it must not lead, for people.
    refusal: Option<String>,
}

impl Leading {
    /// As it was noted.
    pub fn noted(meta: &Meta) -> Leading {
        // The next leader says that it goes on, and with which sequence number.
        let position = Position {
            term: meta.term,
            nonce: meta.nonce,
            sequence: 0,
        };
        Leading {
            position: Some(position).filter(|position| position.term > 0),
            past: meta.past.clone(),
            is_noted: meta.term > 0,
            rebuilt_term: meta.rebuilt_term,
            rebuilt: meta.rebuilt.clone(),
            refusal: None,
        }
    }

    /// Begins the next term, or the first: see [`crate::Coordinator::begin_term`].
    pub fn begin_term(&mut self, nonce: u64, last_sequence: u64) {
        let former = self.position.take();
        if let Some(former) = former {
            let former = Position {
                sequence: last_sequence,
                ..former
            };
            remember(&mut self.past, former);
        }
        self.position = Some(Position {
            term: former.map_or(1, |former| former.term + 1),
            nonce,
            sequence: last_sequence,
        });
        self.is_noted = true;
    }

    /// Goes on from the state at `from`, as the leader of a term that nobody has reached.
    pub fn begin_again(&mut self, from: Position, nonce: u64, jump: u64, notes_term: bool) {
        let is_known = |past: &Leadership| past.term == from.term;
        if !self.past.iter().any(is_known) {
            // Its leader may have gone on after it.
            let last = Position {
                sequence: from.sequence + jump - 1,
                ..from
            };
            remember(&mut self.past, last);
        }
        let term = from.term + jump;
        self.rebuilt_term = term;
        self.is_noted = notes_term;
        self.position = Some(Position {
            term,
            nonce,
            sequence: from.sequence + jump,
        });
    }

    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// What it came of, the newest last.
    pub fn past(&self) -> &[Leadership] {
        &self.past
    }

    /// Term of the last rebuild, 0 if there was none; when it was, and from what.
    pub fn rebuilt(&self) -> (u64, Option<&Rebuilt>) {
        (self.rebuilt_term, self.rebuilt.as_ref())
    }

    /// The store was rebuilt, of which this says more.
    pub fn note_rebuilt(&mut self, rebuilt: Rebuilt) {
        self.rebuilt = Some(rebuilt);
    }

    /// So many changes are noted by now.
    pub fn note_sequence(&mut self, sequence: u64) {
        if let Some(position) = &mut self.position {
            position.sequence = sequence;
        }
    }

    /// Somebody else keeps the books of leaderships, and says where this one stands.
    pub fn lead_at(&mut self, position: Position) {
        self.position = Some(position);
    }

    /// The same for a store that was just rebuilt: whatever was told in earlier terms is of before.
    pub fn lead_again_at(&mut self, position: Position) {
        self.rebuilt_term = position.term;
        self.position = Some(position);
    }

    /// Why it must not lead, for people.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// It must not lead, or not yet. Answers whether the reason is news.
    pub fn refuse(&mut self, why: String) -> bool {
        let is_news = self.refusal.as_ref() != Some(&why);
        self.refusal = Some(why);
        is_news
    }

    /// The position that is noted with the state.
    pub fn noted_position(&self) -> Option<Position> {
        self.position.filter(|_| self.is_noted)
    }

    /// Whether a position is of a leader before the store was made again: nothing follows from it.
    pub fn is_of_former_life(&self, position: &Position) -> bool {
        position.term < self.rebuilt_term
    }

    /// A shard was told of this position by whoever led then. Whether the state that is noted came of that one; if not, somebody has put the state back
    /// to an older one.
    ///
    /// # Errors
    /// The state is an older one: for people.
    pub fn may_have_been_at(&self, heard: &Position) -> Result<(), String> {
        let Some(own) = self.noted_position() else {
            return Ok(());
        };
        if self.is_of_former_life(heard) || covers(&own, &self.past, heard) {
            return Ok(());
        }
        Err(format!(
            "StateRolledBack: the state is of {}, which does not come of {}, of which a server was told: it was put back to an older one, or \
             another coordinator has the newer one. Nothing is served and nothing changed: put the newer state back and start again; or, if what \
             the store held is to be forgotten, stop all servers and begin with an empty state",
            described(&own),
            described(heard)
        ))
    }
}
