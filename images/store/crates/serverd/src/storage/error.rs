//! Why a shard gets no storage.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The texts say what to do.
#[derive(Debug, Error)]
pub enum NoStorage {
    #[error("-f {}: {why}", path.display())]
    File { path: PathBuf, why: FileError },
    #[error(
        "-f {} --cores {cores}: shards cannot share a device; give a file, or run a server for each device",
        path.display()
    )]
    SharedDevice { path: PathBuf, cores: u16 },
    #[error(
        "{mib} MiB of frames are more than this machine has memory for; give fewer with --segmentFrames, or a file with -f"
    )]
    Memory { mib: u64 },
    #[error("{path}: {error}")]
    BootId {
        path: &'static str,
        error: io::Error,
    },
    #[error("{path}: {found:?} is no id of a kernel's run")]
    WrongBootId { path: &'static str, found: String },
    #[error("cannot start a thread: {0}")]
    Thread(#[from] NoThread),
}

/// A fault of a file or device.
#[derive(Debug, Error)]
pub enum FileError {
    #[error("a directory; give the path of a file in it")]
    Directory,
    #[error("neither a file nor a block device")]
    OtherKind,
    #[error("there is no such folder; make it first")]
    NoFolder,
    #[error("another process uses it: end that one, or give each server a file of its own")]
    InUse,
    #[error("cannot be locked: {0}")]
    Lock(#[source] io::Error),
    #[error(
        "{frames} frames take {wanted_bytes} bytes and the device has {room_bytes}; leave --segmentFrames out to use all of it"
    )]
    DeviceTooSmall {
        frames: u32,
        wanted_bytes: u64,
        room_bytes: u64,
    },
    #[error(
        "cannot reserve {mib} MiB for {frames} frames: {error}; give it more room, or ask for fewer with --segmentFrames"
    )]
    NoRoom {
        mib: u64,
        frames: u32,
        error: io::Error,
    },
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Debug, Error)]
#[error(transparent)]
pub struct NoThread(#[from] pub io::Error);
