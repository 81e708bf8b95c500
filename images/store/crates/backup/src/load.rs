//! What a frame is found to hold when a storage is opened.
//!
//! A header that is torn or that its data contradicts is the trace of a write that was never acknowledged, if power was lost; or it is rot.
//! Either way it is replaced, so that the next opening finds no traces of what this one has judged.

use base::bugs::{Bug, is_planted};

use crate::copies::{Copies, PLACES};
use crate::device::Device;
use crate::disk::{Disk, StorageError};
use crate::event::BackupEvent;
use crate::frame::Frame;
use crate::layout::{BLOCK_BYTES, HEAD_BYTES};
use crate::record::{Content, Damage, HEADER_BYTES, Header};

/// Beyond what counting reaches; a header or superblock that says so is not ours.
pub(crate) const MAX_SEQUENCE: u64 = u64::MAX / 2;

/// How the storage was left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    /// All writes are there: it was closed in order, or the kernel that took them still runs.
    pub complete: bool,
    /// Acknowledgements waited for syncs.
    pub flushed: bool,
    /// The page cache may hold what the disk does not. A sync that failed in the process before has left it there as if it had been
    /// written, so that no further sync writes it.
    pub cached: bool,
}

pub(crate) struct Loaded {
    /// `None`: its header cannot be read; it holds nothing and takes nothing.
    pub frame: Option<Frame>,
    /// Worth saying.
    pub event: Option<BackupEvent>,
}

/// A place with a header that is as it was written.
#[derive(Clone, Copy)]
struct Sound {
    place: usize,
    header: Header,
}

/// What the places of a header hold, each.
struct Places {
    sound: Vec<Sound>,
    /// Neither sound nor never written.
    broken: Vec<usize>,
}

/// What counts, and which place says so: that one is left alone.
struct Verdict {
    content: Option<Content>,
    kept: Option<Sound>,
}

pub(crate) fn load<S: Disk>(
    number: u32,
    device: &mut Device<S>,
    past: Past,
) -> Result<Loaded, StorageError> {
    let mut head = vec![0; HEAD_BYTES];
    if let Err(error) = device.storage.read(device.layout.head(number), &mut head) {
        return Ok(Loaded {
            frame: None,
            event: Some(BackupEvent::FrameUnreadable {
                frame: number,
                error,
            }),
        });
    }
    let places = Places::of(&head, device);
    let newest = places
        .sound
        .iter()
        .copied()
        .max_by_key(|sound| sound.header.sequence);
    let verdict = match newest.map(|newest| newest.header.content) {
        Some(Some(content)) if needs_judgement(&content, &places, past) => {
            judge(number, content, &places, device, past)
        }
        content => Verdict {
            content: content.flatten(),
            kept: newest,
        },
    };
    let event = event_of(number, &verdict, &places, past);
    Ok(Loaded {
        frame: Some(places.replace_traces(number, &verdict, device, past)?),
        event,
    })
}

impl Places {
    fn of<S>(head: &[u8], device: &Device<S>) -> Places {
        let mut places = Places {
            sound: Vec::new(),
            broken: Vec::new(),
        };
        for (place, block) in head.chunks_exact(BLOCK_BYTES as usize).enumerate() {
            let header = Header::decode(block).filter(|header| could_be_written(header, device));
            match header {
                Some(header) => places.sound.push(Sound { place, header }),
                None if block[..HEADER_BYTES].iter().all(|&byte| byte == 0) => {}
                None => places.broken.push(place),
            }
        }
        places
    }

    /// How many say so.
    fn count(&self, content: &Content) -> usize {
        let contents = self.sound.iter().filter_map(|sound| sound.header.content);
        contents
            .filter(|other| content.says_the_same_as(other))
            .count()
    }

    fn count_free(&self) -> usize {
        let is_free = |sound: &&Sound| sound.header.content.is_none();
        self.sound.iter().filter(is_free).count()
    }

    /// Writes the verdict over everything that contradicts it.
    fn replace_traces<S: Disk>(
        &self,
        number: u32,
        verdict: &Verdict,
        device: &mut Device<S>,
        past: Past,
    ) -> Result<Frame, StorageError> {
        let mut sequences = [0; PLACES];
        for sound in &self.sound {
            sequences[sound.place] = sound.header.sequence;
        }
        let kept = verdict.kept.map(|kept| kept.place);
        let kept_sequence = verdict.kept.map_or(0, |kept| kept.header.sequence);
        let mut wrong: Vec<usize> = (0..PLACES)
            .filter(|&place| sequences[place] > kept_sequence || self.broken.contains(&place))
            .collect();
        let is_said = verdict.kept.map(|kept| kept.header.content) == Some(verdict.content);
        let is_twice = match &verdict.content {
            Some(content) => self.count(content) > 1,
            None => self.count_free() > 1,
        };
        if past.cached {
            // The second header is written when the first is durable, and all data with it.
            if !is_twice {
                verdict.rewrite_data(number, device)?;
            }
            verdict.rewrite_header(number, device)?;
        }
        if wrong.is_empty() && !is_said && verdict.kept.is_some() {
            wrong.extend((0..PLACES).find(|&place| Some(place) != kept));
        }
        let highest = sequences.into_iter().max().unwrap_or(0);
        for (sequence, &place) in (highest + 1..).zip(&wrong) {
            let header = Header {
                cluster_id: device.cluster_id,
                sequence,
                content: verdict.content,
            };
            let at = device.layout.header(number, place);
            device.storage.write(at, &header.encode())?;
            sequences[place] = sequence;
        }
        let is_settled =
            verdict.content.is_none() || is_twice || wrong.len() + usize::from(is_said) > 1;
        let copies = Copies::found(sequences);
        Ok(Frame::found(number, copies, verdict.content, is_settled))
    }
}

impl Verdict {
    /// Writes what is there once more, so that the next sync carries it.
    fn rewrite_data<S: Disk>(
        &self,
        number: u32,
        device: &mut Device<S>,
    ) -> Result<(), StorageError> {
        match self.content.filter(|content| content.damage.is_none()) {
            Some(content) => {
                let at = device.layout.data(number);
                device.reader().rewrite(at, content.bytes)
            }
            None => Ok(()),
        }
    }

    /// The same with the header that counts, also if it is there twice: whoever opens the storage after an orderly end takes it for durable,
    /// and overwrites the other one.
    fn rewrite_header<S: Disk>(
        &self,
        number: u32,
        device: &mut Device<S>,
    ) -> Result<(), StorageError> {
        match self.kept {
            Some(kept) => {
                let at = device.layout.header(number, kept.place);
                device.reader().rewrite(at, HEADER_BYTES as u32)
            }
            None => Ok(()),
        }
    }
}

/// Whether it is a header that a backup writes to this storage.
fn could_be_written<S>(header: &Header, device: &Device<S>) -> bool {
    let is_possible = |content: Content| {
        let most = content.bytes.max(content.acknowledged_bytes);
        most <= device.layout.segment_bytes
            && (content.acknowledged_bytes <= content.bytes || content.damage.is_some())
    };
    header.cluster_id == device.cluster_id
        && (1..MAX_SEQUENCE).contains(&header.sequence)
        && header.content.is_none_or(is_possible)
}

/// Whether the data may be other than the newest header says, for another reason than rot.
fn needs_judgement(content: &Content, places: &Places, past: Past) -> bool {
    // The second header of a closed replica is written when the first is durable, and all data with it.
    let is_settled = content.closed && (past.complete || places.count(content) > 1);
    content.damage.is_none() && !is_settled
}

/// Finds the longest stretch of a replica's data that one of its headers vouches for.
fn judge<S: Disk>(
    number: u32,
    newest: Content,
    places: &Places,
    device: &mut Device<S>,
    past: Past,
) -> Verdict {
    let mut candidates: Vec<(Sound, Content)> = places
        .sound
        .iter()
        .filter_map(|&sound| Some((sound, sound.header.content?)))
        .filter(|(_, content)| content.opened == newest.opened && content.replica == newest.replica)
        .collect();
    candidates.sort_unstable_by_key(|(sound, content)| (content.bytes, sound.header.sequence));
    let acknowledged_bytes = candidates
        .iter()
        .map(|(_, content)| content.acknowledged_bytes);
    let acknowledged_bytes = acknowledged_bytes.max().unwrap_or(0);
    let (mut at, mut crc, mut best, mut is_readable) = (0, 0, None, true);
    for (sound, content) in &candidates {
        match device.reader().checksum(number, at, content.bytes, crc) {
            Ok(found) => (at, crc) = (content.bytes, found),
            Err(_) => {
                is_readable = false;
                break;
            }
        }
        if crc == content.crc || is_planted(Bug::BelieveTornFrame) {
            best = Some((*sound, *content));
        }
    }
    let held = best.map(|(_, content)| content);
    let (bytes, crc) = held.map_or((0, 0), |held| (held.bytes, held.crc));
    let closed = held.is_some_and(|held| held.closed);
    let is_newest = held.is_some_and(|held| held.says_the_same_as(&newest));
    let damage = if !is_readable {
        Some(Damage::Unreadable)
    } else if bytes < acknowledged_bytes {
        Some(Damage::Short {
            bytes,
            acknowledged_bytes,
        })
    } else if past.complete {
        (!is_newest || !places.broken.is_empty()).then_some(Damage::Rotten)
    } else {
        // Nobody knows what was acknowledged out of the page cache that is gone, unless it was the end.
        (!past.flushed && !closed).then_some(Damage::Unsynced)
    };
    let kept = best.map(|(sound, _)| sound);
    let content = Content {
        closed,
        bytes,
        crc,
        acknowledged_bytes,
        damage,
        ..newest
    };
    Verdict {
        // Not even its opening was acknowledged: it is as if it had never been asked for.
        content: (best.is_some() || damage.is_some()).then_some(content),
        kept: kept.or_else(|| candidates.first().map(|(sound, _)| *sound)),
    }
}

fn event_of(frame: u32, verdict: &Verdict, places: &Places, past: Past) -> Option<BackupEvent> {
    match verdict.content {
        Some(Content {
            replica,
            damage: Some(damage),
            ..
        }) => Some(BackupEvent::ReplicaDamaged {
            frame,
            replica,
            damage,
        }),
        None if !places.broken.is_empty() && (past.complete || verdict.kept.is_none()) => {
            Some(BackupEvent::HeaderDamaged { frame })
        }
        Some(_) | None => None,
    }
}
