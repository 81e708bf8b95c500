//! Multi-ops under way: which of their objects go out together, and what answers change.

use core::time::Duration;

use base::time::Time;
use wire::rpc::{self, MAX_RPC_BYTES, MULTI_REQUEST_FIXED_BYTES};
use wire::status::Status;

use super::Client;
use super::dispatch::Path;
use crate::effects::ClientEffects;
use crate::error::Error;
use crate::multi::Multi;
use crate::operation::Kind;
use crate::operation_id::OperationId;
use crate::sessions::Call;
use crate::timer::Timer;

/// Objects in one request, and requests of one multi-op under way. RAMCloud's figures.
const OBJECTS_PER_RPC: usize = 20;
const RPCS_IN_FLIGHT: usize = 10;
/// Delay before objects are sent again whose parts said RETRY.
const PART_RETRY_MIN: Duration = Duration::from_millis(1);
const PART_RETRY_MAX: Duration = Duration::from_millis(2);

/// Objects for one server.
struct Batch {
    session: u64,
    objects: Vec<u32>,
    request_bytes: usize,
}

impl Client {
    fn multi_mut(&mut self, id: OperationId) -> Option<&mut Multi> {
        match &mut self.operations.get_mut(id.0)?.kind {
            Kind::Multi(multi) => Some(multi),
            _ => None,
        }
    }

    /// Sends what can be sent; completes when nothing is left.
    pub(crate) fn dispatch_multi(
        &mut self,
        now: Time,
        id: OperationId,
        out: &mut impl ClientEffects,
    ) {
        let Some(multi) = self.multi_mut(id) else {
            return;
        };
        if now < multi.not_before {
            return;
        }
        let empty = Multi::new(multi.kind);
        let mut multi = core::mem::replace(multi, empty);
        self.send_objects(now, id, &mut multi, out);
        if multi.todo.is_empty() && multi.in_flight == 0 {
            self.retire(id);
            out.complete(id, Ok(multi.outcome()));
        } else if let Some(place) = self.multi_mut(id) {
            *place = multi;
        }
    }

    fn send_objects(
        &mut self,
        now: Time,
        id: OperationId,
        multi: &mut Multi,
        out: &mut impl ClientEffects,
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
        multi: &mut Multi,
        batch: Batch,
        out: &mut impl ClientEffects,
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
        let Kind::Multi(multi) = &mut operation.kind else {
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
        request_bytes: MULTI_REQUEST_FIXED_BYTES,
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
