//! What clients asked for and what they were told, and which keys each crash took with it.

use std::collections::BTreeMap;

use wire::hash::key_hash;
use wire::ids::TableId;

use crate::checker::{Input, Operation, Output};

/// One operation on one key, as its client saw it.
#[derive(Clone, Debug)]
pub struct Record {
    pub client: u32,
    pub table: TableId,
    pub key: Vec<u8>,
    pub input: Input,
    /// `None`: it has not ended.
    pub output: Option<Ending>,
    pub call: u64,
    pub end: u64,
    /// Part of a multi-write: an attempt that was sent again may take effect again.
    pub is_multi: bool,
    /// How often a request with it went out.
    pub sends: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Known(Output),
    /// It may have taken effect or not.
    Unknown,
    /// It certainly had no effect, and showed nothing.
    Nothing,
}

/// Where a table's keys live, for as long as it exists: tablets never leave their member in this version.
#[derive(Clone, Debug)]
struct Placement {
    /// Last hash of each range, and the member that has it.
    ranges: Vec<(u64, String)>,
}

#[derive(Debug, Default)]
pub struct History {
    pub records: Vec<Record>,
    placements: BTreeMap<TableId, Placement>,
    /// Members that lost everything, and when.
    losses: Vec<(u64, String)>,
}

impl History {
    pub fn call(&mut self, record: Record) -> usize {
        self.records.push(record);
        self.records.len() - 1
    }

    /// Notes where a table was placed: last hashes and members, in order.
    pub fn place(&mut self, table: TableId, ranges: Vec<(u64, String)>) {
        self.placements.entry(table).or_insert(Placement { ranges });
    }

    pub fn lose(&mut self, now: u64, member: &str) {
        self.losses.push((now, member.to_owned()));
    }

    fn member_of(&self, table: TableId, key: &[u8]) -> Option<&str> {
        let hash = key_hash(table, key);
        let ranges = &self.placements.get(&table)?.ranges;
        let at = ranges.partition_point(|(end, _)| *end < hash);
        ranges.get(at).map(|(_, member)| member.as_str())
    }

    /// Every key with its history, crashes of its server included, ready to be checked.
    pub fn by_key(&self) -> BTreeMap<(TableId, Vec<u8>), Vec<Operation>> {
        let mut records: BTreeMap<(TableId, &[u8]), Vec<&Record>> = BTreeMap::new();
        for record in &self.records {
            records
                .entry((record.table, &record.key))
                .or_default()
                .push(record);
        }
        records
            .into_iter()
            .map(|((table, key), records)| {
                let crashes: Vec<u64> = self
                    .member_of(table, key)
                    .map(|member| {
                        self.losses
                            .iter()
                            .filter(|(_, lost)| lost == member)
                            .map(|&(at, _)| at)
                            .collect()
                    })
                    .unwrap_or_default();
                let operations = operations(&records, &crashes);
                ((table, key.to_vec()), operations)
            })
            .collect()
    }
}

fn operations(records: &[&Record], crashes: &[u64]) -> Vec<Operation> {
    let mut operations: Vec<Operation> = crashes
        .iter()
        .map(|&at| Operation {
            client: u32::MAX,
            input: Input::Loss,
            output: Output::Unknown,
            call: at,
            end: at,
        })
        .collect();
    for record in records {
        let is_read = matches!(record.input, Input::Read(_));
        let with = |output, end| Operation {
            client: record.client,
            input: record.input,
            output,
            call: record.call,
            end,
        };
        let last = match record.output {
            Some(Ending::Known(output)) => {
                operations.push(with(output, record.end));
                record.end
            }
            Some(Ending::Nothing) => record.end,
            Some(Ending::Unknown) | None => {
                if !is_read {
                    operations.push(with(Output::Unknown, u64::MAX));
                }
                u64::MAX
            }
        };
        if is_read {
            continue;
        }
        // An attempt that a crash swallowed, together with the memory that it was made.
        for &crash in crashes {
            if record.call < crash && crash < last {
                operations.push(with(Output::Maybe, crash - 1));
            }
        }
        // A part of a multi-write that was sent again is not recognized: it may take effect each time, and late.
        if record.is_multi {
            for _ in 1..record.sends {
                operations.push(with(Output::Unknown, u64::MAX));
            }
        }
    }
    operations
}

/// The bytes of a value: its number, then a pattern that depends on it.
pub fn value_bytes(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..length.saturating_sub(8)).map(|at| (number as u8).wrapping_add(at as u8)));
    bytes
}

/// The number of a value; `None` if it is not one that [`value_bytes`] makes.
pub fn value_number(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    (value_bytes(number, bytes.len()) == bytes).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_value_is_recognized() {
        let bytes = value_bytes(300, 20);
        assert_eq!(value_number(&bytes), Some(300));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_ne!(value_number(&damaged), Some(300), "byte {at}");
        }
        assert_eq!(value_number(&bytes[..7]), None);
    }

    #[test]
    fn crashes_and_repeated_parts_become_operations() {
        let rules = wire::rpc::RejectRules::default();
        let table = TableId(1);
        let mut history = History::default();
        history.place(table, vec![(u64::MAX, "a".to_owned())]);
        history.call(Record {
            client: 1,
            table,
            key: b"k".to_vec(),
            input: Input::Write(1, rules),
            output: Some(Ending::Known(Output::Done(1))),
            call: 10,
            end: 30,
            is_multi: true,
            sends: 3,
        });
        history.lose(20, "a");
        history.lose(40, "a");
        history.lose(25, "b");
        let operations = &history.by_key()[&(table, b"k".to_vec())];
        let count = |output| {
            operations
                .iter()
                .filter(|operation| operation.input != Input::Loss && operation.output == output)
                .count()
        };
        let losses = operations
            .iter()
            .filter(|operation| operation.input == Input::Loss)
            .count();
        assert_eq!(losses, 2);
        assert_eq!(count(Output::Done(1)), 1);
        assert_eq!(count(Output::Maybe), 1, "only the crash at 20 lies within");
        assert_eq!(count(Output::Unknown), 2);
    }
}
