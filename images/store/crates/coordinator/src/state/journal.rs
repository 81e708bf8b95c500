//! The file that keeps the pairs, as bytes: a header, a snapshot, and one record for each commit since. No I/O.
//!
//! ```text
//! header   magic "rcboxCST" | crc u32 | format version u32 | cluster id u64 | first sequence u64 | snapshot bytes u64
//! record   payload bytes u32 | crc u32 | sequence u64 | payload: Changes
//! ```
//!
//! All numbers are little-endian. The CRC (CRC-32C) of the header is over what follows it; that of a record over the cluster id,
//! the payload's length, the sequence number and the payload. Sequence numbers count up by one through all records of a store's
//! life; the snapshot is the records of the first so many bytes. A file comes into being with its header and snapshot complete
//! and synced; every later record is synced before the next one is written. So only the last record can be cut by a crash, and
//! what is wrong anywhere else is damage.

use std::collections::BTreeMap;

use prost::Message;

use super::{Changes, Pair};

/// The format that this build writes, and the only one so far.
pub const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"rcboxCST";
const HEADER_BYTES: usize = 40;
const RECORD_HEADER_BYTES: usize = 16;
/// Pairs of a snapshot are put into records of about this size.
const SNAPSHOT_RECORD_BYTES: usize = 1 << 20;
/// A longer record is not written, and not believed.
const MAX_RECORD_BYTES: usize = 1 << 30;

/// Makes the bytes that are appended to a file.
#[derive(Clone, Debug)]
pub struct Writer {
    cluster_id: u64,
    next_sequence: u64,
}

/// What was found in a file.
#[derive(Debug)]
pub struct Loaded {
    pub pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Goes on behind the last whole record.
    pub writer: Writer,
    /// Length of the header and the snapshot.
    pub snapshot_bytes: u64,
    /// Length of what is whole; the rest is to be cut off.
    pub whole_bytes: u64,
    /// Bytes behind that: of a record that was being written when the process ended, and was promised to nobody.
    pub torn_bytes: u64,
    /// Whole records behind the snapshot.
    pub commits: u64,
}

impl Loaded {
    /// What [`crate::Coordinator::restore`] takes; they are gone from here then.
    pub fn take_pairs(&mut self) -> impl Iterator<Item = Pair> + use<> {
        let pairs = core::mem::take(&mut self.pairs);
        pairs.into_iter().map(|(key, value)| Pair { key, value })
    }
}

impl Writer {
    /// For a store that nothing was noted of yet.
    pub fn new(cluster_id: u64) -> Writer {
        Writer {
            cluster_id,
            next_sequence: 1,
        }
    }

    /// Of the last record that was made.
    pub fn last_sequence(&self) -> u64 {
        self.next_sequence - 1
    }

    /// The record of one commit.
    ///
    /// # Errors
    /// The changes make more than a gibibyte.
    pub fn record(&mut self, changes: &Changes) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        self.append(changes, &mut bytes)?;
        Ok(bytes)
    }

    /// A whole file with nothing in it but these pairs.
    ///
    /// # Errors
    /// A single pair makes more than a gibibyte.
    pub fn snapshot(&mut self, pairs: impl Iterator<Item = Pair>) -> Result<Vec<u8>, String> {
        let first_sequence = self.next_sequence;
        let mut bytes = vec![0; HEADER_BYTES];
        let (mut changes, mut room) = (Changes::default(), SNAPSHOT_RECORD_BYTES);
        for pair in pairs {
            let pair_bytes = pair.encoded_len();
            if pair_bytes > room && !changes.is_empty() {
                self.append(&changes, &mut bytes)?;
                (changes, room) = (Changes::default(), SNAPSHOT_RECORD_BYTES);
            }
            room = room.saturating_sub(pair_bytes);
            changes.puts.push(pair);
        }
        self.append(&changes, &mut bytes)?;
        let snapshot_bytes = (bytes.len() - HEADER_BYTES) as u64;
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[12..16].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.cluster_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&first_sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&snapshot_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[12..HEADER_BYTES]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }

    fn append(&mut self, changes: &Changes, bytes: &mut Vec<u8>) -> Result<(), String> {
        let length = changes.encoded_len();
        if length > MAX_RECORD_BYTES {
            return Err(format!("{length} bytes of changes at once are too many"));
        }
        let start = bytes.len();
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.next_sequence.to_le_bytes());
        // A vector takes any message.
        changes.encode_raw(bytes);
        let crc = record_crc(
            self.cluster_id,
            self.next_sequence,
            &bytes[start + RECORD_HEADER_BYTES..],
        );
        bytes[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        self.next_sequence += 1;
        Ok(())
    }
}

fn record_crc(cluster_id: u64, sequence: u64, payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&cluster_id.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &(payload.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &sequence.to_le_bytes());
    crc32c::crc32c_append(crc, payload)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The record with this sequence number at the start of `bytes`, and how long it is.
fn read_record(bytes: &[u8], cluster_id: u64, sequence: u64) -> Option<(Changes, usize)> {
    if u64_at(bytes, 8)? != sequence {
        return None;
    }
    let end = RECORD_HEADER_BYTES + u32_at(bytes, 0)? as usize;
    let payload = bytes.get(RECORD_HEADER_BYTES..end)?;
    if payload.len() > MAX_RECORD_BYTES
        || u32_at(bytes, 4)? != record_crc(cluster_id, sequence, payload)
    {
        return None;
    }
    Some((Changes::decode(payload).ok()?, end))
}

/// Whether a record that was written after `sequence` is somewhere in `bytes`.
fn has_later_record(bytes: &[u8], cluster_id: u64, sequence: u64) -> bool {
    let latest = sequence.saturating_add((bytes.len() / RECORD_HEADER_BYTES) as u64);
    (0..bytes.len()).any(|at| {
        let rest = &bytes[at..];
        u64_at(rest, 8).is_some_and(|found| {
            found > sequence && found <= latest && read_record(rest, cluster_id, found).is_some()
        })
    })
}

/// Reads a whole file.
///
/// # Errors
/// It is not such a file, of a newer format, or damaged: a text that says what to do.
pub fn load(bytes: &[u8]) -> Result<Loaded, String> {
    let header = read_header(bytes)?;
    let mut loaded = Loaded {
        pairs: BTreeMap::new(),
        writer: Writer {
            cluster_id: header.cluster_id,
            next_sequence: header.first_sequence,
        },
        snapshot_bytes: header.snapshot_end as u64,
        whole_bytes: 0,
        torn_bytes: 0,
        commits: 0,
    };
    let mut at = HEADER_BYTES;
    while at < bytes.len() {
        let sequence = loaded.writer.next_sequence;
        let rest = &bytes[at..];
        let Some((changes, length)) = read_record(rest, header.cluster_id, sequence) else {
            if at < header.snapshot_end || has_later_record(rest, header.cluster_id, sequence) {
                return Err(damaged(at));
            }
            loaded.torn_bytes = rest.len() as u64;
            break;
        };
        for pair in changes.puts {
            loaded.pairs.insert(pair.key, pair.value);
        }
        for key in changes.deletes {
            loaded.pairs.remove(&key);
        }
        loaded.commits += u64::from(at >= header.snapshot_end);
        loaded.writer.next_sequence = sequence.saturating_add(1);
        at += length;
    }
    if at < header.snapshot_end {
        return Err(damaged(at));
    }
    loaded.whole_bytes = at as u64;
    Ok(loaded)
}

fn damaged(at: usize) -> String {
    format!(
        "it is damaged at byte {at}, and what comes after cannot be understood without that: \
         put a copy of it from before in its place"
    )
}

struct Header {
    cluster_id: u64,
    first_sequence: u64,
    /// Where the snapshot ends.
    snapshot_end: usize,
}

fn read_header(bytes: &[u8]) -> Result<Header, String> {
    if !bytes.starts_with(&MAGIC) {
        return Err("it is not a coordinator's state: name another directory".to_owned());
    }
    let fields = || {
        let header = bytes.get(..HEADER_BYTES)?;
        let is_sound = u32_at(header, 8)? == crc32c::crc32c(&header[12..]);
        let version = is_sound.then_some(u32_at(header, 12)?)?;
        let snapshot_end = u64_at(header, 32)?.checked_add(HEADER_BYTES as u64)?;
        let header = Header {
            cluster_id: u64_at(header, 16)?,
            first_sequence: u64_at(header, 24)?,
            snapshot_end: usize::try_from(snapshot_end).ok()?,
        };
        Some((version, header))
    };
    match fields() {
        Some((FORMAT_VERSION, header)) => Ok(header),
        Some((version, _)) => Err(format!(
            "it is of format {version}, and this build reads format {FORMAT_VERSION}: start a coordinator of the version \
             that wrote it"
        )),
        None => Err(damaged(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> Pair {
        Pair {
            key: key.into(),
            value: value.into(),
        }
    }

    fn changes(puts: &[(&str, &str)], deletes: &[&str]) -> Changes {
        Changes {
            puts: puts.iter().map(|(key, value)| pair(key, value)).collect(),
            deletes: deletes.iter().map(|key| key.as_bytes().to_vec()).collect(),
        }
    }

    type Shown = Vec<(String, String)>;

    fn shown(loaded: &Loaded) -> Shown {
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        let pairs = loaded.pairs.iter();
        pairs.map(|(key, value)| (text(key), text(value))).collect()
    }

    fn expected(pairs: &[(&str, &str)]) -> Shown {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    /// A file with three commits, where each record begins, and what is there once that many are whole.
    fn sample() -> (Vec<u8>, Vec<usize>, Vec<Shown>) {
        let mut writer = Writer::new(7);
        let pairs = [pair("a", "1"), pair("b", "1")];
        let mut bytes = writer.snapshot(pairs.into_iter()).unwrap();
        let mut starts = vec![bytes.len()];
        for commit in [
            changes(&[("a", "2"), ("c", "1")], &["b", "never there"]),
            changes(&[("d", &"long ".repeat(20))], &[]),
            changes(&[("b", "3")], &["c"]),
        ] {
            bytes.extend(writer.record(&commit).unwrap());
            starts.push(bytes.len());
        }
        let long = "long ".repeat(20);
        let states = [
            expected(&[("a", "1"), ("b", "1")]),
            expected(&[("a", "2"), ("c", "1")]),
            expected(&[("a", "2"), ("c", "1"), ("d", &long)]),
            expected(&[("a", "2"), ("b", "3"), ("d", &long)]),
        ];
        (bytes, starts, states.to_vec())
    }

    #[test]
    fn what_was_written_is_read_and_gone_on_with() {
        let (mut bytes, starts, states) = sample();
        let mut loaded = load(&bytes).unwrap();
        assert_eq!(shown(&loaded), states[3]);
        assert_eq!((loaded.commits, loaded.torn_bytes), (3, 0));
        assert_eq!(loaded.snapshot_bytes, starts[0] as u64);
        assert_eq!(loaded.whole_bytes, bytes.len() as u64);
        bytes.extend(loaded.writer.record(&changes(&[], &["a", "d"])).unwrap());
        let mut again = load(&bytes).unwrap();
        assert_eq!(shown(&again), expected(&[("b", "3")]));
        // A new snapshot goes on counting, so that no record of the file before fits behind it.
        let kept: Vec<Pair> = again
            .pairs
            .iter()
            .map(|(k, v)| Pair {
                key: k.clone(),
                value: v.clone(),
            })
            .collect();
        let mut compacted = again.writer.snapshot(kept.into_iter()).unwrap();
        assert_eq!(shown(&load(&compacted).unwrap()), expected(&[("b", "3")]));
        compacted.extend_from_slice(&bytes[starts[1]..starts[2]]);
        assert!(load(&compacted).unwrap().torn_bytes > 0);
    }

    #[test]
    fn wherever_the_file_ends_all_whole_commits_are_there() {
        let (bytes, starts, states) = sample();
        for length in starts[0]..=bytes.len() {
            let loaded = load(&bytes[..length]).unwrap();
            let whole = starts.iter().filter(|start| **start <= length).count() - 1;
            assert_eq!(shown(&loaded), states[whole], "{length} bytes");
            assert_eq!(loaded.whole_bytes, starts[whole] as u64);
            assert_eq!(loaded.torn_bytes, (length - starts[whole]) as u64);
        }
        for length in 0..starts[0] {
            let text = load(&bytes[..length]).unwrap_err();
            assert!(
                text.contains("damaged") || length < 8 && text.contains("not a coordinator's"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_tail_that_the_disk_left_half_written_is_cut() {
        let (bytes, starts, states) = sample();
        for from in starts[2]..bytes.len() {
            let mut torn = bytes.clone();
            torn[from..].fill(0);
            if torn == bytes {
                continue;
            }
            let loaded = load(&torn).unwrap();
            assert_eq!(shown(&loaded), states[2]);
            // Blocks reach the disk in any order.
            let mut torn = bytes.clone();
            torn[starts[2]..=from].fill(0);
            assert_eq!(shown(&load(&torn).unwrap()), states[2]);
        }
    }

    #[test]
    fn damage_before_the_last_record_is_never_taken_for_a_torn_tail() {
        let (bytes, starts, states) = sample();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                match load(&flipped) {
                    Err(text) if at < 8 => assert!(text.contains("not a coordinator's"), "{text}"),
                    Err(text) => {
                        assert!(at < starts[2], "byte {at}: {text}");
                        assert!(text.contains("damaged at byte"), "{text}");
                    }
                    // Of the last record nobody can say whether it was ever whole.
                    Ok(loaded) => {
                        assert!(at >= starts[2], "byte {at} was overlooked");
                        assert_eq!(shown(&loaded), states[2]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_missing_record_is_found() {
        let (bytes, starts, _) = sample();
        let without = [&bytes[..starts[0]], &bytes[starts[1]..]].concat();
        assert!(load(&without).unwrap_err().contains("damaged"));
        let twice = [&bytes[..starts[1]], &bytes[starts[0]..]].concat();
        assert!(load(&twice).unwrap_err().contains("damaged"));
    }

    #[test]
    fn a_large_snapshot_is_in_several_records() {
        let value = "x".repeat(300_000);
        let pairs = (0..10).map(|number| pair(&format!("{number}"), &value));
        let bytes = Writer::new(1).snapshot(pairs).unwrap();
        let loaded = load(&bytes).unwrap();
        assert_eq!(loaded.pairs.len(), 10);
        assert_eq!(
            (loaded.commits, loaded.whole_bytes),
            (0, bytes.len() as u64)
        );
        assert_eq!(loaded.writer.next_sequence, 5, "three fit in a record");
        for at in (0..bytes.len()).step_by(99_991) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(load(&flipped).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let mut bytes = Writer::new(1).snapshot(std::iter::empty()).unwrap();
        bytes[12] = 2;
        let crc = crc32c::crc32c(&bytes[12..40]).to_le_bytes();
        bytes[8..12].copy_from_slice(&crc);
        let text = load(&bytes).unwrap_err();
        assert!(
            text.contains("of format 2") && text.contains("start a coordinator of the version"),
            "{text}"
        );
    }
}
