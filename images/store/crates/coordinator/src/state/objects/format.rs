//! The objects as bytes.
//!
//! ```text
//! root     magic "rcboxCRT" | crc u32 | format version u32 | cluster id u64 | payload: RootRecord
//! chunk    magic "rcboxCCK" | crc u32 | format version u32 | cluster id u64 | term u64 | nonce u64 | number u64 | payload: a piece of a run
//! ```
//!
//! All numbers are little-endian; the CRC (CRC-32C) is over what follows it. A run is the bytes of one [`Changes`], cut anywhere
//! into the payloads of its chunks. Records change by optional additions only; what an older build must not overlook raises
//! [`FORMAT_VERSION`].

use core::fmt;
use core::str::FromStr;

use prost::Message;

use crate::position::{Leadership, Position};
use crate::state::Changes;
use crate::state::batch::Batch;

/// The format that this build writes, and the only one so far.
pub const FORMAT_VERSION: u32 = 1;
const ROOT_MAGIC: [u8; 8] = *b"rcboxCRT";
const CHUNK_MAGIC: [u8; 8] = *b"rcboxCCK";
const ROOT_HEADER_BYTES: usize = 24;
/// A chunk's object is so much longer than its payload.
pub const CHUNK_HEADER_BYTES: usize = 48;
/// Nothing has happened more often.
const MAX_COUNT: u64 = 1 << 48;

/// Names a chunk: by the leadership that wrote it, and a number that counts up from 1 in each. Never used for another content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkId {
    pub term: u64,
    pub nonce: u64,
    pub number: u64,
}

/// The chunk's name within its store: lower-case letters, digits and dashes, at most 64 of them.
impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk-{}-{:016x}-{}", self.term, self.nonce, self.number)
    }
}

impl FromStr for ChunkId {
    type Err = String;

    /// # Errors
    /// It is not a chunk's name, letter by letter.
    fn from_str(name: &str) -> Result<ChunkId, String> {
        let parsed = || {
            let mut parts = name.strip_prefix("chunk-")?.split('-');
            let id = ChunkId {
                term: parts.next()?.parse().ok()?,
                nonce: u64::from_str_radix(parts.next()?, 16).ok()?,
                number: parts.next()?.parse().ok()?,
            };
            (parts.next().is_none() && id.to_string() == name).then_some(id)
        };
        parsed().ok_or_else(|| format!("{name:?} is not a chunk's name"))
    }
}

/// What a root says of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    pub id: ChunkId,
    /// Length of the payload.
    pub bytes: u32,
    /// As in the chunk's header: over the rest of its header and its payload.
    pub crc: u32,
}

/// The chunks of one [`Changes`], in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub chunks: Vec<ChunkRef>,
}

impl Run {
    pub fn bytes(&self) -> u64 {
        let chunks = self.chunks.iter();
        chunks.map(|chunk| u64::from(chunk.bytes)).sum()
    }
}

/// The one object that says what the store's state is: what the runs say, one after the other, and then the tail.
#[derive(Clone, Debug, PartialEq)]
pub struct Root {
    pub cluster_id: u64,
    /// Who wrote it, and how many roots there were before it.
    pub position: Position,
    /// Leaderships before that one, the oldest first, as far as they are remembered.
    pub past: Vec<Leadership>,
    /// Who leads, for people.
    pub leader: String,
    /// The first is most of the state, the others what has changed since.
    pub runs: Vec<Run>,
    pub tail: Batch,
}

#[derive(Clone, PartialEq, Message)]
struct RootRecord {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(fixed64, tag = "2")]
    nonce: u64,
    #[prost(uint64, tag = "3")]
    sequence: u64,
    #[prost(string, tag = "4")]
    leader: String,
    #[prost(message, repeated, tag = "5")]
    past: Vec<Leadership>,
    #[prost(message, repeated, tag = "6")]
    runs: Vec<RunRecord>,
    #[prost(message, optional, tag = "7")]
    tail: Option<Changes>,
}

#[derive(Clone, PartialEq, Message)]
struct RunRecord {
    #[prost(message, repeated, tag = "1")]
    chunks: Vec<ChunkRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkRecord {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(fixed64, tag = "2")]
    nonce: u64,
    #[prost(uint64, tag = "3")]
    number: u64,
    #[prost(uint32, tag = "4")]
    bytes: u32,
    #[prost(fixed32, tag = "5")]
    crc: u32,
}

impl From<&ChunkRef> for ChunkRecord {
    fn from(chunk: &ChunkRef) -> ChunkRecord {
        ChunkRecord {
            term: chunk.id.term,
            nonce: chunk.id.nonce,
            number: chunk.id.number,
            bytes: chunk.bytes,
            crc: chunk.crc,
        }
    }
}

impl From<&ChunkRecord> for ChunkRef {
    fn from(record: &ChunkRecord) -> ChunkRef {
        let id = ChunkId {
            term: record.term,
            nonce: record.nonce,
            number: record.number,
        };
        ChunkRef {
            id,
            bytes: record.bytes,
            crc: record.crc,
        }
    }
}

impl Root {
    /// Chunks that it names, in the order in which they are read.
    pub fn chunks(&self) -> impl Iterator<Item = &ChunkRef> {
        self.runs.iter().flat_map(|run| &run.chunks)
    }

    pub fn encode(&self) -> Vec<u8> {
        let runs = self.runs.iter();
        let record = RootRecord {
            term: self.position.term,
            nonce: self.position.nonce,
            sequence: self.position.sequence,
            leader: self.leader.clone(),
            past: self.past.clone(),
            runs: runs
                .map(|run| RunRecord {
                    chunks: run.chunks.iter().map(ChunkRecord::from).collect(),
                })
                .collect(),
            tail: (!self.tail.is_empty()).then(|| self.tail.to_changes()),
        };
        let mut bytes = header(ROOT_MAGIC, self.cluster_id);
        // A vector takes any message.
        record.encode_raw(&mut bytes);
        sign(&mut bytes);
        bytes
    }

    /// # Errors
    /// It is not a root, damaged, or of a newer format: a text that says what to do.
    pub fn decode(bytes: &[u8]) -> Result<Root, String> {
        let cluster_id = check(bytes, ROOT_MAGIC, "root")?;
        let record = bytes.get(ROOT_HEADER_BYTES..).and_then(|payload| {
            let record = RootRecord::decode(payload).ok()?;
            is_possible(&record).then_some(record)
        });
        let record = record.ok_or_else(|| damaged("root"))?;
        let position = Position {
            term: record.term,
            nonce: record.nonce,
            sequence: record.sequence,
        };
        let runs = record.runs.iter().map(|run| Run {
            chunks: run.chunks.iter().map(ChunkRef::from).collect(),
        });
        Ok(Root {
            cluster_id,
            position,
            past: record.past,
            leader: record.leader,
            runs: runs.collect(),
            tail: record.tail.map(Batch::from).unwrap_or_default(),
        })
    }
}

/// Terms and sequence numbers go up, and no chunk is of a later term than its root.
fn is_possible(record: &RootRecord) -> bool {
    let mut leaderships: Vec<(u64, u64)> = Vec::new();
    leaderships.extend(
        record
            .past
            .iter()
            .map(|past| (past.term, past.last_sequence)),
    );
    leaderships.push((record.term, record.sequence));
    let mut chunks = record.runs.iter().flat_map(|run| &run.chunks);
    leaderships[0].0 > 0
        && leaderships[0].1 > 0
        && leaderships.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1)
        && record.term.max(record.sequence) <= MAX_COUNT
        && chunks.all(|chunk| chunk.term <= record.term && chunk.number <= MAX_COUNT)
}

/// A chunk's object, and what a root says of it.
pub fn encode_chunk(cluster_id: u64, id: ChunkId, payload: &[u8]) -> (ChunkRef, Vec<u8>) {
    let mut bytes = header(CHUNK_MAGIC, cluster_id);
    for number in [id.term, id.nonce, id.number] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(payload);
    let crc = sign(&mut bytes);
    let reference = ChunkRef {
        id,
        bytes: u32::try_from(payload.len()).expect("a chunk is cut to less than a mebibyte"),
        crc,
    };
    (reference, bytes)
}

/// The payload of the chunk that `reference` means.
///
/// # Errors
/// It is another, damaged, or of a newer format: a text that says what to do.
pub fn decode_chunk<'a>(
    cluster_id: u64,
    reference: &ChunkRef,
    bytes: &'a [u8],
) -> Result<&'a [u8], String> {
    let what = reference.id.to_string();
    let found_cluster = check(bytes, CHUNK_MAGIC, &what)?;
    let field = |at| u64_at(bytes, at);
    let id = || {
        Some(ChunkId {
            term: field(24)?,
            nonce: field(32)?,
            number: field(40)?,
        })
    };
    let payload = bytes.get(CHUNK_HEADER_BYTES..);
    match payload {
        Some(payload)
            if found_cluster == cluster_id
                && id() == Some(reference.id)
                && u32_at(bytes, 8) == Some(reference.crc)
                && payload.len() == reference.bytes as usize =>
        {
            Ok(payload)
        }
        _ => Err(format!(
            "{what} holds something else than what the root means: put all objects of one backup in their place"
        )),
    }
}

fn header(magic: [u8; 8], cluster_id: u64) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&cluster_id.to_le_bytes());
    bytes
}

fn sign(bytes: &mut [u8]) -> u32 {
    let crc = crc32c::crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// The cluster id, if the bytes are what was written.
fn check(bytes: &[u8], magic: [u8; 8], what: &str) -> Result<u64, String> {
    if !bytes.starts_with(&magic) {
        return Err(format!(
            "{what} is not a coordinator's object: name another store, or put its own object in its place"
        ));
    }
    let fields = || {
        let rest = bytes.get(12..)?;
        let is_sound = u32_at(bytes, 8)? == crc32c::crc32c(rest);
        let version = is_sound.then_some(u32_at(bytes, 12)?)?;
        Some((version, u64_at(bytes, 16)?))
    };
    match fields() {
        Some((FORMAT_VERSION, cluster_id)) => Ok(cluster_id),
        Some((version, _)) => Err(format!(
            "{what} is of format {version}, and this build reads format {FORMAT_VERSION}: start a coordinator of the version \
             that wrote it"
        )),
        None => Err(damaged(what)),
    }
}

fn damaged(what: &str) -> String {
    format!("{what} is damaged: put all objects of one backup in their place")
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
