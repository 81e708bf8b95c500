//! MULTI_OP: many operations of one kind in one request. Not atomic: every part has its own outcome, and a part that is sent
//! again may take effect again.
//!
//! A kind is a pair of part types; requests and responses are the same for all of them.

use core::marker::PhantomData;

use super::*;
use crate::keys::KeysAndValue;
use base::ids::TableId;

/// The kind of operations in a MULTI_OP, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum MultiKind {
    Increment = 0,
    Read = 1,
    Remove = 2,
    Write = 3,
}

impl MultiKind {
    /// The kind of a request whose fixed part is there; [`Status::RequestFormatError`] if there is no such kind.
    pub fn of_request(payload: &[u8]) -> Result<MultiKind, Status> {
        let mut fields = Fields::of_request(payload, MULTI_REQUEST_FIXED_BYTES)?;
        fields.u32()?;
        match fields.u32()? {
            0 => Ok(MultiKind::Increment),
            1 => Ok(MultiKind::Read),
            2 => Ok(MultiKind::Remove),
            3 => Ok(MultiKind::Write),
            _ => Err(Status::RequestFormatError),
        }
    }
}

/// The part of any MULTI_OP request that is always there.
pub const MULTI_REQUEST_FIXED_BYTES: usize = 12;
/// The part of any MULTI_OP response that is always there.
pub const MULTI_RESPONSE_FIXED_BYTES: usize = 8;

mod sealed {
    use super::{Fields, Status};

    /// How a part lies in a message.
    pub trait Codec<'a>: Copy {
        fn decode(fields: &mut Fields<'a>) -> Result<Self, Status>;
        fn encode(&self, out: &mut Vec<u8>);
    }
}
use sealed::Codec;

/// One operation of a request.
pub trait RequestPart<'a>: Codec<'a> {
    const KIND: MultiKind;
    /// Bytes before what has a length of its own.
    const FIXED_BYTES: usize;
    /// The table, and the primary key in it.
    fn place(&self) -> (TableId, &'a [u8]);
    /// Bytes on the wire.
    fn encoded_bytes(&self) -> usize;
}

/// The outcome of one operation.
pub trait ResponsePart<'a>: Codec<'a> {
    fn status(&self) -> Status;
}

/// MULTI_OP of one kind.
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

impl<'a, P: RequestPart<'a>> MultiRequest<'a, P> {
    pub const FIXED_BYTES: usize = MULTI_REQUEST_FIXED_BYTES;

    /// Checks every part, so that a malformed request has no effect at all. [`Status::RequestFormatError`] if the request is
    /// of another kind.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let count = fields.u32()?;
        if fields.u32()? != P::KIND as u32 {
            return Err(Status::RequestFormatError);
        }
        let parts = fields.rest();
        for _ in 0..count {
            P::decode(&mut fields)?;
        }
        let length = parts.len() - fields.rest().len();
        Ok(MultiRequest {
            count,
            parts: &parts[..length],
            kind: PhantomData,
        })
    }

    /// How many parts there are; each takes at least [`RequestPart::FIXED_BYTES`], so the message bounds it.
    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn parts(&self) -> impl Iterator<Item = P> + use<'a, P> {
        let mut fields = Fields::of(self.parts);
        (0..self.count).map(move |_| P::decode(&mut fields).expect("checked by `decode`"))
    }

    /// Writes the request for these parts.
    pub fn encode_parts(parts: &[P], out: &mut Vec<u8>) {
        Self::put_fixed(
            u32::try_from(parts.len()).expect("more parts than any RPC holds"),
            out,
        );
        for part in parts {
            part.encode(out);
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        Self::put_fixed(self.count, out);
        out.extend_from_slice(self.parts);
    }

    fn put_fixed(count: u32, out: &mut Vec<u8>) {
        put_header(out, Opcode::MultiOp, Service::Master);
        put_u32(out, count);
        put_u32(out, P::KIND as u32);
    }
}

/// One object of a [`MultiWriteRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiWritePart<'a> {
    pub table_id: TableId,
    pub rules: RejectRules,
    pub object: KeysAndValue<'a>,
}

impl<'a> Codec<'a> for MultiWritePart<'a> {
    fn decode(fields: &mut Fields<'a>) -> Result<Self, Status> {
        let table_id = TableId(fields.u64()?);
        let length = fields.u32()?;
        let rules = RejectRules::decode(fields)?;
        let object = KeysAndValue::parse(fields.bytes(length as usize)?)?;
        Ok(MultiWritePart {
            table_id,
            rules,
            object,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.table_id.0);
        put_u32(out, self.object.length_u32());
        self.rules.encode(out);
        self.object.encode(out);
    }
}

impl<'a> RequestPart<'a> for MultiWritePart<'a> {
    const KIND: MultiKind = MultiKind::Write;
    const FIXED_BYTES: usize = 24;

    fn place(&self) -> (TableId, &'a [u8]) {
        (self.table_id, self.object.primary_key())
    }

    fn encoded_bytes(&self) -> usize {
        Self::FIXED_BYTES + self.object.encoded_bytes()
    }
}

/// One object of a [`MultiReadRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiReadPart<'a> {
    pub table_id: TableId,
    pub rules: RejectRules,
    pub key: &'a [u8],
}

/// One object of a [`MultiRemoveRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiRemovePart<'a> {
    pub table_id: TableId,
    pub rules: RejectRules,
    pub key: &'a [u8],
}

/// Reads and removes say the same in their parts.
macro_rules! key_part {
    ($part:ident, $kind:ident) => {
        impl<'a> Codec<'a> for $part<'a> {
            fn decode(fields: &mut Fields<'a>) -> Result<Self, Status> {
                let table_id = TableId(fields.u64()?);
                let key_length = fields.u16()?;
                let rules = RejectRules::decode(fields)?;
                let key = fields.key(key_length)?;
                Ok($part {
                    table_id,
                    rules,
                    key,
                })
            }

            fn encode(&self, out: &mut Vec<u8>) {
                put_u64(out, self.table_id.0);
                put_u16(out, key_length_u16(self.key));
                self.rules.encode(out);
                out.extend_from_slice(self.key);
            }
        }

        impl<'a> RequestPart<'a> for $part<'a> {
            const KIND: MultiKind = MultiKind::$kind;
            const FIXED_BYTES: usize = 22;

            fn place(&self) -> (TableId, &'a [u8]) {
                (self.table_id, self.key)
            }

            fn encoded_bytes(&self) -> usize {
                Self::FIXED_BYTES + self.key.len()
            }
        }
    };
}

key_part!(MultiReadPart, Read);
key_part!(MultiRemovePart, Remove);

/// One object of a [`MultiIncrementRequest`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MultiIncrementPart<'a> {
    pub table_id: TableId,
    pub by: Increment,
    pub rules: RejectRules,
    pub key: &'a [u8],
}

impl<'a> Codec<'a> for MultiIncrementPart<'a> {
    fn decode(fields: &mut Fields<'a>) -> Result<Self, Status> {
        let table_id = TableId(fields.u64()?);
        let key_length = fields.u16()?;
        let by = Increment::decode(fields)?;
        let rules = RejectRules::decode(fields)?;
        let key = fields.key(key_length)?;
        Ok(MultiIncrementPart {
            table_id,
            by,
            rules,
            key,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.table_id.0);
        put_u16(out, key_length_u16(self.key));
        self.by.encode(out);
        self.rules.encode(out);
        out.extend_from_slice(self.key);
    }
}

impl<'a> RequestPart<'a> for MultiIncrementPart<'a> {
    const KIND: MultiKind = MultiKind::Increment;
    const FIXED_BYTES: usize = 38;

    fn place(&self) -> (TableId, &'a [u8]) {
        (self.table_id, self.key)
    }

    fn encoded_bytes(&self) -> usize {
        Self::FIXED_BYTES + self.key.len()
    }
}

/// Answers MULTI_OP: one part per part of the request, in its order.
///
/// Fewer parts than were asked for make the client send the missing ones again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiResponse<'a, P> {
    pub status: Status,
    count: u32,
    parts: &'a [u8],
    kind: PhantomData<P>,
}

pub type MultiReadResponse<'a> = MultiResponse<'a, MultiReadPartResponse<'a>>;
pub type MultiWriteResponse<'a> = MultiResponse<'a, WriteResponse>;
pub type MultiRemoveResponse<'a> = MultiResponse<'a, RemoveResponse>;
pub type MultiIncrementResponse<'a> = MultiResponse<'a, IncrementResponse>;

impl<'a, P: ResponsePart<'a>> MultiResponse<'a, P> {
    pub const FIXED_BYTES: usize = MULTI_RESPONSE_FIXED_BYTES;

    /// Reads a response. A part that is cut off is left out, as is one that makes no sense, and all behind it.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let (claimed, parts) = match fields {
            Some(mut fields) => (in_response(fields.u32())?, fields.rest()),
            None => (0, &[][..]),
        };
        let mut fields = Fields::of(parts);
        let mut count = 0;
        let mut whole = 0;
        while count < claimed && P::decode(&mut fields).is_ok() {
            count += 1;
            whole = parts.len() - fields.rest().len();
        }
        Ok(MultiResponse {
            status,
            count,
            parts: &parts[..whole],
            kind: PhantomData,
        })
    }

    /// How many parts there are.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    pub fn parts(&self) -> impl Iterator<Item = P> + use<'a, P> {
        let mut fields = Fields::of(self.parts);
        (0..self.count).map(move |_| P::decode(&mut fields).expect("checked by `decode`"))
    }

    /// Writes the response for these parts.
    pub fn encode_parts(status: Status, parts: &[P], out: &mut Vec<u8>) {
        let count = u32::try_from(parts.len()).expect("more parts than any RPC holds");
        out.extend_from_slice(&multi_response_fixed_bytes(status, count));
        for part in parts {
            part.encode(out);
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&multi_response_fixed_bytes(self.status, self.count));
        out.extend_from_slice(self.parts);
    }
}

/// What stands before the parts of any MULTI_OP response.
pub fn multi_response_fixed_bytes(status: Status, count: u32) -> [u8; MULTI_RESPONSE_FIXED_BYTES] {
    let mut bytes = [0; MULTI_RESPONSE_FIXED_BYTES];
    bytes[..4].copy_from_slice(&status_bytes(status));
    bytes[4..].copy_from_slice(&count.to_le_bytes());
    bytes
}

impl<'a> Codec<'a> for WriteResponse {
    fn decode(fields: &mut Fields<'a>) -> Result<Self, Status> {
        Ok(WriteResponse {
            status: fields.status()?,
            version: fields.u64()?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }
}

impl ResponsePart<'_> for WriteResponse {
    fn status(&self) -> Status {
        self.status
    }
}

impl<'a> Codec<'a> for IncrementResponse {
    fn decode(fields: &mut Fields<'a>) -> Result<Self, Status> {
        Ok(IncrementResponse {
            status: fields.status()?,
            version: fields.u64()?,
            new_value: fields.array()?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }
}

impl ResponsePart<'_> for IncrementResponse {
    fn status(&self) -> Status {
        self.status
    }
}

/// What became of one read: keys and value if the status is OK, else nothing but the version where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiReadPartResponse<'a> {
    pub status: Status,
    pub version: u64,
    /// Of a read that succeeded.
    pub object: Option<KeysAndValue<'a>>,
}

impl MultiReadPartResponse<'_> {
    pub const FIXED_BYTES: usize = ReadResponse::FIXED_BYTES;
}

impl<'a> Codec<'a> for MultiReadPartResponse<'a> {
    fn decode(fields: &mut Fields<'a>) -> Result<Self, Status> {
        let status = fields.status()?;
        let version = fields.u64()?;
        let length = fields.u32()?;
        let object = match status {
            Status::Ok => Some(KeysAndValue::parse(fields.bytes(length as usize)?)?),
            _ => None,
        };
        Ok(MultiReadPartResponse {
            status,
            version,
            object,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let length = self.object.map_or(0, |object| object.length_u32());
        out.extend_from_slice(&ReadResponse::fixed_bytes(
            self.status,
            self.version,
            length,
        ));
        if let Some(object) = self.object {
            object.encode(out);
        }
    }
}

impl<'a> ResponsePart<'a> for MultiReadPartResponse<'a> {
    fn status(&self) -> Status {
        self.status
    }
}
