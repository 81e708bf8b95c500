//! Orders of recoveries: what masters are told to bring back, and what becomes of that.

use std::collections::BTreeSet;

use base::bugs::{Bug, is_planted};
use base::ids::ServerId;
use base::time::Time;
use wire::member::{
    LogInventory, Recover, Recovered, RecoveryId, SegmentSource, TabletRange, ToShard, coordinator,
};

use crate::CoordinatorEffects;
use crate::directory::tables::{NOBODY, Source};
use crate::recovery::dead::{Head, last_owner};
use crate::recovery::parts::cut_into_parts;
use crate::recovery::room::{frames_free, frames_needed};
use crate::recovery::{
    EXPECTED_BEFORE_REPLAY_MS, FULL_FOR, Heads, Order, PART_BYTES, RETRY_AFTER, Recoveries,
};
use crate::store::Store;

impl Recoveries {
    /// Reserves frames of backups for bringing these tablets back; or what that waits for.
    pub(super) fn reserve_frames(
        &mut self,
        store: &Store,
        sources: &[Source],
        segments: &[SegmentSource],
    ) -> Result<(), String> {
        let begun = self.logs_brought_back(store);
        let (needed, free) = (frames_needed(store, segments), frames_free(store));
        let log = last_owner(sources);
        self.reserved.reserve(&begun, log, needed, free)
    }

    /// Logs whose content is being replayed, or lies in others that are not safe on backups yet.
    fn logs_brought_back(&self, store: &Store) -> BTreeSet<ServerId> {
        let owned = store.tables.tablets().map(|(_, tablet)| tablet);
        let owned = owned.filter(|tablet| tablet.owner != NOBODY);
        let unreleased = owned.flat_map(|tablet| tablet.sources.iter().rev().skip(1));
        let unreleased = unreleased.map(|source| source.log);
        unreleased.chain(self.logs_ordered()).collect()
    }

    /// Gives a group of tablets to masters, in parts.
    pub(super) fn order(
        &mut self,
        store: &mut Store,
        sources: &[Source],
        tablets: &[TabletRange],
        segments: &[SegmentSource],
        heads: &Heads,
        out: &mut impl CoordinatorEffects,
    ) {
        let masters = self.recovery_masters(store);
        if masters.is_empty() {
            let what = "no server with replicas is up that has memory for the tablets and is not being drained; start one, or undrain one";
            return self.wait_for(sources, what.to_owned(), out);
        }
        let bytes = segments.iter().map(|segment| u64::from(segment.bytes));
        let bytes: u64 = bytes.sum();
        let by_size = usize::try_from(bytes.div_ceil(PART_BYTES)).unwrap_or(usize::MAX);
        // Parts that have failed are given out again as they are.
        let wanted = by_size.max(masters.len());
        let recovery = self.under_way.get(&last_owner(sources));
        let known = recovery.map_or(0, |recovery| recovery.tablet_count);
        let known = usize::try_from(known).unwrap_or(usize::MAX).max(1);
        let pieces = wanted.div_ceil(known);
        let (parts, cuts) = cut_into_parts(&mut store.tables, tablets, pieces, wanted);
        let at_once = masters.len().min(parts.len()).max(1) as u64;
        let replay_ms = bytes * 1000 / self.bytes_per_second() / at_once;
        let expected_ms = EXPECTED_BEFORE_REPLAY_MS + replay_ms;
        if let Some(recovery) = self.under_way.get_mut(&last_owner(sources)) {
            recovery.tablet_count += cuts;
            recovery.masters = recovery.masters.max(at_once);
            recovery.expected_ms = recovery.expected_ms.max(expected_ms);
            recovery.bytes = recovery.bytes.max(bytes);
        }
        for (part, &master) in parts.into_iter().zip(masters.iter().cycle()) {
            let order = Order {
                master,
                tablets: part,
                sources: sources.to_vec(),
                heads: heads.clone(),
            };
            self.send_order(store, order, segments, out);
        }
    }

    /// Servers that can take tablets, those with the least to do first.
    fn recovery_masters(&mut self, store: &Store) -> Vec<u32> {
        let full_until = &self.full_until;
        let orders = &self.orders;
        let members = &store.members;
        let enlisted = members.enlisted().filter(|(server, _)| {
            let index = server.id.index();
            server.link.is_some()
                && server.replicas > 0
                && !server.backup_only
                && !members.is_draining(index)
                && !full_until.contains_key(&index)
        });
        let mut masters: Vec<(usize, u64, u32)> = enlisted
            .map(|(server, _)| {
                let index = server.id.index();
                let orders = orders.values().filter(|order| order.master == index);
                (orders.count(), server.pong.log_live_bytes, index)
            })
            .collect();
        masters.sort_unstable();
        masters.into_iter().map(|(_, _, index)| index).collect()
    }

    fn send_order(
        &mut self,
        store: &mut Store,
        order: Order,
        segments: &[SegmentSource],
        out: &mut impl CoordinatorEffects,
    ) {
        let server = store.members.server(order.master);
        let Some(link) = server.and_then(|server| server.link.as_ref()) else {
            return;
        };
        let recovery_id = store.ledger.next_id();
        let recover = Recover {
            recovery_id,
            tablets: order.tablets.clone(),
            segments: segments.to_vec(),
            version_floor: store.ledger.version_floor,
        };
        let kind = coordinator::Kind::Recover(recover);
        out.send_member(link.connection, ToShard::from(kind));
        self.ordered.extend(order.tablets.iter().copied());
        self.orders.insert(recovery_id, order);
    }

    /// Notes up to where the logs of an order are believed from now on. False if another recovery was faster, and took other heads.
    fn choose_heads(&mut self, heads: &Heads) -> bool {
        let dead = &mut self.dead;
        let is_other = |(log, head): &(ServerId, Head)| {
            let chosen = dead.get(log).and_then(|dead| dead.head);
            chosen.is_some_and(|chosen| chosen != *head)
        };
        if heads.iter().any(is_other) && !is_planted(Bug::TakeAnotherHead) {
            return false;
        }
        for (log, head) in heads {
            let is_open = dead.get(log).is_some_and(|dead| dead.head.is_none());
            if is_open && let Some(dead) = dead.get_mut(log) {
                dead.head = Some(*head);
            }
        }
        true
    }

    /// A backup tells what it holds of a log.
    pub(crate) fn inventory(&mut self, store: &Store, index: u32, inventory: LogInventory) {
        let Some(server) = store.members.server(index) else {
            return;
        };
        if let Some(search) = self.searches.get_mut(&ServerId(inventory.log)) {
            search.answered(server.id, inventory.replicas);
            self.next_look = Time::ZERO;
        }
    }

    /// A master has carried out an order, or cannot.
    pub(crate) fn recovered(
        &mut self,
        store: &mut Store,
        now: Time,
        index: u32,
        connection: u64,
        recovered: &Recovered,
        out: &mut impl CoordinatorEffects,
    ) {
        let recovery_id = recovered.recovery_id;
        let order = self.orders.get(&recovery_id);
        if order.is_none_or(|order| order.master != index) {
            // It was taken back, and the message that says so is on its way.
            return;
        }
        let Some(order) = self.take_order(recovery_id) else {
            return;
        };
        self.next_look = now;
        if recovered.is_full {
            self.full_until.insert(index, now + FULL_FOR);
        }
        if recovered.is_full || !recovered.failure.is_empty() {
            let server = store.members.server(index).map(|server| server.id);
            let failure = format!(
                "server {} could not replay its part: {}",
                server.unwrap_or(ServerId::INVALID),
                recovered.failure
            );
            self.wait_for(&order.sources, failure, out);
            if !recovered.is_full {
                let again_at = now + RETRY_AFTER;
                self.not_before.insert(order.sources, again_at);
            }
            return;
        }
        let Some(server) = store.members.server(index) else {
            return;
        };
        let source = Source {
            log: server.id,
            from_segment: recovered.from_segment,
            recovery_id,
        };
        if !self.choose_heads(&order.heads) {
            let kind = coordinator::Kind::GiveUpRecovery(RecoveryId { recovery_id });
            out.send_member(connection, ToShard::from(kind));
            return;
        }
        for tablet in &order.tablets {
            store.tables.adopt(tablet, index, source);
        }
        let (bytes, ns) = &mut self.replayed;
        *bytes = bytes.saturating_add(recovered.bytes);
        *ns = ns.saturating_add(recovered.replay_ns);
        if let Some(recovery) = self.under_way.get_mut(&last_owner(&order.sources)) {
            recovery.objects += recovered.objects;
        }
        self.retain_waits(|sources| *sources != order.sources);
        let kind = coordinator::Kind::CommitRecovery(RecoveryId { recovery_id });
        out.send_member(connection, ToShard::from(kind));
    }

    /// The objects that a master got with a recovery are on its own backups.
    pub(crate) fn durable(
        &mut self,
        store: &mut Store,
        index: u32,
        connection: u64,
        recovery: RecoveryId,
        out: &mut impl CoordinatorEffects,
    ) {
        let recovery_id = recovery.recovery_id;
        let had_it = |tablet: &&crate::directory::tables::Tablet| {
            let last = tablet.sources.last();
            last.is_some_and(|last| last.recovery_id == recovery_id)
        };
        let owned = store.tables.owned_by(&BTreeSet::from([index]));
        let owned = owned.map(|(_, tablet)| tablet);
        let sources = owned.filter(had_it).flat_map(|tablet| &tablet.sources);
        let logs: BTreeSet<ServerId> = sources.map(|source| source.log).collect();
        store.tables.release_sources(index, recovery_id);
        let kind = coordinator::Kind::SourcesReleased(recovery);
        out.send_member(connection, ToShard::from(kind));
        self.forget_logs(store, logs.into_iter().collect(), out);
    }
}
