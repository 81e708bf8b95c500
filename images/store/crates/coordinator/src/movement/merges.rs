//! Tablets that were cut to be moved, and lie next to each other at one server all the same, become one again.
//!
//! In this order: the state has one tablet; that is noted; the server is told. Whatever ends between two of these, the server has the same keys, and its
//! next welcome names the tablet that the state has.

use std::collections::BTreeMap;

use wire::member::{TabletMerge, TabletRange, ToShard, coordinator};

use crate::CoordinatorEffects;
use crate::directory::tables::Pair;
use crate::movement::Movement;
use crate::reports::TableEvent;
use crate::store::Store;

/// Merges of one look: each is a message, and a change of the state.
const MERGES_OF_LOOK: usize = 16;

impl Movement {
    /// Makes one tablet of each pair that nothing keeps apart.
    pub(crate) fn merge_tablets(&mut self, store: &mut Store, out: &mut impl CoordinatorEffects) {
        let under_way = self.migrations.ways();
        let pairs = store.tables.mergeable();
        let pairs = pairs.filter(|pair| self.may_merge(store, pair, &under_way));
        let pairs: Vec<Pair> = pairs.take(MERGES_OF_LOOK).collect();
        for pair in pairs {
            self.merge_pair(store, &pair, out);
        }
    }

    /// Their server has said in this session what is in both: so it serves both, and has carried out whatever it was told about them.
    fn may_merge(
        &self,
        store: &Store,
        pair: &Pair,
        under_way: &BTreeMap<TabletRange, (u32, u32)>,
    ) -> bool {
        let Some(server) = store.members.server(pair.owner) else {
            return false;
        };
        let link = server.link.as_ref();
        let can_merge = link.is_some_and(|link| link.merges_tablets);
        // Smaller tablets find room more easily.
        let is_draining = store.members.is_draining(pair.owner);
        let is_free = |part: &TabletRange| {
            let load = self.balance.loads.of(part);
            load.is_some_and(|load| load.is_told_by(server.id))
                && !under_way.contains_key(part)
                && !self.balance.queue.concerns(part)
        };
        can_merge && !is_draining && is_free(&pair.first) && is_free(&pair.second)
    }

    fn merge_pair(&mut self, store: &mut Store, pair: &Pair, out: &mut impl CoordinatorEffects) {
        // Of three in a row the second pair is another one once the first is merged: it comes with a later look.
        if !store.tables.merge(pair) {
            return;
        }
        let whole = pair.whole();
        self.balance.were_merged([pair.first, pair.second], whole);
        let table = store.tables.get(whole.table_id);
        let table = table.map_or_else(String::new, |table| table.display_name());
        let server = store.id_of(pair.owner);
        out.report(TableEvent::Merged { table, server }.into());
        let server = store.members.server_mut(pair.owner);
        if let Some(link) = server.and_then(|server| server.link.as_mut()) {
            let sequence = link.sequence();
            let merge = TabletMerge {
                sequence,
                tablet: whole,
            };
            let order = coordinator::Kind::MergeTablets(merge);
            out.send_member(link.connection, ToShard::from(order));
        }
    }
}
