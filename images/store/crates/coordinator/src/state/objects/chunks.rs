//! Writing a run: cut into chunks, created one after the other. Whoever asks for it names the run in a root once it is finished.

use core::ops::Bound;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::bugs::{Bug, is_planted};
use base::time::Time;
use prost::Message;

use super::call::{Call, Outbox, unexpected};
use super::format::{self, ChunkId, ChunkRef, Run};
use super::{Name, ObjectResponse, Request, RequestId};
use crate::state::{Changes, Pair};

pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Gives chunks their names.
#[derive(Debug)]
pub struct Namer {
    pub cluster_id: u64,
    pub term: u64,
    pub nonce: u64,
    pub last_number: u64,
}

impl Namer {
    fn next(&mut self) -> ChunkId {
        self.last_number += 1;
        ChunkId {
            term: self.term,
            nonce: self.nonce,
            number: self.last_number,
        }
    }
}

/// A run that is being written.
#[derive(Debug)]
pub struct Writing {
    source: Source,
    chunk_bytes: usize,
    chunk: Option<Chunk>,
    /// The chunks that are there.
    run: Run,
    call: Call,
}

/// Where a run's bytes come from.
#[derive(Debug)]
struct Source {
    /// Encoded, and not in a chunk yet.
    bytes: Vec<u8>,
    /// Pairs behind this key are to be encoded, as they are by then.
    pairs_behind: Option<Bound<Vec<u8>>>,
}

#[derive(Debug)]
struct Chunk {
    reference: ChunkRef,
    bytes: Arc<[u8]>,
    /// It is there already: as a former try has left it, or with something else in it?
    compare: bool,
}

impl Source {
    /// The next so many bytes; fewer at the end, and then none.
    fn cut(&mut self, length: usize, pairs: &Pairs) -> Option<Vec<u8>> {
        while self.bytes.len() < length {
            let Some(behind) = self.pairs_behind.take() else {
                break;
            };
            let mut rest =
                pairs.range::<[u8], _>((behind.as_ref().map(Vec::as_slice), Bound::Unbounded));
            if let Some((key, value)) = rest.next() {
                let pair = Pair {
                    key: key.clone(),
                    value: value.clone(),
                };
                let changes = Changes {
                    puts: vec![pair],
                    deletes: Vec::new(),
                };
                // Messages one behind the other are one with the elements of all.
                changes.encode_raw(&mut self.bytes);
                self.pairs_behind = Some(Bound::Excluded(key.clone()));
            }
        }
        let rest = self.bytes.split_off(self.bytes.len().min(length));
        let piece = core::mem::replace(&mut self.bytes, rest);
        (!piece.is_empty()).then_some(piece)
    }
}

impl Writing {
    /// These changes.
    pub fn changes(changes: &Changes, chunk_bytes: usize, now: Time) -> Writing {
        let source = Source {
            bytes: changes.encode_to_vec(),
            pairs_behind: None,
        };
        Writing::of(source, chunk_bytes, Call::new("write changes", now))
    }

    /// All pairs, each as it is when its chunk is cut: what changes after now must be said behind this run again.
    pub fn all_pairs(chunk_bytes: usize, now: Time) -> Writing {
        let source = Source {
            bytes: Vec::new(),
            pairs_behind: Some(Bound::Unbounded),
        };
        Writing::of(source, chunk_bytes, Call::new("write the whole state", now))
    }

    fn of(source: Source, chunk_bytes: usize, call: Call) -> Writing {
        Writing {
            source,
            chunk_bytes: chunk_bytes.max(1),
            chunk: None,
            run: Run::default(),
            call,
        }
    }

    pub fn call(&self) -> &Call {
        &self.call
    }

    pub fn wake(&self) -> Time {
        match self.finished() {
            Some(_) => Time::NEVER,
            None => self.call.wake(),
        }
    }

    /// The run, if all of it is there.
    pub fn finished(&self) -> Option<&Run> {
        let is_finished = self.chunk.is_none()
            && self.source.bytes.is_empty()
            && self.source.pairs_behind.is_none();
        is_finished.then_some(&self.run)
    }

    /// Chunks that are there, or may be.
    pub fn chunks(&self) -> impl Iterator<Item = ChunkId> {
        let chunk = self.chunk.iter().map(|chunk| &chunk.reference);
        self.run.chunks.iter().chain(chunk).map(|chunk| chunk.id)
    }

    pub fn poll(&mut self, now: Time, namer: &mut Namer, pairs: &Pairs, out: &mut Outbox) {
        if !self.call.is_due(now) {
            return;
        }
        if self.chunk.is_none() {
            let Some(payload) = self.source.cut(self.chunk_bytes, pairs) else {
                return;
            };
            let (reference, bytes) = format::encode_chunk(namer.cluster_id, namer.next(), &payload);
            self.chunk = Some(Chunk {
                reference,
                bytes: bytes.into(),
                compare: false,
            });
        }
        let Some(chunk) = &self.chunk else { return };
        let name = Name::Chunk(chunk.reference.id);
        let request = match chunk.compare {
            true => Request::Get(name),
            false => Request::Create(name, chunk.bytes.clone()),
        };
        self.call.send(out, request);
        if is_planted(Bug::NameChunkEarly) {
            self.created(now);
        }
    }

    fn created(&mut self, now: Time) {
        let chunk = self.chunk.take();
        self.run.chunks.extend(chunk.map(|chunk| chunk.reference));
        self.call.succeed(now);
    }

    /// `None`: the answer is to something else. An error: somebody else has made an object of that name; a text that says what to do.
    pub fn answered(
        &mut self,
        now: Time,
        id: RequestId,
        answer: &ObjectResponse,
    ) -> Option<Result<(), String>> {
        if !self.call.takes(id) {
            return None;
        }
        let Some(chunk) = &mut self.chunk else {
            return Some(Ok(()));
        };
        match (chunk.compare, answer) {
            (false, ObjectResponse::Done(_)) => self.created(now),
            (false, ObjectResponse::Conflict) => {
                chunk.compare = true;
                self.call.hurry(now);
            }
            (true, ObjectResponse::Found(_, bytes)) if bytes[..] == chunk.bytes[..] => {
                self.created(now)
            }
            (true, ObjectResponse::Found(..)) => {
                return Some(Err(format!(
                    "{} was written by somebody else under this leadership's name: see who else writes into this store's objects",
                    chunk.reference.id
                )));
            }
            (_, answer) => {
                chunk.compare &= !matches!(answer, ObjectResponse::NotFound);
                self.call.fail(now, unexpected(answer));
            }
        }
        Some(Ok(()))
    }
}
