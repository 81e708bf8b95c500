//! The coordinator's state in a directory: one file, a snapshot with commits behind it (`coordinator::state::journal`).
//!
//! ```text
//! DIR/state      what is noted
//! DIR/state.new  the next snapshot while it is being written; worth nothing
//! DIR/lock       locked by the process that uses the directory
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use coordinator::state::journal::{self, Loaded, Writer};
use coordinator::state::{Changes, Pair};
use rustix::fs::{FlockOperation, flock};

/// A file is written anew when it is so many times as long as its snapshot, and this longer.
const GROWTH: u64 = 4;
const MIN_GROWTH_BYTES: u64 = 1 << 20;

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
    pub file_bytes: u64,
    pub commits: u64,
    /// Time that commits took, all together.
    pub commit_ns: u64,
    pub snapshots: u64,
}

/// The file that commits go to.
#[derive(Debug)]
pub struct StateFile {
    directory: Directory,
    file: File,
    writer: Writer,
    /// Beyond this length it is worth writing the file anew.
    snapshot_at: u64,
    stats: Stats,
}

impl Directory {
    /// Makes the directory if it is not there, and locks it.
    ///
    /// # Errors
    /// Another coordinator uses it, or it cannot be used.
    pub fn lock(path: &Path) -> Result<Directory, String> {
        fs::create_dir_all(path).map_err(|error| {
            format!(
                "cannot make the state directory {}: {error}",
                path.display()
            )
        })?;
        let lock = path.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock)
            .map_err(|error| format!("cannot open {}: {error}", lock.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(format!(
                    "another coordinator is running on the state in {}: end it, or give this one another --state",
                    path.display()
                ));
            }
            Err(error) => return Err(format!("cannot lock {}: {error}", lock.display())),
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
    pub fn read(&self) -> Result<Option<Loaded>, String> {
        let path = self.state_path();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let loaded = journal::load(&bytes);
        loaded
            .map(Some)
            .map_err(|text| format!("cannot use {}: {text}", path.display()))
    }

    /// Writes the whole state to a new file, and puts it in the place of the old one once it is on the disk.
    fn write(&self, bytes: &[u8]) -> Result<File, WriteError> {
        let (path, new_path) = (self.state_path(), self.path.join("state.new"));
        let not_written = |error| WriteError::OldIsKept(failed("write", &new_path, &error));
        let mut file = File::create(&new_path).map_err(not_written)?;
        file.write_all(bytes).map_err(not_written)?;
        file.sync_all().map_err(not_written)?;
        let not_replaced = |error| WriteError::Unknown(failed("replace", &path, &error));
        fs::rename(&new_path, &path).map_err(not_replaced)?;
        // Only now does the new name outlive a loss of power.
        let directory = File::open(&self.path).map_err(not_replaced)?;
        directory.sync_all().map_err(not_replaced)?;
        Ok(file)
    }
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!(
        "cannot {what} the coordinator's state at {}: {error}; see that its disk works and has room, and start the coordinator again",
        path.display()
    )
}

#[derive(Debug)]
enum WriteError {
    /// The file from before is as it was.
    OldIsKept(String),
    /// Which of the two is there after a loss of power cannot be said.
    Unknown(String),
}

impl WriteError {
    fn into_text(self) -> String {
        match self {
            WriteError::OldIsKept(text) | WriteError::Unknown(text) => text,
        }
    }
}

impl StateFile {
    /// Counts what was noted in it.
    pub fn sequence(&self) -> u64 {
        self.writer.last_sequence()
    }

    /// The file of a new store.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(
        directory: Directory,
        mut writer: Writer,
        pairs: impl Iterator<Item = Pair>,
    ) -> Result<StateFile, String> {
        let bytes = writer.snapshot(pairs)?;
        let file = directory.write(&bytes).map_err(WriteError::into_text)?;
        Ok(StateFile::new(
            directory,
            file,
            writer,
            bytes.len() as u64,
            bytes.len() as u64,
        ))
    }

    /// Goes on with a file that was read. What was torn off its end is cut.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn go_on(directory: Directory, loaded: Loaded) -> Result<StateFile, String> {
        let path = directory.state_path();
        let open = || -> std::io::Result<File> {
            let file = OpenOptions::new().append(true).open(&path)?;
            if loaded.torn_bytes > 0 {
                file.set_len(loaded.whole_bytes)?;
                file.sync_all()?;
            }
            Ok(file)
        };
        let file = open().map_err(|error| failed("write", &path, &error))?;
        Ok(StateFile::new(
            directory,
            file,
            loaded.writer,
            loaded.snapshot_bytes,
            loaded.whole_bytes,
        ))
    }

    fn new(
        directory: Directory,
        file: File,
        writer: Writer,
        snapshot_bytes: u64,
        file_bytes: u64,
    ) -> StateFile {
        StateFile {
            directory,
            file,
            writer,
            snapshot_at: snapshot_bytes * GROWTH + MIN_GROWTH_BYTES,
            stats: Stats {
                file_bytes,
                ..Stats::default()
            },
        }
    }

    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Notes changes; they are on the disk when this returns.
    ///
    /// # Errors
    /// Whether they are noted is unknown: nothing that depends on them may leave this process, and nothing more be noted.
    pub fn commit(&mut self, changes: &Changes) -> Result<(), String> {
        let began = net::now();
        let bytes = self.writer.record(changes)?;
        let written = self
            .file
            .write_all(&bytes)
            .and_then(|()| self.file.sync_data());
        written.map_err(|error| failed("write", &self.directory.state_path(), &error))?;
        self.stats.file_bytes += bytes.len() as u64;
        self.stats.commits += 1;
        let took = net::now().since(began);
        self.stats.commit_ns += u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Whether most of the file tells of what is over.
    pub fn wants_snapshot(&self) -> bool {
        self.stats.file_bytes > self.snapshot_at
    }

    /// Writes the file anew: `pairs` are all that was committed. If there is no room for it, the file from before goes on.
    ///
    /// # Errors
    /// As for [`StateFile::commit`].
    pub fn snapshot(&mut self, pairs: impl Iterator<Item = Pair>) -> Result<(), String> {
        let began = net::now();
        // If the old file goes on, so does its counting.
        let mut writer = self.writer.clone();
        let bytes = writer.snapshot(pairs)?;
        match self.directory.write(&bytes) {
            Ok(file) => {
                let before = std::mem::replace(&mut self.stats.file_bytes, bytes.len() as u64);
                (self.file, self.writer) = (file, writer);
                self.stats.snapshots += 1;
                self.snapshot_at = self.stats.file_bytes * GROWTH + MIN_GROWTH_BYTES;
                let took = net::now().since(began);
                tracing::info!(
                    "wrote the state anew: {} bytes instead of {before}, in {} ms",
                    bytes.len(),
                    took.as_millis()
                );
                Ok(())
            }
            Err(WriteError::OldIsKept(text)) => {
                tracing::error!("{text}; until then the file from before grows");
                self.snapshot_at = self.stats.file_bytes * 2;
                Ok(())
            }
            Err(WriteError::Unknown(text)) => Err(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(key: &str, value: &str) -> Changes {
        let (key, value) = (key.into(), value.into());
        Changes {
            puts: vec![Pair { key, value }],
            deletes: Vec::new(),
        }
    }

    fn create(path: &Path) -> StateFile {
        let directory = Directory::lock(path).unwrap();
        assert!(directory.read().unwrap().is_none());
        let first = changes("a", "first").puts;
        StateFile::create(directory, Writer::new(7), first.into_iter()).unwrap()
    }

    /// The next process: what it finds, and what was torn off.
    fn again(path: &Path) -> (StateFile, Vec<(String, String)>, u64) {
        let directory = Directory::lock(path).unwrap();
        let mut loaded = directory.read().unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let pairs = loaded.take_pairs();
        let pairs = pairs.map(|pair| (text(pair.key), text(pair.value)));
        let (pairs, torn_bytes) = (pairs.collect(), loaded.torn_bytes);
        (
            StateFile::go_on(directory, loaded).unwrap(),
            pairs,
            torn_bytes,
        )
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    #[test]
    fn what_was_committed_is_there_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("not/there/yet");
        let mut state = create(&path);
        state.commit(&changes("b", "1")).unwrap();
        state.commit(&changes("a", "2")).unwrap();
        assert_eq!(state.stats().commits, 2);
        drop(state);
        let (mut state, found, _) = again(&path);
        assert_eq!(found, pairs(&[("a", "2"), ("b", "1")]));
        state.commit(&changes("c", "3")).unwrap();
        let length = fs::metadata(path.join("state")).unwrap().len();
        assert_eq!(state.stats().file_bytes, length);
        drop(state);
        assert_eq!(again(&path).1, pairs(&[("a", "2"), ("b", "1"), ("c", "3")]));
    }

    #[test]
    fn a_second_process_is_refused_as_long_as_the_first_lives() {
        let root = tempfile::tempdir().unwrap();
        let state = create(root.path());
        let text = Directory::lock(root.path()).unwrap_err();
        assert!(
            text.contains("another coordinator is running on the state in"),
            "{text}"
        );
        drop(state);
        Directory::lock(root.path()).unwrap();
    }

    #[test]
    fn wherever_a_commit_was_cut_the_one_before_is_gone_on_with() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("state");
        let mut state = create(root.path());
        state.commit(&changes("b", "kept")).unwrap();
        let whole = fs::read(&file).unwrap();
        state.commit(&changes("c", "cut")).unwrap();
        drop(state);
        let longest = fs::read(&file).unwrap();
        for length in whole.len()..longest.len() {
            fs::write(&file, &longest[..length]).unwrap();
            let (mut state, found, torn_bytes) = again(root.path());
            assert_eq!(found, pairs(&[("a", "first"), ("b", "kept")]));
            assert_eq!(torn_bytes, (length - whole.len()) as u64);
            state.commit(&changes("d", "goes on")).unwrap();
            drop(state);
            let (_, found, torn_bytes) = again(root.path());
            assert_eq!(
                found,
                pairs(&[("a", "first"), ("b", "kept"), ("d", "goes on")])
            );
            assert_eq!(torn_bytes, 0);
        }
    }

    #[test]
    fn damage_is_refused_with_the_files_name_and_advice() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("state");
        let mut state = create(root.path());
        let first = fs::metadata(&file).unwrap().len() as usize;
        state.commit(&changes("b", "1")).unwrap();
        state.commit(&changes("c", "1")).unwrap();
        drop(state);
        let mut bytes = fs::read(&file).unwrap();
        bytes[first + 20] ^= 4;
        fs::write(&file, &bytes).unwrap();
        let text = Directory::lock(root.path()).unwrap().read().unwrap_err();
        assert!(text.contains(&file.display().to_string()), "{text}");
        assert!(text.contains(&format!("damaged at byte {first}")), "{text}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "it is left as it is");
    }

    #[test]
    fn the_file_is_written_anew_when_most_of_it_is_over() {
        let root = tempfile::tempdir().unwrap();
        let mut state = create(root.path());
        let long = "x".repeat(100_000);
        let mut commits = 0;
        while !state.wants_snapshot() {
            state.commit(&changes("a", &long)).unwrap();
            commits += 1;
        }
        assert!(
            (10..=12).contains(&commits),
            "after a mebibyte: {commits} commits"
        );
        state
            .snapshot(changes("a", "short").puts.into_iter())
            .unwrap();
        assert!(state.stats().file_bytes < 200 && !state.wants_snapshot());
        state.commit(&changes("b", "behind it")).unwrap();
        drop(state);
        assert_eq!(
            again(root.path()).1,
            pairs(&[("a", "short"), ("b", "behind it")])
        );
    }

    #[test]
    fn a_snapshot_that_was_being_written_is_worth_nothing() {
        let root = tempfile::tempdir().unwrap();
        let mut state = create(root.path());
        state.commit(&changes("b", "1")).unwrap();
        let mut writer = state.writer.clone();
        drop(state);
        let next = writer
            .snapshot(changes("a", "other").puts.into_iter())
            .unwrap();
        for length in (0..=next.len()).step_by(7) {
            fs::write(root.path().join("state.new"), &next[..length]).unwrap();
            assert_eq!(again(root.path()).1, pairs(&[("a", "first"), ("b", "1")]));
        }
        // The next one replaces it; and once it is renamed, it is the state.
        fs::write(root.path().join("state.new"), &next).unwrap();
        fs::rename(root.path().join("state.new"), root.path().join("state")).unwrap();
        let (mut state, found, _) = again(root.path());
        assert_eq!(found, pairs(&[("a", "other")]));
        state.commit(&changes("b", "2")).unwrap();
        drop(state);
        assert_eq!(again(root.path()).1, pairs(&[("a", "other"), ("b", "2")]));
    }

    #[test]
    fn without_room_for_a_snapshot_the_old_file_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let mut state = create(root.path());
        fs::create_dir(root.path().join("state.new")).unwrap();
        state
            .snapshot(changes("a", "never").puts.into_iter())
            .unwrap();
        assert_eq!(state.stats().snapshots, 0);
        state.commit(&changes("b", "1")).unwrap();
        drop(state);
        let (mut state, found, _) = again(root.path());
        assert_eq!(found, pairs(&[("a", "first"), ("b", "1")]));
        fs::remove_dir(root.path().join("state.new")).unwrap();
        state
            .snapshot(changes("a", "now").puts.into_iter())
            .unwrap();
        drop(state);
        assert_eq!(again(root.path()).1, pairs(&[("a", "now")]));
    }

    #[test]
    fn a_full_disk_is_an_error_that_says_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let mut state = create(root.path());
        state.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let text = state.commit(&changes("b", "1")).unwrap_err();
        assert!(
            text.contains("No space left") && text.contains("has room"),
            "{text}"
        );
    }
}
