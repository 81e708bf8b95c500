//! Frames in this process's memory, for stores that want no disk: what they hold is gone with the process.

use backup::{Disk, StorageError};

use super::error::NoStorage;

pub struct ProcessMemory {
    /// Taken from the kernel as it is written to.
    bytes: Vec<u8>,
}

impl ProcessMemory {
    /// # Errors
    /// This machine cannot address so much.
    pub fn new(bytes: u64) -> Result<ProcessMemory, NoStorage> {
        let too_large = || NoStorage::Memory { mib: bytes >> 20 };
        let length = usize::try_from(bytes).map_err(|_| too_large())?;
        let mut probe: Vec<u8> = Vec::new();
        probe.try_reserve_exact(length).map_err(|_| too_large())?;
        drop(probe);
        Ok(ProcessMemory {
            bytes: vec![0; length],
        })
    }

    fn range(&mut self, offset: u64, length: usize) -> Result<&mut [u8], StorageError> {
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(length));
        let range = start.zip(end).map(|(start, end)| start..end);
        let found = range.and_then(|range| self.bytes.get_mut(range));
        found.ok_or_else(|| StorageError(format!("{length} bytes at {offset} are beyond the end")))
    }
}

impl Disk for ProcessMemory {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.range(offset, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        out.copy_from_slice(self.range(offset, out.len())?);
        Ok(())
    }

    fn grow(&mut self, _bytes: u64) -> Result<(), StorageError> {
        Err(StorageError(
            "memory is never opened a second time".to_owned(),
        ))
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        Ok(())
    }
}
