//! Which of a store's leaders this coordinator is, and whether it may lead at all.

use wire::member::{Position, ToShard};

use crate::state::objects::{Leadership, covers, described, remember};
use crate::state::records::Rebuilt;
use crate::{Coordinator, Output, level};

/// Where this coordinator stands among all that the store has had.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// What it tells others. `None`: nobody has said yet.
    pub position: Option<Position>,
    /// What it came of, as far as it is noted with the state; of a state in objects the root knows instead.
    pub past: Vec<Leadership>,
    /// Term and nonce are noted with the state.
    pub is_noted: bool,
    /// The store was made again from volumes in this term; 0: never.
    pub rebuilt_term: u64,
    /// When it was last, and from what.
    pub rebuilt: Option<Rebuilt>,
    /// Why it must not lead, for people.
    pub refusal: Option<String>,
}

impl Coordinator {
    /// This process goes on with the state, or begins it, as the store's next leader; `nonce` is random, `last_sequence` counts what was noted
    /// before it. For a state that is kept in one place and used by one process at a time; the term is part of what is noted next.
    pub fn begin_term(&mut self, nonce: u64, last_sequence: u64) {
        let leading = &mut self.leading;
        let former = leading.position.take();
        if self.noted_meta.is_some() {
            self.leave_ids_out(nonce);
        }
        let leading = &mut self.leading;
        if let Some(former) = former {
            let former = Position {
                sequence: last_sequence,
                ..former
            };
            remember(&mut leading.past, former);
        }
        leading.position = Some(Position {
            term: former.map_or(1, |former| former.term + 1),
            nonce,
            sequence: last_sequence,
        });
        leading.is_noted = true;
    }

    /// So many changes are noted by now.
    pub fn noted(&mut self, sequence: u64) {
        if let Some(position) = &mut self.leading.position {
            position.sequence = sequence;
        }
    }

    /// Somebody else keeps the books of leaderships ([`crate::state::objects`]); this is the newest root.
    pub fn lead_at(&mut self, position: Position) {
        self.leading.position = Some(position);
    }

    /// The same for a store that was just made again: whatever was told in earlier terms is of before.
    pub(crate) fn lead_again_at(&mut self, position: Position) {
        self.leading.rebuilt_term = position.term;
        self.lead_at(position);
    }

    /// What it came of, the newest last.
    pub(crate) fn past(&self) -> &[Leadership] {
        &self.leading.past
    }

    /// What others are told of.
    pub fn position(&self) -> Option<Position> {
        self.leading.position
    }

    /// To be called with each message to a member when it leaves, which is when all that it may come of is noted: the member is told of that.
    pub fn sign(&self, message: &mut ToShard) {
        if message.wants_position() {
            message.position = self.position();
        }
    }

    /// Why this coordinator does not lead; then it serves nobody, and notes nothing.
    pub fn refusal(&self) -> Option<&str> {
        self.leading.refusal.as_deref()
    }

    /// From now on it serves nobody: all sessions end, and whoever asks is told why.
    pub fn refuse_to_lead(&mut self, why: String, out: &mut impl Output) {
        if self.leading.refusal.is_some() {
            return;
        }
        out.log_message(level::ERROR, &why);
        for (_, _, link) in self.store.members.linked() {
            out.close_member(link.connection);
        }
        self.store.members.disconnect_all();
        self.keeping.queue.clear();
        for connection in core::mem::take(&mut self.newcomers).into_keys() {
            out.close_member(connection);
        }
        self.leading.refusal = Some(why);
    }

    /// A shard was told of this position by whoever led then. Whether what is noted here came of it; if not, it was put back to an older state, and
    /// this coordinator must not lead.
    pub(crate) fn may_have_been_at(&mut self, heard: Position, out: &mut impl Output) -> bool {
        let leading = &self.leading;
        let Some(own) = leading.position.filter(|_| leading.is_noted) else {
            return true;
        };
        if self.is_of_former_life(&heard) {
            return true;
        }
        let leading = &self.leading;
        if covers(&own, &leading.past, &heard) {
            return true;
        }
        let text = format!(
            "StateRolledBack: the state is of {}, which does not come of {}, of which a server was told: it was put back to an older one, or \
             another coordinator has the newer one. Nothing is served and nothing changed: put the newer state back and start again; or, if what \
             the store held is to be forgotten, stop all servers and begin with an empty state",
            described(&own),
            described(&heard)
        );
        self.refuse_to_lead(text, out);
        false
    }
}
