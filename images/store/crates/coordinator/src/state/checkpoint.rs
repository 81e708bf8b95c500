//! A copy of all that is noted, as bytes that lie in the volumes of backups: docs/rebuild.md.
//!
//! ```text
//! magic "rcbCHKPT" (8)  CRC32C of all that follows (4)  format (4)  cluster id (8)
//! term (8)  nonce (8)  sequence (8)  number (8)  cluster time (8)  all pairs, as one batch of changes
//! ```

use prost::Message;
use wire::member::Position;

use crate::reports::{CheckpointError, CheckpointId};
use crate::state::{Changes, Pair};

const MAGIC: [u8; 8] = *b"rcbCHKPT";
const FORMAT: u32 = 1;
/// Of what stands before the pairs.
pub const HEADER_BYTES: usize = 64;

/// What a checkpoint is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub cluster_id: u64,
    /// Of the leader that made it, when it did.
    pub position: Position,
    /// Counts the checkpoints of one leader.
    pub number: u64,
    pub cluster_time_ns: u64,
}

impl Header {
    /// The first bytes of a checkpoint; whether the rest is sound, [`decode`] says.
    ///
    /// # Errors
    /// It is none, or one of a newer build.
    pub fn decode(bytes: &[u8]) -> Result<Header, CheckpointError> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(&MAGIC) {
            return Err(CheckpointError::NoCheckpoint);
        }
        let fields = || {
            let format = (word(8)? >> 32) as u32;
            let header = Header {
                cluster_id: word(16)?,
                position: Position {
                    term: word(24)?,
                    nonce: word(32)?,
                    sequence: word(40)?,
                },
                number: word(48)?,
                cluster_time_ns: word(56)?,
            };
            Some((format, header))
        };
        match fields() {
            Some((FORMAT, header)) => Ok(header),
            Some((format, _)) => Err(CheckpointError::OtherFormat {
                format,
                known: FORMAT,
            }),
            None => Err(CheckpointError::NoCheckpoint),
        }
    }

    pub fn id(&self) -> CheckpointId {
        CheckpointId {
            cluster_id: self.cluster_id,
            term: self.position.term,
            number: self.number,
        }
    }

    /// The newest has the highest.
    pub fn rank(&self) -> (u64, u64) {
        (self.position.term, self.number)
    }
}

pub fn encode(header: &Header, pairs: impl Iterator<Item = Pair>) -> Vec<u8> {
    let changes = Changes {
        puts: pairs.collect(),
        deletes: Vec::new(),
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend([0; 4]);
    bytes.extend(FORMAT.to_le_bytes());
    let Position {
        term,
        nonce,
        sequence,
    } = header.position;
    for field in [
        header.cluster_id,
        term,
        nonce,
        sequence,
        header.number,
        header.cluster_time_ns,
    ] {
        bytes.extend(field.to_le_bytes());
    }
    // A vector takes any message.
    changes.encode_raw(&mut bytes);
    let crc = crc32c::crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// A whole checkpoint.
///
/// # Errors
/// It is damaged, or of a newer build.
pub fn decode(bytes: &[u8]) -> Result<(Header, Vec<Pair>), CheckpointError> {
    let header = Header::decode(bytes)?;
    let crc = crc32c::crc32c(&bytes[12..]).to_le_bytes();
    let changes = Changes::decode(&bytes[HEADER_BYTES..]);
    match changes {
        Ok(changes) if bytes[8..12] == crc => Ok((header, changes.puts)),
        Ok(_) | Err(_) => Err(CheckpointError::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            cluster_id: 0x1122_3344_5566_7788,
            position: Position {
                term: 3,
                nonce: 0xabcd,
                sequence: 70,
            },
            number: 9,
            cluster_time_ns: 1_000_000,
        }
    }

    fn pairs() -> Vec<Pair> {
        let pair = |key: u8| Pair {
            key: vec![key],
            value: vec![key; 5],
        };
        vec![pair(1), pair(2)]
    }

    #[test]
    fn format_1_is_as_it_was() {
        let bytes = encode(&header(), pairs().into_iter());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = include_str!("../../../../testdata/formats/1/checkpoint.txt");
        let golden = golden.lines().filter(|line| !line.starts_with('#'));
        let golden: String = golden.flat_map(str::split_whitespace).collect();
        assert_eq!(hex, golden);
        assert_eq!(decode(&bytes), Ok((header(), pairs())));
        assert_eq!(Header::decode(&bytes[..HEADER_BYTES]), Ok(header()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = encode(&header(), pairs().into_iter());
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err());
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(decode(&flipped).is_err(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let mut bytes = encode(&header(), pairs().into_iter());
        bytes[12] = 2;
        let newer = CheckpointError::OtherFormat {
            format: 2,
            known: FORMAT,
        };
        assert_eq!(decode(&bytes), Err(newer.clone()));
        assert!(newer.to_string().contains("format 2"), "{newer}");
    }
}
