//! MULTI_OP: many operations of one kind in one request, each on its own.

use base::bugs::{Bug, is_planted};
use base::ids::ReplyTo;
use log::LogPosition;
use wire::hash::key_hash;
use wire::rpc::{
    IncrementResponse, MAX_RPC_BYTES, MULTI_RESPONSE_FIXED_BYTES, MultiIncrementPart, MultiKind,
    MultiReadPart, MultiRemovePart, MultiRequest, MultiWritePart, multi_response_fixed_bytes,
};
use wire::status::Status;

use crate::data::{Action, Shown};
use crate::effects::ShardEffects;
use crate::shard::Shard;
use crate::shard::codec::Part;
use crate::shard::scratch::Scratch;

/// Parts that one request may have answered; its client sends the others again. Stock clients put 20 into one. It bounds
/// how long other requests wait.
const MAX_PARTS: usize = 1024;
/// All of the short answers fit into one response.
const _: () = assert!(
    MULTI_RESPONSE_FIXED_BYTES + MAX_PARTS * IncrementResponse::FIXED_BYTES <= MAX_RPC_BYTES
);

impl Shard {
    pub(crate) fn multi_op(
        &mut self,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) -> Result<(), Status> {
        self.counters.multi_ops += 1;
        match MultiKind::of_request(payload)? {
            MultiKind::Read => self.sequence::<MultiReadPart<'_>>(to, payload, out),
            MultiKind::Write => self.sequence::<MultiWritePart<'_>>(to, payload, out),
            MultiKind::Remove => self.sequence::<MultiRemovePart<'_>>(to, payload, out),
            MultiKind::Increment => self.sequence::<MultiIncrementPart<'_>>(to, payload, out),
        }
    }

    /// All buckets are on their way from memory before the first one is needed.
    fn fetch_buckets<'a, P: Part<'a>>(&mut self, request: &MultiRequest<'a, P>) {
        self.scratch.hashes.clear();
        for part in request.parts().take(MAX_PARTS) {
            let (table_id, key) = part.place();
            let hash = key_hash(table_id, key);
            self.store.keeper.index.prefetch(hash);
            self.scratch.hashes.push(hash);
        }
    }

    /// And so are the entries of the log that they lead to.
    fn fetch_entries(&self) {
        for &hash in &self.scratch.hashes {
            if let Some(at) = self.store.keeper.index.candidate(hash) {
                self.store.log.prefetch(at);
            }
        }
    }

    /// Each operation is admitted, planned and applied before the next one is looked at: they are many, not one.
    fn sequence<'a, P: Part<'a>>(
        &mut self,
        to: ReplyTo,
        payload: &'a [u8],
        out: &mut impl ShardEffects,
    ) -> Result<(), Status> {
        let request = MultiRequest::<P>::decode(payload)?;
        self.fetch_buckets(&request);
        self.fetch_entries();
        self.scratch.forget_answers();
        let mut seen = LogPosition::START;
        let mut bytes = MULTI_RESPONSE_FIXED_BYTES;
        for (at, part) in request.parts().take(MAX_PARTS).enumerate() {
            let operation = part.operation(self.scratch.hashes[at]);
            let mut outcome = self.execute_unnumbered(&operation);
            if let (Action::Write(_), Status::ObjectExists) = (&operation.action, outcome.status)
                && is_planted(Bug::MultiWriteHidesRefusal)
            {
                outcome.status = Status::Ok;
                outcome.version += 1;
            }
            let object = match outcome.shown {
                Shown::Object(object) => object.map(|at| self.store.object(at)),
                Shown::Nothing | Shown::Number(_) => None,
            };
            let content_bytes = object.map_or(0, |object| object.content.len());
            let response = outcome.response(content_bytes);
            bytes += response.as_bytes().len() + content_bytes;
            // Only reads come here: what changes objects has short answers.
            if bytes > MAX_RPC_BYTES {
                break;
            }
            self.counters.read_bytes += object.map_or(0, |object| object.value.len() as u64);
            self.count(&operation, &outcome);
            self.scratch.answer(response.as_bytes(), &outcome);
            seen = seen.max(outcome.seen);
        }
        self.answer_parts(to, seen, out);
        Ok(())
    }

    /// Objects that were read go out from where they lie in the log.
    fn answer_parts(&mut self, to: ReplyTo, seen: LogPosition, out: &mut impl ShardEffects) {
        let durable = self.durable_position();
        let store = &self.store;
        let Scratch {
            answers,
            objects,
            pieces,
            ..
        } = &mut self.scratch;
        let fixed = multi_response_fixed_bytes(Status::Ok, objects.len() as u32);
        let answer_bytes = answers.len() / objects.len().max(1);
        let mut parts: Vec<&[u8]> = reused(pieces);
        parts.push(&fixed);
        let mut sent = 0;
        for (at, object) in objects.iter().enumerate() {
            if let Some(object) = object {
                let end = (at + 1) * answer_bytes;
                parts.push(&answers[sent..end]);
                parts.push(store.object(*object).content);
                sent = end;
            }
        }
        parts.push(&answers[sent..]);
        self.gate.reply(durable, seen, to, &parts, out);
        *pieces = reused(&mut parts);
    }
}

/// The memory of an emptied vector, for slices of another lifetime.
fn reused<'b>(vector: &mut Vec<&[u8]>) -> Vec<&'b [u8]> {
    vector.clear();
    // Collecting from a vector's own iterator takes its memory over.
    let empty = core::mem::take(vector).into_iter();
    empty.map(|_| -> &'b [u8] { &[] }).collect()
}
