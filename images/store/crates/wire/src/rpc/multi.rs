//! MULTI_OP: many operations of one kind in one request. This version knows writes only.

use super::*;
use crate::ids::TableId;
use crate::keys::KeysAndValue;

/// The kind of operations in a MULTI_OP, as on the wire.
const TYPE_WRITE: u32 = 3;

/// MULTI_OP of type WRITE. Not atomic: every part has its own outcome, and a part that is sent again may take effect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiWriteRequest<'a> {
    count: u32,
    parts: &'a [u8],
}

/// One object of a [`MultiWriteRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiWritePart<'a> {
    pub table_id: TableId,
    pub rules: RejectRules,
    pub object: KeysAndValue<'a>,
}

impl<'a> MultiWriteRequest<'a> {
    pub const FIXED_BYTES: usize = 12;

    /// Checks every part, so that a malformed request has no effect at all. A type other than WRITE is
    /// [`Status::UnimplementedRequest`].
    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let count = fields.u32()?;
        if fields.u32()? != TYPE_WRITE {
            return Err(Status::UnimplementedRequest);
        }
        let parts = fields.rest();
        for _ in 0..count {
            MultiWritePart::decode(&mut fields)?;
        }
        let length = parts.len() - fields.rest().len();
        Ok(MultiWriteRequest {
            count,
            parts: &parts[..length],
        })
    }

    /// How many parts there are; each takes at least 24 bytes, so the message bounds it.
    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn parts(&self) -> impl Iterator<Item = MultiWritePart<'a>> + use<'a> {
        let mut fields = Fields::of(self.parts);
        (0..self.count)
            .map(move |_| MultiWritePart::decode(&mut fields).expect("checked by `decode`"))
    }

    /// Writes the request for these parts.
    pub fn encode_parts(parts: &[MultiWritePart<'_>], out: &mut Vec<u8>) {
        put_header(out, Opcode::MultiOp, Service::Master);
        put_u32(
            out,
            u32::try_from(parts.len()).expect("more parts than any RPC holds"),
        );
        put_u32(out, TYPE_WRITE);
        for part in parts {
            part.encode(out);
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::MultiOp, Service::Master);
        put_u32(out, self.count);
        put_u32(out, TYPE_WRITE);
        out.extend_from_slice(self.parts);
    }
}

impl<'a> MultiWritePart<'a> {
    /// Bytes before the object.
    pub const FIXED_BYTES: usize = 24;

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

/// Answers MULTI_OP of type WRITE: one [`WriteResponse`] (12 bytes) per part, in order of the request.
///
/// Fewer parts than were asked for make the client send the missing ones again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiWriteResponse<'a> {
    pub status: Status,
    parts: &'a [[u8; WriteResponse::FIXED_BYTES]],
}

impl<'a> MultiWriteResponse<'a> {
    pub const FIXED_BYTES: usize = 8;

    /// Reads a response. A part that is cut off is left out, as is a part whose status nobody knows and all behind it.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let Some(mut fields) = fields else {
            return Ok(MultiWriteResponse { status, parts: &[] });
        };
        let count = in_response(fields.u32())? as usize;
        let (whole, _) = fields.rest().as_chunks();
        let known = whole
            .iter()
            .take(count)
            .take_while(|part| super::status(*part).is_ok())
            .count();
        Ok(MultiWriteResponse {
            status,
            parts: &whole[..known],
        })
    }

    pub fn parts(&self) -> impl ExactSizeIterator<Item = WriteResponse> + use<'a> {
        self.parts.iter().map(|part| {
            let (status, version) = part.split_at(4);
            WriteResponse {
                status: super::status(status).expect("checked by `decode`"),
                version: u64::from_le_bytes(*version.first_chunk().expect("8 of 12 bytes")),
            }
        })
    }

    /// The part before the parts.
    pub fn fixed_bytes(status: Status, count: u32) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&status_bytes(status));
        bytes[4..].copy_from_slice(&count.to_le_bytes());
        bytes
    }

    /// Writes the response for these parts.
    pub fn encode_parts(status: Status, parts: &[WriteResponse], out: &mut Vec<u8>) {
        let count = u32::try_from(parts.len()).expect("more parts than any RPC holds");
        out.extend_from_slice(&Self::fixed_bytes(status, count));
        for part in parts {
            part.encode(out);
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let count = self.parts.len() as u32;
        out.extend_from_slice(&Self::fixed_bytes(self.status, count));
        out.extend_from_slice(self.parts.as_flattened());
    }
}
