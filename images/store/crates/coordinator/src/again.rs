//! What is different when a store goes on from a copy of its state that may be older than its last.
//!
//! Whatever counts up goes far ahead of what may have been given out since, by a random part as well, so that two stores that are made from one copy do
//! not meet; docs/rebuild.md says for each record why that is enough.

use core::time::Duration;

use wire::member::Position;
use wire::time::Time;

use crate::checkpoint::Header;
use crate::state::objects::{Leadership, remember};
use crate::state::records::Key;
use crate::{Coordinator, Output};

/// Of generations, terms and the like.
const JUMP: u64 = 1000;
/// Of recoveries, leases and others of which there are many.
const LARGE_JUMP: u64 = 1 << 20;
/// Cluster time may have been told so far beyond what the copy says.
const TIME_JUMP: Duration = Duration::from_secs(600);
/// Leases that were prolonged since end no earlier.
const LEASE_JUMP: Duration = Duration::from_secs(60);

impl Coordinator {
    /// Goes on from a checkpoint, as the leader of a term that nobody has reached. All processes are dead.
    pub(crate) fn begin_again(
        &mut self,
        now: Time,
        header: &Header,
        nonce: u64,
        notes_term: bool,
        out: &mut impl Output,
    ) {
        let jump = JUMP + nonce % JUMP;
        let time_jump_ns = u64::try_from(TIME_JUMP.as_nanos()).unwrap_or(0);
        let lease_jump = LEASE_JUMP.min(self.config.time_ahead);
        let lease_jump_ns = u64::try_from(lease_jump.as_nanos()).unwrap_or(0);
        self.time_base_ns = self.time_base_ns.saturating_add(time_jump_ns);
        self.time_bound_ns = self.time_base_ns;
        self.leases
            .begin_again(LARGE_JUMP, time_jump_ns, lease_jump_ns);
        self.recoveries.last_id += LARGE_JUMP;
        self.tables.begin_again(jump as u32);
        let names: Vec<String> = self.members.iter().map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(death) = self.members.end_process(&name) {
                self.bury(now, death, out);
            }
        }
        // New objects of the next processes get versions above all that were ever given out, and so does what is written over others.
        let generation = self.members.begin_again(jump as u32);
        self.version_floor = self.version_bound.max(u64::from(generation) << 40);
        self.note_versions(self.version_floor);
        self.lead_again(header, nonce, jump, notes_term);
        self.noted_meta = None;
        let keys: Vec<Key> = self.records().map(|record| Key::of(&record)).collect();
        let keys = keys.into_iter().filter(|key| *key != Key::Meta);
        self.changed.extend(keys);
    }

    fn lead_again(&mut self, header: &Header, nonce: u64, jump: u64, notes_term: bool) {
        let leading = &mut self.leading;
        let is_known = |past: &Leadership| past.term == header.position.term;
        if !leading.past.iter().any(is_known) {
            // Its leader may have gone on after it.
            let last = Position {
                sequence: header.position.sequence + jump - 1,
                ..header.position
            };
            remember(&mut leading.past, last);
        }
        let term = header.position.term + jump;
        leading.rebuilt_term = term;
        leading.is_noted = notes_term;
        leading.position = Some(Position {
            term,
            nonce,
            sequence: header.position.sequence + jump,
        });
    }

    /// Member and shard of each backup that the store had.
    pub(crate) fn places_of_backups(&self) -> Vec<(String, u32)> {
        let mut places = Vec::new();
        for (name, member) in self.members.iter() {
            for (shard, index) in (0..).zip(member.servers()) {
                let server = self.members.server(*index);
                if server.is_some_and(|server| !server.backup_locator.is_empty()) {
                    places.push((name.clone(), shard));
                }
            }
        }
        places
    }

    /// Whether a position is of a leader before the store was made again: nothing follows from it.
    pub(crate) fn is_of_former_life(&self, position: &Position) -> bool {
        position.term < self.leading.rebuilt_term
    }
}
