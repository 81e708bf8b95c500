//! Clients that have several operations under way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use client::{Cluster, Error, RejectRules, TableId, Ticket, ops};

use super::Options;
use super::data::{KEY_BYTES, Random, key};
use super::together::{Load, Target};

type Read = ops::Read<[u8; KEY_BYTES]>;
type Write = ops::Write<[u8; KEY_BYTES], Arc<[u8]>>;

/// Reads or writes of which `--outstanding` are under way at a time, until `end`; how many that were.
pub fn work(
    cluster: &mut Cluster,
    options: &Options,
    load: Load,
    target: &Target,
    random: &mut Random,
    end: Instant,
) -> Result<u64, Error> {
    let rules = RejectRules::default();
    let (table, value) = (target.table, Arc::from(vec![b'v'; target.size]));
    let (mut reads, mut writes) = (Tickets::<Read>::default(), Tickets::<Write>::default());
    let (mut done, start) = (0, Instant::now());
    while Instant::now() < end {
        while reads.len() + writes.len() < options.outstanding as usize {
            let key = key(random.below(target.objects));
            if load == Load::Read {
                reads.push_back(cluster.submit(ops::Read { table, key, rules })?);
            } else {
                let value = Arc::clone(&value);
                let write = ops::Write {
                    table,
                    key,
                    value,
                    rules,
                };
                writes.push_back(cluster.submit(write)?);
            }
        }
        done += take(cluster, &mut reads)? + take(cluster, &mut writes)?;
        options.pace(start, done);
    }
    while !reads.is_empty() || !writes.is_empty() {
        done += take(cluster, &mut reads)? + take(cluster, &mut writes)?;
    }
    Ok(done)
}

type Tickets<O> = VecDeque<Ticket<O>>;

/// Waits for the oldest, and takes those after it that came with it, so that the next are submitted together, too; how many that were.
fn take<O: ops::Operation>(cluster: &mut Cluster, tickets: &mut Tickets<O>) -> Result<u64, Error> {
    let mut taken = 0;
    while let Some(ticket) = tickets.pop_front() {
        if taken > 0 && !cluster.has(&ticket) {
            tickets.push_front(ticket);
            break;
        }
        cluster.wait(ticket)?;
        taken += 1;
    }
    Ok(taken)
}

/// Large objects that are moved one after the other, beside whatever else the client does.
pub struct Stream {
    table: TableId,
    objects: u32,
    value: Arc<[u8]>,
    is_writing: bool,
    moved: u64,
    reading: Option<Ticket<Read>>,
    writing: Option<Ticket<Write>>,
}

impl Stream {
    pub fn new(table: TableId, objects: u32, bytes: usize, is_writing: bool) -> Stream {
        Stream {
            table,
            objects,
            value: Arc::from(vec![b'l'; bytes]),
            is_writing,
            moved: 0,
            reading: None,
            writing: None,
        }
    }

    /// Begins with the next object if the one before has been moved.
    pub fn go_on(&mut self, cluster: &mut Cluster) -> Result<(), Error> {
        let is_under_way = match (&self.reading, &self.writing) {
            (Some(ticket), _) => !cluster.has(ticket),
            (_, Some(ticket)) => !cluster.has(ticket),
            (None, None) => false,
        };
        if is_under_way {
            return Ok(());
        }
        self.take(cluster)?;
        let (table, rules) = (self.table, RejectRules::default());
        let key = key((self.moved % u64::from(self.objects)) as u32);
        if self.is_writing {
            let value = Arc::clone(&self.value);
            let write = ops::Write {
                table,
                key,
                value,
                rules,
            };
            self.writing = Some(cluster.submit(write)?);
        } else {
            self.reading = Some(cluster.submit(ops::Read { table, key, rules })?);
        }
        Ok(())
    }

    fn take(&mut self, cluster: &mut Cluster) -> Result<(), Error> {
        if let Some(ticket) = self.reading.take() {
            cluster.wait(ticket)?;
            self.moved += 1;
        }
        if let Some(ticket) = self.writing.take() {
            cluster.wait(ticket)?;
            self.moved += 1;
        }
        Ok(())
    }

    /// Waits for the last; how many objects were moved.
    pub fn finish(mut self, cluster: &mut Cluster) -> Result<u64, Error> {
        self.take(cluster)?;
        Ok(self.moved)
    }
}
