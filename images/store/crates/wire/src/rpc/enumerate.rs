//! ENUMERATE: all objects of a table, a piece at a time.

use super::*;
use crate::keys::KeysAndValue;
use base::ids::TableId;

/// ENUMERATE: the next objects of the tablet that holds `tablet_first_hash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumerateRequest<'a> {
    pub table_id: TableId,
    /// Leaves the values out.
    pub keys_only: bool,
    /// 0 to begin with, then what the answer before says.
    pub tablet_first_hash: u64,
    /// Empty to begin with, then what the answer before says; clients do not look into it.
    pub iterator: &'a [u8],
}

impl<'a> EnumerateRequest<'a> {
    pub const FIXED_BYTES: usize = 25;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let table_id = TableId(fields.u64()?);
        let keys_only = fields.bool()?;
        let tablet_first_hash = fields.u64()?;
        let length = fields.u32()?;
        let iterator = fields.bytes(length as usize)?;
        Ok(EnumerateRequest {
            table_id,
            keys_only,
            tablet_first_hash,
            iterator,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::Enumerate, Service::Master);
        put_u64(out, self.table_id.0);
        out.push(u8::from(self.keys_only));
        put_u64(out, self.tablet_first_hash);
        put_u32(out, length_u32(self.iterator));
        out.extend_from_slice(self.iterator);
    }
}

/// Answers ENUMERATE. The table is done when there are no objects and `tablet_first_hash` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumerateResponse<'a> {
    pub status: Status,
    /// Where to go on.
    pub tablet_first_hash: u64,
    /// Objects, as [`EnumeratedObject::decode_all`] reads them.
    pub objects: &'a [u8],
    /// What to go on with.
    pub iterator: &'a [u8],
}

impl<'a> EnumerateResponse<'a> {
    pub const FIXED_BYTES: usize = 20;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let Some(mut fields) = fields else {
            return Ok(EnumerateResponse {
                status,
                tablet_first_hash: 0,
                objects: &[],
                iterator: &[],
            });
        };
        let tablet_first_hash = in_response(fields.u64())?;
        let object_bytes = in_response(fields.u32())?;
        let iterator_bytes = in_response(fields.u32())?;
        Ok(EnumerateResponse {
            status,
            tablet_first_hash,
            objects: in_response(fields.bytes(object_bytes as usize))?,
            iterator: in_response(fields.bytes(iterator_bytes as usize))?,
        })
    }

    /// The part before the objects.
    pub fn fixed_bytes(tablet_first_hash: u64, object_bytes: u32, iterator_bytes: u32) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[4..12].copy_from_slice(&tablet_first_hash.to_le_bytes());
        bytes[12..16].copy_from_slice(&object_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&iterator_bytes.to_le_bytes());
        bytes
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let (objects, iterator) = (length_u32(self.objects), length_u32(self.iterator));
        let start = out.len();
        out.extend_from_slice(&Self::fixed_bytes(
            self.tablet_first_hash,
            objects,
            iterator,
        ));
        out[start..start + 4].copy_from_slice(&status_bytes(self.status));
        out.extend_from_slice(self.objects);
        out.extend_from_slice(self.iterator);
    }
}

/// An object as ENUMERATE shows it: a header of 24 bytes, then keys and value. The value is missing if only keys were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumeratedObject<'a> {
    /// When it was written, in seconds from 41 years of 365 days after the start of 1970; 0 where that is not kept.
    pub timestamp_s: u32,
    pub version: u64,
    pub table_id: TableId,
    pub object: KeysAndValue<'a>,
}

impl<'a> EnumeratedObject<'a> {
    /// Bytes of the length and the header before keys and value.
    pub const FIXED_BYTES: usize = 4 + Self::HEADER_BYTES;
    const HEADER_BYTES: usize = 24;

    /// Writes length, header and `content`: keys and value as they lie in the log, or the keys alone.
    pub fn encode(
        timestamp_s: u32,
        version: u64,
        table_id: TableId,
        content: &[u8],
        out: &mut Vec<u8>,
    ) {
        put_u32(out, (Self::HEADER_BYTES + content.len()) as u32);
        let start = out.len();
        put_u32(out, 0);
        put_u32(out, timestamp_s);
        put_u64(out, version);
        put_u64(out, table_id.0);
        out.extend_from_slice(content);
        let checksum = crc32c::crc32c(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The objects of an answer, one after the other; an error ends them.
    pub fn decode_all(objects: &'a [u8]) -> impl Iterator<Item = Result<Self, Status>> + use<'a> {
        let mut fields = Fields::of(objects);
        core::iter::from_fn(move || {
            if fields.rest().is_empty() {
                return None;
            }
            let object = in_response(Self::decode(&mut fields));
            if object.is_err() {
                fields = Fields::of(&[]);
            }
            Some(object)
        })
    }

    fn decode(fields: &mut Fields<'a>) -> Result<Self, Status> {
        let length = fields.u32()?;
        let mut fields = Fields::of(fields.bytes(length as usize)?);
        let checksum = fields.u32()?;
        if crc32c::crc32c(fields.rest()) != checksum {
            return Err(Status::ResponseFormatError);
        }
        Ok(EnumeratedObject {
            timestamp_s: fields.u32()?,
            version: fields.u64()?,
            table_id: TableId(fields.u64()?),
            object: KeysAndValue::parse(fields.rest())?,
        })
    }
}
