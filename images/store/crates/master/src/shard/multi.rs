//! MULTI_OP: many operations of one kind in one request, each on its own.

use log::LogPosition;
use wire::bugs::{Bug, is_planted};
use wire::hash::key_hash;
use wire::ids::ReplyTo;
use wire::rpc::{
    MAX_RPC_BYTES, MULTI_RESPONSE_FIXED_BYTES, MultiIncrementPart, MultiKind, MultiReadPart,
    MultiRemovePart, MultiRequest, MultiWritePart, ReadResponse, RequestPart,
    multi_response_fixed_bytes,
};
use wire::status::Status;

use crate::output::Output;
use crate::scratch::Scratch;
use crate::shard::Shard;
use crate::store::{Answer, Outcome, Place};
use crate::tablets::Use;

/// Parts that one request may have answered; its client sends the others again. Stock clients put 20 into one. It bounds
/// how long other requests wait.
const MAX_PARTS: usize = 1024;

impl Shard {
    pub(crate) fn multi_op(
        &mut self,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl Output,
    ) -> Result<(), Status> {
        self.counters.multi_ops += 1;
        match MultiKind::of_request(payload)? {
            MultiKind::Read => self.multi_read(to, payload, out),
            MultiKind::Write => self.multi_change(
                to,
                payload,
                out,
                |shard, part: MultiWritePart<'_>, place| {
                    let mut outcome = shard.store.write(&place, &part.rules, part.object, None);
                    if outcome.response.status == Status::ObjectExists
                        && is_planted(Bug::MultiWriteHidesRefusal)
                    {
                        outcome.response.status = Status::Ok;
                        outcome.response.version += 1;
                    }
                    shard.count_write(&outcome, &part.object);
                    outcome
                },
            ),
            MultiKind::Remove => self.multi_change(
                to,
                payload,
                out,
                |shard, part: MultiRemovePart<'_>, place| {
                    let outcome = shard.store.remove(&place, &part.rules, None);
                    shard.count_remove(&outcome);
                    outcome
                },
            ),
            MultiKind::Increment => self.multi_change(
                to,
                payload,
                out,
                |shard, part: MultiIncrementPart<'_>, place| {
                    let (rules, by) = (&part.rules, part.by);
                    let outcome = shard.store.increment(&place, rules, by, None);
                    shard.count_increment(&outcome);
                    outcome
                },
            ),
        }
    }

    /// All buckets are on their way from memory before the first one is needed.
    fn fetch_buckets<'a, P: RequestPart<'a>>(&mut self, request: &MultiRequest<'a, P>) {
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

    /// Operations that may change objects; their answers are short, and all of one length.
    fn multi_change<'a, P: RequestPart<'a>, A: Answer>(
        &mut self,
        to: ReplyTo,
        payload: &'a [u8],
        out: &mut impl Output,
        mut apply: impl FnMut(&mut Shard, P, Place<'a>) -> Outcome<A>,
    ) -> Result<(), Status> {
        let request = MultiRequest::<P>::decode(payload)?;
        self.fetch_buckets(&request);
        self.fetch_entries();
        self.scratch.answers.clear();
        let mut seen = LogPosition::START;
        for (at, part) in request.parts().take(MAX_PARTS).enumerate() {
            let (table_id, key) = part.place();
            let hash = self.scratch.hashes[at];
            let outcome = match self.store.tablets.count_use(table_id, hash, Use::Write) {
                Ok(()) => {
                    let place = Place {
                        table_id,
                        key,
                        hash,
                    };
                    apply(self, part, place)
                }
                Err(status) => Outcome::nothing(status),
            };
            seen = seen.max(outcome.seen);
            let answer = outcome.response.to_bytes();
            self.scratch.answers.extend_from_slice(answer.as_ref());
        }
        let count = self.scratch.hashes.len() as u32;
        let fixed = multi_response_fixed_bytes(Status::Ok, count);
        let durable = self.durable_position();
        self.gate
            .reply(durable, seen, to, &[&fixed, &self.scratch.answers], out);
        Ok(())
    }

    /// Reads go out from where the objects lie in the log, as many as one answer holds.
    fn multi_read(
        &mut self,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let request = MultiRequest::<MultiReadPart<'_>>::decode(payload)?;
        self.fetch_buckets(&request);
        self.fetch_entries();
        let seen = self.find_parts(&request);
        let durable = self.durable_position();

        let store = &self.store;
        let Scratch {
            answers,
            found,
            pieces,
            ..
        } = &mut self.scratch;
        let fixed = multi_response_fixed_bytes(Status::Ok, found.len() as u32);
        let mut parts: Vec<&[u8]> = reused(pieces);
        parts.push(&fixed);
        let heads = answers.chunks_exact(ReadResponse::FIXED_BYTES);
        for (head, at) in heads.zip(found.iter()) {
            parts.push(head);
            parts.extend(at.map(|at| store.object(at).content));
        }
        self.gate.reply(durable, seen, to, &parts, out);
        *pieces = reused(&mut parts);
        Ok(())
    }

    /// Looks the objects up and writes the fixed parts of their answers. Gives what must be durable before they are shown.
    fn find_parts(&mut self, request: &MultiRequest<'_, MultiReadPart<'_>>) -> LogPosition {
        let (store, scratch) = (&self.store, &mut self.scratch);
        scratch.answers.clear();
        scratch.found.clear();
        let mut bytes = MULTI_RESPONSE_FIXED_BYTES;
        let mut seen = LogPosition::START;
        for (part, &hash) in request.parts().zip(&scratch.hashes) {
            let place = Place {
                table_id: part.table_id,
                key: part.key,
                hash,
            };
            let (mut version, mut object, mut position) = (0, None, LogPosition::START);
            let status = match store.tablets.count_use(place.table_id, hash, Use::Read) {
                Ok(()) => {
                    let found = store.look_up(&place);
                    (version, object, position) = (found.version, found.object, found.seen);
                    match (object, part.rules.check(version)) {
                        (None, _) => Status::ObjectDoesntExist,
                        (Some(_), Err(status)) => status,
                        (Some(_), Ok(())) => Status::Ok,
                    }
                }
                Err(status) => status,
            };
            if status != Status::Ok {
                object = None;
            }
            let content_bytes = object.map_or(0, |at| store.object(at).content.len());
            bytes += ReadResponse::FIXED_BYTES + content_bytes;
            if bytes > MAX_RPC_BYTES {
                break;
            }
            let head = ReadResponse::fixed_bytes(status, version, content_bytes as u32);
            scratch.answers.extend_from_slice(&head);
            scratch.found.push(object);
            seen = seen.max(position);
            self.counters.reads += 1;
            let value_bytes = object.map_or(0, |at| store.object(at).value.len());
            self.counters.read_bytes += value_bytes as u64;
            self.counters.read_key_bytes += part.key.len() as u64;
        }
        seen
    }
}

/// The memory of an emptied vector, for slices of another lifetime.
fn reused<'b>(vector: &mut Vec<&[u8]>) -> Vec<&'b [u8]> {
    vector.clear();
    // Collecting from a vector's own iterator takes its memory over.
    let empty = core::mem::take(vector).into_iter();
    empty.map(|_| -> &'b [u8] { &[] }).collect()
}
