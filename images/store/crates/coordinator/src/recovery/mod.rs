//! Recovery of dead servers' tablets: when, from what, and by whom.
//!
//! Tablets without an owner are grouped by their sources. Of each log among these the backups' inventories are gathered
//! (`search.rs`); once all that a group needs is found, it is cut into parts, and each goes as an order to a master. A master that has
//! replayed its part becomes the owner, which is noted before it is told. Nothing else is kept of a recovery under way: whatever breaks,
//! its tablets are without an owner still, and the next look at them begins anew.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::ids::ServerId;
use base::time::Time;
use wire::member::{RecoveryId, SegmentSource, TabletRange, ToShard, coordinator};

use crate::CoordinatorEffects;
use crate::directory::tables::{NOBODY, Source, Table};
use crate::journaled::Journaled;
use crate::recovery::dead::{Dead, Head, last_owner};
use crate::recovery::losses::Losses;
use crate::recovery::missing::MissingLogs;
use crate::recovery::room::Reserved;
use crate::recovery::search::Search;
use crate::registry::members::Server;
use crate::reports::RecoveryEvent;
use crate::status::{EventKind, Loss, Recovery};
use crate::store::Store;

mod audit;
pub(crate) mod dead;
mod durable;
pub(crate) mod logs;
mod loss;
pub(crate) mod losses;
mod missing;
mod orders;
mod parts;
mod room;
mod search;
#[cfg(test)]
mod tests;

/// How often tablets without an owner are looked at while there are any.
const INTERVAL: Duration = Duration::from_millis(20);
/// A group whose recovery has failed is tried again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A master that had no memory gets no orders for so long.
const FULL_FOR: Duration = Duration::from_secs(5);
/// Data that one order is about, at most, where tablets can be cut.
const PART_BYTES: u64 = 512 << 20;
/// What a master is expected to replay in a second until one has shown it: reading, replaying and sending new copies share its core.
const EXPECTED_BYTES_PER_SECOND: u64 = 150 << 20;
/// Backups wait out what they have promised the dead server before they give its log out, and a last round ends the replay.
const EXPECTED_BEFORE_REPLAY_MS: u64 = 250;
/// Groups of tablets whose reason to wait is shown.
const MAX_WAITS_SHOWN: usize = 3;
/// Recoveries that have ended and are still shown.
const MAX_SHOWN: usize = 20;

/// Part of a recovery that a master works on.
#[derive(Debug)]
struct Order {
    master: u32,
    tablets: Vec<TabletRange>,
    sources: Vec<Source>,
    /// Heads of logs among these, as they were found.
    heads: Heads,
}

type Heads = Vec<(ServerId, Head)>;

/// What an order reads, and the heads of the logs among it.
type Gathered = (Vec<SegmentSource>, Heads);

#[derive(Debug, Default)]
pub(crate) struct Recoveries {
    /// Logs of dead servers that tablets need.
    dead: Journaled<ServerId, Dead>,
    losses: Losses,
    searches: BTreeMap<ServerId, Search>,
    orders: BTreeMap<u64, Order>,
    /// All tablets of all orders.
    ordered: BTreeSet<TabletRange>,
    full_until: BTreeMap<u32, Time>,
    not_before: BTreeMap<Vec<Source>, Time>,
    next_look: Time,
    /// Of each dead server with tablets that nobody owns yet.
    under_way: BTreeMap<ServerId, Recovery>,
    ended: VecDeque<Recovery>,
    /// Why groups of tablets do not go on. A recovery may have several groups.
    waits: BTreeMap<Vec<Source>, String>,
    reserved: Reserved,
    /// What recoveries under way cannot find, as of the last look at them.
    missing: BTreeMap<ServerId, MissingLogs>,
    /// What masters have shown: bytes, and nanoseconds.
    replayed: (u64, u64),
}

/// Tablets without an owner that have the same sources.
type Groups = BTreeMap<Vec<Source>, Vec<TabletRange>>;

impl Recoveries {
    pub fn count_under_way(&self) -> usize {
        self.under_way.len()
    }

    /// What is going on, and what went on last.
    pub fn shown(&self) -> Vec<Recovery> {
        let under_way = self.under_way.iter().map(|(log, recovery)| {
            let mut recovery = recovery.clone();
            if let Some(logs) = self.missing.get(log) {
                (recovery.missing, recovery.loss_token) = missing::shown(logs);
            }
            recovery
        });
        self.ended.iter().cloned().chain(under_way).collect()
    }

    /// The recovery of this server, while it is not over.
    pub fn under_way(&self, server: ServerId) -> Option<&Recovery> {
        self.under_way.get(&server)
    }

    /// Logs of dead servers that tablets need.
    pub fn needed_logs(&self) -> impl Iterator<Item = (ServerId, &Dead)> {
        self.dead.iter().map(|(log, dead)| (*log, dead))
    }

    /// A recovery that misses parts of this log.
    pub fn misses(&self, log: ServerId) -> Option<ServerId> {
        let mut recoveries = self.missing.iter();
        let misses = recoveries.find(|(_, logs)| logs.contains_key(&log));
        misses.map(|(recovery, _)| *recovery)
    }

    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    pub fn record_loss(&mut self, store: &Store, loss: Loss) {
        self.losses.record(store.config.limits.max_losses, loss);
    }

    /// Forgets all pauses: the next look is due, and considers every group.
    pub fn look_at_once(&mut self) {
        self.next_look = Time::ZERO;
        self.not_before.clear();
    }

    /// Logs that masters replay at present.
    pub fn logs_ordered(&self) -> impl Iterator<Item = ServerId> {
        let orders = self.orders.values();
        orders.map(|order| last_owner(&order.sources))
    }

    fn bytes_per_second(&self) -> u64 {
        let (bytes, ns) = self.replayed;
        let bytes_per_ms = bytes.checked_div(ns / 1_000_000);
        bytes_per_ms.map_or(EXPECTED_BYTES_PER_SECOND, |rate| rate.max(1) * 1000)
    }

    fn take_order(&mut self, recovery_id: u64) -> Option<Order> {
        let order = self.orders.remove(&recovery_id)?;
        for tablet in &order.tablets {
            self.ordered.remove(tablet);
        }
        Some(order)
    }

    fn orders_where(&self, is_meant: impl Fn(&Order) -> bool) -> Vec<u64> {
        let orders = self.orders.iter();
        let meant = orders.filter(|(_, order)| is_meant(order));
        meant.map(|(id, _)| *id).collect()
    }

    /// The tablets with these sources cannot be brought back for now.
    fn wait_for(&mut self, sources: &[Source], what: String, out: &mut impl CoordinatorEffects) {
        if self.waits.get(sources) == Some(&what) {
            return;
        }
        let log = last_owner(sources);
        let event = RecoveryEvent::Waits {
            server: log,
            why: what.clone(),
        };
        out.report(event.into());
        self.waits.insert(sources.to_vec(), what);
        self.show_waits();
    }

    /// Nothing is said any more of groups other than these.
    fn retain_waits(&mut self, goes_on: impl Fn(&Vec<Source>) -> bool) {
        let count = self.waits.len();
        self.waits.retain(|sources, _| goes_on(sources));
        if self.waits.len() != count {
            self.show_waits();
        }
    }

    fn show_waits(&mut self) {
        for (log, recovery) in &mut self.under_way {
            let waits = self.waits.iter();
            let of_log = waits.filter(|(sources, _)| last_owner(sources) == *log);
            let mut texts: Vec<&str> = of_log.map(|(_, what)| what.as_str()).collect();
            texts.sort_unstable();
            texts.dedup();
            let more = texts.len().saturating_sub(MAX_WAITS_SHOWN);
            texts.truncate(MAX_WAITS_SHOWN);
            recovery.waits_for = texts.join("; ");
            if more > 0 {
                recovery.waits_for += &format!("; and {more} more");
            }
        }
    }

    // ---- when, and from what ----

    /// Servers with replicas are dead; what they owned is to be brought back.
    pub(crate) fn begin(
        &mut self,
        store: &mut Store,
        now: Time,
        member: &str,
        servers: &[Server],
        out: &mut impl CoordinatorEffects,
    ) {
        for server in servers {
            let (log, index) = (server.id, server.id.index());
            self.give_up_orders_of(index);
            self.lose_given_up(store, now, member, index, out);
            let tablet_count = store.tables.tablets_of(index);
            store.tables.orphan(index, log);
            if tablet_count == 0 {
                continue;
            }
            let (member, floor) = (member.to_owned(), server.open_floor);
            let event = RecoveryEvent::Began {
                server: log,
                member: member.clone(),
                tablet_count,
            };
            out.report(event.into());
            let recovery = Recovery::new(log, &member, store.cluster_time_ns(now), tablet_count);
            self.under_way.insert(log, recovery);
            let dead = Dead {
                member,
                floor,
                head: None,
                left: None,
            };
            self.dead.insert(log, dead);
        }
        self.next_look = now;
        let logs = servers.iter().map(|server| server.id).collect();
        self.forget_logs(store, logs, out);
    }

    /// After a restart: tablets without an owner are recovered, as they were before.
    pub(crate) fn resume(&mut self, store: &Store, now: Time) {
        let mut left: BTreeMap<ServerId, u64> = BTreeMap::new();
        for (_, tablet) in store.tables.tablets() {
            if tablet.owner == NOBODY {
                *left.entry(last_owner(&tablet.sources)).or_default() += 1;
            }
        }
        let began_ns = store.cluster_time_ns(now);
        for (log, tablet_count) in left {
            let dead = self.dead.get(&log);
            let member = dead.map_or("", |dead| dead.member.as_str());
            let recovery = Recovery::new(log, member, began_ns, tablet_count);
            self.under_way.insert(log, recovery);
        }
        self.next_look = now;
    }

    /// Looks at what is to be recovered; when to look again.
    pub(crate) fn look(
        &mut self,
        store: &mut Store,
        now: Time,
        out: &mut impl CoordinatorEffects,
    ) -> Time {
        if self.under_way.is_empty() {
            return Time::NEVER;
        }
        if now < self.next_look {
            return self.next_look;
        }
        self.next_look = now + INTERVAL;
        self.missing.clear();
        let groups = self.take_stock(store, now, out);
        if self.under_way.is_empty() {
            self.searches.clear();
            return Time::NEVER;
        }
        self.tend_searches(store, now, &groups, out);
        self.full_until.retain(|_, until| *until > now);
        self.not_before.retain(|_, at| *at > now);
        for (sources, tablets) in &groups {
            if self.not_before.contains_key(sources) {
                continue;
            }
            match self.segments_of(store, now, sources) {
                Ok(None) => {}
                Ok(Some((segments, heads))) => match self.reserve_frames(store, sources, &segments)
                {
                    Ok(()) => self.order(store, sources, tablets, &segments, &heads, out),
                    Err(full) => self.wait_for(sources, full, out),
                },
                Err((logs, text)) => {
                    let missing = &mut self.missing;
                    missing.entry(last_owner(sources)).or_default().extend(logs);
                    self.wait_for(sources, text, out);
                }
            }
        }
        self.next_look
    }

    /// Finds the tablets without an owner that nobody works on, and the recoveries that have ended.
    fn take_stock(
        &mut self,
        store: &mut Store,
        now: Time,
        out: &mut impl CoordinatorEffects,
    ) -> Groups {
        let mut groups = Groups::new();
        let mut left: BTreeMap<ServerId, u64> = BTreeMap::new();
        for (table, tablet) in store.tables.tablets() {
            if tablet.owner != NOBODY {
                continue;
            }
            *left.entry(last_owner(&tablet.sources)).or_default() += 1;
            let range = table.range(tablet);
            if !self.ordered.contains(&range) {
                let group = groups.entry(tablet.sources.clone()).or_default();
                group.push(range);
            }
        }
        let ended_ns = store.cluster_time_ns(now);
        let ordered = self.orders.values();
        let ordered: BTreeSet<Vec<Source>> = ordered.map(|order| order.sources.clone()).collect();
        self.retain_waits(|sources| groups.contains_key(sources) || ordered.contains(sources));
        for (log, recovery) in &mut self.under_way {
            recovery.tablets_left = left.get(log).copied().unwrap_or(0);
        }
        let over = self.under_way.iter();
        let over = over.filter(|(_, recovery)| recovery.tablets_left == 0);
        for log in over.map(|(log, _)| *log).collect::<Vec<_>>() {
            let Some(mut recovery) = self.under_way.remove(&log) else {
                continue;
            };
            recovery.ended_ns = ended_ns;
            recovery.waits_for.clear();
            let event = RecoveryEvent::Ended {
                server: log,
                objects: recovery.objects,
                bytes: recovery.bytes,
                took_ms: ended_ns.saturating_sub(recovery.began_ns) / 1_000_000,
                expected_ms: recovery.expected_ms,
            };
            store.record_event(now, EventKind::RecoveryEnded, event.to_string());
            out.report(event.into());
            if self.ended.len() == MAX_SHOWN {
                self.ended.pop_front();
            }
            self.ended.push_back(recovery);
        }
        groups
    }

    /// Asks backups about the logs that these groups need, and about no others.
    fn tend_searches(
        &mut self,
        store: &mut Store,
        now: Time,
        groups: &Groups,
        out: &mut impl CoordinatorEffects,
    ) {
        let orders = self.orders.values();
        let sources = orders.map(|order| &order.sources).chain(groups.keys());
        let wanted: BTreeSet<ServerId> = sources.flatten().map(|source| source.log).collect();
        let searches = &mut self.searches;
        searches.retain(|log, _| wanted.contains(log));
        for log in wanted {
            let search = searches.entry(log);
            let search = search.or_insert_with(|| Search::new(log, now));
            search.ask(now, &mut store.members, out);
        }
    }

    /// Where everything is that these logs consist of. `None`: backups are still looking; an error says what no backup has, and who may have it.
    fn segments_of(
        &self,
        store: &Store,
        now: Time,
        sources: &[Source],
    ) -> Result<Option<Gathered>, (MissingLogs, String)> {
        let mut segments = Vec::new();
        let mut heads = Vec::new();
        let mut missing = MissingLogs::new();
        let mut who_has_it = vec![store.members.who_is_away()];
        for source in sources {
            let Some(dead) = self.dead.get(&source.log) else {
                let text = format!("nothing is known of the log of server {}", source.log);
                return Err((MissingLogs::new(), text));
            };
            if dead.floor.is_none() {
                continue;
            }
            let search = self.searches.get(&source.log);
            let Some(search) = search.filter(|search| search.has_settled(now, &store.members))
            else {
                return Ok(None);
            };
            match search.segments(dead, source.from_segment) {
                Ok(found) => {
                    heads.extend(found.head.map(|head| (source.log, head)));
                    segments.extend(found.segments);
                }
                Err(of_log) => {
                    missing.insert(source.log, of_log);
                    who_has_it.push(search.who_is_silent(&store.members));
                }
            }
        }
        if missing.is_empty() {
            return Ok(Some((segments, heads)));
        }
        who_has_it.retain(|text| !text.is_empty());
        let texts = missing.values().map(|missing| missing.text.as_str());
        let texts: Vec<&str> = texts.chain(who_has_it.iter().map(String::as_str)).collect();
        let text = texts.join("; ");
        Err((missing, text))
    }

    /// For people: backups that a recovery waits for before it is known what it misses; empty if there are none.
    pub(crate) fn still_asked(&self, store: &Store, now: Time, server: ServerId) -> String {
        let tablets = store.tables.tablets().map(|(_, tablet)| tablet);
        let waiting = tablets.filter(|tablet| tablet.owner == NOBODY);
        let of_server = waiting.filter(|tablet| last_owner(&tablet.sources) == server);
        let logs: BTreeSet<ServerId> = of_server
            .flat_map(|tablet| tablet.sources.iter().map(|source| source.log))
            .collect();
        let searches = logs.iter().filter_map(|log| self.searches.get(log));
        let unsettled = searches.filter(|search| !search.has_settled(now, &store.members));
        let texts: Vec<String> = unsettled
            .map(|search| search.who_is_silent(&store.members))
            .collect();
        texts.join("; ")
    }

    /// A server's session has ended, or it is dead: it has dropped what it had not finished, or will.
    pub(crate) fn give_up_orders_of(&mut self, index: u32) {
        for recovery_id in self.orders_where(|order| order.master == index) {
            self.take_order(recovery_id);
        }
        self.next_look = Time::ZERO;
    }

    /// A table goes: the other tablets of orders that were about it are given out anew, and nobody needs its logs for it.
    pub(crate) fn forget_table(
        &mut self,
        store: &Store,
        table: &Table,
        out: &mut impl CoordinatorEffects,
    ) {
        let is_about = |order: &Order| {
            let mut tablets = order.tablets.iter();
            tablets.any(|tablet| tablet.table_id == table.id)
        };
        for recovery_id in self.orders_where(is_about) {
            let order = self.take_order(recovery_id);
            let master = order.and_then(|order| store.members.server(order.master));
            if let Some(link) = master.and_then(|master| master.link.as_ref()) {
                let kind = coordinator::Kind::GiveUpRecovery(RecoveryId { recovery_id });
                out.send_member(link.connection, ToShard::from(kind));
            }
        }
        let sources = table.tablets.iter().flat_map(|tablet| &tablet.sources);
        let logs: BTreeSet<ServerId> = sources.map(|source| source.log).collect();
        self.forget_logs(store, logs.into_iter().collect(), out);
    }
}
