//! What a backup's frames lie on: a file, a block device, or memory.

mod file;
mod memory;
mod worker;

use std::sync::mpsc::Sender;

use backup::{Backup, OpenError, Scope, Storage, StorageError};
use net::Remote;

pub use file::{BackupFile, FileStorage};
pub use memory::ProcessMemory;

/// What happens beside a shard's thread.
pub enum Event {
    Opened(Box<Result<Backup<AnyStorage>, OpenError>>),
    Synced(Scope, Result<(), StorageError>),
}

/// Tells a shard's thread.
#[derive(Clone)]
pub struct Reporter {
    events: Sender<Event>,
    remote: Remote,
}

impl Reporter {
    /// At most one event of each kind is under way, so they are not counted.
    pub fn new(events: Sender<Event>, remote: Remote) -> Reporter {
        Reporter { events, remote }
    }

    pub fn tell(&self, event: Event) {
        // Nobody listens once the process is ending.
        if self.events.send(event).is_ok() {
            self.remote.wake();
        }
    }
}

/// A storage as a server is told to have it.
pub enum AnyStorage {
    File(FileStorage),
    Memory(ProcessMemory),
}

impl Storage for AnyStorage {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        match self {
            AnyStorage::File(file) => file.write(offset, bytes),
            AnyStorage::Memory(memory) => memory.write(offset, bytes),
        }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        match self {
            AnyStorage::File(file) => file.read(offset, out),
            AnyStorage::Memory(memory) => memory.read(offset, out),
        }
    }

    fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        match self {
            AnyStorage::File(file) => file.grow(bytes),
            AnyStorage::Memory(memory) => memory.grow(bytes),
        }
    }

    fn begin_sync(&mut self, scope: Scope) {
        match self {
            AnyStorage::File(file) => file.begin_sync(scope),
            AnyStorage::Memory(memory) => memory.begin_sync(scope),
        }
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        match self {
            AnyStorage::File(file) => file.sync(),
            AnyStorage::Memory(memory) => memory.sync(),
        }
    }

    fn will_need(&mut self, offset: u64, bytes: u64) {
        match self {
            AnyStorage::File(file) => file.will_need(offset, bytes),
            AnyStorage::Memory(memory) => memory.will_need(offset, bytes),
        }
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
