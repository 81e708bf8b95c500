//! Having replicas follow the log: they are told of each change, digests name the segments that make up the log, and replicas that are needed no more
//! can go. docs/replication.md, "Cleaning and frames".

use base::bugs::{Bug, is_planted};
use wire::entry::Digest;
use wire::peer::{MAX_APPEND_BYTES, Role};

use crate::appending::Admission;
use crate::config::Durability;
use crate::ends::Closing;
use crate::ledger::{Change, Cleaned};
use crate::log::Log;
use crate::position::LogPosition;
use crate::segment::State;

impl Log {
    pub(crate) fn is_replicated(&self) -> bool {
        self.config.durability == Durability::External
    }

    /// The next thing that replicas must follow. Nothing comes from a log with [`Durability::Unreplicated`].
    pub fn take_change(&mut self) -> Option<Change> {
        self.ledger.changes.pop_front()
    }

    /// Id of the segment that was opened last; 0 before the first.
    pub fn newest_segment_id(&self) -> u64 {
        self.next_segment_id - 1
    }

    /// The bytes of a segment that is in memory.
    pub fn segment(&self, segment_id: u64) -> Option<&[u8]> {
        let number = *self.by_id.get(&segment_id)?;
        Some(self.entries_from(number, 0))
    }

    /// How far a head segment can be sent from `from` on in at most `max_bytes`: appends are never cut, and what is returned is `from` if
    /// the next is longer than that.
    pub fn end_of_appends(&self, segment_id: u64, from: u32, max_bytes: u32) -> u32 {
        let Some(&number) = self.by_id.get(&segment_id) else {
            return from;
        };
        let segment = &self.segments[number as usize];
        if segment.used_bytes - from <= max_bytes {
            return segment.used_bytes;
        }
        let start = segment.position_at(0).0;
        let last = LogPosition(start + u64::from(from + max_bytes));
        let count = self.append_ends.partition_point(|&end| end <= last);
        let end = count.checked_sub(1).map_or(0, |at| self.append_ends[at].0);
        // Data that is durable already is not in the queue, and may be cut anywhere.
        let end = end.max(self.durable.min(last).0);
        from.max(end.saturating_sub(start) as u32)
    }

    /// Log position behind the first `bytes` of a head segment that is in memory.
    pub fn position_in(&self, segment_id: u64, bytes: u32) -> Option<LogPosition> {
        let segment = &self.segments[*self.by_id.get(&segment_id)? as usize];
        segment.start?;
        Some(segment.position_at(bytes))
    }

    /// All replicas of a closed segment are closed and durable, so that the cleaner may take it, and digests name it.
    pub fn settle(&mut self, segment_id: u64) {
        if let Some(&number) = self.by_id.get(&segment_id) {
            let segment = &mut self.segments[number as usize];
            assert_ne!(segment.state, State::Head, "an open segment is not settled");
            segment.settled = true;
        }
        self.look_for_ends();
        self.ledger.unsettled_sides.remove(&segment_id);
        self.close_awaited_side();
        self.digest_if_due();
    }

    /// This segment, which is not in memory any more, has lost a replica that cannot be made again: the sooner nobody needs it the better. Once a digest
    /// leaves it out there is nothing more to do for it.
    pub fn leave_out_soon(&mut self, segment_id: u64) {
        let mut cleaned = self.ledger.cleaned.iter_mut();
        if let Some(cleaned) = cleaned.find(|cleaned| cleaned.segment_id == segment_id) {
            cleaned.hurries = true;
            self.close_awaited_side();
            self.digest_if_due();
        }
    }

    // ---- what other parts of the log tell ----

    pub(crate) fn note_opened(&mut self, segment_id: u64, state: State) {
        if !self.is_replicated() {
            return;
        }
        let role = if state == State::Head {
            Role::Head
        } else {
            self.ledger.unsettled_sides.insert(segment_id);
            Role::Side
        };
        let opened = Change::Opened { segment_id, role };
        self.ledger.changes.push_back(opened);
    }

    pub(crate) fn note_discarded(&mut self, segment_id: u64, bytes: Vec<u8>) {
        let discarded = Change::Discarded { segment_id, bytes };
        self.ledger.changes.push_back(discarded);
    }

    pub(crate) fn note_closed(&mut self, segment_id: u64) {
        if self.is_replicated() {
            let closed = Change::Closed { segment_id };
            self.ledger.changes.push_back(closed);
        }
    }

    /// The entries of a segment that are needed lie elsewhere, and its memory goes. The last of them went to the side segment
    /// `last_side_id`; 0 if there were none.
    pub(crate) fn note_cleaned(&mut self, segment_id: u64, last_side_id: u64) {
        if self.is_replicated() {
            self.ledger.cleaned.push_back(Cleaned {
                segment_id,
                last_side_id,
                hurries: false,
            });
            if is_planted(Bug::FreeReplicaEarly) {
                let freed = Change::Freed { segment_id };
                self.ledger.changes.push_back(freed);
            }
        }
    }

    /// Closes an open side segment if many cleaned segments wait for it, or one that hurries: it may never fill.
    pub(crate) fn close_awaited_side(&mut self) {
        let first = self.ledger.unsettled_sides.first().copied();
        let ready = self.ledger.ready_count();
        let waiting = self.ledger.cleaned.len() - ready;
        let mut not_ready = self.ledger.cleaned.iter().skip(ready);
        let enough = if not_ready.any(|cleaned| cleaned.hurries) {
            1
        } else {
            self.config.max_held() as usize / 2
        };
        if waiting < enough {
            return;
        }
        let segments = &self.segments;
        let is_first = |number: &mut u32| Some(segments[*number as usize].id) == first;
        let open = self.survivor.take_if(is_first);
        if let Some(number) = open.or_else(|| self.copies.open.take_if(is_first)) {
            self.close(number, Closing::Early);
        }
    }

    /// Whether so many cleaned segments wait that cleaning must pause.
    pub(crate) fn holds_too_many(&self) -> bool {
        self.ledger.held_count() >= self.config.max_held() as usize
    }

    /// Data that is durable now may free replicas.
    pub(crate) fn free_left_out(&mut self) {
        while let Some(&(position, segment_id)) = self.ledger.left_out.front()
            && position <= self.durable
        {
            self.ledger.left_out.pop_front();
            self.ledger.changes.push_back(Change::Freed { segment_id });
        }
    }

    /// Appends a digest where many cleaned segments wait for one. The head keeps room for it.
    pub(crate) fn digest_if_due(&mut self) {
        let ready = self.ledger.ready_count();
        let mut leaving = self.ledger.cleaned.iter().take(ready);
        let due = if leaving.any(|cleaned| cleaned.hurries) {
            1
        } else {
            2.max(self.config.segment_count as usize / 32)
        };
        if !self.is_replicated() || ready < due {
            return;
        }
        let bytes = Digest::entry_bytes_of(self.digest_ids().len());
        match self.head {
            Some(head) if self.room_in(head) >= bytes => match self.is_head_bare() {
                true => self.digest_in_bare_head(head, bytes),
                false => {
                    self.mark_append_end();
                    self.append_digest();
                }
            },
            // A new head begins with a digest.
            _ => {
                let _ = self.prepare(0, 0, Admission::Remove);
            }
        }
    }

    /// The head stays bare: it can be replaced though no memory is free, since nothing but digests is given up with it. The replicas of a head that
    /// was given up are completed in one request, whose size bounds the digests here; a new head begins with the next one.
    fn digest_in_bare_head(&mut self, head: u32, bytes: usize) {
        let used_bytes = self.segments[head as usize].used_bytes;
        let most = self.config.max_append_bytes().min(MAX_APPEND_BYTES);
        if used_bytes as usize + bytes > most {
            self.discard_head();
            self.roll_over(Closing::Early);
            return;
        }
        self.mark_append_end();
        self.append_digest();
        if !is_planted(Bug::FillBareHead) {
            self.bare_bytes = self.segments[head as usize].used_bytes;
        }
    }

    pub(crate) fn append_digest(&mut self) {
        let ids = self.digest_ids();
        self.write_to_head(&Digest::new(&ids));
        let position = self.head_position();
        for _ in 0..self.ledger.ready_count() {
            if let Some(cleaned) = self.ledger.cleaned.pop_front() {
                self.ledger
                    .left_out
                    .push_back((position, cleaned.segment_id));
            }
        }
    }

    /// The segments that make up the log, but for the head: closed heads, settled side segments, and what was cleaned into
    /// side segments that are not settled yet.
    fn digest_ids(&self) -> Vec<[u8; 8]> {
        let in_memory = self.segments.iter().filter(|segment| match segment.state {
            State::Free | State::Head | State::Survivor => false,
            State::Closed | State::Victim => segment.start.is_some() || segment.settled,
        });
        let waiting = self.ledger.cleaned.iter().skip(self.ledger.ready_count());
        let mut ids: Vec<u64> = in_memory.map(|segment| segment.id).collect();
        ids.extend(waiting.map(|cleaned| cleaned.segment_id));
        ids.sort_unstable();
        ids.into_iter().map(u64::to_le_bytes).collect()
    }
}
