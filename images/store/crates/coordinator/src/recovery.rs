//! Recovery of dead servers' tablets: when, from what, and by whom.
//!
//! Tablets without an owner are grouped by their sources. Of each log among these the backups' inventories are gathered
//! (`search.rs`); once all that a group needs is found, it is cut into parts, and each goes as an order to a master. A master that has
//! replayed its part becomes the owner, which is noted before it is told. Nothing else is kept of a recovery under way: whatever breaks,
//! its tablets are without an owner still, and the next look at them begins anew.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::ids::ServerId;
use wire::member::{
    LogInventory, Logs, Recover, Recovered, RecoveryId, SegmentSource, TabletRange, ToShard,
    coordinator,
};
use wire::time::Time;

use crate::loss::{Left, MissingLogs};
use crate::members::Server;
use crate::room::Reserved;
use crate::search::{Head, Search};
use crate::state::records::Key;
use crate::status::Recovery;
use crate::tables::{NOBODY, Source, Table};
use crate::{Coordinator, Output, level};

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

/// A dead server whose log is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub member: String,
    /// Open replicas of heads with a smaller id do not count; `None`: it never acknowledged anything.
    pub floor: Option<u64>,
    /// What the first recovery that has ended took for its head. All others must take the same: what was in a longer replica was never
    /// acknowledged, and its versions have been used again since.
    pub head: Option<Head>,
    /// All that the log consists of any more, since somebody has accepted that the rest is lost.
    pub left: Option<Left>,
}

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
    pub dead: BTreeMap<ServerId, Dead>,
    /// The id given out last.
    pub last_id: u64,
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
    pub reserved: Reserved,
    /// What recoveries under way cannot find, as of the last look at them.
    pub missing: BTreeMap<ServerId, MissingLogs>,
    /// What masters have shown: bytes, and nanoseconds.
    replayed: (u64, u64),
}

/// Tablets without an owner that have the same sources.
type Groups = BTreeMap<Vec<Source>, Vec<TabletRange>>;

/// The log of the server that owned a tablet last.
pub(crate) fn last_owner(sources: &[Source]) -> ServerId {
    sources
        .last()
        .map_or(ServerId::INVALID, |source| source.log)
}

impl Recoveries {
    pub fn count_under_way(&self) -> usize {
        self.under_way.len()
    }

    /// What is going on, and what went on last.
    pub fn shown(&self) -> Vec<Recovery> {
        let under_way = self.under_way.iter().map(|(log, recovery)| {
            let mut recovery = recovery.clone();
            if let Some(logs) = self.missing.get(log) {
                (recovery.missing, recovery.loss_token) = crate::loss::shown(logs);
            }
            recovery
        });
        self.ended.iter().cloned().chain(under_way).collect()
    }

    /// The recovery of this server, while it is not over.
    pub fn under_way(&self, server: ServerId) -> Option<&Recovery> {
        self.under_way.get(&server)
    }

    /// Of what waits, nothing waits any longer for the next look.
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
    fn wait_for(&mut self, sources: &[Source], what: String, out: &mut impl Output) {
        if self.waits.get(sources) == Some(&what) {
            return;
        }
        let log = last_owner(sources);
        let text = format!("the recovery of server {log} waits: {what}");
        out.log_message(level::ERROR, &text);
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
}

impl Coordinator {
    /// Servers with replicas are dead; what they owned is to be brought back.
    pub(crate) fn begin_recovery(
        &mut self,
        now: Time,
        member: &str,
        servers: &[Server],
        out: &mut impl Output,
    ) {
        for server in servers {
            let (log, index) = (server.id, server.id.index());
            self.give_up_orders_of(index);
            self.lose_given_up(now, member, index, out);
            let tablet_count = self.tables.tablets_of(index);
            self.tables.orphan(index, log);
            if tablet_count == 0 {
                continue;
            }
            let (member, floor) = (member.to_owned(), server.open_floor);
            let text = format!(
                "recovering {tablet_count} tablets that server {log} of member {member:?} held"
            );
            out.log_message(level::NOTICE, &text);
            let recovery = Recovery::new(log, &member, self.cluster_time_ns(now), tablet_count);
            self.recoveries.under_way.insert(log, recovery);
            let dead = Dead {
                member,
                floor,
                head: None,
                left: None,
            };
            self.recoveries.dead.insert(log, dead);
            self.changed.insert(Key::Log(log.0));
        }
        self.recoveries.next_look = now;
        let logs = servers.iter().map(|server| server.id).collect();
        self.forget_logs(logs, out);
    }

    /// After a restart: tablets without an owner are recovered, as they were before.
    pub(crate) fn resume_recoveries(&mut self, now: Time) {
        let mut left: BTreeMap<ServerId, u64> = BTreeMap::new();
        for (_, tablet) in self.tables.tablets() {
            if tablet.owner == NOBODY {
                *left.entry(last_owner(&tablet.sources)).or_default() += 1;
            }
        }
        let began_ns = self.cluster_time_ns(now);
        for (log, tablet_count) in left {
            let dead = self.recoveries.dead.get(&log);
            let member = dead.map_or("", |dead| dead.member.as_str());
            let recovery = Recovery::new(log, member, began_ns, tablet_count);
            self.recoveries.under_way.insert(log, recovery);
        }
        self.recoveries.next_look = now;
    }

    /// Looks at what is to be recovered; when to look again.
    pub(crate) fn recover(&mut self, now: Time, out: &mut impl Output) -> Time {
        if self.recoveries.under_way.is_empty() {
            return Time::NEVER;
        }
        if now < self.recoveries.next_look {
            return self.recoveries.next_look;
        }
        self.recoveries.next_look = now + INTERVAL;
        self.recoveries.missing.clear();
        let groups = self.take_stock(now, out);
        if self.recoveries.under_way.is_empty() {
            self.recoveries.searches.clear();
            return Time::NEVER;
        }
        self.tend_searches(now, &groups, out);
        self.recoveries.full_until.retain(|_, until| *until > now);
        self.recoveries.not_before.retain(|_, at| *at > now);
        for (sources, tablets) in &groups {
            if self.recoveries.not_before.contains_key(sources) {
                continue;
            }
            match self.segments_of(now, sources) {
                Ok(None) => {}
                Ok(Some((segments, heads))) => match self.reserve_frames(sources, &segments) {
                    Ok(()) => self.order(sources, tablets, &segments, &heads, out),
                    Err(full) => self.recoveries.wait_for(sources, full, out),
                },
                Err((logs, text)) => {
                    let missing = &mut self.recoveries.missing;
                    missing.entry(last_owner(sources)).or_default().extend(logs);
                    self.recoveries.wait_for(sources, text, out);
                }
            }
        }
        self.recoveries.next_look
    }

    /// Finds the tablets without an owner that nobody works on, and the recoveries that have ended.
    fn take_stock(&mut self, now: Time, out: &mut impl Output) -> Groups {
        let mut groups = Groups::new();
        let mut left: BTreeMap<ServerId, u64> = BTreeMap::new();
        for (table, tablet) in self.tables.tablets() {
            if tablet.owner != NOBODY {
                continue;
            }
            *left.entry(last_owner(&tablet.sources)).or_default() += 1;
            let range = table.range(tablet);
            if !self.recoveries.ordered.contains(&range) {
                let group = groups.entry(tablet.sources.clone()).or_default();
                group.push(range);
            }
        }
        let ended_ns = self.cluster_time_ns(now);
        let recoveries = &mut self.recoveries;
        let ordered = recoveries.orders.values();
        let ordered: BTreeSet<Vec<Source>> = ordered.map(|order| order.sources.clone()).collect();
        recoveries
            .retain_waits(|sources| groups.contains_key(sources) || ordered.contains(sources));
        for (log, recovery) in &mut recoveries.under_way {
            recovery.tablets_left = left.get(log).copied().unwrap_or(0);
        }
        let over = recoveries.under_way.iter();
        let over = over.filter(|(_, recovery)| recovery.tablets_left == 0);
        for log in over.map(|(log, _)| *log).collect::<Vec<_>>() {
            let Some(mut recovery) = recoveries.under_way.remove(&log) else {
                continue;
            };
            recovery.ended_ns = ended_ns;
            recovery.waits_for.clear();
            let text = format!(
                "recovered server {log}: {} objects, {} MiB of log, {} ms after its death was known ({} ms expected)",
                recovery.objects,
                recovery.bytes >> 20,
                ended_ns.saturating_sub(recovery.began_ns) / 1_000_000,
                recovery.expected_ms
            );
            out.log_message(level::NOTICE, &text);
            if recoveries.ended.len() == MAX_SHOWN {
                recoveries.ended.pop_front();
            }
            recoveries.ended.push_back(recovery);
        }
        groups
    }

    /// Asks backups about the logs that these groups need, and about no others.
    fn tend_searches(&mut self, now: Time, groups: &Groups, out: &mut impl Output) {
        let orders = self.recoveries.orders.values();
        let sources = orders.map(|order| &order.sources).chain(groups.keys());
        let wanted: BTreeSet<ServerId> = sources.flatten().map(|source| source.log).collect();
        let searches = &mut self.recoveries.searches;
        searches.retain(|log, _| wanted.contains(log));
        for log in wanted {
            let search = searches.entry(log);
            let search = search.or_insert_with(|| Search::new(log, now));
            search.ask(now, &mut self.members, out);
        }
    }

    /// Where everything is that these logs consist of. `None`: backups are still looking; an error says what no backup has, and who may have it.
    fn segments_of(
        &self,
        now: Time,
        sources: &[Source],
    ) -> Result<Option<Gathered>, (MissingLogs, String)> {
        let mut segments = Vec::new();
        let mut heads = Vec::new();
        let mut missing = MissingLogs::new();
        let mut who_has_it = vec![self.members.who_is_away()];
        for source in sources {
            let Some(dead) = self.recoveries.dead.get(&source.log) else {
                let text = format!("nothing is known of the log of server {}", source.log);
                return Err((MissingLogs::new(), text));
            };
            if dead.floor.is_none() {
                continue;
            }
            let search = self.recoveries.searches.get(&source.log);
            let Some(search) = search.filter(|search| search.has_settled(now, &self.members))
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
                    who_has_it.push(search.who_is_silent(&self.members));
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
    pub(crate) fn still_asked(&self, now: Time, server: ServerId) -> String {
        let tablets = self.tables.tablets().map(|(_, tablet)| tablet);
        let waiting = tablets.filter(|tablet| tablet.owner == NOBODY);
        let of_server = waiting.filter(|tablet| last_owner(&tablet.sources) == server);
        let logs: BTreeSet<ServerId> = of_server
            .flat_map(|tablet| tablet.sources.iter().map(|source| source.log))
            .collect();
        let searches = logs
            .iter()
            .filter_map(|log| self.recoveries.searches.get(log));
        let unsettled = searches.filter(|search| !search.has_settled(now, &self.members));
        let texts: Vec<String> = unsettled
            .map(|search| search.who_is_silent(&self.members))
            .collect();
        texts.join("; ")
    }

    /// Gives a group of tablets to masters, in parts.
    fn order(
        &mut self,
        sources: &[Source],
        tablets: &[TabletRange],
        segments: &[SegmentSource],
        heads: &Heads,
        out: &mut impl Output,
    ) {
        let masters = self.recovery_masters();
        if masters.is_empty() {
            let what = "no server with replicas is up that has memory for the tablets and is not being drained; start one, or undrain one";
            return self.recoveries.wait_for(sources, what.to_owned(), out);
        }
        let bytes = segments.iter().map(|segment| u64::from(segment.bytes));
        let bytes: u64 = bytes.sum();
        let by_size = usize::try_from(bytes.div_ceil(PART_BYTES)).unwrap_or(usize::MAX);
        // Parts that have failed are given out again as they are.
        let wanted = by_size.max(masters.len());
        let recovery = self.recoveries.under_way.get(&last_owner(sources));
        let known = recovery.map_or(0, |recovery| recovery.tablet_count);
        let known = usize::try_from(known).unwrap_or(usize::MAX).max(1);
        let (parts, cuts) = self
            .tables
            .cut_into_parts(tablets, wanted.div_ceil(known), wanted);
        let at_once = masters.len().min(parts.len()).max(1) as u64;
        let replay_ms = bytes * 1000 / self.recoveries.bytes_per_second() / at_once;
        let expected_ms = EXPECTED_BEFORE_REPLAY_MS + replay_ms;
        if let Some(recovery) = self.recoveries.under_way.get_mut(&last_owner(sources)) {
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
            self.send_order(order, segments, out);
        }
    }

    /// Servers that can take tablets, those with the least to do first.
    fn recovery_masters(&mut self) -> Vec<u32> {
        let full_until = &self.recoveries.full_until;
        let orders = &self.recoveries.orders;
        let members = &self.members;
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

    fn send_order(&mut self, order: Order, segments: &[SegmentSource], out: &mut impl Output) {
        let server = self.members.server(order.master);
        let Some(link) = server.and_then(|server| server.link.as_ref()) else {
            return;
        };
        self.recoveries.last_id += 1;
        let recovery_id = self.recoveries.last_id;
        let recover = Recover {
            recovery_id,
            tablets: order.tablets.clone(),
            segments: segments.to_vec(),
            version_floor: self.version_floor,
        };
        let kind = coordinator::Kind::Recover(recover);
        out.send_member(link.connection, ToShard::from(kind));
        self.recoveries
            .ordered
            .extend(order.tablets.iter().copied());
        self.recoveries.orders.insert(recovery_id, order);
    }

    /// Notes up to where the logs of an order are believed from now on. False if another recovery was faster, and took other heads.
    fn choose_heads(&mut self, heads: &Heads) -> bool {
        let dead = &mut self.recoveries.dead;
        let is_other = |(log, head): &(ServerId, Head)| {
            let chosen = dead.get(log).and_then(|dead| dead.head);
            chosen.is_some_and(|chosen| chosen != *head)
        };
        if heads.iter().any(is_other) {
            return false;
        }
        for (log, head) in heads {
            if let Some(dead) = dead.get_mut(log)
                && dead.head.is_none()
            {
                dead.head = Some(*head);
                self.changed.insert(Key::Log(log.0));
            }
        }
        true
    }

    // ---- what servers say ----

    /// A backup tells what it holds of a log.
    pub(crate) fn inventory(&mut self, index: u32, inventory: LogInventory) {
        let Some(server) = self.members.server(index) else {
            return;
        };
        if let Some(search) = self.recoveries.searches.get_mut(&ServerId(inventory.log)) {
            search.answered(server.id, inventory.replicas);
            self.recoveries.next_look = Time::ZERO;
        }
    }

    /// A master has carried out an order, or cannot.
    pub(crate) fn recovered(
        &mut self,
        now: Time,
        index: u32,
        connection: u64,
        recovered: &Recovered,
        out: &mut impl Output,
    ) {
        let recovery_id = recovered.recovery_id;
        let order = self.recoveries.orders.get(&recovery_id);
        if order.is_none_or(|order| order.master != index) {
            // It was taken back, and the message that says so is on its way.
            return;
        }
        let Some(order) = self.recoveries.take_order(recovery_id) else {
            return;
        };
        self.recoveries.next_look = now;
        if recovered.is_full {
            self.recoveries.full_until.insert(index, now + FULL_FOR);
        }
        if recovered.is_full || !recovered.failure.is_empty() {
            let server = self.members.server(index).map(|server| server.id);
            let failure = format!(
                "server {} could not replay its part: {}",
                server.unwrap_or(ServerId::INVALID),
                recovered.failure
            );
            self.recoveries.wait_for(&order.sources, failure, out);
            if !recovered.is_full {
                let again_at = now + RETRY_AFTER;
                self.recoveries.not_before.insert(order.sources, again_at);
            }
            return;
        }
        let Some(server) = self.members.server(index) else {
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
            self.tables.adopt(tablet, index, source);
        }
        let (bytes, ns) = &mut self.recoveries.replayed;
        *bytes = bytes.saturating_add(recovered.bytes);
        *ns = ns.saturating_add(recovered.replay_ns);
        if let Some(recovery) = self
            .recoveries
            .under_way
            .get_mut(&last_owner(&order.sources))
        {
            recovery.objects += recovered.objects;
        }
        self.recoveries
            .retain_waits(|sources| *sources != order.sources);
        let kind = coordinator::Kind::CommitRecovery(RecoveryId { recovery_id });
        out.send_member(connection, ToShard::from(kind));
    }

    /// What a master has got with a recovery is on its own backups.
    pub(crate) fn recovery_durable(
        &mut self,
        index: u32,
        connection: u64,
        recovery: RecoveryId,
        out: &mut impl Output,
    ) {
        let recovery_id = recovery.recovery_id;
        let had_it = |tablet: &&crate::tables::Tablet| {
            let last = tablet.sources.last();
            tablet.owner == index && last.is_some_and(|last| last.recovery_id == recovery_id)
        };
        let tablets = self.tables.tablets().map(|(_, tablet)| tablet);
        let sources = tablets.filter(had_it).flat_map(|tablet| &tablet.sources);
        let logs: BTreeSet<ServerId> = sources.map(|source| source.log).collect();
        self.tables.release_sources(index, recovery_id);
        let kind = coordinator::Kind::SourcesReleased(recovery);
        out.send_member(connection, ToShard::from(kind));
        self.forget_logs(logs.into_iter().collect(), out);
    }

    // ---- what else happens ----

    /// A server's session has ended, or it is dead: it has dropped what it had not finished, or will.
    pub(crate) fn give_up_orders_of(&mut self, index: u32) {
        for recovery_id in self.recoveries.orders_where(|order| order.master == index) {
            self.recoveries.take_order(recovery_id);
        }
        self.recoveries.next_look = Time::ZERO;
    }

    /// A table goes: the other tablets of orders that were about it are given out anew, and nobody needs its logs for it.
    pub(crate) fn forget_table(&mut self, table: &Table, out: &mut impl Output) {
        let is_about = |order: &Order| {
            let mut tablets = order.tablets.iter();
            tablets.any(|tablet| tablet.table_id == table.id)
        };
        for recovery_id in self.recoveries.orders_where(is_about) {
            let order = self.recoveries.take_order(recovery_id);
            let master = order.and_then(|order| self.members.server(order.master));
            if let Some(link) = master.and_then(|master| master.link.as_ref()) {
                let kind = coordinator::Kind::GiveUpRecovery(RecoveryId { recovery_id });
                out.send_member(link.connection, ToShard::from(kind));
            }
        }
        let sources = table.tablets.iter().flat_map(|tablet| &tablet.sources);
        let logs: BTreeSet<ServerId> = sources.map(|source| source.log).collect();
        self.forget_logs(logs.into_iter().collect(), out);
    }

    /// Recoveries that brought tablets to this server and whose sources are still needed.
    pub(crate) fn committed_recoveries(&self, index: u32) -> Vec<u64> {
        let tablets = self.tables.tablets().map(|(_, tablet)| tablet);
        let owned = tablets.filter(|tablet| tablet.owner == index);
        let last = owned.filter_map(|tablet| tablet.sources.last());
        let ids: BTreeSet<u64> = last.map(|source| source.recovery_id).collect();
        ids.into_iter().filter(|&id| id != 0).collect()
    }

    // ---- logs that nobody needs ----

    /// Whether a log may be asked for: its server lives, or tablets have content there.
    fn needed_logs(&self) -> BTreeSet<ServerId> {
        let sources = self
            .tables
            .tablets()
            .flat_map(|(_, tablet)| &tablet.sources);
        let living = self.members.servers().map(|server| server.id);
        sources.map(|source| source.log).chain(living).collect()
    }

    /// Tells all backups which of these logs nobody needs any more.
    pub(crate) fn forget_logs(&mut self, mut logs: Vec<ServerId>, out: &mut impl Output) {
        if logs.is_empty() {
            return;
        }
        let needed = self.needed_logs();
        logs.retain(|log| !needed.contains(log));
        for log in &logs {
            if self.recoveries.dead.remove(log).is_some() {
                self.changed.insert(Key::Log(log.0));
            }
        }
        let connections: Vec<u64> = self.members.linked_backups().map(|(_, on)| on).collect();
        for connection in connections {
            send_forget_logs(connection, &logs, out);
        }
    }

    /// A backup came with replicas of these logs.
    pub(crate) fn forget_logs_at(&self, connection: u64, held: &[u64], out: &mut impl Output) {
        let needed = self.needed_logs();
        let held = held.iter().map(|&log| ServerId(log));
        let logs: Vec<ServerId> = held.filter(|log| !needed.contains(log)).collect();
        send_forget_logs(connection, &logs, out);
    }
}

fn send_forget_logs(connection: u64, logs: &[ServerId], out: &mut impl Output) {
    if logs.is_empty() {
        return;
    }
    let logs = logs.iter().map(|log| log.0).collect();
    let kind = coordinator::Kind::ForgetLogs(Logs { logs });
    out.send_member(connection, ToShard::from(kind));
}
