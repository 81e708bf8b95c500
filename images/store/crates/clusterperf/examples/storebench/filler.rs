//! Tables with so many objects.

use std::time::{Duration, Instant};

use client::{Cluster, ReadObject, RejectRules, TableId, WriteObject};

use crate::Failure;

pub const KEY_BYTES: u64 = 30;
/// Of one request of those that fill the table.
const BATCH_BYTES: u64 = 512 << 10;
/// Objects that are asked for: their keys are spread over all parts.
const SAMPLES: u64 = 256;

/// A table on one server; gives that one's locator.
pub fn create_table(cluster: &mut Cluster, name: &str) -> Result<(TableId, String), Failure> {
    let table = cluster.create_table(name, 1)?;
    let tablet = cluster.table_config(table)?.pop();
    Ok((table, tablet.ok_or("a table without tablets")?.locator))
}

/// An object on another server than the victim: tables are dealt out in turn.
pub fn unaffected(
    cluster: &mut Cluster,
    number: usize,
    victim: &str,
) -> Result<(TableId, Vec<u8>), Failure> {
    let (table, locator) = create_table(cluster, &format!("elsewhere-{number}"))?;
    if locator == victim {
        return Err(format!("two of the first tables are on {victim}").into());
    }
    cluster.write(table, b"key", &[7; 100])?;
    Ok((table, b"key".to_vec()))
}

/// Objects 0 to `count`.
#[derive(Clone, Copy)]
pub struct Filler {
    pub table: TableId,
    pub count: u64,
    pub value_bytes: u64,
}

impl Filler {
    pub fn key(number: u64) -> Vec<u8> {
        format!("{number:030}").into_bytes()
    }

    fn value(&self, number: u64) -> Vec<u8> {
        number
            .to_le_bytes()
            .into_iter()
            .cycle()
            .take(self.value_bytes as usize)
            .collect()
    }

    pub fn fill(&self, cluster: &mut Cluster) -> Result<(), Failure> {
        let each = (BATCH_BYTES / (KEY_BYTES + self.value_bytes)) as usize;
        for first in (0..self.count).step_by(each) {
            let numbers = first..(first + each as u64).min(self.count);
            let content: Vec<_> = numbers
                .map(|number| (Self::key(number), self.value(number)))
                .collect();
            let object = |(key, value)| WriteObject {
                table: self.table,
                key,
                value,
                rules: RejectRules::default(),
            };
            let objects: Vec<_> = content
                .iter()
                .map(|(key, value)| object((key, value)))
                .collect();
            for written in cluster.multi_write(&objects)? {
                written?;
            }
        }
        Ok(())
    }

    /// Reads some of all; gives how long after `since` the last answer was there.
    pub fn read_samples(&self, cluster: &mut Cluster, since: Instant) -> Result<Duration, String> {
        let numbers = (0..SAMPLES).map(|sample| sample * self.count / SAMPLES);
        let keys: Vec<(u64, Vec<u8>)> = numbers.map(|number| (number, Self::key(number))).collect();
        let object = |key| ReadObject {
            table: self.table,
            key,
            rules: RejectRules::default(),
        };
        let objects: Vec<_> = keys.iter().map(|(_, key)| object(key)).collect();
        let read = cluster
            .multi_read(&objects)
            .map_err(|error| error.to_string())?;
        let took = since.elapsed();
        for ((number, _), object) in keys.iter().zip(read) {
            let value = object
                .map_err(|error| format!("object {number}: {error}"))?
                .value;
            if value != self.value(*number) {
                return Err(format!("object {number} is not what was written"));
            }
        }
        Ok(took)
    }
}
