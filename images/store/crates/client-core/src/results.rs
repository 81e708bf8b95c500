//! What became of the objects of a multi-op.

use core::ops::Range;

use crate::error::Error;

/// What became of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub version: u64,
    /// Of an increment.
    pub new_value: [u8; 8],
    /// Of a read: where the object lies in [`Objects::bytes`].
    pub found: Range<usize>,
}

/// What a multi-read gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    pub(crate) results: Vec<Result<Part, Error>>,
    pub(crate) bytes: Vec<u8>,
}

impl Objects {
    /// For each object, in the order of the request, its version and its keys and value as they travel, or why it was not read.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Result<(u64, &[u8]), Error>> {
        self.results.iter().map(|result| match result {
            Ok(part) => Ok((part.version, &self.bytes[part.found.clone()])),
            Err(error) => Err(error.clone()),
        })
    }
}
