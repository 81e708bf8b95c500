//! Checkpoints of the state go to the volumes of backups, and what volumes alone must not contradict waits for that: docs/rebuild.md.
//!
//! The state is counted in versions: each round that changes something begins the next. A version is *kept* when a checkpoint of it, or of a later one, is
//! in the volumes of as many members as the store must not lose at once. Orders after which servers acknowledge what an older checkpoint would not
//! bring back (`must_be_kept` in `gate.rs`) wait for it, and with them whatever else is for the same server, in order; a second at most, and not at all while too few
//! backups keep checkpoints.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::bugs::{Bug, is_planted};
use base::time::Time;
use wire::member::{CheckpointKept, KeepCheckpoint, ToShard, coordinator};

use crate::effects::CoordinatorEffects;
use crate::records::Meta;
use crate::registry::members::Members;
use crate::reports::StateEvent;
use crate::state::checkpoint::Header;
use crate::state::gate::{Gate, Queue};
use crate::status::{Checkpoint, CheckpointKeeper};

/// Between two checkpoints for which nothing waits.
const PAUSE: Duration = Duration::from_secs(1);
/// One is made so often although nothing but leases and time has changed.
const INTERVAL: Duration = Duration::from_secs(10);
/// Availability counts more than a disaster at just this moment.
const WAIT_AT_MOST: Duration = Duration::from_secs(1);
/// A backup that could not keep one gets the next after this.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Of one message.
const PART_BYTES: usize = 256 << 10;
/// Messages that wait, at most.
const MAX_WAITING: usize = 100_000;

#[derive(Debug)]
struct Made {
    version: u64,
    header: Header,
    bytes: Vec<u8>,
    at: Time,
}

/// A backup that keeps checkpoints.
#[derive(Debug)]
struct Keeper {
    connection: u64,
    /// On its way, and up to where.
    sending: Option<(Arc<Made>, usize)>,
    /// The newest that it has said to keep, in this session.
    kept: Option<Arc<Made>>,
    /// Why it did not keep the last one; empty: it did, or has yet to say so.
    failure: String,
    not_before: Time,
}

#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// Of the state, with what this round has changed.
    version: u64,
    /// This round's changes are counted already.
    is_counted: bool,
    counted_meta: Option<Meta>,
    newest: Option<Arc<Made>>,
    last_number: u64,
    /// By server index.
    keepers: BTreeMap<u32, Keeper>,
    queue: Queue,
    /// Something has to wait at all.
    is_on: bool,
    /// Of the newest version that is kept.
    kept_version: u64,
}

impl Keeping {
    /// Lets a round's messages through that need not wait. The round's end: [`Keeping::shut`].
    pub fn open<'a, O>(&mut self, out: &'a mut O) -> Gate<'a, O> {
        Gate {
            out,
            queue: core::mem::take(&mut self.queue),
            is_on: self.is_on,
        }
    }

    pub fn shut<O>(&mut self, gate: Gate<'_, O>) {
        self.queue = gate.queue;
    }

    /// The connection has ended: nothing waits for it.
    pub fn forget(&mut self, connection: u64) {
        self.queue.forget(connection);
    }

    /// All connections have ended.
    pub fn forget_all(&mut self) {
        self.queue = Queue::default();
    }

    pub fn is_counted(&self) -> bool {
        self.is_counted
    }

    /// What must hold at any time.
    ///
    /// # Errors
    /// Says what contradicts what.
    pub fn audit(&self) -> Result<(), String> {
        let newest = self.newest.as_ref();
        let newest = newest.map_or(0, |made| made.header.number);
        let mut kept = self.keepers.values().filter_map(|one| one.kept.as_ref());
        if kept.any(|made| made.header.number > newest) || self.kept_version > self.version {
            return Err("a checkpoint is kept that was not made".to_owned());
        }
        match self.queue.is_counted() {
            true => Ok(()),
            false => Err("messages that wait for a checkpoint are miscounted".to_owned()),
        }
    }

    /// If this round has changed what matters, it begins a version.
    pub fn count(&mut self, is_changed: bool, meta: Meta) {
        // Time alone, and a lease that was prolonged, are not worth a checkpoint of their own.
        let meta = Meta {
            time_bound_ns: 0,
            lease_shift_ns: 0,
            ..meta
        };
        if is_changed || self.counted_meta.as_ref() != Some(&meta) {
            self.version += 1;
            self.is_counted = true;
            self.counted_meta = Some(meta);
        }
    }

    /// The changes of this round were taken: what comes now is another version.
    pub fn version_is_taken(&mut self) {
        self.is_counted = false;
    }

    /// A backup has said what became of a part.
    pub fn kept(
        &mut self,
        now: Time,
        index: u32,
        connection: u64,
        kept: CheckpointKept,
        out: &mut impl CoordinatorEffects,
    ) {
        let Some(keeper) = self.keepers.get_mut(&index) else {
            return;
        };
        let Some((made, sent)) = keeper.sending.take_if(|(made, _)| {
            keeper.connection == connection && made.header.number == kept.number
        }) else {
            return;
        };
        if kept.is_kept {
            keeper.kept = Some(made);
            keeper.failure.clear();
        } else if kept.failure.is_empty() && kept.bytes as usize == sent {
            send_part(keeper, made, sent, out);
        } else {
            keeper.not_before = now + RETRY_AFTER;
            if keeper.failure != kept.failure {
                let event = StateEvent::CheckpointNotKept {
                    server_index: index,
                    why: kept.failure.clone(),
                };
                out.report(event.into());
            }
            keeper.failure = kept.failure;
        }
    }

    /// Finds who keeps checkpoints, first in each round. Answers whether anybody does, or anything waits for one.
    pub fn begin_round(&mut self, members: &Members) -> bool {
        self.look_for_keepers(members);
        let is_needed = !self.keepers.is_empty() || !self.queue.waiting.is_empty();
        self.is_on &= is_needed;
        is_needed
    }

    /// Who keeps checkpoints, as it is connected now.
    fn look_for_keepers(&mut self, members: &Members) {
        let is_wanted = keepers_wanted(members) > 0;
        let mut found: BTreeMap<u32, u64> = BTreeMap::new();
        for server in members.servers().filter(|_| is_wanted) {
            let report = server.backup.as_ref();
            let keeps = report.is_some_and(|it| it.keeps_checkpoints && it.retired.is_empty());
            if let Some(link) = server.link.as_ref().filter(|_| keeps) {
                found.insert(server.id.index(), link.connection);
            }
        }
        let keepers = &mut self.keepers;
        keepers.retain(|index, keeper| found.get(index) == Some(&keeper.connection));
        for (index, connection) in found {
            keepers.entry(index).or_insert_with(|| Keeper {
                connection,
                sending: None,
                kept: None,
                failure: String::new(),
                not_before: Time::ZERO,
            });
        }
    }

    /// When the next checkpoint is to be made.
    pub fn due(&self, now: Time) -> Time {
        let keeping = self;
        if keeping.keepers.is_empty() {
            return Time::NEVER;
        }
        let is_stale = |made: &Arc<Made>| made.version != keeping.version;
        match &keeping.newest {
            None => now,
            Some(made) if is_stale(made) => {
                let waits = keeping.queue.waiting.iter();
                let is_awaited = waits.filter(|waiting| waiting.must_be_kept).any(|waiting| {
                    waiting
                        .needs
                        .is_none_or(|(version, _)| version > made.version)
                });
                // Those who still get the one before would all be behind for ever, if each change began another.
                let idle = keeping.keepers.values();
                let idle = idle.filter(|keeper| keeper.sending.is_none()).count();
                match is_awaited && 2 * idle >= keeping.keepers.len() {
                    true => now,
                    false => made.at + PAUSE,
                }
            }
            Some(made) => made.at + INTERVAL,
        }
    }

    /// Number of the next checkpoint.
    pub fn next_number(&self) -> u64 {
        self.last_number + 1
    }

    /// The checkpoint that was due. Answers when the next one is to be made at the earliest.
    pub fn made(&mut self, now: Time, header: Header, bytes: Vec<u8>) -> Time {
        self.last_number = header.number;
        self.newest = Some(Arc::new(Made {
            version: self.version,
            header,
            bytes,
            at: now,
        }));
        now + PAUSE
    }

    /// Sends the newest checkpoint to those that lack it, and lets out what has waited long enough. Last in every round; when to come again.
    pub fn send(
        &mut self,
        now: Time,
        members: &Members,
        out: &mut impl CoordinatorEffects,
    ) -> Time {
        for keeper in self.keepers.values_mut() {
            let Some(newest) = &self.newest else {
                break;
            };
            let has_it = keeper
                .kept
                .as_ref()
                .is_some_and(|kept| kept.header.number == newest.header.number);
            if keeper.sending.is_none() && !has_it && now >= keeper.not_before {
                send_part(keeper, Arc::clone(newest), 0, out);
            }
        }
        self.judge(keepers_wanted(members), members);
        let waits_until = self.let_out(now, out);
        let retries = self.keepers.values();
        let retries = retries.filter(|keeper| keeper.not_before > now);
        let retry_at = retries.map(|keeper| keeper.not_before).min();
        waits_until.min(retry_at.unwrap_or(Time::NEVER))
    }

    /// Lets out what waits no more; until when the first of the others waits at most.
    fn let_out(&mut self, now: Time, out: &mut impl CoordinatorEffects) -> Time {
        let keeping = self;
        let Queue {
            waiting,
            connections,
        } = &mut keeping.queue;
        let is_too_much = waiting.len() > MAX_WAITING;
        let mut blocked = BTreeSet::new();
        let mut next = Time::NEVER;
        let mut stay = VecDeque::new();
        for mut one in waiting.drain(..) {
            let (version, since) = *one.needs.get_or_insert((keeping.version, now));
            let is_late = now >= since + WAIT_AT_MOST || is_too_much;
            let is_kept = !keeping.is_on || version <= keeping.kept_version;
            let may_go = !one.must_be_kept || is_kept || is_late;
            if may_go && !blocked.contains(&one.connection) {
                if let Some(count) = connections.get_mut(&one.connection) {
                    *count -= 1;
                    if *count == 0 {
                        connections.remove(&one.connection);
                    }
                }
                out.send_member(one.connection, one.message);
            } else {
                blocked.insert(one.connection);
                if one.must_be_kept {
                    next = next.min(since + WAIT_AT_MOST);
                }
                stay.push_back(one);
            }
        }
        *waiting = stay;
        next
    }

    /// What can be seen of all this.
    pub fn shown(&self, now: Time, members: &Members) -> Option<Checkpoint> {
        let wanted = keepers_wanted(members);
        if wanted == 0 {
            return None;
        }
        let keeping = self;
        let newest = keeping.newest.as_ref();
        let keepers = keeping.keepers.iter().filter_map(|(index, keeper)| {
            let server = members.server(*index)?;
            let kept = keeper.kept.as_ref();
            Some(CheckpointKeeper {
                server_id: server.id.0,
                number: kept.map_or(0, |made| made.header.number),
                is_current: kept.is_some_and(|made| made.version == keeping.version),
                failure: keeper.failure.clone(),
            })
        });
        let age = |made: &Arc<Made>| now.since(made.at).as_millis();
        Some(Checkpoint {
            term: newest.map_or(0, |made| made.header.position.term),
            number: newest.map_or(0, |made| made.header.number),
            bytes: newest.map_or(0, |made| made.bytes.len() as u64),
            age_ms: newest.map_or(0, |made| u64::try_from(age(made)).unwrap_or(u64::MAX)),
            members_wanted: wanted as u32,
            is_current: keeping.has_kept(keeping.version, wanted, members),
            keepers: keepers.collect(),
        })
    }

    /// Finds what is kept by now, and whether anything has to wait for it.
    fn judge(&mut self, wanted: usize, members: &Members) {
        // Who has kept one in this session keeps others: an older build, or a storage that is full, keeps nobody waiting.
        let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
        for (index, keeper) in &self.keepers {
            let kept = keeper.kept.as_ref().filter(|_| keeper.failure.is_empty());
            let kept = match &keeper.sending {
                Some((made, _)) if is_planted(Bug::CountUnkept) => Some(made),
                _ => kept,
            };
            if let (Some(kept), Some(server)) = (kept, members.server(*index)) {
                let version = newest.entry(server.member.as_str()).or_default();
                *version = kept.version.max(*version);
            }
        }
        let mut versions: Vec<u64> = newest.into_values().collect();
        versions.sort_unstable_by(|one, other| other.cmp(one));
        self.is_on = wanted > 0 && versions.len() >= wanted;
        if self.is_on {
            self.kept_version = self.kept_version.max(versions[wanted - 1]);
        }
    }

    fn has_kept(&self, version: u64, wanted: usize, members: &Members) -> bool {
        let keepers = self.keepers.iter();
        let keepers = keepers.filter(|(_, keeper)| {
            keeper
                .kept
                .as_ref()
                .is_some_and(|made| made.version >= version)
        });
        let holders = keepers.filter_map(|(index, _)| members.server(*index));
        let holders: BTreeSet<&str> = holders.map(|server| server.member.as_str()).collect();
        holders.len() >= wanted
    }
}

/// As many members must have a checkpoint before it counts as kept as logs have copies: what the store survives the loss of, its state does, too.
/// 0: the store has no copies, and nothing is to be made from volumes.
pub(crate) fn keepers_wanted(members: &Members) -> usize {
    let replicas = members.enlisted().map(|(server, _)| server.replicas);
    replicas.max().unwrap_or(0) as usize
}

fn send_part(
    keeper: &mut Keeper,
    made: Arc<Made>,
    offset: usize,
    out: &mut impl CoordinatorEffects,
) {
    let rest = made.bytes.get(offset..).unwrap_or_default();
    let data = rest[..rest.len().min(PART_BYTES)].to_vec();
    let sent = offset + data.len();
    let part = KeepCheckpoint {
        number: made.header.number,
        offset: offset as u64,
        total_bytes: made.bytes.len() as u64,
        data,
    };
    let kind = coordinator::Kind::KeepCheckpoint(part);
    out.send_member(keeper.connection, ToShard::from(kind));
    keeper.sending = Some((made, sent));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{self, MOMENT, Said, index};
    use crate::state::checkpoint;
    use crate::store::Store;
    use base::bugs::plant;
    use wire::member::{Position, TabletOrder};

    struct Alone {
        store: Store,
        keeping: Keeping,
        out: Said,
        now: Time,
    }

    impl Alone {
        /// All three members have kept a checkpoint; each log has two copies.
        fn new() -> Alone {
            let (mut store, _) = alone::store(3);
            for number in 1..=3 {
                let index = index(&store, number);
                let server = store.members.server_mut(index).unwrap();
                server.backup.as_mut().unwrap().keeps_checkpoints = true;
            }
            let mut alone = Alone {
                store,
                keeping: Keeping::default(),
                out: Said::default(),
                now: Time(1000),
            };
            let (parts, _) = alone.round();
            assert_eq!(parts.len(), 3);
            for part in parts {
                alone.keeps(part);
            }
            alone.send();
            alone
        }

        /// Something changes. Answers the parts of the next checkpoint, by connection, and whether an order was let out.
        fn round(&mut self) -> (Vec<(u64, KeepCheckpoint)>, bool) {
            self.now += MOMENT;
            assert!(self.keeping.begin_round(&self.store.members));
            self.keeping.count(true, Meta::default());
            assert!(self.keeping.due(self.now) <= self.now);
            let header = Header {
                cluster_id: 7,
                position: Position::default(),
                number: self.keeping.next_number(),
                cluster_time_ns: 0,
            };
            let bytes = checkpoint::encode(&header, core::iter::empty());
            self.keeping.made(self.now, header, bytes);
            self.send();
            let said = self.out.take();
            let has_let_out = said.iter().any(is_order);
            let parts = said.into_iter();
            let parts = parts.filter_map(|(connection, kind)| match kind {
                coordinator::Kind::KeepCheckpoint(part) => Some((connection, part)),
                _ => None,
            });
            (parts.collect(), has_let_out)
        }

        fn send(&mut self) {
            let (members, out) = (&self.store.members, &mut self.out);
            self.keeping.send(self.now, members, out);
            self.keeping.version_is_taken();
        }

        fn keeps(&mut self, (connection, part): (u64, KeepCheckpoint)) {
            let kept = CheckpointKept {
                number: part.number,
                is_kept: true,
                ..CheckpointKept::default()
            };
            let index = self.store.members.server_of(connection).unwrap();
            let (now, out) = (self.now, &mut self.out);
            self.keeping.kept(now, index, connection, kept, out);
            self.send();
        }

        fn has_let_out(&mut self) -> bool {
            self.out.take().iter().any(is_order)
        }
    }

    fn is_order((_, kind): &(u64, coordinator::Kind)) -> bool {
        matches!(kind, coordinator::Kind::TakeTablet(_))
    }

    /// Whether an order is let out at once, when one member has the checkpoint that it is in, and when two have.
    fn let_out() -> [bool; 3] {
        let mut alone = Alone::new();
        let order = coordinator::Kind::TakeTablet(TabletOrder::default());
        let mut gate = alone.keeping.open(&mut alone.out);
        gate.send_member(101, ToShard::from(order));
        alone.keeping.shut(gate);
        let (parts, at_once) = alone.round();
        let mut parts = parts.into_iter();
        alone.keeps(parts.next().unwrap());
        let with_one = alone.has_let_out();
        alone.keeps(parts.next().unwrap());
        [at_once, with_one, alone.has_let_out()]
    }

    #[test]
    fn an_order_waits_until_as_many_have_the_checkpoint_as_logs_have_copies() {
        assert_eq!(let_out(), [false, false, true]);
        plant(Some(Bug::CountUnkept));
        let [at_once, ..] = let_out();
        plant(None);
        assert!(at_once, "the planted bug is not found");
    }
}
