//! Which migrations there are.

use std::collections::{BTreeMap, VecDeque};

use wire::member::TabletRange;

use crate::status::Migration;

/// Migrations that have ended and are still shown.
const MAX_SHOWN: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Migrations {
    pub(super) under_way: BTreeMap<u64, UnderWay>,
    ended: VecDeque<Migration>,
}

#[derive(Debug)]
pub(super) struct UnderWay {
    pub tablet: TabletRange,
    /// Indexes of servers.
    pub source: u32,
    pub target: u32,
    /// The target has all of it, in its log from this segment on, and the source is told to stop.
    pub from_segment: Option<u64>,
    pub shown: Migration,
    /// Who is told when it has ended: a shard's connection, and the number of its question.
    pub asked_by: Vec<(u64, u64)>,
}

impl UnderWay {
    pub fn concerns(&self, index: u32) -> bool {
        self.source == index || self.target == index
    }

    pub fn holds(&self, table_id: u64, key_hash: u64) -> bool {
        let tablet = &self.tablet;
        tablet.table_id == table_id
            && (tablet.start_key_hash..=tablet.end_key_hash).contains(&key_hash)
    }
}

impl Migrations {
    /// What went on last, and what is going on.
    pub fn shown(&self) -> impl Iterator<Item = &Migration> {
        let under_way = self.under_way.values().map(|one| &one.shown);
        self.ended.iter().chain(under_way)
    }

    /// What is under way from which server to which.
    pub fn ways(&self) -> BTreeMap<TabletRange, (u32, u32)> {
        let under_way = self.under_way.values();
        under_way
            .map(|one| (one.tablet, (one.source, one.target)))
            .collect()
    }

    pub(super) fn where_(&self, is_meant: impl Fn(&UnderWay) -> bool) -> Vec<u64> {
        let meant = self.under_way.iter().filter(|(_, one)| is_meant(one));
        meant.map(|(id, _)| *id).collect()
    }

    pub fn end(&mut self, shown: Migration) {
        if self.ended.len() == MAX_SHOWN {
            self.ended.pop_front();
        }
        self.ended.push_back(shown);
    }
}
