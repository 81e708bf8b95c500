//! What of the tables is durable.

use std::collections::{BTreeMap, BTreeSet};

use base::bugs::{Bug, is_planted};
use base::ids::{ServerId, TableId};

use super::{Source, Table, Tables, Tablet};
use crate::Limits;
use crate::journaled::Journaled;
use crate::records::{self, Key, Record};
use crate::resource::Resource;

fn source_record(source: &Source) -> records::Source {
    records::Source {
        log: source.log.0,
        from_segment: source.from_segment,
        recovery_id: source.recovery_id,
    }
}

fn source_of(record: records::Source) -> Source {
    Source {
        log: ServerId(record.log),
        from_segment: record.from_segment,
        recovery_id: record.recovery_id,
    }
}

fn table_record(table: &Table) -> Record {
    let tablets = table.tablets.iter().map(|tablet| records::Tablet {
        end_key_hash: tablet.end_key_hash,
        owner: tablet.owner,
        sources: tablet.sources.iter().map(source_record).collect(),
        is_cut: tablet.is_cut || is_planted(Bug::ForgetOrderedBoundary),
    });
    Record::Table(records::Table {
        id: table.id,
        name: table.name.clone(),
        tablets: tablets.collect(),
    })
}

impl Resource for Tables {
    fn is_worth_a_checkpoint(&self) -> bool {
        self.by_id.is_changed()
    }

    fn take_changed(&mut self) -> BTreeSet<Key> {
        let changed = self.by_id.take_changed().into_iter();
        changed.map(Key::Table).collect()
    }

    fn record(&self, key: &Key) -> Option<Record> {
        match key {
            Key::Table(id) => self.by_id.get(id).map(table_record),
            _ => None,
        }
    }

    fn records(&self) -> Box<dyn Iterator<Item = Record> + '_> {
        Box::new(self.by_id.values().map(table_record))
    }

    fn audit(&self) -> Result<(), String> {
        self.recount()
    }
}

impl Tables {
    /// Number of the table that was made last, and the server that was used last.
    pub fn counters(&self) -> (u32, u32) {
        (self.last_number, self.last_used)
    }

    /// The state may be an older one: numbers go on so much further.
    pub fn leave_out(&mut self, numbers: u32) {
        self.last_number = self.last_number.saturating_add(numbers);
    }

    /// As they were noted.
    ///
    /// # Errors
    /// Says what contradicts what.
    pub fn restore(
        limits: Limits,
        meta: &records::Meta,
        tables: Vec<records::Table>,
    ) -> Result<Tables, String> {
        let mut restored = Tables::new(meta.cluster_tag, limits);
        let mut by_id = BTreeMap::new();
        restored.last_number = meta.last_table_number;
        restored.last_used = meta.last_used_server;
        for record in tables {
            let id = TableId(record.id);
            if !id.is_of_format(meta.format_version) {
                return Err(format!(
                    "the keys of table {id} are hashed in a way that format {} does not have",
                    meta.format_version
                ));
            }
            let (tag, number) = (id.cluster_tag(), id.number());
            if tag != meta.cluster_tag || number == 0 || number > meta.last_table_number {
                return Err(format!(
                    "table {:#x} cannot have been made: the last one was {:#x}",
                    record.id,
                    u64::from(meta.cluster_tag) << 32 | u64::from(meta.last_table_number)
                ));
            }
            let table = table_of(record)?;
            for tablet in &table.tablets {
                let place = (table.id, tablet.start_key_hash);
                restored.owned.add(tablet.owner, place);
            }
            restored.tablet_count += table.tablets.len();
            let other = restored.by_name.insert(table.name.clone(), table.id);
            if let Some(other) = other {
                return Err(format!(
                    "tables {other:#x} and {:#x} are both named {:?}",
                    table.id,
                    table.display_name()
                ));
            }
            by_id.insert(table.id, table);
        }
        restored.by_id = Journaled::noted(by_id);
        Ok(restored)
    }
}

fn table_of(record: records::Table) -> Result<Table, String> {
    let mut tablets = Vec::with_capacity(record.tablets.len());
    let mut next = Some(0);
    for tablet in record.tablets {
        match next {
            Some(start_key_hash) if start_key_hash <= tablet.end_key_hash => {
                tablets.push(Tablet {
                    start_key_hash,
                    end_key_hash: tablet.end_key_hash,
                    owner: tablet.owner,
                    is_cut: tablet.is_cut,
                    sources: tablet.sources.into_iter().map(source_of).collect(),
                });
            }
            _ => {
                return Err(format!(
                    "tablets of table {:#x} are not in order",
                    record.id
                ));
            }
        }
        next = tablet.end_key_hash.checked_add(1);
    }
    if next.is_some() {
        return Err(format!(
            "the tablets of table {:#x} do not cover all key hashes",
            record.id
        ));
    }
    Ok(Table {
        id: record.id,
        name: record.name,
        tablets,
    })
}
