//! Completions of the storage: answers that waited for them leave, and the next writes, syncs and jobs are submitted.

use base::bugs::{Bug, is_planted};
use base::ids::{ReplyTo, ServerId};
use base::time::Time;
use wire::peer::{Answer, Status};

use crate::backup::Backup;
use crate::disk::StorageError;
use crate::effects::BackupEffects;
use crate::frame::Frame;
use crate::storage::{Completion, Storage};
use crate::unwritten::Waiting;

impl<S: Storage> Backup<S> {
    /// Hears what the storage has completed. [`Backup::tick`] does that as well; a driver that calls this first has answers leave a little earlier.
    /// Whether there was anything.
    pub fn complete(&mut self, now: Time, out: &mut impl BackupEffects) -> bool {
        self.device.now = now;
        let mut has_heard = false;
        while let Some(completion) = self.device.storage.next_completion() {
            match completion {
                Completion::Written(ticket) => {
                    self.device.flight.written(ticket);
                    self.written(ticket, out);
                }
                Completion::WriteFailed(ticket, error) => self.write_failed(ticket, &error, out),
                Completion::Synced(scope, result) => self.synced(now, scope, result, out),
                Completion::Done(done) => self.job_done(*done, out),
            }
            has_heard = true;
        }
        has_heard
    }

    /// Answers that all that was written for this request is written: at once if it is, and otherwise then.
    pub(crate) fn answer_written(
        &mut self,
        (to, log, bytes): (ReplyTo, ServerId, u32),
        out: &mut impl BackupEffects,
    ) {
        let after = self.device.flight.submitted();
        if self.device.flight.has_ended(after) || is_planted(Bug::AnswerUnwritten) {
            let status = Status::Ok;
            return out.answer(to, Answer { status, bytes });
        }
        self.unwritten.0.push_back(Waiting {
            after,
            to,
            log,
            bytes,
        });
    }

    fn written(&mut self, ticket: u64, out: &mut impl BackupEffects) {
        self.unwritten.answer_written(ticket, out);
        self.start_syncs();
        self.start_jobs();
    }

    /// Nothing that was submitted since is there, and nothing of it counts.
    fn write_failed(&mut self, from: u64, error: &StorageError, out: &mut impl BackupEffects) {
        self.device.storage.resume();
        let was_retired = self.retired.is_some();
        let superblock = self.fencing.has_to_start(from);
        let frames = self.commit.has_to_start(from);
        self.unwritten
            .refuse(Status::Retired, |waiting| waiting.after >= from, out);
        for before in self.device.flight.failed() {
            self.undo(before);
        }
        let ended = self.device.flight.submitted();
        if frames {
            self.frames_synced(Err(error.clone()), out);
        } else {
            self.retire(error, out);
        }
        if superblock {
            self.superblock_synced(Err(error.clone()), out);
        }
        self.end_stale_jobs(from, out);
        if was_retired && !self.is_noted_again {
            // The note of the first failure may have been behind this write. It is tried once more, and then no more.
            self.is_noted_again = true;
            self.note_failure();
        }
        self.written(ended, out);
    }

    /// A change of a frame was not written.
    fn undo(&mut self, before: Frame) {
        let number = before.number();
        let now = self.frames[number];
        if let Some(content) = now.content() {
            self.replicas.remove(&content.replica);
        }
        self.free.remove(&number);
        self.freeing.remove(&number);
        self.frames[number] = before.undone_from(&now, &self.device);
        match before.content() {
            Some(content) => {
                self.replicas.insert(content.replica, number);
            }
            None => {
                self.free.insert(number);
            }
        }
    }
}
