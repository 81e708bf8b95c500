//! Reads of replicas by peers. Each answer is made by a job, and the backup bounds how many are under way.

use base::bugs::{Bug, is_planted};
use base::ids::ReplyTo;
use wire::peer::{Read, ReadEntries, ReplicaId, Role, Status};

use crate::backup::Backup;
use crate::effects::BackupEffects;
use crate::entries::{Entries, Refusal};
use crate::event::BackupEvent;
use crate::job::{Done, Job, Outcome, Work};
use crate::reader::Snapshot;
use crate::record::Damage;
use crate::storage::Storage;

/// Answers to peers that are being made. More than one, so that the disk has something to do while an answer is on its way to the peer and back.
const MOST_READS: usize = 4;

impl<S: Storage> Backup<S> {
    /// Whether the answer to a read of this replica can be begun now: two jobs that compare the same data would do the same work.
    pub fn may_read(&self, replica: ReplicaId) -> bool {
        let number = self.replicas.get(&replica);
        self.takes_reads() && number.is_none_or(|number| !self.jobs.reading.contains(number))
    }

    /// Whether another answer can be begun at all.
    pub fn takes_reads(&self) -> bool {
        self.jobs.reading.len() < MOST_READS
    }

    /// Whether an answer to a peer is being made.
    pub fn is_reading(&self) -> bool {
        !self.jobs.reading.is_empty()
    }

    /// Reads a piece of a replica's data, less than was asked for only at the replica's end. [`BackupEffects::data`] follows, soon or later. All data of the
    /// replica is compared with its checksum before; if that is wrong, the status is [`Status::Mismatch`], nothing is given out, and the
    /// damage is named at the next [`Backup::tick`]. A retired backup answers as long as its storage does.
    pub fn read(&mut self, read: &Read, to: ReplyTo, out: &mut impl BackupEffects) {
        let Some(frame) = self.snapshot(read.replica) else {
            return out.data(to, Status::Missing, &[]);
        };
        let held = frame.content.bytes;
        let offset = read.offset.min(held);
        let bytes = read.bytes.min(held - offset);
        self.begin_reading(
            frame,
            Work::Read {
                to,
                frame,
                offset,
                bytes,
            },
        );
    }

    /// Reads entries of some tablets, whole and in the order of the segment. [`BackupEffects::entries`] follows, and says where to go on: at the
    /// replica's length, all is done. One answer is a bounded amount of work, so there may be little in it, or nothing, before the end.
    ///
    /// All data of the replica has been compared with its checksum before, as for [`Backup::read`], and each entry is with its own: what
    /// has rotted since is given out by nobody, and passed over by nobody. The status is then [`Status::Mismatch`], as it is for what is no
    /// entry; the next [`Backup::tick`] names it. It is [`Status::Missing`] for what is not complete of a side segment.
    pub fn read_entries(
        &mut self,
        read: &ReadEntries<'_>,
        to: ReplyTo,
        out: &mut impl BackupEffects,
    ) {
        let frame = self.snapshot(read.replica);
        // It ends anywhere in an entry, and no recovery needs it.
        let whole = frame.filter(|frame| frame.content.role == Role::Head || frame.content.closed);
        let Some(frame) = whole else {
            return out.entries(to, Status::Missing, 0, &[]);
        };
        let wanted = Entries::new(read);
        self.begin_reading(frame, Work::Entries { to, frame, wanted });
    }

    fn snapshot(&self, replica: ReplicaId) -> Option<Snapshot> {
        let number = self.replicas.get(&replica)?;
        self.frames[*number].snapshot()
    }

    fn begin_reading(&mut self, frame: Snapshot, work: Work) {
        self.jobs.reading.insert(frame.number);
        let after = self.frames[frame.number].written_by();
        self.begin_job(after, work);
    }

    /// Has work done once writes up to `after` have ended.
    pub(crate) fn begin_job(&mut self, after: u64, work: Work) {
        let job = Job {
            layout: self.device.layout,
            formats: self.device.formats,
            work,
        };
        self.jobs.waiting.push((after, job));
        self.start_jobs();
    }

    pub(crate) fn start_jobs(&mut self) {
        let flight = &self.device.flight;
        for (_, job) in self
            .jobs
            .waiting
            .extract_if(.., |(after, _)| flight.has_ended(*after))
        {
            if self.jobs.under_way == 0 {
                self.jobs.progress_at = self.device.now;
            }
            self.jobs.under_way += 1;
            self.device.storage.start(job);
        }
    }

    /// Writes from this one on were not carried out: jobs that have waited for them know frames as these never were.
    pub(crate) fn end_stale_jobs(&mut self, from: u64, out: &mut impl BackupEffects) {
        let waiting = core::mem::take(&mut self.jobs.waiting);
        let (stale, others): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(after, _)| *after >= from);
        self.jobs.waiting = others;
        for (after, job) in stale {
            match job.work {
                Work::Read { to, frame, .. } => {
                    self.jobs.reading.remove(&frame.number);
                    out.data(to, Status::Missing, &[]);
                }
                Work::Entries { to, frame, .. } => {
                    self.jobs.reading.remove(&frame.number);
                    out.entries(to, Status::Missing, 0, &[]);
                }
                // Begun again by the next tick.
                Work::Inspect { log, .. } => {
                    self.inspecting.remove(&log);
                    self.make_durable(log);
                }
                // Begun again when somebody asks for the log again.
                Work::Rewrite(_) => self.is_rewriting = false,
                // Its parts vouch for each other.
                Work::Checkpoint(_) => self.jobs.waiting.push((after, job)),
            }
        }
    }

    pub(crate) fn job_done(&mut self, done: Done, out: &mut impl BackupEffects) {
        self.jobs.under_way -= 1;
        self.jobs.progress_at = self.device.now;
        match done.0 {
            Outcome::Read {
                to,
                frame,
                data,
                result,
            } => {
                let result = result.map_err(Refusal::Damaged);
                match self.conclude(&frame, result) {
                    Ok(()) => out.data(to, Status::Ok, &data),
                    Err(status) => out.data(to, status, &[]),
                }
            }
            Outcome::Entries {
                to,
                frame,
                data,
                result,
            } => match self.conclude(&frame, result) {
                Ok(next_offset) => out.entries(to, Status::Ok, next_offset, &data),
                Err(status) => out.entries(to, status, 0, &[]),
            },
            Outcome::Inspected { log, frames } => self.inspected(log, frames, out),
            Outcome::Rewritten {
                written,
                damaged,
                result,
            } => self.rewritten(written, &damaged, result, out),
            Outcome::Checkpoint(bytes) => out.checkpoint(bytes),
        }
    }

    /// A result of reading a frame says something about the frame only while that has the same use.
    fn conclude<T>(&mut self, frame: &Snapshot, result: Result<T, Refusal>) -> Result<T, Status> {
        self.jobs.reading.remove(&frame.number);
        if !self.has_same_use(frame) {
            return Err(Status::Missing);
        }
        match result {
            Ok(found) => {
                self.frames[frame.number].learn(frame);
                Ok(found)
            }
            Err(Refusal::Damaged(damage)) => {
                self.name_damage(frame.number, damage);
                Err(Status::Mismatch)
            }
            Err(Refusal::Malformed { offset, error }) => {
                let (number, replica) = (frame.number, frame.content.replica);
                self.frames[number].doubt();
                self.unreported.push(BackupEvent::NoEntryAt {
                    frame: number,
                    replica,
                    offset,
                    error,
                });
                Err(Status::Mismatch)
            }
        }
    }

    pub(crate) fn has_same_use(&self, frame: &Snapshot) -> bool {
        is_planted(Bug::BelieveOldCompletion) || self.frames[frame.number].has_use_of(frame)
    }

    /// A job has found something wrong with a frame.
    pub(crate) fn found_damaged(&mut self, frame: &Snapshot, damage: Damage) {
        if self.has_same_use(frame) {
            self.name_damage(frame.number, damage);
        }
    }
}
