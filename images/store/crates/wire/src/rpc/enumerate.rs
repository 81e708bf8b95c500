//! ENUMERATE: all objects of a table, tablet by tablet.

use super::*;
use crate::ids::TableId;
use crate::keys::KeysAndValue;

/// ENUMERATE: the next objects of a table. Sent to the owner of the tablet that holds `tablet_first_hash`; the first request
/// has 0 and no state, the others have what was answered last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumerateRequest<'a> {
    pub table_id: TableId,
    /// Objects come without their values.
    pub keys_only: bool,
    pub tablet_first_hash: u64,
    /// Where to go on; nothing to look into for a client. See [`crate::proto::EnumerationIterator`].
    pub state: &'a [u8],
}

impl<'a> EnumerateRequest<'a> {
    pub const FIXED_BYTES: usize = 25;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let table_id = TableId(fields.u64()?);
        let keys_only = fields.bool()?;
        let tablet_first_hash = fields.u64()?;
        let length = fields.u32()?;
        let state = fields.bytes(length as usize)?;
        Ok(EnumerateRequest {
            table_id,
            keys_only,
            tablet_first_hash,
            state,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::Enumerate, Service::Master);
        put_u64(out, self.table_id.0);
        out.push(u8::from(self.keys_only));
        put_u64(out, self.tablet_first_hash);
        put_u32(out, length_u32(self.state));
        out.extend_from_slice(self.state);
    }
}

/// Answers ENUMERATE. No objects and hash 0: that was all. No objects and another hash: go on there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumerateResponse<'a> {
    pub status: Status,
    pub tablet_first_hash: u64,
    /// Read them with [`Self::objects`].
    pub payload: &'a [u8],
    pub state: &'a [u8],
}

impl<'a> EnumerateResponse<'a> {
    pub const FIXED_BYTES: usize = 20;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let Some(mut fields) = fields else {
            return Ok(EnumerateResponse {
                status,
                tablet_first_hash: 0,
                payload: &[],
                state: &[],
            });
        };
        let tablet_first_hash = in_response(fields.u64())?;
        let payload_bytes = in_response(fields.u32())?;
        let state_bytes = in_response(fields.u32())?;
        Ok(EnumerateResponse {
            status,
            tablet_first_hash,
            payload: in_response(fields.bytes(payload_bytes as usize))?,
            state: in_response(fields.bytes(state_bytes as usize))?,
        })
    }

    /// The objects; one that is malformed is the last thing that comes, as [`Status::ResponseFormatError`].
    pub fn objects(&self) -> impl Iterator<Item = Result<EnumeratedObject<'a>, Status>> + use<'a> {
        let mut fields = Fields::of(self.payload);
        core::iter::from_fn(move || {
            if fields.rest().is_empty() {
                return None;
            }
            let object = in_response(EnumeratedObject::decode(&mut fields));
            if object.is_err() {
                fields = Fields::of(&[]);
            }
            Some(object)
        })
    }

    /// The part before objects and state.
    pub fn fixed_bytes(
        status: Status,
        tablet_first_hash: u64,
        payload_bytes: u32,
        state_bytes: u32,
    ) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&status_bytes(status));
        bytes[4..12].copy_from_slice(&tablet_first_hash.to_le_bytes());
        bytes[12..16].copy_from_slice(&payload_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&state_bytes.to_le_bytes());
        bytes
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let (payload_bytes, state_bytes) = (length_u32(self.payload), length_u32(self.state));
        out.extend_from_slice(&Self::fixed_bytes(
            self.status,
            self.tablet_first_hash,
            payload_bytes,
            state_bytes,
        ));
        out.extend_from_slice(self.payload);
        out.extend_from_slice(self.state);
    }
}

/// One object in the answer to ENUMERATE: length (u32), checksum (CRC32C, u32), time of writing (u32), version, table, keys
/// and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumeratedObject<'a> {
    pub table_id: TableId,
    pub version: u64,
    /// Seconds since the end of 2010 (unix time - 1 292 976 000); 0 when it is not known.
    pub timestamp_s: u32,
    /// Without value when only keys were asked for.
    pub object: KeysAndValue<'a>,
}

impl<'a> EnumeratedObject<'a> {
    /// Length field and header.
    pub const FIXED_BYTES: usize = 4 + Self::HEADER_BYTES;
    const HEADER_BYTES: usize = 24;

    /// The checksum is not held against the content: it covers the value, which is not there when only keys were asked for,
    /// and TCP has its own.
    fn decode(fields: &mut Fields<'a>) -> Result<Self, Status> {
        let length = fields.u32()?;
        let mut fields = Fields::of(fields.bytes(length as usize)?);
        let _checksum = fields.u32()?;
        let timestamp_s = fields.u32()?;
        let version = fields.u64()?;
        let table_id = TableId(fields.u64()?);
        Ok(EnumeratedObject {
            table_id,
            version,
            timestamp_s,
            object: KeysAndValue::parse(fields.rest())?,
        })
    }

    /// What is before keys and value. `content` is all of keys and value, of which `sent_bytes` follow.
    pub fn fixed_bytes(
        timestamp_s: u32,
        table_id: TableId,
        version: u64,
        content: &[u8],
        sent_bytes: usize,
    ) -> [u8; 28] {
        let length = (Self::HEADER_BYTES + sent_bytes) as u32;
        let mut bytes = [0; 28];
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[8..12].copy_from_slice(&timestamp_s.to_le_bytes());
        bytes[12..20].copy_from_slice(&version.to_le_bytes());
        bytes[20..28].copy_from_slice(&table_id.0.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[8..]), content);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Writes the object with its value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len() + Self::FIXED_BYTES;
        out.resize(start, 0);
        self.object.encode(out);
        let content = &out[start..];
        let fixed = Self::fixed_bytes(
            self.timestamp_s,
            self.table_id,
            self.version,
            content,
            content.len(),
        );
        out[start - Self::FIXED_BYTES..start].copy_from_slice(&fixed);
    }
}
