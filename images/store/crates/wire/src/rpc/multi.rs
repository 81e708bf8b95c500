//! MULTI_OP: many operations of one kind in one request. Not atomic: every part has its own outcome, and a part that is sent
//! again may take effect again.

use core::borrow::Borrow;
use core::marker::PhantomData;

use super::*;
use crate::ids::TableId;
use crate::keys::KeysAndValue;

/// The kind of operations in a MULTI_OP, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MultiKind {
    Increment = 0,
    Read = 1,
    Remove = 2,
    Write = 3,
}

impl MultiKind {
    /// Of which kind a request is; one that nobody knows is [`Status::UnimplementedRequest`].
    pub fn of_request(payload: &[u8]) -> Result<MultiKind, Status> {
        let mut fields = Fields::of_request(payload, MultiWriteRequest::FIXED_BYTES)?;
        let _count = fields.u32()?;
        match fields.u32()? {
            0 => Ok(MultiKind::Increment),
            1 => Ok(MultiKind::Read),
            2 => Ok(MultiKind::Remove),
            3 => Ok(MultiKind::Write),
            _ => Err(Status::UnimplementedRequest),
        }
    }
}

/// What one part of a MULTI_OP asks for.
pub trait MultiPart<'a>: Copy {
    const KIND: MultiKind;
    /// Bytes before the key, or before the object.
    const FIXED_BYTES: usize;

    /// Reads the part at the start of `bytes`; answers what is behind it, too.
    fn split_from(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Status>;
    fn encode(&self, out: &mut Vec<u8>);
}

/// What one part of a MULTI_OP is answered with.
pub trait MultiAnswer<'a>: Copy {
    /// Reads the part at the start of `bytes`; answers what is behind it, too.
    fn split_from(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Status>;
    fn encode(&self, out: &mut Vec<u8>);
}

/// MULTI_OP with parts of type `P`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiRequest<'a, P> {
    count: u32,
    parts: &'a [u8],
    kind: PhantomData<P>,
}

pub type MultiReadRequest<'a> = MultiRequest<'a, MultiReadPart<'a>>;
pub type MultiWriteRequest<'a> = MultiRequest<'a, MultiWritePart<'a>>;
pub type MultiRemoveRequest<'a> = MultiRequest<'a, MultiRemovePart<'a>>;
pub type MultiIncrementRequest<'a> = MultiRequest<'a, MultiIncrementPart<'a>>;

impl<P> MultiRequest<'_, P> {
    pub const FIXED_BYTES: usize = 12;

    /// How many parts there are; each takes more than 20 bytes, so the message bounds it.
    pub fn count(&self) -> u32 {
        self.count
    }
}

impl<'a, P: MultiPart<'a>> MultiRequest<'a, P> {
    /// Checks every part, so that a malformed request has no effect at all. A request of another kind is
    /// [`Status::UnimplementedRequest`].
    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let count = fields.u32()?;
        if fields.u32()? != P::KIND as u32 {
            return Err(Status::UnimplementedRequest);
        }
        let parts = fields.rest();
        let mut rest = parts;
        for _ in 0..count {
            (_, rest) = P::split_from(rest)?;
        }
        Ok(MultiRequest {
            count,
            parts: &parts[..parts.len() - rest.len()],
            kind: PhantomData,
        })
    }

    pub fn parts(&self) -> impl ExactSizeIterator<Item = P> + use<'a, P> {
        let mut rest = self.parts;
        (0..self.count).map(move |_| {
            let (part, behind) = P::split_from(rest).expect("checked by `decode`");
            rest = behind;
            part
        })
    }

    /// Writes the request for these parts.
    pub fn encode_parts(parts: impl IntoIterator<Item: Borrow<P>>, out: &mut Vec<u8>) {
        put_header(out, Opcode::MultiOp, Service::Master);
        let count_at = out.len();
        put_u32(out, 0);
        put_u32(out, P::KIND as u32);
        put_parts(count_at, parts, out, |part, out| part.borrow().encode(out));
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::MultiOp, Service::Master);
        put_u32(out, self.count);
        put_u32(out, P::KIND as u32);
        out.extend_from_slice(self.parts);
    }
}

/// Writes parts, and how many they were to `count_at`.
fn put_parts<T>(
    count_at: usize,
    parts: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    encode: impl Fn(&T, &mut Vec<u8>),
) {
    let mut count = 0u32;
    for part in parts {
        encode(&part, out);
        count += 1;
    }
    out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
}

/// One object of a [`MultiReadRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiReadPart<'a> {
    pub table_id: TableId,
    pub rules: RejectRules,
    pub key: &'a [u8],
}

impl<'a> MultiPart<'a> for MultiReadPart<'a> {
    const KIND: MultiKind = MultiKind::Read;
    const FIXED_BYTES: usize = 22;

    fn split_from(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let mut fields = Fields::of(bytes);
        let table_id = TableId(fields.u64()?);
        let key_length = fields.u16()?;
        let rules = RejectRules::decode(&mut fields)?;
        let key = fields.key(key_length)?;
        let part = MultiReadPart {
            table_id,
            rules,
            key,
        };
        Ok((part, fields.rest()))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.table_id.0);
        put_u16(out, key_length_u16(self.key));
        self.rules.encode(out);
        out.extend_from_slice(self.key);
    }
}

/// One object of a [`MultiRemoveRequest`]; laid out like one that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiRemovePart<'a> {
    pub table_id: TableId,
    pub rules: RejectRules,
    pub key: &'a [u8],
}

impl<'a> MultiPart<'a> for MultiRemovePart<'a> {
    const KIND: MultiKind = MultiKind::Remove;
    const FIXED_BYTES: usize = MultiReadPart::FIXED_BYTES;

    fn split_from(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let (part, rest) = MultiReadPart::split_from(bytes)?;
        let MultiReadPart {
            table_id,
            rules,
            key,
        } = part;
        let part = MultiRemovePart {
            table_id,
            rules,
            key,
        };
        Ok((part, rest))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (table_id, rules, key) = (self.table_id, self.rules, self.key);
        let part = MultiReadPart {
            table_id,
            rules,
            key,
        };
        part.encode(out);
    }
}

/// One object of a [`MultiWriteRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiWritePart<'a> {
    pub table_id: TableId,
    pub rules: RejectRules,
    pub object: KeysAndValue<'a>,
}

impl<'a> MultiPart<'a> for MultiWritePart<'a> {
    const KIND: MultiKind = MultiKind::Write;
    const FIXED_BYTES: usize = 24;

    fn split_from(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let mut fields = Fields::of(bytes);
        let table_id = TableId(fields.u64()?);
        let length = fields.u32()?;
        let rules = RejectRules::decode(&mut fields)?;
        let object = KeysAndValue::parse(fields.bytes(length as usize)?)?;
        let part = MultiWritePart {
            table_id,
            rules,
            object,
        };
        Ok((part, fields.rest()))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.table_id.0);
        put_u32(out, self.object.length_u32());
        self.rules.encode(out);
        self.object.encode(out);
    }
}

/// One object of a [`MultiIncrementRequest`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MultiIncrementPart<'a> {
    pub table_id: TableId,
    pub by: Increment,
    pub rules: RejectRules,
    pub key: &'a [u8],
}

impl<'a> MultiPart<'a> for MultiIncrementPart<'a> {
    const KIND: MultiKind = MultiKind::Increment;
    const FIXED_BYTES: usize = 38;

    fn split_from(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let mut fields = Fields::of(bytes);
        let table_id = TableId(fields.u64()?);
        let key_length = fields.u16()?;
        let by = Increment::decode(&mut fields)?;
        let rules = RejectRules::decode(&mut fields)?;
        let key = fields.key(key_length)?;
        let part = MultiIncrementPart {
            table_id,
            by,
            rules,
            key,
        };
        Ok((part, fields.rest()))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.table_id.0);
        put_u16(out, key_length_u16(self.key));
        self.by.encode(out);
        self.rules.encode(out);
        out.extend_from_slice(self.key);
    }
}

/// Answers MULTI_OP: one answer of type `A` per part, in order of the request.
///
/// Fewer than were asked for make the client send the missing parts again: they were not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiResponse<'a, A> {
    pub status: Status,
    count: u32,
    parts: &'a [u8],
    kind: PhantomData<A>,
}

pub type MultiReadResponse<'a> = MultiResponse<'a, ReadKeysAndValueResponse<'a>>;
pub type MultiWriteResponse<'a> = MultiResponse<'a, WriteResponse>;
pub type MultiRemoveResponse<'a> = MultiResponse<'a, RemoveResponse>;
pub type MultiIncrementResponse<'a> = MultiResponse<'a, IncrementResponse>;

impl<A> MultiResponse<'_, A> {
    pub const FIXED_BYTES: usize = 8;

    /// The part before the parts.
    pub fn fixed_bytes(status: Status, count: u32) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&status_bytes(status));
        bytes[4..].copy_from_slice(&count.to_le_bytes());
        bytes
    }
}

impl<'a, A: MultiAnswer<'a>> MultiResponse<'a, A> {
    /// Reads a response. A part that is cut off is left out, as is one that makes no sense, and all behind it.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let mut response = MultiResponse {
            status,
            count: 0,
            parts: &[],
            kind: PhantomData,
        };
        let Some(mut fields) = fields else {
            return Ok(response);
        };
        let count = in_response(fields.u32())?;
        let parts = fields.rest();
        let mut rest = parts;
        while response.count < count
            && let Ok((_, behind)) = A::split_from(rest)
        {
            rest = behind;
            response.count += 1;
        }
        response.parts = &parts[..parts.len() - rest.len()];
        Ok(response)
    }

    pub fn parts(&self) -> impl ExactSizeIterator<Item = A> + use<'a, A> {
        let mut rest = self.parts;
        (0..self.count).map(move |_| {
            let (part, behind) = A::split_from(rest).expect("checked by `decode`");
            rest = behind;
            part
        })
    }

    /// Writes the response for these parts.
    pub fn encode_parts(
        status: Status,
        parts: impl IntoIterator<Item: Borrow<A>>,
        out: &mut Vec<u8>,
    ) {
        put_status(out, status);
        let count_at = out.len();
        put_u32(out, 0);
        put_parts(count_at, parts, out, |part, out| part.borrow().encode(out));
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&Self::fixed_bytes(self.status, self.count));
        out.extend_from_slice(self.parts);
    }
}

/// The status that an answer starts with.
fn part_status(fields: &mut Fields<'_>) -> Result<Status, Status> {
    status(&fields.array::<4>()?)
}

impl<'a> MultiAnswer<'a> for ReadKeysAndValueResponse<'a> {
    fn split_from(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let mut fields = Fields::of(bytes);
        let status = part_status(&mut fields)?;
        let answer = Self::decode_behind(status, &mut fields)?;
        Ok((answer, fields.rest()))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
}

impl<'a> MultiAnswer<'a> for WriteResponse {
    fn split_from(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let mut fields = Fields::of(bytes);
        let status = part_status(&mut fields)?;
        let version = fields.u64()?;
        Ok((WriteResponse { status, version }, fields.rest()))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
}

impl<'a> MultiAnswer<'a> for IncrementResponse {
    fn split_from(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let mut fields = Fields::of(bytes);
        let status = part_status(&mut fields)?;
        let answer = IncrementResponse {
            status,
            version: fields.u64()?,
            value: fields.array()?,
        };
        Ok((answer, fields.rest()))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
}
