//! What is different when a store goes on from a copy of its state that may be older than its last.
//!
//! Whatever counts up goes far ahead of what may have been given out since, by a random part as well, so that two stores that are made from one copy do
//! not meet; docs/rebuild.md says for each record why that is enough. Some of it is done by every leader that goes on with a state.

use core::time::Duration;

use base::ids::TableId;
use base::time::Time;

use crate::state::checkpoint::Header;
use crate::state::rebuild::Begins;
use crate::{Coordinator, CoordinatorEffects};

/// Of generations, terms and the like.
const JUMP: u64 = 1000;
/// Of recoveries and migrations.
const LARGE_JUMP: u64 = 1 << 20;
/// Of leases, and of tables: at least, and by how much more at random.
const LEASES: (u64, u64) = (1 << 20, 1 << 32);
const TABLES: (u64, u64) = (1000, 1 << 14);
/// Cluster time may have been told so far beyond what the copy says.
const TIME_JUMP: Duration = Duration::from_secs(600);
/// Leases that were prolonged since end no earlier.
const LEASE_JUMP: Duration = Duration::from_secs(60);

/// How far ids go ahead; never by more than a small part of those that are left, so that they do not run out.
fn ahead((least, range): (u64, u64), left: u64, nonce: u64) -> u64 {
    // Of all bits of the nonce.
    let random = nonce.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let most = left >> 16;
    let least = least.min(most);
    least + random % range.min(most - least + 1)
}

impl Coordinator {
    /// Goes on with what is noted, as a leader that cannot know whether that is the newest: somebody may have put it back to an older state. Clients keep
    /// ids of leases and tables for as long as they please, so what is given out from now on is far from what other leaders after this state gave out.
    pub(crate) fn leave_ids_out(&mut self, nonce: u64) {
        let left = u64::MAX - self.store.leases.next_id();
        self.store.leases.leave_out(ahead(LEASES, left, nonce));
        let left = u64::from(TableId::MAX_NUMBER.saturating_sub(self.store.tables.counters().0));
        self.store
            .tables
            .leave_out(ahead(TABLES, left, nonce) as u32);
    }

    /// Goes on from a checkpoint, as the leader of a term that nobody has reached. All processes are dead.
    pub(crate) fn begin_again(
        &mut self,
        now: Time,
        header: &Header,
        begins: Begins,
        out: &mut impl CoordinatorEffects,
    ) {
        let Begins { nonce, notes_term } = begins;
        let jump = JUMP + nonce % JUMP;
        let time_jump_ns = u64::try_from(TIME_JUMP.as_nanos()).unwrap_or(0);
        let lease_jump = LEASE_JUMP.min(self.store.config.time_ahead);
        let lease_jump_ns = u64::try_from(lease_jump.as_nanos()).unwrap_or(0);
        self.store.ledger.time_base_ns =
            self.store.ledger.time_base_ns.saturating_add(time_jump_ns);
        self.store.ledger.time_bound_ns = self.store.ledger.time_base_ns;
        self.leave_ids_out(nonce);
        self.store.leases.begin_again(time_jump_ns, lease_jump_ns);
        self.store.ledger.last_id += LARGE_JUMP;
        let names: Vec<String> = self
            .store
            .members
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            if let Some(death) = self.store.members.end_process(&name) {
                self.bury(now, death, out);
            }
        }
        // New objects of the next processes get versions above all that were ever given out, and so does what is written over others.
        let generation = self.store.members.begin_again(jump as u32);
        self.store.ledger.version_floor = self
            .store
            .ledger
            .version_bound
            .max(u64::from(generation) << 40);
        self.store
            .ledger
            .note_versions(self.store.ledger.version_floor);
        let leading = &mut self.leading;
        leading.begin_again(header.position, nonce, jump, notes_term);
        self.noted_meta = None;
        self.is_all_changed = true;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Config;
    use crate::directory::leases::TERM_NS;

    /// The ids that the next lease and the next table get, for a leader that goes on with this state.
    fn next_ids(tag: u32, nonce: u64) -> (u64, u64) {
        let mut store = Coordinator::new(Config::new(7, tag, "test"), Time(0));
        store.leave_ids_out(nonce);
        let table = u64::from(tag) << 32 | u64::from(store.store.tables.counters().0 + 1);
        (store.store.leases.next_id(), table)
    }

    #[test]
    fn leaders_that_go_on_with_one_state_give_out_ids_of_their_own() {
        let tag = 0x8000_0000;
        let mut leases = Vec::new();
        let mut tables = Vec::new();
        for nonce in 1..=20 {
            let (lease, table) = next_ids(tag, nonce);
            // Whoever led on with it has given out fewer since.
            assert!(lease > (u64::from(tag) << 32) + (1 << 20));
            assert!(table > (u64::from(tag) << 32) + 1000);
            assert_eq!(table >> 32, u64::from(tag), "of this store");
            leases.push(lease);
            tables.push(table);
        }
        for (ids, apart) in [(&mut leases, 1 << 20), (&mut tables, 50)] {
            ids.sort_unstable();
            let nearest = ids.windows(2).map(|pair| pair[1] - pair[0]).min();
            assert!(nearest > Some(apart), "{nearest:?}");
        }
    }

    #[test]
    fn ids_do_not_run_out_however_often_leaders_change() {
        let mut store = Coordinator::new(Config::new(7, u32::MAX, "test"), Time(0));
        for nonce in 0..200_000 {
            let before = (
                store.store.leases.next_id(),
                store.store.tables.counters().0,
            );
            store.leave_ids_out(nonce);
            assert!(
                store.store.leases.next_id() >= before.0
                    && store.store.tables.counters().0 >= before.1
            );
            // Each gives one out, by when the one before has ended.
            assert!(store.store.leases.renew(0, nonce * 2 * TERM_NS).is_some());
        }
        assert!(u64::MAX - store.store.leases.next_id() > 1 << 24);
        assert!(TableId::MAX_NUMBER - store.store.tables.counters().0 > 1 << 20);
    }

    #[test]
    fn no_skip_is_likely_however_few_ids_are_left() {
        for left in [1 << 31, 1 << 30, 1 << 29, 1 << 27] {
            let mut skips = BTreeMap::<u64, u32>::new();
            for nonce in 0..10_000 {
                *skips.entry(ahead(TABLES, left, nonce)).or_default() += 1;
            }
            assert!(skips.keys().all(|&skip| skip <= left >> 16));
            // There are so many to choose from.
            let fair = 10_000 / (left >> 16).min(TABLES.1) as u32;
            let commonest = skips.values().max().copied();
            assert!(
                commonest < Some(20 + 4 * fair),
                "{left}: {commonest:?}, fair is {fair}"
            );
        }
    }
}
