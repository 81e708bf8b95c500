//! A trace in bytes, for programs that read it elsewhere. Little-endian: magic, version (u32), boot id (16 bytes), the moment in ticks and
//! in nanoseconds, ticks per second, number of the first event, number of events (u64 each); then 16 bytes for each event: ticks (u64), and
//! `event << 48 | place << 32 | arg`.

use std::fmt;

use crate::Trace;
use crate::clock::Clock;
use crate::ring::{EVENTS, Record};

const MAGIC: [u8; 4] = *b"RCTT";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const EVENT_BYTES: usize = 16;

/// Why bytes are no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpError {
    NoTrace,
    Version(u32),
    Length,
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DumpError::NoTrace => f.write_str(
                "the server gave no time trace: it is of another version, or was started with --timeTrace off",
            ),
            DumpError::Version(version) => write!(
                f,
                "a time trace in format {version}, of which this version knows nothing; use the client of the server's version"
            ),
            DumpError::Length => f.write_str("a time trace that ends too early"),
        }
    }
}

impl std::error::Error for DumpError {}

impl Trace {
    pub fn to_bytes(&self) -> Vec<u8> {
        let Clock {
            ticks,
            ns,
            ticks_per_second,
            boot_id,
        } = self.clock;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + EVENT_BYTES * self.events.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&boot_id);
        let count = self.events.len() as u64;
        for number in [ticks, ns, ticks_per_second, self.first, count] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for event in &self.events {
            bytes.extend_from_slice(&event.ticks.to_le_bytes());
            bytes.extend_from_slice(&event.packed().to_le_bytes());
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Trace, DumpError> {
        let (header, events) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(DumpError::NoTrace)?;
        if !header.starts_with(&MAGIC) {
            return Err(DumpError::NoTrace);
        }
        let mut version = [0; 4];
        version.copy_from_slice(&header[4..8]);
        let version = u32::from_le_bytes(version);
        if version != VERSION {
            return Err(DumpError::Version(version));
        }
        let mut boot_id = [0; 16];
        boot_id.copy_from_slice(&header[8..24]);
        let numbers: Vec<u64> = words(&header[24..]).collect();
        let [ticks, ns, ticks_per_second, first, count] = numbers[..] else {
            return Err(DumpError::Length);
        };
        if count > EVENTS as u64 || events.len() as u64 != count * EVENT_BYTES as u64 {
            return Err(DumpError::Length);
        }
        let (pairs, _) = events.as_chunks::<EVENT_BYTES>();
        let events = pairs.iter().map(|pair| {
            let mut both = words(pair);
            let ticks = both.next().unwrap_or_default();
            Record::unpacked(ticks, both.next().unwrap_or_default())
        });
        Ok(Trace {
            clock: Clock {
                ticks,
                ns,
                ticks_per_second: ticks_per_second.max(1),
                boot_id,
            },
            first,
            events: events.collect(),
        })
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word))
}
