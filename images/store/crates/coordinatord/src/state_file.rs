//! The coordinator's state in a directory: one file, a snapshot with commits behind it (`coordinator::state::journal`).
//!
//! ```text
//! DIR/state      what is noted
//! DIR/state.new  the next snapshot while it is being written; worth nothing
//! DIR/lock       locked by the process that uses the directory
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coordinator::state::file::{Write, Written};
use coordinator::state::journal::{self, Loaded};
use net::Remote;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Why the state is not read, or not noted.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    #[error("cannot make the state directory {}: {error}", path.display())]
    MakeDirectory { path: PathBuf, error: io::Error },
    #[error("cannot open {}: {error}", path.display())]
    OpenLock { path: PathBuf, error: io::Error },
    #[error(
        "another coordinator is running on the state in {}: end it, or give this one another --state",
        .0.display()
    )]
    InUse(PathBuf),
    #[error("cannot lock {}: {error}", path.display())]
    Lock { path: PathBuf, error: Errno },
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("cannot use {}: {text}", path.display())]
    Damaged { path: PathBuf, text: String },
    #[error(
        "cannot {what} the coordinator's state at {}: {error}; see that its disk works and has room, and start the coordinator again",
        path.display()
    )]
    Write {
        what: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    #[error("cannot start a thread: {0}")]
    Spawn(#[source] io::Error),
    #[error(
        "the thread that writes the coordinator's state has ended; please report the lines above"
    )]
    ThreadGone,
}

/// A directory that this process alone uses.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Unlocked by the kernel when the process ends, however it does.
    _lock: File,
}

/// What is counted for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub commits: u64,
    /// Time that commits took, all together.
    pub commit_time: Duration,
    pub snapshots: u64,
}

/// What came of a write, and how long it took.
struct Done {
    result: Result<Written, StateFileError>,
    is_snapshot: bool,
    took: Duration,
}

/// Writes to the file on a thread of its own, one write after the other.
pub struct StateFile {
    writes: SyncSender<Write>,
    done: Receiver<Done>,
    thread: JoinHandle<()>,
    /// A write is under way.
    is_writing: bool,
    stats: Stats,
}

/// The file, and where it is. What the thread has.
struct Disk {
    directory: Directory,
    /// `None`: there is none yet.
    file: Option<File>,
}

impl Directory {
    /// Makes the directory if it is not there, and locks it.
    ///
    /// # Errors
    /// Another coordinator uses it, or it cannot be used.
    pub fn lock(path: &Path) -> Result<Directory, StateFileError> {
        fs::create_dir_all(path).map_err(|error| StateFileError::MakeDirectory {
            path: path.to_owned(),
            error,
        })?;
        let lock = path.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock)
            .map_err(|error| StateFileError::OpenLock {
                path: lock.clone(),
                error,
            })?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(StateFileError::InUse(path.to_owned())),
            Err(error) => return Err(StateFileError::Lock { path: lock, error }),
        }
        Ok(Directory {
            path: path.to_owned(),
            _lock: file,
        })
    }

    fn state_path(&self) -> PathBuf {
        self.path.join("state")
    }

    /// What the directory holds; `None` if nothing was ever noted in it.
    ///
    /// # Errors
    /// It cannot be read, or is damaged: the text says what to do.
    pub fn read(&self) -> Result<Option<Loaded>, StateFileError> {
        let path = self.state_path();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateFileError::Read { path, error }),
        };
        let loaded = journal::load(&bytes);
        loaded
            .map(Some)
            .map_err(|text| StateFileError::Damaged { path, text })
    }

    /// The file of a state that was read. What was torn off its end is cut.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(&self, loaded: &Loaded) -> Result<File, StateFileError> {
        let path = self.state_path();
        let open = || -> io::Result<File> {
            let file = OpenOptions::new().append(true).open(&path)?;
            if loaded.torn_bytes > 0 {
                file.set_len(loaded.whole_bytes)?;
                file.sync_all()?;
            }
            Ok(file)
        };
        open().map_err(|error| failed("write", &path, error))
    }
}

fn failed(what: &'static str, path: &Path, error: io::Error) -> StateFileError {
    StateFileError::Write {
        what,
        path: path.to_owned(),
        error,
    }
}

impl Disk {
    fn carry_out(&mut self, write: &Write) -> Result<Written, StateFileError> {
        match write {
            Write::Append(bytes) => self.append(bytes).map(|()| Written::Done),
            Write::Replace(bytes) => self.replace(bytes),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StateFileError> {
        let appended = match &mut self.file {
            Some(file) => file.write_all(bytes).and_then(|()| file.sync_data()),
            None => Err(ErrorKind::NotFound.into()),
        };
        appended.map_err(|error| failed("write", &self.directory.state_path(), error))
    }

    /// Writes the whole state to a new file, and puts it in the place of the old one once it is on the disk. If there is no room for it, the old one,
    /// if there is any, goes on.
    fn replace(&mut self, bytes: &[u8]) -> Result<Written, StateFileError> {
        let path = self.directory.state_path();
        let new_path = self.directory.path.join("state.new");
        let file = match write_new(&new_path, bytes) {
            Ok(file) => file,
            Err(error) => {
                let error = failed("write", &new_path, error);
                if self.file.is_none() {
                    return Err(error);
                }
                tracing::error!("{error}; until then the file from before grows");
                return Ok(Written::OldIsKept);
            }
        };
        // Which of the two is there after a loss of power cannot be said from here on, should something fail.
        let not_replaced = |error| failed("replace", &path, error);
        fs::rename(&new_path, &path).map_err(not_replaced)?;
        // Only now does the new name outlive a loss of power.
        let directory = File::open(&self.directory.path).map_err(not_replaced)?;
        directory.sync_all().map_err(not_replaced)?;
        tracing::info!("wrote the whole state to a new file: {} bytes", bytes.len());
        self.file = Some(file);
        Ok(Written::Done)
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(file)
}

impl StateFile {
    /// `file` is that of a state that was read; `None`: the first write makes one. The reactor behind `remote` is woken when a write is done.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(
        directory: Directory,
        file: Option<File>,
        remote: Remote,
    ) -> Result<StateFile, StateFileError> {
        // One write is under way at a time.
        let (writes, jobs) = sync_channel::<Write>(1);
        let (results, done) = channel();
        let mut disk = Disk { directory, file };
        let work = move || {
            for write in jobs {
                let began = Instant::now();
                let result = disk.carry_out(&write);
                let done = Done {
                    result,
                    is_snapshot: matches!(write, Write::Replace(_)),
                    took: began.elapsed(),
                };
                let has_failed = done.result.is_err();
                let is_heard = results.send(done).is_ok();
                remote.wake();
                if has_failed || !is_heard {
                    // What the disk holds is not known, or nobody wants to know.
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("state-file".to_owned())
            .spawn(work)
            .map_err(StateFileError::Spawn)?;
        Ok(StateFile {
            writes,
            done,
            thread,
            is_writing: false,
            stats: Stats::default(),
        })
    }

    /// Has something written. Only when nothing is under way.
    ///
    /// # Errors
    /// The thread is gone: nothing can be noted any more.
    pub fn submit(&mut self, write: Write) -> Result<(), StateFileError> {
        assert!(!self.is_writing, "one write is under way at a time");
        self.is_writing = true;
        let given = self.writes.try_send(write);
        given.map_err(|_| StateFileError::ThreadGone)
    }

    /// What came of the write that was submitted last, once that is known.
    ///
    /// # Errors
    /// Whether it is noted is unknown: nothing that depends on it may leave this process, and nothing more be noted.
    pub fn completed(&mut self) -> Result<Option<Written>, StateFileError> {
        let done = match self.done.try_recv() {
            Ok(done) => done,
            Err(TryRecvError::Empty) => return Ok(None),
            Err(TryRecvError::Disconnected) => return Err(StateFileError::ThreadGone),
        };
        self.note(done).map(Some)
    }

    /// As [`StateFile::completed`], but waits for it; `None`: nothing is under way.
    ///
    /// # Errors
    /// As there.
    pub fn wait(&mut self) -> Result<Option<Written>, StateFileError> {
        if !self.is_writing {
            return Ok(None);
        }
        let done = self.done.recv().map_err(|_| StateFileError::ThreadGone)?;
        self.note(done).map(Some)
    }

    fn note(&mut self, done: Done) -> Result<Written, StateFileError> {
        self.is_writing = false;
        let written = done.result?;
        match (written, done.is_snapshot) {
            (Written::OldIsKept, _) => {}
            (Written::Done, true) => self.stats.snapshots += 1,
            (Written::Done, false) => {
                self.stats.commits += 1;
                self.stats.commit_time += done.took;
            }
        }
        Ok(written)
    }

    /// Ends the thread, once what was submitted is on the disk.
    ///
    /// # Errors
    /// It could not be written.
    pub fn finish(self) -> Result<(), StateFileError> {
        drop(self.writes);
        self.thread.join().map_err(|_| StateFileError::ThreadGone)?;
        match self.done.try_iter().find_map(|done| done.result.err()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    pub fn stats(&self) -> Stats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use coordinator::state::file::FileKeeper;
    use coordinator::state::{Changes, Pair};
    use net::Reactor;

    use super::*;

    const CLUSTER: u64 = 7;

    fn remote() -> Remote {
        Reactor::new(net::Options::default()).unwrap().remote()
    }

    /// A process that uses a directory: all pairs, their keeper, and the file.
    struct Process {
        pairs: Vec<Pair>,
        keeper: FileKeeper,
        file: StateFile,
    }

    impl Process {
        /// With what it found, and how much was torn off.
        fn start(path: &Path) -> (Process, u64) {
            let directory = Directory::lock(path).unwrap();
            let found = directory.read().unwrap();
            let file = found.as_ref().map(|loaded| directory.open(loaded).unwrap());
            let process = Process {
                keeper: found
                    .as_ref()
                    .map_or_else(FileKeeper::new, FileKeeper::go_on),
                file: StateFile::start(directory, file, remote()).unwrap(),
                pairs: Vec::new(),
            };
            let Some(mut loaded) = found else {
                return (process, 0);
            };
            let pairs = loaded.take_pairs().collect();
            (Process { pairs, ..process }, loaded.torn_bytes)
        }

        fn put(&mut self, key: &str, value: &str) -> Result<Written, StateFileError> {
            let (key, value) = (Vec::from(key), Vec::from(value));
            self.pairs.retain(|pair| pair.key != key);
            let pair = Pair { key, value };
            self.pairs.push(pair.clone());
            self.keeper.commit(Changes {
                puts: vec![pair],
                deletes: Vec::new(),
            });
            self.write()
        }

        /// Writes what is to be written, and waits until it is.
        fn write(&mut self) -> Result<Written, StateFileError> {
            let pairs = || self.pairs.clone().into_iter();
            let write = self.keeper.next_write(CLUSTER, pairs).unwrap();
            self.file.submit(write.expect("there is something"))?;
            let written = self.file.wait()?.expect("it is under way");
            self.keeper.written(written).unwrap();
            Ok(written)
        }

        fn end(self) {
            self.file.finish().unwrap();
        }
    }

    fn found(process: &Process) -> Vec<(&str, &str)> {
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let pairs = process.pairs.iter();
        pairs
            .map(|pair| (text(&pair.key), text(&pair.value)))
            .collect()
    }

    #[test]
    fn what_was_written_is_there_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("not/there/yet");
        let (mut first, _) = Process::start(&path);
        first.put("a", "1").unwrap();
        first.put("b", "1").unwrap();
        first.put("a", "2").unwrap();
        let stats = first.file.stats();
        assert_eq!((stats.snapshots, stats.commits), (1, 2));
        let length = fs::metadata(path.join("state")).unwrap().len();
        assert_eq!(first.keeper.file_bytes(), length);
        first.end();
        let (mut second, _) = Process::start(&path);
        assert_eq!(found(&second), [("a", "2"), ("b", "1")]);
        second.put("c", "3").unwrap();
        second.end();
        let (third, _) = Process::start(&path);
        assert_eq!(found(&third), [("a", "2"), ("b", "1"), ("c", "3")]);
    }

    #[test]
    fn a_process_that_ends_in_good_order_has_written_what_it_had_begun_to() {
        let root = tempfile::tempdir().unwrap();
        let (mut first, _) = Process::start(root.path());
        first.put("a", "1").unwrap();
        let long = "x".repeat(10 << 20);
        let pair = Pair {
            key: "b".into(),
            value: long.clone().into(),
        };
        first.keeper.commit(Changes {
            puts: vec![pair],
            deletes: Vec::new(),
        });
        let none = || Vec::new().into_iter();
        let write = first.keeper.next_write(CLUSTER, none).unwrap();
        first.file.submit(write.unwrap()).unwrap();
        // It is locked until then.
        first.end();
        let (second, torn_bytes) = Process::start(root.path());
        assert_eq!(found(&second)[1], ("b", &*long));
        assert_eq!(torn_bytes, 0);
    }

    #[test]
    fn a_second_process_is_refused_as_long_as_the_first_lives() {
        let root = tempfile::tempdir().unwrap();
        let (first, _) = Process::start(root.path());
        let error = Directory::lock(root.path()).unwrap_err();
        assert!(matches!(error, StateFileError::InUse(_)), "{error}");
        first.end();
        Directory::lock(root.path()).unwrap();
    }

    #[test]
    fn wherever_a_commit_was_cut_the_one_before_is_gone_on_with() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("state");
        let (mut first, _) = Process::start(root.path());
        first.put("b", "kept").unwrap();
        let whole = fs::read(&file).unwrap();
        first.put("c", "cut").unwrap();
        first.end();
        let longest = fs::read(&file).unwrap();
        for length in whole.len()..longest.len() {
            fs::write(&file, &longest[..length]).unwrap();
            let (mut second, torn_bytes) = Process::start(root.path());
            assert_eq!(found(&second), [("b", "kept")]);
            assert_eq!(torn_bytes, (length - whole.len()) as u64);
            second.put("d", "goes on").unwrap();
            second.end();
            let (third, torn_bytes) = Process::start(root.path());
            assert_eq!(found(&third), [("b", "kept"), ("d", "goes on")]);
            assert_eq!(torn_bytes, 0);
            third.end();
        }
    }

    #[test]
    fn damage_is_refused_with_the_files_name_and_advice() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("state");
        let (mut first, _) = Process::start(root.path());
        first.put("a", "1").unwrap();
        let end = fs::metadata(&file).unwrap().len() as usize;
        first.put("b", "1").unwrap();
        first.put("c", "1").unwrap();
        first.end();
        let mut bytes = fs::read(&file).unwrap();
        bytes[end + 20] ^= 4;
        fs::write(&file, &bytes).unwrap();
        let error = Directory::lock(root.path()).unwrap().read().unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&file.display().to_string()), "{text}");
        assert!(text.contains(&format!("damaged at byte {end}")), "{text}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "it is left as it is");
    }

    #[test]
    fn a_new_file_that_was_being_written_is_worth_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (mut first, _) = Process::start(root.path());
        first.put("b", "1").unwrap();
        first.end();
        let mut other = journal::Writer::new(CLUSTER);
        let pair = Pair {
            key: "a".into(),
            value: "other".into(),
        };
        let next = other.snapshot([pair].into_iter()).unwrap();
        for length in (0..=next.len()).step_by(7) {
            fs::write(root.path().join("state.new"), &next[..length]).unwrap();
            let (process, _) = Process::start(root.path());
            assert_eq!(found(&process), [("b", "1")]);
            process.end();
        }
        // The next one replaces it; and once it is renamed, it is the state.
        fs::write(root.path().join("state.new"), &next).unwrap();
        fs::rename(root.path().join("state.new"), root.path().join("state")).unwrap();
        let (process, _) = Process::start(root.path());
        assert_eq!(found(&process), [("a", "other")]);
    }

    #[test]
    fn without_room_for_a_new_file_the_old_one_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let (mut process, _) = Process::start(root.path());
        process.put("a", "first").unwrap();
        fs::create_dir(root.path().join("state.new")).unwrap();
        let long = "x".repeat(100_000);
        let mut kept = 0;
        for _ in 0..30 {
            if process.put("b", &long).unwrap() == Written::OldIsKept {
                kept += 1;
                assert_eq!(process.write().unwrap(), Written::Done);
            }
        }
        assert!((1..4).contains(&kept), "{kept} of 30");
        assert_eq!(process.file.stats().snapshots, 1);
        process.end();
        fs::remove_dir(root.path().join("state.new")).unwrap();
        let (mut process, _) = Process::start(root.path());
        assert_eq!(found(&process), [("a", "first"), ("b", &*long)]);
        for _ in 0..30 {
            assert_eq!(process.put("b", &long).unwrap(), Written::Done);
        }
        assert!(process.file.stats().snapshots > 0);
        process.put("b", "short").unwrap();
        process.end();
        let (process, _) = Process::start(root.path());
        assert_eq!(found(&process), [("a", "first"), ("b", "short")]);
    }

    #[test]
    fn a_full_disk_is_an_error_that_says_what_to_do_and_the_last_word() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::lock(root.path()).unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut file = StateFile::start(directory, Some(full), remote()).unwrap();
        file.submit(Write::Append(vec![1])).unwrap();
        let text = file.wait().unwrap_err().to_string();
        assert!(
            text.contains("No space left") && text.contains("has room"),
            "{text}"
        );
        // What the disk holds is not known: nothing is written behind it.
        assert!(file.done.recv().is_err());
        assert!(file.submit(Write::Append(vec![2])).is_err());
        assert!(file.completed().is_err());
    }
}
