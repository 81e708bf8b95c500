//! Multi-ops: many objects, spread over their servers, a few requests under way at a time.

use core::ops::Range;
use core::time::Duration;

use wire::hash::key_hash;
use wire::ids::TableId;
use wire::keys::KeysAndValue;
use wire::rpc::{
    self, Increment, IncrementResponse, MAX_RPC_BYTES, MULTI_REQUEST_FIXED_BYTES,
    MultiIncrementPart, MultiKind, MultiReadPart, MultiReadPartResponse, MultiRemovePart,
    MultiRequest, MultiResponse, MultiWritePart, RejectRules, RemoveResponse, RequestPart,
    ResponsePart, WriteResponse,
};
use wire::status::Status;
use wire::time::Time;

use crate::dispatch::Path;
use crate::operations::{Kind, check_object};
use crate::sessions::Call;
use crate::{
    Client, Error, IncrementObject, KeyObject, OperationId, Outcome, Output, Timer, WriteObject,
};

/// Objects in one request, and requests of one multi-op under way. RAMCloud's figures.
const OBJECTS_PER_RPC: usize = 20;
const RPCS_IN_FLIGHT: usize = 10;
const MAX_OBJECTS: usize = 1_000_000;
/// Delay before objects are sent again whose parts said RETRY.
const PART_RETRY_MIN: Duration = Duration::from_millis(1);
const PART_RETRY_MAX: Duration = Duration::from_millis(2);

#[derive(Clone, Debug)]
struct Object {
    table: TableId,
    key_hash: u64,
    rules: RejectRules,
    key: Range<usize>,
    /// Of a write.
    value: Range<usize>,
    /// Of an increment.
    by: Increment,
    /// Of the table config that led to the server.
    config_generation: u64,
    result: Option<Result<Part, Error>>,
}

/// What became of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    version: u64,
    /// Of an increment.
    new_value: [u8; 8],
    /// Of a read: where the object lies in [`Multi::found`].
    found: Range<usize>,
}

/// A multi-op: what is asked, and how far it is.
#[derive(Clone, Debug)]
pub struct Multi {
    kind: MultiKind,
    objects: Vec<Object>,
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    /// Objects that were read, one after the other.
    found: Vec<u8>,
    /// Objects to be sent, by number.
    todo: Vec<u32>,
    in_flight: usize,
    /// Nothing is sent before this; a timer is set for it.
    not_before: Time,
}

/// What a multi-read gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    results: Vec<Result<Part, Error>>,
    bytes: Vec<u8>,
}

impl Objects {
    /// For each object, in the order of the request, its version and its keys and value as they travel, or why it was not read.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Result<(u64, &[u8]), Error>> {
        self.results.iter().map(|result| match result {
            Ok(part) => Ok((part.version, &self.bytes[part.found.clone()])),
            Err(error) => Err(error.clone()),
        })
    }
}

/// Objects for one server.
struct Batch {
    session: u64,
    objects: Vec<u32>,
    request_bytes: usize,
}

impl Multi {
    fn new(kind: MultiKind) -> Multi {
        Multi {
            kind,
            objects: Vec::new(),
            bytes: Vec::new(),
            found: Vec::new(),
            todo: Vec::new(),
            in_flight: 0,
            not_before: Time::ZERO,
        }
    }

    /// Each with its version as of a write.
    pub fn writes(objects: &[WriteObject<'_>]) -> Result<Multi, Error> {
        let mut multi = Multi::new(MultiKind::Write);
        for object in objects {
            let (key, rules) = (object.key, object.rules);
            multi.add(object.table, key, object.value, Increment::default(), rules)?;
        }
        multi.begin()
    }

    pub fn reads(objects: &[KeyObject<'_>]) -> Result<Multi, Error> {
        Multi::keys(MultiKind::Read, objects)
    }

    pub fn removes(objects: &[KeyObject<'_>]) -> Result<Multi, Error> {
        Multi::keys(MultiKind::Remove, objects)
    }

    fn keys(kind: MultiKind, objects: &[KeyObject<'_>]) -> Result<Multi, Error> {
        let mut multi = Multi::new(kind);
        for object in objects {
            let (key, rules) = (object.key, object.rules);
            multi.add(object.table, key, &[], Increment::default(), rules)?;
        }
        multi.begin()
    }

    pub fn increments(objects: &[IncrementObject<'_>]) -> Result<Multi, Error> {
        let mut multi = Multi::new(MultiKind::Increment);
        for object in objects {
            multi.add(object.table, object.key, &[], object.by, object.rules)?;
        }
        multi.begin()
    }

    /// Objects are taken from the back of the list: the first one goes out first.
    fn begin(mut self) -> Result<Multi, Error> {
        if self.objects.len() > MAX_OBJECTS {
            return Err(Error::Invalid("a multi-op has at most 1000000 objects"));
        }
        self.todo.reverse();
        Ok(self)
    }

    fn add(
        &mut self,
        table: TableId,
        key: &[u8],
        value: &[u8],
        by: Increment,
        rules: RejectRules,
    ) -> Result<(), Error> {
        check_object(key, value)?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.todo.push(self.objects.len() as u32);
        self.objects.push(Object {
            table,
            key_hash: key_hash(table, key),
            rules,
            key: start..middle,
            value: middle..self.bytes.len(),
            by,
            config_generation: 0,
            result: None,
        });
        Ok(())
    }

    fn encode(&self, objects: &[u32]) -> Vec<u8> {
        let mut request = Vec::new();
        match self.kind {
            MultiKind::Write => self.encode_as(objects, &mut request, |object| {
                let (key, value) = (
                    &self.bytes[object.key.clone()],
                    &self.bytes[object.value.clone()],
                );
                Some(MultiWritePart {
                    table_id: object.table,
                    rules: object.rules,
                    object: KeysAndValue::single(key, value).ok()?,
                })
            }),
            MultiKind::Read => self.encode_as(objects, &mut request, |object| {
                Some(MultiReadPart {
                    table_id: object.table,
                    rules: object.rules,
                    key: &self.bytes[object.key.clone()],
                })
            }),
            MultiKind::Remove => self.encode_as(objects, &mut request, |object| {
                Some(MultiRemovePart {
                    table_id: object.table,
                    rules: object.rules,
                    key: &self.bytes[object.key.clone()],
                })
            }),
            MultiKind::Increment => self.encode_as(objects, &mut request, |object| {
                Some(MultiIncrementPart {
                    table_id: object.table,
                    by: object.by,
                    rules: object.rules,
                    key: &self.bytes[object.key.clone()],
                })
            }),
        }
        request
    }

    fn encode_as<'a, P: RequestPart<'a>>(
        &'a self,
        objects: &[u32],
        request: &mut Vec<u8>,
        part: impl Fn(&'a Object) -> Option<P>,
    ) {
        let objects = objects.iter().map(|&number| &self.objects[number as usize]);
        let parts: Vec<P> = objects.filter_map(part).collect();
        MultiRequest::encode_parts(&parts, request);
    }

    /// What the object takes in a request, at most.
    fn part_bytes(&self, number: u32) -> usize {
        let object = &self.objects[number as usize];
        MultiIncrementPart::FIXED_BYTES + object.key.len() + object.value.len()
    }

    /// What was found out, when nothing is left to do.
    fn outcome(self) -> Outcome<'static> {
        let Multi {
            kind,
            objects,
            found,
            ..
        } = self;
        let results = objects.into_iter().map(|object| {
            object
                .result
                .unwrap_or(Err(Error::status(Status::InternalError)))
        });
        match kind {
            MultiKind::Write | MultiKind::Remove => {
                let versions = results.map(|result| result.map(|part| part.version));
                Outcome::Versions(versions.collect())
            }
            MultiKind::Increment => {
                let values =
                    results.map(|result| result.map(|part| (part.version, part.new_value)));
                Outcome::IncrementedAll(values.collect())
            }
            MultiKind::Read => Outcome::Objects(Objects {
                results: results.collect(),
                bytes: found,
            }),
        }
    }
}

impl Client {
    fn multi_mut(&mut self, id: OperationId) -> Option<&mut Multi> {
        match &mut self.operations.get_mut(id.0)?.kind {
            Kind::Multi(multi) => Some(multi),
            _ => None,
        }
    }

    /// Sends what can be sent; completes when nothing is left.
    pub(crate) fn dispatch_multi(&mut self, now: Time, id: OperationId, out: &mut impl Output) {
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
        multi: &mut Multi,
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

impl Multi {
    /// Takes the parts of an answer in. Objects that must be sent again go back to the others that wait. Returns whether
    /// that should happen after a delay only, and table configs that are out of date.
    fn note_parts(&mut self, objects: &[u32], payload: &[u8]) -> (bool, Vec<(TableId, u64)>) {
        match self.kind {
            MultiKind::Write => self.note(objects, payload, |part: WriteResponse, _| Part {
                version: part.version,
                ..Part::default()
            }),
            MultiKind::Remove => self.note(objects, payload, |part: RemoveResponse, _| Part {
                version: part.version,
                ..Part::default()
            }),
            MultiKind::Increment => {
                self.note(objects, payload, |part: IncrementResponse, _| Part {
                    version: part.version,
                    new_value: part.new_value,
                    ..Part::default()
                })
            }
            MultiKind::Read => self.note(
                objects,
                payload,
                |part: MultiReadPartResponse<'_>, found| {
                    let start = found.len();
                    if let Some(object) = part.object {
                        object.encode(found);
                    }
                    Part {
                        version: part.version,
                        found: start..found.len(),
                        ..Part::default()
                    }
                },
            ),
        }
    }

    fn note<'a, P: ResponsePart<'a>>(
        &mut self,
        objects: &[u32],
        payload: &'a [u8],
        read: impl Fn(P, &mut Vec<u8>) -> Part,
    ) -> (bool, Vec<(TableId, u64)>) {
        let (whole, count) = match MultiResponse::<P>::decode(payload) {
            Ok(response) => (response.status, response.count()),
            Err(status) => (status, 0),
        };
        let mut parts = MultiResponse::<P>::decode(payload)
            .into_iter()
            .flat_map(|response| response.parts());
        let (mut must_wait, mut stale, mut again) = (false, Vec::new(), Vec::new());
        for &number in objects {
            let object = &mut self.objects[number as usize];
            let (status, part) = match (whole, parts.next()) {
                (Status::Ok, Some(part)) => (part.status(), read(part, &mut self.found)),
                (Status::Ok, None) => {
                    // A short answer: the rest is asked for again. One without any part makes no progress.
                    must_wait |= count == 0;
                    again.push(number);
                    continue;
                }
                (status, _) => (status, Part::default()),
            };
            match status {
                Status::Ok => object.result = Some(Ok(part)),
                Status::Retry => {
                    must_wait = true;
                    again.push(number);
                }
                Status::UnknownTablet => {
                    stale.push((object.table, object.config_generation));
                    again.push(number);
                }
                status => {
                    let version = part.version;
                    object.result = Some(Err(Error::Refused { status, version }));
                }
            }
        }
        self.todo.extend(again.into_iter().rev());
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
