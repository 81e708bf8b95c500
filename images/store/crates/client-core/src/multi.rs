//! Multi-writes: many objects, spread over their servers, a few requests under way at a time.

use core::ops::Range;
use core::time::Duration;

use wire::hash::key_hash;
use wire::ids::TableId;
use wire::keys::KeysAndValue;
use wire::rpc::{
    self, MAX_RPC_BYTES, MultiWritePart, MultiWriteRequest, MultiWriteResponse, RejectRules,
    RequestPart as _,
};
use wire::status::Status;
use wire::time::Time;

use crate::dispatch::Path;
use crate::operations::Kind;
use crate::sessions::Call;
use crate::{Client, Error, OperationId, Outcome, Output, Timer, WriteObject};

/// Objects in one request, and requests of one multi-write under way. RAMCloud's figures.
const OBJECTS_PER_RPC: usize = 20;
const RPCS_IN_FLIGHT: usize = 10;
/// Delay before objects are sent again whose parts said RETRY.
const PART_RETRY_MIN: Duration = Duration::from_millis(1);
const PART_RETRY_MAX: Duration = Duration::from_millis(2);

#[derive(Debug)]
struct Object {
    table: TableId,
    key_hash: u64,
    rules: RejectRules,
    key: Range<usize>,
    value: Range<usize>,
    /// Of the table config that led to the server.
    config_generation: u64,
    result: Option<Result<u64, Error>>,
}

/// A multi-write under way.
#[derive(Debug, Default)]
pub struct MultiWrite {
    objects: Vec<Object>,
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    /// Objects to be sent, by number.
    todo: Vec<u32>,
    in_flight: usize,
    /// Nothing is sent before this; a timer is set for it.
    not_before: Time,
}

/// Objects for one server.
struct Batch {
    session: u64,
    objects: Vec<u32>,
    request_bytes: usize,
}

impl MultiWrite {
    pub fn new(objects: &[WriteObject<'_>]) -> MultiWrite {
        let mut multi = MultiWrite::default();
        for object in objects {
            let start = multi.bytes.len();
            multi.bytes.extend_from_slice(object.key);
            let middle = multi.bytes.len();
            multi.bytes.extend_from_slice(object.value);
            multi.objects.push(Object {
                table: object.table,
                key_hash: key_hash(object.table, object.key),
                rules: object.rules,
                key: start..middle,
                value: middle..multi.bytes.len(),
                config_generation: 0,
                result: None,
            });
        }
        // Taken from the back: the first object goes out first.
        multi.todo = (0..objects.len() as u32).rev().collect();
        multi
    }

    fn encode(&self, objects: &[u32]) -> Vec<u8> {
        let parts: Vec<MultiWritePart<'_>> = objects
            .iter()
            .filter_map(|&number| {
                let object = &self.objects[number as usize];
                let key = &self.bytes[object.key.clone()];
                let value = &self.bytes[object.value.clone()];
                Some(MultiWritePart {
                    table_id: object.table,
                    rules: object.rules,
                    object: KeysAndValue::single(key, value).ok()?,
                })
            })
            .collect();
        let mut request = Vec::new();
        MultiWriteRequest::encode_parts(&parts, &mut request);
        request
    }

    fn part_bytes(&self, number: u32) -> usize {
        let object = &self.objects[number as usize];
        MultiWritePart::FIXED_BYTES
            + KeysAndValue::SINGLE_KEY_HEADER_BYTES
            + object.key.len()
            + object.value.len()
    }
}

impl Client {
    fn multi_mut(&mut self, id: OperationId) -> Option<&mut MultiWrite> {
        match &mut self.operations.get_mut(id.0)?.kind {
            Kind::MultiWrite(multi) => Some(multi),
            _ => None,
        }
    }

    /// Sends what can be sent; completes when nothing is left.
    pub(crate) fn dispatch_multi_write(
        &mut self,
        now: Time,
        id: OperationId,
        out: &mut impl Output,
    ) {
        let Some(multi) = self.multi_mut(id) else {
            return;
        };
        if now < multi.not_before {
            return;
        }
        let mut multi = core::mem::take(multi);
        self.send_objects(now, id, &mut multi, out);
        if multi.todo.is_empty() && multi.in_flight == 0 {
            self.retire(id);
            let results = multi.objects.into_iter().map(|object| {
                object
                    .result
                    .unwrap_or(Err(Error::status(Status::InternalError)))
            });
            out.complete(id, Ok(Outcome::Versions(results.collect())));
        } else if let Some(place) = self.multi_mut(id) {
            *place = multi;
        }
    }

    fn send_objects(
        &mut self,
        now: Time,
        id: OperationId,
        multi: &mut MultiWrite,
        out: &mut impl Output,
    ) {
        let mut batches: Vec<Batch> = Vec::new();
        let mut waiting = Vec::new();
        while multi.in_flight < RPCS_IN_FLIGHT {
            let Some(number) = multi.todo.pop() else {
                break;
            };
            let object = &mut multi.objects[number as usize];
            match self.path(now, id, object.table, object.key_hash, out) {
                Path::Open {
                    session,
                    config_generation,
                } => {
                    object.config_generation = config_generation;
                    let full =
                        add_to_batch(&mut batches, session, number, multi.part_bytes(number));
                    if let Some(batch) = full {
                        self.send_batch(now, id, multi, batch, out);
                    }
                }
                Path::Waits => waiting.push(number),
                Path::NoTable => {
                    object.result = Some(Err(Error::status(Status::TableDoesntExist)));
                }
            }
        }
        for batch in batches {
            // With more to come a batch waits until it is full.
            if multi.in_flight < RPCS_IN_FLIGHT && multi.todo.is_empty() {
                self.send_batch(now, id, multi, batch, out);
            } else {
                waiting.extend(batch.objects);
            }
        }
        multi.todo.extend(waiting.into_iter().rev());
    }

    fn send_batch(
        &mut self,
        now: Time,
        id: OperationId,
        multi: &mut MultiWrite,
        batch: Batch,
        out: &mut impl Output,
    ) {
        multi.in_flight += 1;
        let request = multi.encode(&batch.objects);
        let call = Call::Objects(id, batch.objects);
        self.sessions
            .send(now, batch.session, call, &request, self.config.timeout, out);
    }

    /// The connection on which these objects went out is gone.
    pub(crate) fn objects_unanswered(&mut self, id: OperationId, objects: &[u32]) {
        let Some(multi) = self.multi_mut(id) else {
            return;
        };
        multi.in_flight -= 1;
        multi.todo.extend(objects.iter().rev());
        let stale: Vec<_> = objects
            .iter()
            .map(|&number| &multi.objects[number as usize])
            .map(|object| (object.table, object.config_generation))
            .collect();
        for (table, generation) in stale {
            self.tables.invalidate(table, generation);
        }
    }

    /// A request for some objects was answered.
    pub(crate) fn objects_answered(
        &mut self,
        now: Time,
        id: OperationId,
        objects: &[u32],
        payload: &[u8],
    ) {
        let whole_delay =
            (rpc::status(payload) == Ok(Status::Retry)).then(|| self.retry_delay(payload));
        let part_delay = self.random.delay(PART_RETRY_MIN, PART_RETRY_MAX);
        let Some(operation) = self.operations.get_mut(id.0) else {
            return;
        };
        operation.failures = 0;
        let Kind::MultiWrite(multi) = &mut operation.kind else {
            return;
        };
        multi.in_flight -= 1;
        let (delay, stale) = match whole_delay {
            Some(delay) => {
                multi.todo.extend(objects.iter().rev());
                (Some(delay), Vec::new())
            }
            None => {
                let (must_wait, stale) = multi.note_parts(objects, payload);
                (must_wait.then_some(part_delay), stale)
            }
        };
        if let Some(delay) = delay {
            multi.not_before = now + delay;
            self.set_timer(now + delay, Timer::Resume(id));
        } else {
            self.ready.push_back(id);
        }
        for (table, generation) in stale {
            self.tables.invalidate(table, generation);
        }
    }
}

impl MultiWrite {
    /// Takes the parts of an answer in. Objects that must be sent again go back to the others that wait. Returns whether
    /// that should happen after a delay only, and table configs that are out of date.
    fn note_parts(&mut self, objects: &[u32], payload: &[u8]) -> (bool, Vec<(TableId, u64)>) {
        let (status, parts) = match MultiWriteResponse::decode(payload) {
            Ok(response) => (response.status, response.parts().collect()),
            Err(status) => (status, Vec::new()),
        };
        let (mut must_wait, mut stale) = (false, Vec::new());
        for (at, &number) in objects.iter().enumerate().rev() {
            let object = &mut self.objects[number as usize];
            let (status, version) = match (status, parts.get(at)) {
                (Status::Ok, Some(part)) => (part.status, part.version),
                (Status::Ok, None) => {
                    // A short answer: the rest is asked for again. One without any part makes no progress.
                    must_wait |= parts.is_empty();
                    self.todo.push(number);
                    continue;
                }
                (status, _) => (status, 0),
            };
            match status {
                Status::Ok => object.result = Some(Ok(version)),
                Status::Retry => {
                    must_wait = true;
                    self.todo.push(number);
                }
                Status::UnknownTablet => {
                    stale.push((object.table, object.config_generation));
                    self.todo.push(number);
                }
                status => object.result = Some(Err(Error::Refused { status, version })),
            }
        }
        (must_wait, stale)
    }
}

/// Adds an object to the batch of its session. Returns the batch when it is full, or was too full to take it.
fn add_to_batch(
    batches: &mut Vec<Batch>,
    session: u64,
    number: u32,
    part_bytes: usize,
) -> Option<Batch> {
    let fresh = || Batch {
        session,
        objects: Vec::with_capacity(OBJECTS_PER_RPC),
        request_bytes: MultiWriteRequest::FIXED_BYTES,
    };
    let at = match batches.iter().position(|batch| batch.session == session) {
        Some(at) => at,
        None => {
            batches.push(fresh());
            batches.len() - 1
        }
    };
    let batch = &mut batches[at];
    let overfull = (batch.request_bytes + part_bytes > MAX_RPC_BYTES)
        .then(|| core::mem::replace(batch, fresh()));
    batch.objects.push(number);
    batch.request_bytes += part_bytes;
    if overfull.is_some() {
        return overfull;
    }
    (batch.objects.len() == OBJECTS_PER_RPC).then(|| batches.swap_remove(at))
}
