//! Jobs: work that reads much, and waits for the disk. A job is a value: whoever carries it out needs nothing of the backup that it is of, and the
//! backup goes on meanwhile.

use core::ops::ControlFlow;

use base::ids::{ReplyTo, ServerId};
use wire::entry::{Digest, Kind};
use wire::format::Formats;
use wire::peer::Role;

use crate::checkpoint::join_parts;
use crate::disk::{Disk, StorageError};
use crate::entries::{self, Entries};
use crate::inventory::Flaw;
use crate::layout::Layout;
use crate::reader::{Reader, Snapshot, WalkError};
use crate::record::Damage;

/// For [`crate::Storage::start`].
pub struct Job {
    pub(crate) layout: Layout,
    pub(crate) formats: Formats,
    pub(crate) work: Work,
}

/// A job that was carried out, for [`crate::Completion::Done`].
pub struct Done(pub(crate) Outcome);

pub(crate) enum Work {
    Read {
        to: ReplyTo,
        frame: Snapshot,
        offset: u32,
        bytes: u32,
    },
    Entries {
        to: ReplyTo,
        frame: Snapshot,
        wanted: Entries,
    },
    /// Open replicas of a log that is being recovered.
    Inspect {
        log: ServerId,
        frames: Vec<Snapshot>,
    },
    Rewrite(Vec<Again>),
    /// The parts of checkpoints, the newest checkpoint first.
    Checkpoint(Vec<Vec<Snapshot>>),
}

/// A frame that is written once more.
pub(crate) struct Again {
    pub number: u32,
    /// `None`: it is free, and only its header is written.
    pub frame: Option<Snapshot>,
    pub header_at: u64,
    pub header: Vec<u8>,
}

pub(crate) enum Outcome {
    Read {
        to: ReplyTo,
        frame: Snapshot,
        data: Vec<u8>,
        result: Result<(), Damage>,
    },
    Entries {
        to: ReplyTo,
        frame: Snapshot,
        data: Vec<u8>,
        result: Result<u32, entries::Refusal>,
    },
    Inspected {
        log: ServerId,
        frames: Vec<Inspected>,
    },
    Rewritten {
        written: Vec<u32>,
        damaged: Vec<(Snapshot, Damage)>,
        result: Result<(), StorageError>,
    },
    Checkpoint(Option<Vec<u8>>),
}

pub(crate) struct Inspected {
    pub frame: Snapshot,
    /// Of a head.
    pub digest: Result<Vec<u64>, Flaw>,
}

impl Job {
    /// Carries it out, and waits for the disk as often as it has to.
    pub fn run(self, disk: &mut impl Disk) -> Done {
        let reader = Reader {
            disk,
            layout: self.layout,
            formats: self.formats,
            piece: &mut Vec::new(),
        };
        Done(self.work.run(reader))
    }
}

impl Work {
    fn run<D: Disk>(self, mut reader: Reader<'_, D>) -> Outcome {
        match self {
            Work::Read {
                to,
                mut frame,
                offset,
                bytes,
            } => {
                let mut data = vec![0; bytes as usize];
                let result = frame.read(offset, &mut data, &mut reader);
                Outcome::Read {
                    to,
                    frame,
                    data,
                    result,
                }
            }
            Work::Entries {
                to,
                mut frame,
                wanted,
            } => {
                let mut data = Vec::new();
                let result = wanted.read(&mut frame, &mut data, &mut reader);
                Outcome::Entries {
                    to,
                    frame,
                    data,
                    result,
                }
            }
            Work::Inspect { log, frames } => {
                let frames = frames.into_iter();
                let frames = frames.map(|frame| inspect(frame, &mut reader)).collect();
                Outcome::Inspected { log, frames }
            }
            Work::Rewrite(frames) => rewrite(frames, &mut reader),
            Work::Checkpoint(candidates) => {
                let mut candidates = candidates.into_iter();
                let newest = candidates.find_map(|parts| read_checkpoint(parts, &mut reader));
                Outcome::Checkpoint(newest)
            }
        }
    }
}

/// The segments that make up a log are named in its open replicas, so these are looked at before anything is read.
fn inspect<D: Disk>(mut frame: Snapshot, reader: &mut Reader<'_, D>) -> Inspected {
    let digest = match frame.verify(reader) {
        Ok(()) => last_digest(&frame, reader),
        Err(damage) => Err(Flaw::Damaged(damage)),
    };
    Inspected { frame, digest }
}

/// The last digest in a head; nothing in a side segment.
fn last_digest<D: Disk>(frame: &Snapshot, reader: &mut Reader<'_, D>) -> Result<Vec<u64>, Flaw> {
    if frame.content.role == Role::Side {
        return Ok(Vec::new());
    }
    let mut last = None;
    let walked = reader.walk(frame.number, 0..frame.content.bytes, u32::MAX, |entry| {
        if entry.kind == Kind::Digest {
            last = Some(entry.decode::<Digest<'_>>()?.segment_ids().collect());
        }
        Ok(ControlFlow::Continue(()))
    });
    match walked {
        Ok(_) => last.ok_or(Flaw::NoDigest),
        Err(WalkError::Entry { offset, error }) => Err(Flaw::NoEntry { offset, error }),
        Err(WalkError::Storage(_)) => Err(Flaw::Damaged(Damage::Unreadable)),
    }
}

fn rewrite<D: Disk>(frames: Vec<Again>, reader: &mut Reader<'_, D>) -> Outcome {
    let (mut written, mut damaged) = (Vec::new(), Vec::new());
    let mut result = Ok(());
    for again in frames {
        let mut frame = again.frame;
        if let Some(frame) = &mut frame
            && let Err(damage) = frame.verify(reader)
        {
            // It gives out nothing any more.
            damaged.push((*frame, damage));
            continue;
        }
        let data = frame.map_or(Ok(()), |frame| {
            let at = reader.layout.data(frame.number);
            reader.rewrite(at, frame.content.bytes)
        });
        result = data.and_then(|()| reader.disk.write(again.header_at, &again.header));
        if result.is_err() {
            break;
        }
        written.push(again.number);
    }
    Outcome::Rewritten {
        written,
        damaged,
        result,
    }
}

pub(crate) fn read_checkpoint<D: Disk>(
    parts: Vec<Snapshot>,
    reader: &mut Reader<'_, D>,
) -> Option<Vec<u8>> {
    join_parts(parts.into_iter().map(|mut frame| {
        let mut data = vec![0; frame.content.bytes as usize];
        frame.read(0, &mut data, reader).ok()?;
        Some(data)
    }))
}
