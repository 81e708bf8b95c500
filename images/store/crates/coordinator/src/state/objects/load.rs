//! Reading the chunks that a root names.

use std::collections::{BTreeMap, VecDeque};

use base::time::Time;
use prost::Message;

use super::call::{Call, Outbox, unexpected};
use super::chunks::Pairs;
use super::format::{self, ChunkRef, Root};
use super::{Batch, Ending, Name, ObjectResponse, Request, RequestId};
use crate::state::Changes;

/// Chunks on their way here.
#[derive(Debug)]
pub struct Load {
    cluster_id: u64,
    max_reads: usize,
    chunks: Vec<ChunkRef>,
    payloads: Vec<Vec<u8>>,
    /// By their place in `chunks`.
    waiting: VecDeque<usize>,
    under_way: BTreeMap<RequestId, usize>,
    /// Only paces what is sent.
    call: Call,
}

/// What an answer means.
#[derive(Debug)]
pub enum Progress {
    Open,
    /// A chunk that the root names is not there, or something else: unless the root has changed meanwhile, this is the end.
    Missing(Ending, String),
}

impl Load {
    pub fn new(root: &Root, max_reads: usize, now: Time) -> Load {
        let chunks: Vec<ChunkRef> = root.chunks().copied().collect();
        Load {
            cluster_id: root.cluster_id,
            max_reads: max_reads.max(1),
            payloads: vec![Vec::new(); chunks.len()],
            waiting: (0..chunks.len()).collect(),
            under_way: BTreeMap::new(),
            chunks,
            call: Call::new("read the state", now),
        }
    }

    pub fn call(&self) -> &Call {
        &self.call
    }

    pub fn wake(&self) -> Time {
        match self.waiting.is_empty() || self.under_way.len() >= self.max_reads {
            true => Time::NEVER,
            false => self.call.wake(),
        }
    }

    pub fn is_finished(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    pub fn poll(&mut self, now: Time, out: &mut Outbox) {
        while self.call.is_due(now) && self.under_way.len() < self.max_reads {
            let Some(at) = self.waiting.pop_front() else {
                return;
            };
            let name = Name::Chunk(self.chunks[at].id);
            self.under_way.insert(out.request(Request::Get(name)), at);
        }
    }

    /// `None`: the answer is to something else.
    pub fn answered(
        &mut self,
        now: Time,
        id: RequestId,
        answer: &ObjectResponse,
    ) -> Option<Progress> {
        let at = self.under_way.remove(&id)?;
        let chunk = &self.chunks[at];
        match answer {
            ObjectResponse::Found(_, bytes) => {
                match format::decode_chunk(self.cluster_id, chunk, bytes) {
                    Ok(payload) => self.payloads[at] = payload.to_vec(),
                    Err(text) => return Some(Progress::Missing(Ending::Unreadable, text)),
                }
                self.call.succeed(now);
            }
            ObjectResponse::NotFound => {
                let text = format!(
                    "the root names {}, which is not there: put all objects of one backup in their place",
                    chunk.id
                );
                return Some(Progress::Missing(Ending::Incomplete, text));
            }
            answer => {
                self.waiting.push_front(at);
                self.call.fail(now, unexpected(answer));
            }
        }
        Some(Progress::Open)
    }

    /// What the runs and the tail say, once all is here.
    ///
    /// # Errors
    /// A run's chunks are whole, but what they say is not: a text that says what to do.
    pub fn pairs(mut self, root: &Root) -> Result<Pairs, String> {
        let mut pairs = Pairs::new();
        let mut payloads = self.payloads.drain(..);
        for run in &root.runs {
            let payloads: Vec<Vec<u8>> = payloads.by_ref().take(run.chunks.len()).collect();
            let changes = Changes::decode(payloads.concat().as_slice()).map_err(|_| {
                "what the chunks say cannot be understood: put all objects of one backup in their place".to_owned()
            })?;
            Batch::from(changes).apply_to(&mut pairs);
        }
        root.tail.clone().apply_to(&mut pairs);
        Ok(pairs)
    }
}
