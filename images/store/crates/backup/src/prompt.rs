//! A storage on a disk that never keeps anybody waiting, such as memory: whatever is submitted is over at once.

use std::collections::VecDeque;

use crate::disk::{Disk, StorageError};
use crate::job::Job;
use crate::storage::{Completion, Scope, Storage};

/// See the module.
pub struct Prompt<D> {
    disk: D,
    completions: VecDeque<Completion>,
    /// A write has failed, and nobody has heard of it yet.
    is_broken: bool,
}

impl<D> Prompt<D> {
    pub fn new(disk: D) -> Prompt<D> {
        Prompt {
            disk,
            completions: VecDeque::new(),
            is_broken: false,
        }
    }
}

impl<D: Disk> Disk for Prompt<D> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.disk.write(offset, bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        self.disk.read(offset, out)
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        self.disk.sync()
    }

    fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        self.disk.grow(bytes)
    }
}

impl<D: Disk> Storage for Prompt<D> {
    fn submit(&mut self, ticket: u64, offset: u64, bytes: &[u8]) {
        if self.is_broken {
            return;
        }
        let completion = match self.disk.write(offset, bytes) {
            Ok(()) => {
                if let Some(Completion::Written(newest)) = self.completions.back_mut() {
                    *newest = ticket;
                    return;
                }
                Completion::Written(ticket)
            }
            Err(error) => {
                self.is_broken = true;
                Completion::WriteFailed(ticket, error)
            }
        };
        self.completions.push_back(completion);
    }

    fn resume(&mut self) {
        self.is_broken = false;
    }

    fn begin_sync(&mut self, scope: Scope) {
        let result = self.disk.sync();
        let completion = Completion::Synced(scope, result);
        self.completions.push_back(completion);
    }

    fn start(&mut self, job: Job) {
        let done = job.run(&mut self.disk);
        let completion = Completion::Done(Box::new(done));
        self.completions.push_back(completion);
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn wait_for_writes(&mut self) {}
}
