//! Frames in a file or on a block device.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use backup::{Completion, Disk, Job, Layout, SUPERBLOCK_BYTES, Scope, Storage, StorageError};
use net::Remote;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, fadvise, fallocate, flock};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use super::error::{FileError, NoStorage};
use super::lane::{Lane, Teller};
use super::worker::Worker;

/// A file or device that this process has to itself, as long as it lives.
pub struct BackupFile {
    file: File,
    path: PathBuf,
    /// Of a device; `None` for a file.
    device_bytes: Option<u64>,
}

impl BackupFile {
    /// Opens `path`, a file (made if it is not there) or a block device, and locks it. Nothing in it is changed.
    ///
    /// # Errors
    /// It cannot be used, for instance because another process does; the text says what to do.
    pub fn open(path: &Path) -> Result<BackupFile, NoStorage> {
        let failed = |why| NoStorage::File {
            path: path.to_owned(),
            why,
        };
        BackupFile::open_and_lock(path).map_err(failed)
    }

    fn open_and_lock(path: &Path) -> Result<BackupFile, FileError> {
        let is_device = match path.metadata() {
            Ok(found) => is_device(found.file_type())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error.into()),
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if is_device {
            // Refused by the kernel if it is mounted.
            options.custom_flags(libc::O_EXCL);
        } else {
            // What is in it was meant for the store alone.
            options.create(true).truncate(false).mode(0o600);
        }
        let mut file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => FileError::NoFolder,
            _ => FileError::Io(error),
        })?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(FileError::InUse),
            Err(error) => return Err(FileError::Lock(error.into())),
        }
        let device_bytes = match is_device {
            true => Some(file.seek(SeekFrom::End(0))?),
            false => None,
        };
        Ok(BackupFile {
            file,
            path: path.to_owned(),
            device_bytes,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a block device at `path`.
    pub fn is_device(path: &Path) -> bool {
        path.metadata()
            .is_ok_and(|found| found.file_type().is_block_device())
    }

    /// Frames that fit; as many as one likes, if it is a file.
    pub fn frames(&self, segment_bytes: u32) -> Option<u32> {
        let bytes = self.device_bytes?;
        Some(Layout::of_size(bytes, segment_bytes).frame_count)
    }

    /// Takes the disk space for so many frames now, so that none is wanting later. What holds something else than zeros stays as it is: whether it is a
    /// backup's is seen when it is opened.
    fn reserve(&self, layout: &Layout) -> Result<(), FileError> {
        let wanted_bytes = layout.total_bytes();
        let frames = layout.frame_count;
        if let Some(room_bytes) = self.device_bytes {
            if room_bytes < wanted_bytes {
                return Err(FileError::DeviceTooSmall {
                    frames,
                    wanted_bytes,
                    room_bytes,
                });
            }
            return Ok(());
        }
        let before = self.file.metadata()?.len();
        let is_empty = self.is_empty(before)?;
        if !is_empty && before != wanted_bytes {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, wanted_bytes) {
            Ok(()) => Ok(()),
            // What is there already may be the last copy: it is given out all the same.
            Err(error) if !is_empty => {
                tracing::warn!(
                    "-f {}: cannot reserve space ({error}); should there be none, this backup takes nothing any more",
                    self.path.display()
                );
                Ok(())
            }
            Err(Errno::OPNOTSUPP) => {
                warn_of_unreserved(&self.path);
                Ok(self.file.set_len(wanted_bytes)?)
            }
            Err(error) => {
                // What was reserved in part is given back.
                let _ = self.file.set_len(before);
                Err(FileError::NoRoom {
                    mib: wanted_bytes >> 20,
                    frames,
                    error: error.into(),
                })
            }
        }
    }

    /// Whether there is nothing at the start.
    fn is_empty(&self, length: u64) -> io::Result<bool> {
        let mut head = vec![0; SUPERBLOCK_BYTES.min(length) as usize];
        self.file.read_exact_at(&mut head, 0)?;
        Ok(head.iter().all(|&byte| byte == 0))
    }

    /// Makes it the storage of shard `index`.
    pub fn into_storage(
        self,
        layout: &Layout,
        index: u16,
        remote: Remote,
    ) -> Result<FileStorage, NoStorage> {
        self.reserve(layout).map_err(|why| NoStorage::File {
            path: self.path.clone(),
            why,
        })?;
        errors_instead_of_signals();
        let disk = FileDisk {
            path: self.path.into(),
            file: Arc::new(self.file),
            device_bytes: self.device_bytes,
        };
        let (sender, completions) = channel();
        let teller = Teller::new(sender, remote);
        let (whole, heard) = (disk.clone(), teller.clone());
        let frames = Worker::start(format!("sync-{index}"), move |()| {
            heard.tell(Completion::Synced(
                Scope::All,
                sync(&whole.file, &whole.path),
            ));
        })?;
        let (head, heard) = (disk.clone(), teller.clone());
        let superblock = Worker::start(format!("fence-{index}"), move |newest: Newest| {
            let result = write_through(&head.file, &head.path, &newest);
            heard.tell(Completion::Synced(Scope::Superblock, result));
        })?;
        let ahead = Arc::clone(&disk.file);
        let fetcher = Worker::start(format!("fetch-{index}"), move |(offset, bytes)| {
            // A wish: without it, reading takes longer.
            let _ = fadvise(
                &*ahead,
                offset,
                std::num::NonZeroU64::new(bytes),
                Advice::WillNeed,
            );
        })?;
        let (mut read, heard) = (disk.clone(), teller.clone());
        let jobs = Worker::start(format!("read-{index}"), move |job: Job| {
            let done = job.run(&mut read);
            heard.tell(Completion::Done(Box::new(done)));
        })?;
        let (file, path) = (Arc::clone(&disk.file), Arc::clone(&disk.path));
        let lane = Arc::new(Lane::new(file, path, teller.clone()));
        let long = Arc::clone(&lane);
        let writer = Worker::start(format!("write-{index}"), move |()| {
            long.carry_out();
            long.wake();
        })?;
        Ok(FileStorage {
            disk,
            newest: Newest::default(),
            lane,
            has_submitted: false,
            frames,
            superblock,
            fetcher,
            jobs,
            writer,
            completions,
            teller,
        })
    }
}

fn warn_of_unreserved(path: &Path) {
    tracing::warn!(
        "-f {}: this file system cannot reserve space; should it get full, this backup takes nothing any more",
        path.display()
    );
}

fn is_device(found: FileType) -> Result<bool, FileError> {
    if found.is_dir() {
        Err(FileError::Directory)
    } else if found.is_file() || found.is_block_device() {
        Ok(found.is_block_device())
    } else {
        Err(FileError::OtherKind)
    }
}

/// Has the kernel answer a write beyond a limit of file sizes with an error, not with a deadly signal.
#[allow(unsafe_code)]
fn errors_instead_of_signals() {
    // SAFETY: no handler runs; the signal is ignored from now on.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// A superblock as it was last written, and where.
#[derive(Clone, Default)]
struct Newest {
    offset: u64,
    bytes: Vec<u8>,
}

/// The file or device, for threads that may wait for it.
#[derive(Clone)]
struct FileDisk {
    file: Arc<File>,
    path: Arc<Path>,
    /// Of a device; `None` for a file.
    device_bytes: Option<u64>,
}

/// See [`BackupFile`].
pub struct FileStorage {
    disk: FileDisk,
    newest: Newest,
    lane: Arc<Lane>,
    /// Somebody is to carry out what is in the lane.
    has_submitted: bool,
    frames: Worker<()>,
    superblock: Worker<Newest>,
    fetcher: Worker<(u64, u64)>,
    jobs: Worker<Job>,
    writer: Worker<()>,
    completions: Receiver<Completion>,
    teller: Teller,
}

impl FileStorage {
    /// Where the caller is to carry out writes now.
    pub fn lane_to_carry_out(&mut self) -> Option<Arc<Lane>> {
        let is_mine =
            std::mem::take(&mut self.has_submitted) && self.lane.is_to_carry_out(&self.writer);
        is_mine.then(|| Arc::clone(&self.lane))
    }
}

fn failed(path: &Path, what: &str, error: &dyn std::fmt::Display) -> StorageError {
    StorageError(format!("{}: {what}: {error}", path.display()))
}

fn sync(file: &File, path: &Path) -> Result<(), StorageError> {
    let synced = file.sync_data();
    synced.map_err(|error| failed(path, "cannot sync", &error))
}

/// Writes a superblock once more, and to the disk: that waits for nothing else in the page cache. It is the only copy that the sync is about; the
/// others may be written to meanwhile.
fn write_through(file: &File, path: &Path, newest: &Newest) -> Result<(), StorageError> {
    let (mut offset, mut rest) = (newest.offset, &newest.bytes[..]);
    while !rest.is_empty() {
        let slices = [io::IoSlice::new(rest)];
        match pwritev2(file, &slices, offset, ReadWriteFlags::DSYNC) {
            Ok(written) if written > 0 => {
                offset += written as u64;
                rest = &rest[written..];
            }
            Err(Errno::INTR) => {}
            // Kernels, or file systems, that do not know the flag.
            Err(Errno::OPNOTSUPP) => return sync(file, path),
            Ok(_) => {
                return Err(failed(
                    path,
                    "cannot write a superblock",
                    &"nothing is taken",
                ));
            }
            Err(error) => return Err(failed(path, "cannot write a superblock", &error)),
        }
    }
    Ok(())
}

impl Disk for FileDisk {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.file.write_all_at(bytes, offset).map_err(|error| {
            let what = format!("cannot write {} bytes at {offset}", bytes.len());
            failed(&self.path, &what, &error)
        })
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        self.file.read_exact_at(out, offset).map_err(|error| {
            let what = format!("cannot read {} bytes at {offset}", out.len());
            failed(&self.path, &what, &error)
        })
    }

    fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        if let Some(room) = self.device_bytes {
            if room < bytes {
                let what = format!("{bytes} bytes are wanted and the device has {room}");
                return Err(failed(&self.path, "cannot grow", &what));
            }
            return Ok(());
        }
        let before = self.file.metadata().map_or(0, |found| found.len());
        let grown = match fallocate(&*self.file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP) => {
                warn_of_unreserved(&self.path);
                self.file.set_len(bytes.max(before))
            }
            grown => grown.map_err(io::Error::from),
        };
        grown.map_err(|error| {
            // What was reserved in part is given back.
            let _ = self.file.set_len(before);
            failed(&self.path, "cannot grow", &error)
        })
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        sync(&self.file, &self.path)
    }
}

impl Disk for FileStorage {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.disk.write(offset, bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        self.disk.read(offset, out)
    }

    fn grow(&mut self, bytes: u64) -> Result<(), StorageError> {
        self.disk.grow(bytes)
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        self.disk.sync()
    }
}

impl Storage for FileStorage {
    fn submit(&mut self, ticket: u64, offset: u64, bytes: &[u8]) {
        if offset < SUPERBLOCK_BYTES {
            let bytes = bytes.to_vec();
            self.newest = Newest { offset, bytes };
        }
        self.lane.submit(ticket, offset, bytes);
        self.has_submitted = true;
    }

    fn resume(&mut self) {
        self.lane.resume();
        self.has_submitted = true;
    }

    fn begin_sync(&mut self, scope: Scope) {
        let is_begun = match scope {
            Scope::All => self.frames.give(()),
            Scope::Superblock => self.superblock.give(self.newest.clone()),
        };
        if !is_begun {
            let error = failed(&self.disk.path, "cannot sync", &"a thread has panicked");
            self.teller.tell(Completion::Synced(scope, Err(error)));
        }
    }

    fn start(&mut self, job: Job) {
        // Should its thread have panicked, the process has ended with it.
        self.jobs.give(job);
    }

    fn will_need(&mut self, offset: u64, bytes: u64) {
        self.fetcher.give((offset, bytes));
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.completions.try_recv().ok()
    }

    fn wait_for_writes(&mut self) {
        self.lane.wait();
    }
}
