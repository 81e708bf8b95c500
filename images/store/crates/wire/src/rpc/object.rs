//! READ, READ_KEYS_AND_VALUE, WRITE, REMOVE, INCREMENT: the master's single-object RPCs.

use super::*;
use crate::keys::KeysAndValue;
use base::ids::TableId;

/// READ: the value of an object. READ_KEYS_AND_VALUE asks in the same words for its keys, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest<'a> {
    pub table_id: TableId,
    pub rules: RejectRules,
    pub key: &'a [u8],
}

impl<'a> ReadRequest<'a> {
    pub const FIXED_BYTES: usize = 26;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let table_id = TableId(fields.u64()?);
        let key_length = fields.u16()?;
        let rules = RejectRules::decode(&mut fields)?;
        let key = fields.key(key_length)?;
        Ok(ReadRequest {
            table_id,
            rules,
            key,
        })
    }

    /// # Panics
    /// If the key is longer than [`MAX_KEY_BYTES`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_as(Opcode::Read, out);
    }

    /// The same request as READ_KEYS_AND_VALUE.
    ///
    /// # Panics
    /// If the key is longer than [`MAX_KEY_BYTES`].
    pub fn encode_for_keys_and_value(&self, out: &mut Vec<u8>) {
        self.encode_as(Opcode::ReadKeysAndValue, out);
    }

    fn encode_as(&self, opcode: Opcode, out: &mut Vec<u8>) {
        put_header(out, opcode, Service::Master);
        put_u64(out, self.table_id.0);
        put_u16(out, key_length_u16(self.key));
        self.rules.encode(out);
        out.extend_from_slice(self.key);
    }
}

/// Answers READ. The version is there also when reject rules refused the read. Answering READ_KEYS_AND_VALUE, `value` is the
/// whole of the object, for [`KeysAndValue::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadResponse<'a> {
    pub status: Status,
    pub version: u64,
    pub value: &'a [u8],
}

impl<'a> ReadResponse<'a> {
    pub const FIXED_BYTES: usize = 16;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let Some(mut fields) = fields else {
            return Ok(ReadResponse {
                status,
                version: 0,
                value: &[],
            });
        };
        let version = in_response(fields.u64())?;
        let length = in_response(fields.u32())?;
        let value = in_response(fields.bytes(length as usize))?;
        Ok(ReadResponse {
            status,
            version,
            value,
        })
    }

    /// The part before the value, for a server that sends the value from where it lies.
    pub fn fixed_bytes(status: Status, version: u64, value_bytes: u32) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&status_bytes(status));
        bytes[4..12].copy_from_slice(&version.to_le_bytes());
        bytes[12..].copy_from_slice(&value_bytes.to_le_bytes());
        bytes
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let fixed = Self::fixed_bytes(self.status, self.version, length_u32(self.value));
        out.extend_from_slice(&fixed);
        out.extend_from_slice(self.value);
    }
}

/// WRITE: makes or overwrites an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRequest<'a> {
    pub table_id: TableId,
    pub lease: Lease,
    /// Counts up per client from 1; 0 is refused.
    pub rpc_id: u64,
    /// The client has the answers of all RPCs up to this one.
    pub ack_id: u64,
    pub rules: RejectRules,
    /// Carried, and ignored by servers.
    pub is_async: bool,
    pub object: KeysAndValue<'a>,
}

impl<'a> WriteRequest<'a> {
    pub const FIXED_BYTES: usize = 69;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let table_id = TableId(fields.u64()?);
        let lease = Lease::decode(&mut fields)?;
        let (rpc_id, ack_id) = (fields.u64()?, fields.u64()?);
        let length = fields.u32()?;
        let rules = RejectRules::decode(&mut fields)?;
        let is_async = fields.bool()?;
        let object = KeysAndValue::parse(fields.bytes(length as usize)?)?;
        Ok(WriteRequest {
            table_id,
            lease,
            rpc_id,
            ack_id,
            rules,
            is_async,
            object,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::Write, Service::Master);
        put_u64(out, self.table_id.0);
        self.lease.encode(out);
        put_u64(out, self.rpc_id);
        put_u64(out, self.ack_id);
        put_u32(out, self.object.length_u32());
        self.rules.encode(out);
        out.push(u8::from(self.is_async));
        self.object.encode(out);
    }
}

/// Answers WRITE: the version of the object as it is now, also when the write was refused (0: there is none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteResponse {
    pub status: Status,
    pub version: u64,
}

/// Answers REMOVE: the version that was removed, or that made the rules refuse it (0: there was none).
pub type RemoveResponse = WriteResponse;

impl WriteResponse {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let version = match fields {
            Some(mut fields) => in_response(fields.u64())?,
            None => 0,
        };
        Ok(WriteResponse { status, version })
    }

    pub fn to_bytes(self) -> [u8; Self::FIXED_BYTES] {
        let mut bytes = [0; Self::FIXED_BYTES];
        bytes[..4].copy_from_slice(&status_bytes(self.status));
        bytes[4..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }
}

/// REMOVE: an object that is not there counts as removed, with version 0, unless the rules say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoveRequest<'a> {
    pub table_id: TableId,
    pub lease: Lease,
    /// See [`WriteRequest::rpc_id`].
    pub rpc_id: u64,
    pub ack_id: u64,
    pub rules: RejectRules,
    pub key: &'a [u8],
}

impl<'a> RemoveRequest<'a> {
    pub const FIXED_BYTES: usize = 66;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let table_id = TableId(fields.u64()?);
        let lease = Lease::decode(&mut fields)?;
        let (rpc_id, ack_id) = (fields.u64()?, fields.u64()?);
        let key_length = fields.u16()?;
        let rules = RejectRules::decode(&mut fields)?;
        let key = fields.key(key_length)?;
        Ok(RemoveRequest {
            table_id,
            lease,
            rpc_id,
            ack_id,
            rules,
            key,
        })
    }

    /// # Panics
    /// If the key is longer than [`MAX_KEY_BYTES`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::Remove, Service::Master);
        put_u64(out, self.table_id.0);
        self.lease.encode(out);
        put_u64(out, self.rpc_id);
        put_u64(out, self.ack_id);
        put_u16(out, key_length_u16(self.key));
        self.rules.encode(out);
        out.extend_from_slice(self.key);
    }
}

/// By how much a value of 8 bytes is to change: as an integer, or as a floating point number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Increment {
    /// Added, wrapping around, to the value as a signed integer if it is not 0.
    pub int64: i64,
    /// Added to the value as a floating point number if it is not 0.
    pub double: f64,
}

impl Increment {
    /// The 8 bytes that come of it.
    pub fn apply(&self, old: [u8; 8]) -> [u8; 8] {
        let mut value = old;
        if self.int64 != 0 {
            value = i64::from_le_bytes(value)
                .wrapping_add(self.int64)
                .to_le_bytes();
        }
        if self.double != 0.0 {
            value = (f64::from_le_bytes(value) + self.double).to_le_bytes();
        }
        value
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Increment, Status> {
        Ok(Increment {
            int64: i64::from_le_bytes(fields.array()?),
            double: f64::from_le_bytes(fields.array()?),
        })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.int64.to_le_bytes());
        out.extend(self.double.to_le_bytes());
    }
}

/// INCREMENT: adds to a value of 8 bytes. An object that is not there counts as 8 zero bytes, unless the rules say otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IncrementRequest<'a> {
    pub table_id: TableId,
    pub lease: Lease,
    /// See [`WriteRequest::rpc_id`].
    pub rpc_id: u64,
    pub ack_id: u64,
    pub by: Increment,
    pub rules: RejectRules,
    pub key: &'a [u8],
}

impl<'a> IncrementRequest<'a> {
    pub const FIXED_BYTES: usize = 82;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let table_id = TableId(fields.u64()?);
        let lease = Lease::decode(&mut fields)?;
        let (rpc_id, ack_id) = (fields.u64()?, fields.u64()?);
        let key_length = fields.u16()?;
        let by = Increment::decode(&mut fields)?;
        let rules = RejectRules::decode(&mut fields)?;
        let key = fields.key(key_length)?;
        Ok(IncrementRequest {
            table_id,
            lease,
            rpc_id,
            ack_id,
            by,
            rules,
            key,
        })
    }

    /// # Panics
    /// If the key is longer than [`MAX_KEY_BYTES`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::Increment, Service::Master);
        put_u64(out, self.table_id.0);
        self.lease.encode(out);
        put_u64(out, self.rpc_id);
        put_u64(out, self.ack_id);
        put_u16(out, key_length_u16(self.key));
        self.by.encode(out);
        self.rules.encode(out);
        out.extend_from_slice(self.key);
    }
}

/// Answers INCREMENT: version and value as they are now; of one that was refused, the version only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncrementResponse {
    pub status: Status,
    pub version: u64,
    /// The 8 bytes that were stored.
    pub new_value: [u8; 8],
}

impl IncrementResponse {
    pub const FIXED_BYTES: usize = 20;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let (version, new_value) = match fields {
            Some(mut fields) => (in_response(fields.u64())?, in_response(fields.array())?),
            None => (0, [0; 8]),
        };
        Ok(IncrementResponse {
            status,
            version,
            new_value,
        })
    }

    pub fn to_bytes(self) -> [u8; Self::FIXED_BYTES] {
        let mut bytes = [0; Self::FIXED_BYTES];
        bytes[..4].copy_from_slice(&status_bytes(self.status));
        bytes[4..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..].copy_from_slice(&self.new_value);
        bytes
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }
}
