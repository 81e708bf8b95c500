//! Multi-ops: many objects, spread over their servers, a few requests under way at a time.

use core::ops::Range;

use base::ids::TableId;
use base::time::Time;
use wire::hash::key_hash;
use wire::keys::KeysAndValue;
use wire::rpc::{
    Increment, IncrementResponse, MultiIncrementPart, MultiKind, MultiReadPart,
    MultiReadPartResponse, MultiRemovePart, MultiRequest, MultiResponse, MultiWritePart,
    RejectRules, RemoveResponse, RequestPart, ResponsePart, WriteResponse,
};
use wire::status::Status;

use crate::checks::check_object;
use crate::error::Error;
use crate::objects::{IncrementObject, KeyObject, WriteObject};
use crate::outcome::Outcome;

pub use crate::results::Objects;
use crate::results::Part;

/// Objects of one multi-op.
const MAX_OBJECTS: usize = 1_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub table: TableId,
    pub key_hash: u64,
    rules: RejectRules,
    key: Range<usize>,
    /// Of a write.
    value: Range<usize>,
    /// Of an increment.
    by: Increment,
    /// Of the table config that led to the server.
    pub config_generation: u64,
    pub result: Option<Result<Part, Error>>,
}

/// A multi-op: what is asked, and how far it is.
#[derive(Clone, Debug)]
pub struct Multi {
    pub(crate) kind: MultiKind,
    pub(crate) objects: Vec<Object>,
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    /// Objects that were read, one after the other.
    found: Vec<u8>,
    /// Objects to be sent, by number.
    pub(crate) todo: Vec<u32>,
    pub(crate) in_flight: usize,
    /// Nothing is sent before this; a timer is set for it.
    pub(crate) not_before: Time,
}

impl Multi {
    pub(crate) fn new(kind: MultiKind) -> Multi {
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

    pub(crate) fn encode(&self, objects: &[u32]) -> Vec<u8> {
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
    pub(crate) fn part_bytes(&self, number: u32) -> usize {
        let object = &self.objects[number as usize];
        MultiIncrementPart::FIXED_BYTES + object.key.len() + object.value.len()
    }

    /// What was found out, when nothing is left to do.
    pub(crate) fn outcome(self) -> Outcome<'static> {
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

    /// Takes the parts of an answer in. Objects that must be sent again go back to the others that wait. Returns whether
    /// that should happen after a delay only, and table configs that are out of date.
    pub(crate) fn note_parts(
        &mut self,
        objects: &[u32],
        payload: &[u8],
    ) -> (bool, Vec<(TableId, u64)>) {
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
