//! A storage in memory that loses, tears, rots, fails and is late as told: for tests, and for the simulator's servers.

use std::collections::{BTreeMap, VecDeque};

use base::bugs::{Bug, is_planted};

use crate::disk::{Disk, StorageError};
use crate::job::{Done, Job};
use crate::storage::{Completion, SUPERBLOCK_BYTES, Scope, Storage};

/// Devices write so much whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// A page cache over a disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    /// What reads see.
    cache: Vec<u8>,
    /// What is left without power, before anything of `unsynced` is added.
    disk: Vec<u8>,
    /// Written since, in order.
    unsynced: Vec<Written>,
    /// What was in the cache where the last of them is.
    overwritten: Vec<u8>,
    written: u64,
    /// The writes that each sync under way is about: those before this number.
    syncs: BTreeMap<Scope, u64>,
    /// What does not work from now on.
    pub faults: Faults,
    /// A byte has changed by itself.
    pub is_rotten: bool,
    pub bytes_read: u64,
    /// Writes wait for [`MemoryStorage::carry_out`], jobs for [`MemoryStorage::do_job`], and what they come to for
    /// [`MemoryStorage::report`]; otherwise they are over at once.
    pub is_late: bool,
    queue: Queue,
    /// Offset and length of what it was told will be read.
    pub announced: Vec<(u64, u64)>,
}

/// Everything that was submitted and has not ended.
#[derive(Default)]
struct Queue {
    writes: VecDeque<Submitted>,
    jobs: VecDeque<Job>,
    /// Completions that were not told.
    ended: VecDeque<Completion>,
    completions: VecDeque<Completion>,
    /// A write has failed, and nobody has heard of it yet.
    is_broken: bool,
}

/// A copy of a storage is what another process finds: nothing of what this one is waiting for.
impl Clone for Queue {
    fn clone(&self) -> Queue {
        Queue::default()
    }
}

impl core::fmt::Debug for Queue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} writes, {} jobs", self.writes.len(), self.jobs.len())
    }
}

enum Submitted {
    Write {
        ticket: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    Resume,
}

/// What does not work. The texts become those of the errors.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Long ones are done in part before they fail.
    pub writes: Option<String>,
    /// What they carry is never written.
    pub syncs: Option<String>,
    /// There is no more room than there is.
    pub growth: Option<String>,
    /// Reads that touch the byte at this offset fail.
    pub unreadable_at: Option<u64>,
}

impl Faults {
    /// Whether anything does not work.
    pub fn is_some(&self) -> bool {
        self.writes.is_some() || self.syncs.is_some() || self.unreadable_at.is_some()
    }
}

#[derive(Clone, Debug)]
struct Written {
    number: u64,
    offset: u64,
    bytes: Vec<u8>,
}

impl Written {
    fn is_of(&self, scope: Scope) -> bool {
        scope == Scope::All || self.offset < SUPERBLOCK_BYTES
    }

    /// The parts that lie in one sector each, and the sector's number.
    fn sectors(&self) -> impl Iterator<Item = (u64, u64, &[u8])> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
            let offset = self.offset + at as u64;
            let room = SECTOR_BYTES - offset % SECTOR_BYTES;
            let part = &rest[..rest.len().min(room as usize)];
            at += part.len();
            Some((offset / SECTOR_BYTES, offset, part))
        })
    }
}

fn put(into: &mut [u8], offset: u64, bytes: &[u8]) {
    let at = offset as usize;
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

impl MemoryStorage {
    /// Of zeros.
    pub fn new(bytes: u64) -> MemoryStorage {
        MemoryStorage::with(vec![0; bytes as usize])
    }

    pub fn with(bytes: Vec<u8>) -> MemoryStorage {
        MemoryStorage {
            disk: bytes.clone(),
            cache: bytes,
            ..MemoryStorage::default()
        }
    }

    /// What reads see.
    pub fn bytes(&self) -> &[u8] {
        &self.cache
    }

    /// The syncs that are under way.
    pub fn syncs_under_way(&self) -> Vec<Scope> {
        self.syncs.keys().copied().collect()
    }

    /// Ends a sync that is under way.
    pub fn finish_sync(&mut self, scope: Scope) {
        let result = self.sync_of(scope);
        self.end(Completion::Synced(scope, result));
    }

    /// Writes that wait, jobs, and completions that were not told.
    pub fn waiting(&self) -> (usize, usize, usize) {
        let queue = &self.queue;
        (queue.writes.len(), queue.jobs.len(), queue.ended.len())
    }

    fn end(&mut self, completion: Completion) {
        self.queue.ended.push_back(completion);
        if !self.is_late {
            self.report();
        }
    }

    /// Tells of what has ended.
    pub fn report(&mut self) {
        let queue = &mut self.queue;
        queue.completions.append(&mut queue.ended);
    }

    /// Carries out so many of the writes that wait.
    pub fn carry_out(&mut self, count: usize) {
        for _ in 0..count {
            let mut next = self.queue.writes.pop_front();
            if is_planted(Bug::OvertakeWrite)
                && let Some(Submitted::Write { .. }) = self.queue.writes.front()
            {
                // Its ticket stays: the writes have changed places, and nobody is told.
                next = self.overtaken(next);
            }
            match next {
                None => return,
                Some(Submitted::Resume) => self.queue.is_broken = false,
                Some(Submitted::Write { .. }) if self.queue.is_broken => {}
                Some(Submitted::Write {
                    ticket,
                    offset,
                    bytes,
                }) => {
                    let completion = match self.write(offset, &bytes) {
                        Ok(()) => Completion::Written(ticket),
                        Err(error) => {
                            self.queue.is_broken = true;
                            Completion::WriteFailed(ticket, error)
                        }
                    };
                    self.end(completion);
                }
            }
        }
    }

    /// The write behind this one, in its place, and this one behind it.
    fn overtaken(&mut self, first: Option<Submitted>) -> Option<Submitted> {
        let (mut first, mut second) = (first?, self.queue.writes.pop_front()?);
        if let (Submitted::Write { ticket: one, .. }, Submitted::Write { ticket: other, .. }) =
            (&mut first, &mut second)
        {
            core::mem::swap(one, other);
        }
        self.queue.writes.push_front(first);
        Some(second)
    }

    /// Does one of the jobs that wait.
    pub fn do_job(&mut self, at: usize) {
        let job = self.queue.jobs.remove(at);
        let done: Option<Done> = job.map(|job| job.run(self));
        if let Some(done) = done {
            self.end(Completion::Done(Box::new(done)));
        }
    }

    fn sync_of(&mut self, scope: Scope) -> Result<(), StorageError> {
        let until = self.syncs.remove(&scope).expect("a sync is under way");
        // As Linux does it: what could not be written is taken for written, and is in the cache only.
        let result = match &self.faults.syncs {
            Some(text) => Err(StorageError(text.clone())),
            None => Ok(()),
        };
        let (disk, unsynced) = (&mut self.disk, &mut self.unsynced);
        unsynced.retain(|written| {
            let is_carried = written.number < until && written.is_of(scope);
            if is_carried && result.is_ok() {
                put(disk, written.offset, &written.bytes);
            }
            !is_carried
        });
        result
    }

    /// Writes so far.
    pub fn writes(&self) -> u64 {
        self.written
    }

    /// Offset and length of the last write, if it is not synced.
    pub fn last_write(&self) -> Option<(u64, usize)> {
        let last = self.unsynced.last()?;
        Some((last.offset, last.bytes.len()))
    }

    /// The process dies and its kernel goes on: what was written is there.
    pub fn process_crash(&mut self) {
        self.syncs.clear();
        self.queue = Queue::default();
    }

    /// The process dies in the middle of a write: of the last one, only what lies before `offset` is there. Headers, which lie in one
    /// block, are written whole or not at all, so for them choose one of these.
    pub fn process_crash_within_write(&mut self, offset: u64) {
        self.process_crash();
        let last = self.unsynced.last_mut();
        let Some(last) = last.filter(|last| last.number + 1 == self.written) else {
            return;
        };
        let kept = offset.saturating_sub(last.offset) as usize;
        let kept = kept.min(last.bytes.len());
        last.bytes.truncate(kept);
        let at = last.offset + kept as u64;
        put(&mut self.cache, at, &self.overwritten[kept..]);
    }

    /// Power is lost. Each sector holds what was in it at the last sync or at any time since: `choose(n)` says how many of n writes
    /// to it got through.
    pub fn power_loss(&mut self, mut choose: impl FnMut(usize) -> usize) {
        self.process_crash();
        let unsynced = std::mem::take(&mut self.unsynced);
        let mut sectors: BTreeMap<u64, Vec<(u64, &[u8])>> = BTreeMap::new();
        for written in &unsynced {
            for (sector, offset, part) in written.sectors() {
                sectors.entry(sector).or_default().push((offset, part));
            }
        }
        for writes in sectors.values() {
            let through = choose(writes.len()).min(writes.len());
            for (offset, part) in &writes[..through] {
                put(&mut self.disk, *offset, part);
            }
        }
        self.cache.clone_from(&self.disk);
    }

    /// A byte changes by itself, on the disk and in the cache.
    pub fn rot(&mut self, offset: u64, flip: u8) {
        self.is_rotten = true;
        for bytes in [&mut self.cache, &mut self.disk] {
            bytes[offset as usize] ^= flip;
        }
        for written in &mut self.unsynced {
            let at = offset.checked_sub(written.offset);
            if let Some(byte) = at.and_then(|at| written.bytes.get_mut(at as usize)) {
                *byte ^= flip;
            }
        }
    }

    fn take(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.overwritten = self.cache[at..at + bytes.len()].to_vec();
        put(&mut self.cache, offset, bytes);
        self.unsynced.push(Written {
            number: self.written,
            offset,
            bytes: bytes.to_vec(),
        });
        self.written += 1;
    }

    fn range(&self, offset: u64, bytes: usize) -> Result<(), StorageError> {
        let end = offset.checked_add(bytes as u64);
        if end.is_some_and(|end| end <= self.cache.len() as u64) {
            Ok(())
        } else {
            Err(StorageError(format!(
                "{bytes} bytes at {offset} are beyond the end"
            )))
        }
    }
}

impl Disk for MemoryStorage {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.range(offset, bytes.len())?;
        if let Some(text) = self.faults.writes.clone() {
            if bytes.len() as u64 > SECTOR_BYTES {
                self.take(offset, &bytes[..bytes.len() / 2]);
            }
            return Err(StorageError(text));
        }
        self.take(offset, bytes);
        Ok(())
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        self.range(offset, out.len())?;
        let touched = offset..offset + out.len() as u64;
        if let Some(at) = self.faults.unreadable_at
            && touched.contains(&at)
        {
            return Err(StorageError(format!("the byte at {at} cannot be read")));
        }
        let at = offset as usize;
        out.copy_from_slice(&self.cache[at..at + out.len()]);
        self.bytes_read += out.len() as u64;
        Ok(())
    }

    fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        if let Some(text) = &self.faults.growth {
            return Err(StorageError(text.clone()));
        }
        for all in [&mut self.cache, &mut self.disk] {
            all.resize(all.len().max(bytes as usize), 0);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        let under_way = self.syncs.insert(Scope::All, self.written);
        let result = self.sync_of(Scope::All);
        self.syncs
            .extend(under_way.map(|until| (Scope::All, until)));
        result
    }
}

impl Storage for MemoryStorage {
    fn submit(&mut self, ticket: u64, offset: u64, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.queue.writes.push_back(Submitted::Write {
            ticket,
            offset,
            bytes,
        });
        if !self.is_late {
            self.carry_out(1);
        }
    }

    fn resume(&mut self) {
        self.queue.writes.push_back(Submitted::Resume);
        if !self.is_late {
            self.carry_out(1);
        }
    }

    fn begin_sync(&mut self, scope: Scope) {
        let before = self.syncs.insert(scope, self.written);
        assert_eq!(before, None, "one sync of a scope at a time");
    }

    fn start(&mut self, job: Job) {
        self.queue.jobs.push_back(job);
        if !self.is_late {
            self.do_job(0);
        }
    }

    fn will_need(&mut self, offset: u64, bytes: u64) {
        self.announced.push((offset, bytes));
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.queue.completions.pop_front()
    }

    fn wait_for_writes(&mut self) {
        self.carry_out(self.queue.writes.len());
        self.report();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> MemoryStorage {
        let mut storage = MemoryStorage::new(SUPERBLOCK_BYTES + 4096);
        storage.write(SUPERBLOCK_BYTES, &[1; 1024]).unwrap();
        storage
    }

    #[test]
    fn power_takes_what_is_not_synced_sector_by_sector() {
        let mut storage = written();
        let mut first = true;
        storage.power_loss(|writes| {
            if std::mem::take(&mut first) {
                writes
            } else {
                0
            }
        });
        let at = SUPERBLOCK_BYTES as usize;
        assert_eq!(storage.bytes()[at..at + 512], [1; 512]);
        assert_eq!(storage.bytes()[at + 512..at + 1024], [0; 512]);
    }

    #[test]
    fn a_sync_carries_what_was_written_before_it_began() {
        let mut storage = written();
        storage.begin_sync(Scope::All);
        storage.write(SUPERBLOCK_BYTES, &[2; 512]).unwrap();
        storage.finish_sync(Scope::All);
        storage.power_loss(|_| 0);
        let at = SUPERBLOCK_BYTES as usize;
        assert_eq!(storage.bytes()[at..at + 1024], [1; 1024]);
    }

    #[test]
    fn the_superblock_is_synced_alone() {
        let mut storage = written();
        storage.write(0, &[3; 8]).unwrap();
        storage.begin_sync(Scope::Superblock);
        storage.finish_sync(Scope::Superblock);
        storage.power_loss(|_| 0);
        assert_eq!(storage.bytes()[..8], [3; 8]);
        assert_eq!(storage.bytes()[SUPERBLOCK_BYTES as usize], 0);
    }

    #[test]
    fn a_dying_process_leaves_the_beginning_of_a_write() {
        let mut storage = written();
        storage.process_crash_within_write(SUPERBLOCK_BYTES + 100);
        let at = SUPERBLOCK_BYTES as usize;
        assert_eq!(storage.bytes()[at..at + 100], [1; 100]);
        assert_eq!(storage.bytes()[at + 100], 0);
    }
}
