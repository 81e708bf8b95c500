//! Why the noted state, or a checkpoint of it, makes no store.

use core::fmt;

use wire::format::Formats;

/// Why no coordinator comes of some pairs; [`Display`] says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// A newer build has written them.
    NewerFormat { version: u32, known: Formats },
    /// An older build has written them, whose format this one does not read any more.
    OlderFormat { version: u32, known: Formats },
    /// One of them is no record.
    Unreadable { key: Vec<u8> },
    /// They do not fit together.
    Contradiction(String),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::NewerFormat { version, known } => write!(
                f,
                "the state was written in format {version} by a newer build, and this one reads formats up to {}: start a coordinator of \
                 that version",
                known.newest
            ),
            RestoreError::OlderFormat { version, known } => write!(
                f,
                "the state is of format {version}, and this build reads {known}: start a coordinator of a version in between, upgrade all \
                 servers to it, and finalize that (rcbox upgrade finalize)"
            ),
            RestoreError::Unreadable { key } => write!(
                f,
                "the record {:?} of the state cannot be read; put a copy of the state from before in its place",
                key.escape_ascii().to_string()
            ),
            RestoreError::Contradiction(what) => write!(
                f,
                "the noted state contradicts itself: {what}; put a copy of the state from before in its place"
            ),
        }
    }
}

impl core::error::Error for RestoreError {}

/// Why a checkpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointError {
    NoCheckpoint,
    /// It is longer than any checkpoint.
    TooLarge {
        bytes: u64,
    },
    /// This build reads only another format.
    OtherFormat {
        format: u32,
        known: u32,
    },
    Damaged,
    /// It is whole, and its pairs make no store.
    NoStore(RestoreError),
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointError::NoCheckpoint => f.write_str("it is no checkpoint"),
            CheckpointError::TooLarge { bytes } => {
                write!(f, "{bytes} bytes are no checkpoint of ours")
            }
            CheckpointError::OtherFormat { format, known } => write!(
                f,
                "it is of format {format}, and this build reads format {known}: start a coordinator of the version that wrote it"
            ),
            CheckpointError::Damaged => f.write_str("it is damaged"),
            CheckpointError::NoStore(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for CheckpointError {}
