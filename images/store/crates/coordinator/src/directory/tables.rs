//! Tables, and which server owns which range of each one's key hashes.

mod audit;
mod durable;
mod even;
mod merge;
mod owned;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use base::bugs::{Bug, is_planted};
use base::ids::{ServerId, TableId};
use wire::hash::HashFunction;
use wire::member::TabletRange;

use crate::Limits;
use crate::journaled::Journaled;
use crate::table_limit::TableLimit;
use owned::{Owned, TabletKey};

pub use even::EvenSplit;
pub use merge::Pair;
pub use owned::NOBODY;

/// A closed range of key hashes, owned by the server with this index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tablet {
    pub start_key_hash: u64,
    pub end_key_hash: u64,
    pub owner: u32,
    /// The store itself has cut it off from the tablet before it, and may make one of the two again: no client wants that boundary.
    pub is_cut: bool,
    /// Logs that together hold its content, that of the owner last. Empty: all of the owner's log, and nothing else.
    pub sources: Vec<Source>,
}

/// A log that holds content of a tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    pub log: ServerId,
    /// Segments with a smaller id hold nothing of the tablet that counts: the server had it before and had given it up.
    pub from_segment: u64,
    /// The recovery with which the owner got it, as long as the sources before this one are needed; 0 otherwise.
    pub recovery_id: u64,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub id: u64,
    /// As the client sent it, without the NUL.
    pub name: Vec<u8>,
    /// In order of their ranges, which cover all key hashes.
    pub tablets: Vec<Tablet>,
}

impl Table {
    pub fn display_name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// The tablet that holds this hash.
    pub fn tablet_of(&self, key_hash: u64) -> &Tablet {
        &self.tablets[self.position_of(key_hash)]
    }

    /// Which of its tablets holds this hash.
    fn position_of(&self, key_hash: u64) -> usize {
        let tablets = &self.tablets;
        tablets.partition_point(|tablet| tablet.end_key_hash < key_hash)
    }

    pub fn range(&self, tablet: &Tablet) -> TabletRange {
        TabletRange {
            table_id: self.id,
            start_key_hash: tablet.start_key_hash,
            end_key_hash: tablet.end_key_hash,
        }
    }
}

/// Why a table cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// No member is up; one may come.
    NoServers,
    /// A limit stands against it.
    Limit(TableLimit),
}

/// Who wants a boundary between tablets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The store itself, for as long as it is of use.
    Own,
    /// A client, for good.
    Ordered,
}

/// A tablet that has become two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    pub whole: TabletRange,
    pub second: TabletRange,
    pub owner: u32,
}

/// Why a tablet cannot be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitError {
    NoTable,
    /// Its server is dead; later.
    Recovering,
    /// A limit stands against it.
    Limit(TableLimit),
}

#[derive(Debug)]
pub struct Tables {
    by_id: Journaled<u64, Table>,
    by_name: BTreeMap<Vec<u8>, u64>,
    /// Upper half of every id.
    tag: u32,
    /// Lower half of the id given out last.
    last_number: u32,
    /// First server of the member that got a span last.
    last_used: u32,
    owned: Owned,
    tablet_count: usize,
    limits: Limits,
}

impl Tables {
    pub fn new(tag: u32, limits: Limits) -> Tables {
        Tables {
            by_id: Journaled::default(),
            by_name: BTreeMap::new(),
            tag,
            last_number: 0,
            last_used: 0,
            owned: Owned::default(),
            tablet_count: 0,
            limits,
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }
    pub fn tablet_count(&self) -> usize {
        self.tablet_count
    }
    pub fn get(&self, id: u64) -> Option<&Table> {
        self.by_id.get(&id)
    }
    pub fn id_of(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).copied()
    }
    /// Whether there is exactly this tablet.
    pub fn has(&self, range: &TabletRange) -> bool {
        let table = self.by_id.get(&range.table_id);
        table.is_some_and(|table| table.range(table.tablet_of(range.start_key_hash)) == *range)
    }
    /// Tables with an id above `after`.
    pub fn after(&self, after: u64) -> impl Iterator<Item = &Table> {
        self.by_id.after(after)
    }
    /// How many tablets the server with this index owns.
    pub fn tablets_of(&self, owner: u32) -> u64 {
        self.owned.count(owner)
    }
    /// Indexes of all servers that own tablets.
    pub fn owners(&self) -> impl Iterator<Item = u32> {
        self.owned.owners()
    }
    /// Tables and tablets that these servers own, in order.
    pub fn owned_by(
        &self,
        owners: &BTreeSet<u32>,
    ) -> impl Iterator<Item = (&Table, &Tablet)> + use<'_> {
        let mut last: Option<&Table> = None;
        let mut at = 0;
        let places = self.owned.of(owners).into_iter();
        places.filter_map(move |(id, start_key_hash)| {
            if last.is_none_or(|table| table.id != id) {
                (last, at) = (self.by_id.get(&id), 0);
            }
            let table = last?;
            // Often the next one is that behind the one before.
            let next = table.tablets.get(at);
            if next.is_none_or(|tablet| tablet.start_key_hash != start_key_hash) {
                at = table.position_of(start_key_hash);
            }
            let tablet = table.tablets.get(at)?;
            at += 1;
            Some((table, tablet))
        })
    }

    /// Makes a table, in a store of this format, of `span` spans, dealt out to `members` in turn (each given by its shards' server indexes, in order
    /// of the first), going on after the member that was used last; each span is cut over its member's shards.
    pub fn create(
        &mut self,
        format: u32,
        name: &[u8],
        span: u32,
        members: &[&[u32]],
    ) -> Result<&Table, CreateError> {
        let limits = &self.limits;
        if name.len() > limits.max_table_name_bytes {
            return Err(CreateError::Limit(TableLimit::NameBytes {
                most: limits.max_table_name_bytes,
                asked: name.len(),
            }));
        }
        if span > limits.max_span {
            return Err(CreateError::Limit(TableLimit::Span {
                most: limits.max_span,
                asked: span,
            }));
        }
        if self.last_number >= TableId::MAX_NUMBER {
            return Err(CreateError::Limit(TableLimit::Numbers));
        }
        if self.by_id.len() >= limits.max_tables {
            let count = self.by_id.len();
            return Err(CreateError::Limit(TableLimit::Tables { count }));
        }
        if members.is_empty() {
            return Err(CreateError::NoServers);
        }
        let (tablets, last_used) = place(span.max(1), members, self.last_used);
        if tablets.len() > limits.max_tablets_per_table {
            return Err(CreateError::Limit(TableLimit::TabletsOfTable {
                span,
                tablets: tablets.len(),
                most: limits.max_tablets_per_table,
            }));
        }
        if self.tablet_count + tablets.len() > limits.max_tablets {
            return Err(CreateError::Limit(TableLimit::Tablets {
                span,
                tablets: tablets.len(),
                count: self.tablet_count,
                most: limits.max_tablets,
            }));
        }
        self.last_used = last_used;
        self.last_number += 1;
        let function = HashFunction::of_new_table(format, name);
        let id = TableId::new(self.tag, function, self.last_number).0;
        for tablet in &tablets {
            self.owned.add(tablet.owner, (id, tablet.start_key_hash));
        }
        self.tablet_count += tablets.len();
        self.by_name.insert(name.to_vec(), id);
        let name = name.to_vec();
        Ok(self.by_id.insert(id, Table { id, name, tablets }))
    }

    /// Makes two tablets of the one that holds `key_hash`, which becomes the first of the second. Gives what has changed for its owner, if anything
    /// has.
    pub fn split(
        &mut self,
        name: &[u8],
        key_hash: u64,
        by: Cut,
    ) -> Result<Option<Split>, SplitError> {
        let table = self.by_name.get(name).and_then(|id| self.by_id.get(id));
        let table = table.ok_or(SplitError::NoTable)?;
        let at = table.position_of(key_hash);
        let whole = table.tablets[at].clone();
        if whole.start_key_hash == key_hash {
            let id = table.id;
            if whole.is_cut
                && by == Cut::Ordered
                && let Some(table) = self.by_id.get_mut(&id)
            {
                table.tablets[at].is_cut = false;
            }
            return Ok(None);
        }
        if whole.owner == NOBODY {
            return Err(SplitError::Recovering);
        }
        self.has_room_for(table, 1)?;
        let (id, owner) = (table.id, whole.owner);
        let range = table.range(&whole);
        let second = Tablet {
            start_key_hash: key_hash,
            is_cut: by == Cut::Own,
            ..whole
        };
        let second_range = table.range(&second);
        if let Some(table) = self.by_id.get_mut(&id) {
            table.tablets[at].end_key_hash = key_hash - 1;
            table.tablets.insert(at + 1, second);
        }
        self.tablet_count += 1;
        self.owned.add(owner, (id, key_hash));
        Ok(Some(Split {
            whole: range,
            second: second_range,
            owner,
        }))
    }

    /// Forgets a table and returns it.
    pub fn drop_table(&mut self, name: &[u8]) -> Option<Table> {
        let id = self.by_name.remove(name)?;
        let table = self.by_id.remove(&id)?;
        for tablet in &table.tablets {
            self.owned.remove(tablet.owner, (id, tablet.start_key_hash));
        }
        self.tablet_count -= table.tablets.len();
        if is_planted(Bug::ReuseTableId) {
            self.last_number -= 1;
        }
        Some(table)
    }

    /// Gives what `from` own to `to`, in turn.
    pub fn reassign(&mut self, from: &BTreeSet<u32>, to: &[u32]) {
        if from.is_empty() || to.is_empty() {
            return;
        }
        let places = self.owned.of(from);
        for owner in from {
            self.owned.remove_all(*owner);
        }
        for (place, owner) in places.into_iter().zip(to.iter().copied().cycle()) {
            self.owned.add(owner, place);
            if let Some(tablet) = self.tablet_at(place) {
                tablet.owner = owner;
                tablet.sources.clear();
            }
        }
    }
}

// What recoveries and migrations do with tablets.
impl Tables {
    /// What these servers' tablets held is lost, wherever it came from: whoever owns them has all that there is.
    pub fn empty(&mut self, owners: &BTreeSet<u32>) {
        let owned = self.owned_by(owners);
        let owned = owned.filter(|(_, tablet)| !tablet.sources.is_empty());
        let places: Vec<TabletKey> = owned.map(place_of).collect();
        for place in places {
            if let Some(tablet) = self.tablet_at(place) {
                tablet.sources.clear();
            }
        }
    }

    /// A tablet becomes that of another server, whose log holds all of it. Answers what its sources were.
    pub fn hand_over(
        &mut self,
        range: &TabletRange,
        from: u32,
        to: u32,
        source: Source,
    ) -> Vec<Source> {
        let tablet = self.tablet_mut(range);
        let tablet = tablet.expect("whoever asks would have been told that it is gone");
        assert_eq!(tablet.owner, from, "a tablet has one owner");
        tablet.owner = to;
        let old = std::mem::replace(&mut tablet.sources, vec![source]);
        let place = (range.table_id, range.start_key_hash);
        self.owned.remove(from, place);
        self.owned.add(to, place);
        old
    }

    /// The server with this index is dead, and its log holds what it owned.
    pub fn orphan(&mut self, owner: u32, log: ServerId) {
        let places = self.owned.of(&BTreeSet::from([owner]));
        self.owned.remove_all(owner);
        for place in places {
            let Some(tablet) = self.tablet_at(place) else {
                continue;
            };
            tablet.owner = NOBODY;
            if tablet.sources.is_empty() {
                tablet.sources.push(Source {
                    log,
                    from_segment: 0,
                    recovery_id: 0,
                });
            }
            // All of them are needed, whoever brings the tablet back.
            for source in &mut tablet.sources {
                source.recovery_id = 0;
            }
        }
    }

    /// Every tablet.
    pub fn tablets(&self) -> impl Iterator<Item = (&Table, &Tablet)> {
        let tables = self.by_id.values();
        tables.flat_map(|table| table.tablets.iter().map(move |tablet| (table, tablet)))
    }

    /// For a change.
    fn tablet_at(&mut self, (id, start_key_hash): TabletKey) -> Option<&mut Tablet> {
        let table = self.by_id.get_mut(&id)?;
        let at = table.position_of(start_key_hash);
        table.tablets.get_mut(at)
    }

    /// Exactly this tablet, for a change.
    fn tablet_mut(&mut self, range: &TabletRange) -> Option<&mut Tablet> {
        if !self.has(range) {
            return None;
        }
        self.tablet_at((range.table_id, range.start_key_hash))
    }

    /// A server has brought a tablet back, and its log is one more source of it.
    pub fn adopt(&mut self, range: &TabletRange, owner: u32, source: Source) {
        let tablet = self.tablet_mut(range);
        let tablet = tablet.expect("whoever asks has looked");
        assert_eq!(tablet.owner, NOBODY, "a tablet has one owner");
        tablet.owner = owner;
        tablet.sources.push(source);
        let place = (range.table_id, range.start_key_hash);
        self.owned.add(owner, place);
    }

    /// What the owner got with this recovery is on its own log's backups: its tablets need no other source.
    pub fn release_sources(&mut self, owner: u32, recovery_id: u64) {
        let is_its = |tablet: &Tablet| {
            let last = tablet.sources.last();
            last.is_some_and(|last| last.recovery_id == recovery_id)
        };
        let owned = self.owned_by(&BTreeSet::from([owner]));
        let its = owned.filter(|(_, tablet)| is_its(tablet));
        let places: Vec<TabletKey> = its.map(place_of).collect();
        for place in places {
            if let Some(tablet) = self.tablet_at(place) {
                let last = tablet.sources.pop();
                let alone = last.map(|last| Source {
                    recovery_id: 0,
                    ..last
                });
                tablet.sources = alone.into_iter().collect();
            }
        }
    }

    /// Cuts a tablet that nobody owns into parts of equal width, fewer where a limit stands against it; the parts.
    pub fn cut_orphan(&mut self, range: &TabletRange, parts: usize) -> Vec<TabletRange> {
        let limits = &self.limits;
        let room = limits.max_tablets.saturating_sub(self.tablet_count);
        let Some(table) = self.by_id.get(&range.table_id) else {
            return Vec::new();
        };
        let room = room.min(
            limits
                .max_tablets_per_table
                .saturating_sub(table.tablets.len()),
        );
        let at = table.position_of(range.start_key_hash);
        let whole = table.tablets[at].clone();
        if whole.start_key_hash != range.start_key_hash {
            return Vec::new();
        }
        let parts: Vec<Tablet> = cut(
            range.start_key_hash,
            range.end_key_hash,
            parts.min(room + 1),
        )
        .map(|(start_key_hash, end_key_hash)| Tablet {
            start_key_hash,
            end_key_hash,
            is_cut: whole.is_cut || start_key_hash > whole.start_key_hash,
            ..whole.clone()
        })
        .collect();
        self.tablet_count += parts.len() - 1;
        let ranges = parts.iter().map(|part| table.range(part)).collect();
        if let Some(table) = self.by_id.get_mut(&range.table_id) {
            table.tablets.splice(at..=at, parts);
        }
        ranges
    }
}

fn place_of((table, tablet): (&Table, &Tablet)) -> TabletKey {
    (table.id, tablet.start_key_hash)
}

/// Cuts the closed range [`start`, `end`] into `parts` of equal width (the last may be narrower).
fn cut(start: u64, end: u64, parts: usize) -> impl Iterator<Item = (u64, u64)> {
    let width = u128::from(end - start) / parts as u128 + 1;
    (0..parts as u128).filter_map(move |part| {
        let first = u128::from(start) + part * width;
        let last = (first + width - 1).min(u128::from(end));
        // A range narrower than the number of parts leaves the last parts empty.
        (first <= last).then_some((first as u64, last as u64))
    })
}

/// Returns the tablets and the first server of the member used last.
fn place(span: u32, members: &[&[u32]], last_used: u32) -> (Vec<Tablet>, u32) {
    let first = members
        .iter()
        .position(|servers| servers[0] > last_used)
        .unwrap_or(0);
    let mut tablets = Vec::new();
    let mut used = last_used;
    for (number, (start, end)) in cut(0, u64::MAX, span as usize).enumerate() {
        let servers = members[(first + number) % members.len()];
        used = servers[0];
        for (shard, (start_key_hash, end_key_hash)) in cut(start, end, servers.len()).enumerate() {
            tablets.push(Tablet {
                start_key_hash,
                end_key_hash,
                owner: servers[shard],
                is_cut: false,
                sources: Vec::new(),
            });
        }
    }
    (tablets, used)
}
