//! MULTI_OP of type WRITE: many objects in one request, each on its own.

use log::LogPosition;
use wire::hash::key_hash;
use wire::ids::ReplyTo;
use wire::rpc::{MultiWriteRequest, MultiWriteResponse};
use wire::status::Status;

use crate::output::Output;
use crate::shard::Shard;
use crate::store::{Outcome, Place};

/// Parts that one request may have answered; its client sends the others again. Stock clients put 20 into one. It bounds
/// how long other requests wait.
const MAX_PARTS: usize = 1024;

impl Shard {
    pub(crate) fn multi_write(
        &mut self,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let request = MultiWriteRequest::decode(payload)?;
        self.counters.multi_ops += 1;
        // All buckets are on their way from memory before the first one is needed.
        self.hashes.clear();
        for part in request.parts().take(MAX_PARTS) {
            let hash = key_hash(part.table_id, part.object.primary_key());
            self.store.keeper.index.prefetch(hash);
            self.hashes.push(hash);
        }
        self.scratch.clear();
        let mut seen = LogPosition::START;
        for (at, part) in request.parts().take(MAX_PARTS).enumerate() {
            let place = Place {
                table_id: part.table_id,
                key: part.object.primary_key(),
                hash: self.hashes[at],
            };
            let outcome = if self.store.tablets.owns(place.table_id, place.hash) {
                self.store.write(&place, &part.rules, part.object, None)
            } else {
                Outcome::nothing(Status::UnknownTablet)
            };
            self.count_write(&outcome, part.object.encoded_bytes());
            seen = seen.max(outcome.seen);
            outcome.response.encode(&mut self.scratch);
        }
        let fixed = MultiWriteResponse::fixed_bytes(Status::Ok, self.hashes.len() as u32);
        let durable = self.durable_position();
        self.gate
            .reply(durable, seen, to, &[&fixed, &self.scratch], out);
        Ok(())
    }
}
