//! Which leader of the store this coordinator is.

use wire::member::{Position, ToShard};

use crate::effects::CoordinatorEffects;
use crate::reports::StateEvent;
use crate::root::Coordinator;
use crate::state::objects::Leadership;

impl Coordinator {
    /// This process goes on with the state, or begins it, as the store's next leader; `nonce` is random, `last_sequence` counts what was noted
    /// before it. For a state that is kept in one place and used by one process at a time; the term is part of what is noted next.
    pub fn begin_term(&mut self, nonce: u64, last_sequence: u64) {
        if self.noted_meta.is_some() {
            self.leave_ids_out(nonce);
        }
        self.leading.begin_term(nonce, last_sequence);
    }

    /// So many changes are noted by now.
    pub fn noted(&mut self, sequence: u64) {
        self.leading.note_sequence(sequence);
    }

    /// Somebody else keeps the books of leaderships ([`crate::state::objects`]); this is the newest root.
    pub fn lead_at(&mut self, position: Position) {
        self.leading.lead_at(position);
    }

    /// The same for a store that was just made again: whatever was told in earlier terms is of before.
    pub(crate) fn lead_again_at(&mut self, position: Position) {
        self.leading.lead_again_at(position);
    }

    /// What it came of, the newest last.
    pub(crate) fn past(&self) -> &[Leadership] {
        self.leading.past()
    }

    /// What others are told of.
    pub fn position(&self) -> Option<Position> {
        self.leading.position()
    }

    /// To be called with each message to a member when it leaves, which is when all that it may come of is noted: the member is told of that.
    pub fn sign(&self, message: &mut ToShard) {
        if message.wants_position() {
            message.position = self.position();
        }
    }

    /// Whether a position is of a leader before the store was made again: nothing follows from it.
    pub(crate) fn is_of_former_life(&self, position: &Position) -> bool {
        self.leading.is_of_former_life(position)
    }

    /// Why this coordinator does not lead; then it serves nobody, and notes nothing.
    pub fn refusal(&self) -> Option<&str> {
        self.leading.refusal()
    }

    /// From now on it serves nobody: all sessions end, and whoever asks is told why.
    pub fn refuse_to_lead(&mut self, why: String, out: &mut impl CoordinatorEffects) {
        if self.leading.refusal().is_some() {
            return;
        }
        let event = StateEvent::DoesNotLead { why: why.clone() };
        out.report(event.into());
        for (_, _, link) in self.store.members.linked() {
            out.close_member(link.connection);
        }
        self.store.members.disconnect_all();
        self.keeping.forget_all();
        for connection in self.newcomers.take_all() {
            out.close_member(connection);
        }
        self.leading.refuse(why);
    }
}
