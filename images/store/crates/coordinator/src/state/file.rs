//! What is written to the file of a state, and when. No I/O: the bytes of a file are those of the [`journal`](super::journal).
//!
//! One write is under way at a time. What changes meanwhile is merged, and goes out as one record with the next write: so what waits is bounded by
//! the size of the state, however long the disk takes; and only the last record of a file can be torn, since each is on the disk before the next is
//! written.
//!
//! When most of the file tells of what is over, all pairs are written to a new file, which takes the place of the old one. That is a commit as well.

use base::bugs::{Bug, is_planted};

use super::batch::Batch;
use super::journal::{Loaded, Writer};
use super::{Changes, Pair};

/// A file is written anew when it is so many times as long as its snapshot, and this longer.
const GROWTH: u64 = 4;
const MIN_GROWTH_BYTES: u64 = 1 << 20;

/// To be done, and reported with [`FileKeeper::written`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Puts this behind the file, on the disk.
    Append(Vec<u8>),
    /// Puts a file with this content in the place of the old one, if there is one, on the disk.
    Replace(Vec<u8>),
}

/// What came of a write. If it is not known what the disk holds, nothing more may be written, and nothing that waits may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// There was no room for a new file: the old one is as it was. Only after [`Write::Replace`].
    OldIsKept,
}

/// A file that could not be replaced although there is none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFile;

#[derive(Debug)]
struct UnderWay {
    /// The last commit that it holds.
    number: u64,
    bytes: u64,
    /// Goes on behind it.
    writer: Writer,
    /// Of a new file: the changes to be appended to the old one, should that be kept.
    replaces: Option<Batch>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct FileKeeper {
    /// Goes on behind what is written. `None`: there is no file yet.
    writer: Option<Writer>,
    /// 0: there is no file yet.
    file_bytes: u64,
    /// Beyond this length it is worth writing the file anew.
    replace_at: u64,
    /// Changes that are in no write yet.
    waiting: Batch,
    /// The last commit.
    last: u64,
    under_way: Option<UnderWay>,
}

impl FileKeeper {
    /// For a store that nothing was noted of yet: the first write is a whole file.
    pub fn new() -> FileKeeper {
        FileKeeper::default()
    }

    /// Goes on with a file, of which all that is torn was cut off.
    pub fn go_on(loaded: &Loaded) -> FileKeeper {
        FileKeeper {
            writer: Some(loaded.writer.clone()),
            file_bytes: loaded.whole_bytes,
            replace_at: loaded.snapshot_bytes * GROWTH + MIN_GROWTH_BYTES,
            ..FileKeeper::default()
        }
    }

    /// Takes changes that are to be noted. The number is that of their commit: one more each time, from 1 on.
    pub fn commit(&mut self, changes: Changes) -> u64 {
        self.waiting.add(Batch::from(changes));
        self.last += 1;
        self.last
    }

    /// What is to be written now, if there is anything, and nothing is under way. `pairs` are all that there are, with the changes of every commit so
    /// far.
    ///
    /// # Errors
    /// A record would be longer than a file can hold.
    pub fn next_write<P: Iterator<Item = Pair>>(
        &mut self,
        cluster_id: u64,
        pairs: impl FnOnce() -> P,
    ) -> Result<Option<Write>, String> {
        if self.under_way.is_some() || self.waiting.is_empty() {
            return Ok(None);
        }
        let begun = self.writer.clone();
        let mut writer = begun.unwrap_or_else(|| Writer::new(cluster_id));
        let batch = core::mem::take(&mut self.waiting);
        let (write, replaces) = match self.file_bytes >= self.replace_at {
            true => (Write::Replace(writer.snapshot(pairs())?), Some(batch)),
            false => (Write::Append(writer.record(&batch.to_changes())?), None),
        };
        let (Write::Append(bytes) | Write::Replace(bytes)) = &write;
        self.under_way = Some(UnderWay {
            number: self.last,
            bytes: bytes.len() as u64,
            writer,
            replaces,
        });
        Ok(Some(write))
    }

    /// What came of the write that is under way. Answers up to which commit all is noted now, if that is news.
    ///
    /// # Errors
    /// Nothing can be noted.
    pub fn written(&mut self, written: Written) -> Result<Option<u64>, NoFile> {
        let done = self.under_way.take();
        let done = done.expect("what is reported was given out");
        match (written, done.replaces) {
            (Written::Done, replaced) => {
                self.writer = Some(done.writer);
                self.file_bytes = match replaced {
                    Some(_) => done.bytes,
                    None => self.file_bytes + done.bytes,
                };
                if replaced.is_some() {
                    self.replace_at = self.file_bytes * GROWTH + MIN_GROWTH_BYTES;
                }
                Ok(Some(done.number))
            }
            (Written::OldIsKept, Some(mut batch)) if self.file_bytes > 0 => {
                batch.add(core::mem::take(&mut self.waiting));
                self.waiting = batch;
                self.replace_at = self.file_bytes * 2;
                Ok(None)
            }
            (Written::OldIsKept, _) => Err(NoFile),
        }
    }

    /// Whether all that was committed is noted.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }

    /// Up to where a commit counts as noted although its write is under way.
    pub fn noted_too_early(&self) -> Option<u64> {
        let under_way = self.under_way.as_ref();
        under_way
            .filter(|_| is_planted(Bug::NoteUnsynced))
            .map(|under_way| under_way.number)
    }

    /// Counts what is noted.
    pub fn sequence(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::last_sequence)
    }

    /// Length of the file; 0 if there is none yet.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::journal;
    use super::*;

    const CLUSTER: u64 = 7;

    type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

    fn put(key: u8, value: &[u8]) -> Changes {
        let pair = Pair {
            key: vec![key],
            value: value.to_vec(),
        };
        Changes {
            puts: vec![pair],
            deletes: Vec::new(),
        }
    }

    fn delete(key: u8) -> Changes {
        Changes {
            puts: Vec::new(),
            deletes: vec![vec![key]],
        }
    }

    /// A keeper, the state in memory after each commit, and a disk.
    struct Bench {
        keeper: FileKeeper,
        states: Vec<Pairs>,
        under_way: Option<Write>,
        disk: Vec<u8>,
        /// The last commit that is noted.
        noted: u64,
    }

    impl Bench {
        fn new() -> Bench {
            Bench {
                keeper: FileKeeper::new(),
                states: vec![Pairs::new()],
                under_way: None,
                disk: Vec::new(),
                noted: 0,
            }
        }

        fn commit(&mut self, changes: Changes) {
            let mut state = self.states.last().unwrap().clone();
            Batch::from(changes.clone()).apply_to(&mut state);
            self.states.push(state);
            assert_eq!(self.keeper.commit(changes), self.states.len() as u64 - 1);
        }

        fn begin(&mut self) {
            let state = self.states.last().unwrap().clone();
            let pairs = state.into_iter();
            let pairs = || pairs.map(|(key, value)| Pair { key, value });
            let write = self.keeper.next_write(CLUSTER, pairs).unwrap();
            self.under_way = self.under_way.take().or(write);
        }

        /// `has_room`: for a whole file more.
        fn complete(&mut self, has_room: bool) {
            let written = match self.under_way.take() {
                None => return,
                Some(Write::Append(bytes)) => {
                    self.disk.extend(bytes);
                    Written::Done
                }
                Some(Write::Replace(_)) if !has_room && !self.disk.is_empty() => Written::OldIsKept,
                Some(Write::Replace(bytes)) => {
                    self.disk = bytes;
                    Written::Done
                }
            };
            self.noted = self.keeper.written(written).unwrap().unwrap_or(self.noted);
            assert_eq!(self.keeper.file_bytes(), self.disk.len() as u64);
        }

        /// What the next process finds if so many bytes of the write under way are on the disk: the state after a commit, and after all that are
        /// noted.
        fn check_crash(&self, written: usize) {
            let mut disk = self.disk.clone();
            if let Some(Write::Append(bytes)) = &self.under_way {
                disk.extend(&bytes[..written.min(bytes.len())]);
            }
            if disk.is_empty() {
                return assert_eq!(self.noted, 0);
            }
            let loaded = journal::load(&disk).unwrap();
            let is_found = self.states[self.noted as usize..].contains(&loaded.pairs);
            assert!(
                is_found,
                "what is noted is lost, or half of a commit is there"
            );
        }
    }

    #[test]
    fn what_changes_while_a_write_is_under_way_goes_out_with_the_next_one() {
        let mut bench = Bench::new();
        bench.commit(put(1, b"one"));
        bench.begin();
        assert!(matches!(bench.under_way, Some(Write::Replace(_))));
        for value in 0..100 {
            bench.commit(put(2, &[value]));
            bench.begin();
        }
        assert_eq!((bench.noted, bench.keeper.sequence()), (0, 0));
        bench.complete(true);
        assert_eq!((bench.noted, bench.keeper.sequence()), (1, 1));
        bench.begin();
        let Some(Write::Append(bytes)) = &bench.under_way else {
            panic!("{:?}", bench.under_way);
        };
        assert!(bytes.len() < 100, "{} bytes for one pair", bytes.len());
        bench.complete(true);
        assert_eq!((bench.noted, bench.keeper.sequence()), (101, 2));
        assert!(bench.keeper.is_idle());
        bench.check_crash(0);
    }

    #[test]
    fn a_file_most_of_which_is_over_is_written_anew() {
        let mut bench = Bench::new();
        let mut longest = 0;
        for number in 0..40 {
            bench.commit(put(1, &[number; 100_000]));
            bench.begin();
            bench.complete(true);
            longest = longest.max(bench.disk.len());
        }
        assert!((1 << 20..2 << 20).contains(&longest), "{longest}");
        assert_eq!(bench.noted, 40);
        bench.check_crash(0);
    }

    #[test]
    fn without_room_for_a_new_file_the_old_one_goes_on() {
        let mut bench = Bench::new();
        for number in 0..40 {
            bench.commit(put(number % 3, &[number; 100_000]));
            bench.begin();
            bench.commit(delete(number % 2));
            bench.complete(false);
            bench.check_crash(0);
            bench.begin();
            bench.complete(false);
            bench.check_crash(0);
        }
        assert_eq!(bench.noted, 80);
        assert!(bench.disk.len() > 3 << 20, "{}", bench.disk.len());
        bench.commit(put(1, b"short"));
        for _ in 0..50 {
            bench.commit(put(2, &[2; 100_000]));
            bench.begin();
            bench.complete(true);
        }
        assert!(bench.disk.len() < 2 << 20, "{}", bench.disk.len());
        // The next process goes on with it.
        let loaded = journal::load(&bench.disk).unwrap();
        bench.keeper = FileKeeper::go_on(&loaded);
        bench.states = vec![loaded.pairs];
        bench.noted = 0;
        bench.commit(put(3, b"more"));
        bench.begin();
        assert!(matches!(bench.under_way, Some(Write::Append(_))));
        bench.complete(true);
        bench.check_crash(0);
    }

    #[test]
    fn without_any_file_there_is_nothing_to_go_on_with() {
        let mut bench = Bench::new();
        bench.commit(put(1, b"one"));
        bench.begin();
        assert_eq!(bench.keeper.written(Written::OldIsKept), Err(NoFile));
    }

    proptest! {
        #[test]
        fn whenever_a_process_ends_all_that_is_noted_is_there(
            steps in proptest::collection::vec((0..5_u8, 0..4_u8, 0..300_usize), 1..80)
        ) {
            let mut bench = Bench::new();
            for (what, key, number) in steps {
                match what {
                    0 => bench.commit(put(key, &vec![number as u8; number * 300])),
                    1 => bench.commit(delete(key)),
                    2 => bench.begin(),
                    3 => bench.complete(number % 3 > 0),
                    _ => bench.check_crash(number),
                }
                bench.check_crash(usize::MAX);
            }
        }
    }
}
