//! What a backup's frames lie on: a file, a block device, or memory.

mod error;
mod file;
mod lane;
mod memory;
mod worker;

use std::sync::Arc;
use std::sync::mpsc::Sender;

use backup::{Backup, Completion, Disk, Job, OpenError, Prompt, Scope, Storage, StorageError};
use net::Remote;

pub use error::NoStorage;
pub use file::{BackupFile, FileStorage};
pub use lane::Lane;
pub use memory::ProcessMemory;

/// What happens beside a shard's thread.
pub enum Event {
    Opened(Box<Result<Backup<AnyStorage>, OpenError>>),
}

/// Tells a shard's thread.
#[derive(Clone)]
pub struct Reporter {
    events: Sender<Event>,
    remote: Remote,
}

impl Reporter {
    pub fn new(events: Sender<Event>, remote: Remote) -> Reporter {
        Reporter { events, remote }
    }

    pub fn tell(&self, event: Event) {
        // Nobody listens once the process is ending.
        if self.events.send(event).is_ok() {
            self.remote.wake();
        }
    }

    /// Of the shard's thread.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }
}

/// A storage as a server is told to have it.
pub enum AnyStorage {
    File(FileStorage),
    Memory(Prompt<ProcessMemory>),
}

impl AnyStorage {
    /// Where the caller is to carry out writes now.
    pub fn lane_to_carry_out(&mut self) -> Option<Arc<Lane>> {
        match self {
            AnyStorage::File(file) => file.lane_to_carry_out(),
            AnyStorage::Memory(_) => None,
        }
    }
}

/// The same for either kind.
macro_rules! either {
    ($storage:expr, $inner:ident => $call:expr) => {
        match $storage {
            AnyStorage::File($inner) => $call,
            AnyStorage::Memory($inner) => $call,
        }
    };
}

impl Disk for AnyStorage {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        either!(self, inner => inner.write(offset, bytes))
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        either!(self, inner => inner.read(offset, out))
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        either!(self, inner => inner.sync())
    }

    fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        either!(self, inner => inner.grow(bytes))
    }
}

impl Storage for AnyStorage {
    fn submit(&mut self, ticket: u64, offset: u64, bytes: &[u8]) {
        either!(self, inner => inner.submit(ticket, offset, bytes));
    }

    fn resume(&mut self) {
        either!(self, inner => inner.resume());
    }

    fn begin_sync(&mut self, scope: Scope) {
        either!(self, inner => inner.begin_sync(scope));
    }

    fn start(&mut self, job: Job) {
        either!(self, inner => inner.start(job));
    }

    fn will_need(&mut self, offset: u64, bytes: u64) {
        either!(self, inner => inner.will_need(offset, bytes));
    }

    fn next_completion(&mut self) -> Option<Completion> {
        either!(self, inner => inner.next_completion())
    }

    fn wait_for_writes(&mut self) {
        either!(self, inner => inner.wait_for_writes());
    }
}

/// Opens a backup in a thread of its own: it reads and syncs, which may take long, and the shard has others to answer meanwhile.
pub fn open(name: String, config: backup::Config, storage: AnyStorage, reporter: Reporter) {
    let teller = reporter.clone();
    let work = move || {
        let opened = Backup::open(net::now(), config, storage);
        teller.tell(Event::Opened(Box::new(opened)));
    };
    if let Err(error) = std::thread::Builder::new().name(name).spawn(work) {
        let error = StorageError(format!("cannot start a thread: {error}"));
        reporter.tell(Event::Opened(Box::new(Err(OpenError::Storage(error)))));
    }
}
