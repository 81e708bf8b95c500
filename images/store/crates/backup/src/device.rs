//! A storage with its sizes, what is under way to it, and how far it is synced.

use base::time::Time;
use wire::format::Formats;

use crate::copies::Syncs;
use crate::disk::{Disk, StorageError};
use crate::flight::Flight;
use crate::layout::Layout;
use crate::reader::Reader;
use crate::storage::Storage;

pub(crate) struct Device<S> {
    pub storage: S,
    pub layout: Layout,
    pub cluster_id: u64,
    /// Those that this build reads.
    pub formats: Formats,
    pub syncs: Syncs,
    pub flight: Flight,
    /// The time of the last call.
    pub now: Time,
    /// While the storage is opened or closed.
    waits: Option<Waits>,
    /// Of readers.
    piece: Vec<u8>,
}

/// Writes are waited for, and the first that failed is remembered until the next sync.
#[derive(Default)]
struct Waits {
    failed: Option<StorageError>,
}

impl<S> Device<S> {
    /// One that is being opened.
    pub fn opening(
        now: Time,
        storage: S,
        layout: Layout,
        cluster_id: u64,
        formats: Formats,
    ) -> Device<S> {
        Device {
            storage,
            layout,
            cluster_id,
            formats,
            syncs: Syncs::OPENED,
            flight: Flight::default(),
            now,
            waits: Some(Waits::default()),
            piece: Vec::new(),
        }
    }

    /// From now on nothing is waited for.
    pub fn opened(&mut self) {
        self.waits = None;
        self.piece = Vec::new();
    }

    /// From now on everything is waited for. Nothing is under way.
    pub fn closing(&mut self) {
        self.waits = Some(Waits::default());
    }

    /// Whether writes are submitted, and may fail later.
    pub fn submits(&self) -> bool {
        self.waits.is_none()
    }
}

impl<S: Disk> Device<S> {
    /// For whoever may wait.
    pub fn reader(&mut self) -> Reader<'_, S> {
        Reader {
            disk: &mut self.storage,
            layout: self.layout,
            formats: self.formats,
            piece: &mut self.piece,
        }
    }

    /// Makes everything durable, and waits for it.
    ///
    /// # Errors
    /// It does not sync, or a write before has failed.
    pub fn sync(&mut self) -> Result<(), StorageError> {
        if let Some(error) = self.waits.as_mut().and_then(|waits| waits.failed.take()) {
            return Err(error);
        }
        self.storage.sync()?;
        self.syncs.begun += 1;
        self.syncs.completed = self.syncs.begun;
        Ok(())
    }
}

impl<S: Storage> Device<S> {
    /// Writes, or has written. Whether that has failed is told later: by the next sync while the storage is opened or closed, otherwise by a
    /// completion.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        match &mut self.waits {
            Some(Waits { failed: Some(_) }) => {}
            Some(waits) => waits.failed = self.storage.write(offset, bytes).err(),
            None => {
                let ticket = self.flight.submit(self.now, bytes.len());
                self.storage.submit(ticket, offset, bytes);
            }
        }
    }
}
