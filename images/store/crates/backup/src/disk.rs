//! The bytes of a storage, for callers that may wait.

use core::fmt;

/// Used where a storage is opened and closed, and by jobs.
pub trait Disk {
    /// As [`crate::Storage::submit`], and over when it returns.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError>;
    /// Fills `out`. Sees all writes that have completed.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError>;
    /// Syncs everything that was written, and waits for that.
    fn sync(&mut self) -> Result<(), StorageError>;
    /// Makes room for so many bytes in all, more than there are; what is new reads as zeros, or as anything on a device. Nothing is lost if that fails.
    ///
    /// # Errors
    /// There is not so much room.
    fn grow(&mut self, bytes: u64) -> Result<(), StorageError>;
}

/// The storage failed; the text says where and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageError(pub String);

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for StorageError {}
