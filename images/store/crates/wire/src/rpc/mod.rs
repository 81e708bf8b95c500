//! Requests and responses of the client protocol, as they lie behind the 12-byte transport header.
//!
//! Every RPC has a request and a response struct; both can be encoded and decoded, so that clients, servers and tests share
//! one text. `FIXED_BYTES` is the length of the part that is always there. All integers are little-endian, nothing is padded.
//!
//! A request that ends before its fixed part or before what its lengths promise is [`Status::MessageTooShort`]; a request
//! whose fields contradict each other is [`Status::RequestFormatError`]. Bytes after what the lengths promise are ignored.
//! Responses: a status other than OK may come with as little as four bytes, absent fields then read as zero; anything else
//! that is malformed is [`Status::ResponseFormatError`].

mod admin;
mod cluster;
mod enumerate;
mod fields;
mod multi;
mod object;
mod perf_stats;
mod table;
mod testing;

pub use admin::*;
pub use cluster::*;
pub use enumerate::*;
pub use multi::*;
pub use object::*;
pub use perf_stats::*;
pub use table::*;
pub use testing::*;

use fields::Fields;

use crate::opcode::{FIRST_ILLEGAL, Opcode, Service};
use crate::status::Status;

/// Largest request or response, transport header not counted.
pub const MAX_RPC_BYTES: usize = 8_388_808;
/// Largest value that an object may have; RAMCloud's clients know the same limit.
pub const MAX_VALUE_BYTES: usize = 1 << 20;
pub use crate::keys::MAX_KEY_BYTES;

/// What every request starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub opcode: u16,
    pub service: u16,
}

/// Reads a request's header and does the checks that come before the service is asked: length, legal opcode, legal service.
/// Whether this process runs the service, and the service knows the opcode, is the caller's to check, in this order.
pub fn header(payload: &[u8]) -> Result<Header, Status> {
    let Some((fixed, _)) = payload.split_first_chunk::<4>() else {
        return Err(Status::MessageTooShort);
    };
    let opcode = u16::from_le_bytes([fixed[0], fixed[1]]);
    let service = u16::from_le_bytes([fixed[2], fixed[3]]);
    if opcode >= FIRST_ILLEGAL {
        return Err(Status::UnimplementedRequest);
    }
    if Service::from_u16(service).is_none() {
        return Err(Status::ServiceNotAvailable);
    }
    Ok(Header { opcode, service })
}

/// Reads a response's status; [`Status::ResponseFormatError`] if there is none.
pub fn status(payload: &[u8]) -> Result<Status, Status> {
    let fixed = payload
        .first_chunk::<4>()
        .ok_or(Status::ResponseFormatError)?;
    Status::try_from(u32::from_le_bytes(*fixed)).map_err(|_| Status::ResponseFormatError)
}

/// The whole of a response that says no more than its status: four bytes when the request did not reach its handler.
pub fn status_bytes(status: Status) -> [u8; 4] {
    u32::from(status).to_le_bytes()
}

/// A response whose fixed part is zero but for the status: what a handler answers that found no more to say.
///
/// `request_fixed_bytes` and `response_fixed_bytes` are those of the RPC: a request that ends within its fixed part never
/// reaches the handler and gets four bytes only.
pub fn error_response(
    status: Status,
    payload: &[u8],
    request_fixed_bytes: usize,
    response_fixed_bytes: usize,
) -> ErrorResponse {
    let bytes = if payload.len() < request_fixed_bytes {
        4
    } else {
        response_fixed_bytes
    };
    ErrorResponse::new(status, bytes)
}

/// See [`error_response`]; at most [`ErrorResponse::MAX_BYTES`] long.
#[derive(Clone, Copy, Debug)]
pub struct ErrorResponse {
    bytes: [u8; Self::MAX_BYTES],
    length: usize,
}

impl ErrorResponse {
    /// The longest fixed part of a response in this protocol version (RENEW_LEASE).
    pub const MAX_BYTES: usize = 28;

    /// # Panics
    /// If `length` is below 4 or above [`Self::MAX_BYTES`]: it is a constant of the caller.
    pub fn new(status: Status, length: usize) -> ErrorResponse {
        assert!((4..=Self::MAX_BYTES).contains(&length));
        let mut bytes = [0; Self::MAX_BYTES];
        bytes[..4].copy_from_slice(&status_bytes(status));
        ErrorResponse { bytes, length }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Tells the client to send the identical request again after a random delay between the two, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryResponse<'a> {
    pub min_delay_us: u32,
    pub max_delay_us: u32,
    /// For the client's log; without the NUL that ends it on the wire. Empty: none.
    pub message: &'a [u8],
}

impl<'a> RetryResponse<'a> {
    pub const FIXED_BYTES: usize = 16;

    pub fn new(min_delay_us: u32, max_delay_us: u32) -> RetryResponse<'static> {
        RetryResponse {
            min_delay_us,
            max_delay_us,
            message: &[],
        }
    }

    /// The fixed part of a response without message.
    pub fn to_bytes(min_delay_us: u32, max_delay_us: u32) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&status_bytes(Status::Retry));
        bytes[4..8].copy_from_slice(&min_delay_us.to_le_bytes());
        bytes[8..12].copy_from_slice(&max_delay_us.to_le_bytes());
        bytes
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&Self::to_bytes(self.min_delay_us, self.max_delay_us));
        if !self.message.is_empty() {
            let length = self.message.len() as u32 + 1;
            out[start + 12..start + 16].copy_from_slice(&length.to_le_bytes());
            out.extend_from_slice(self.message);
            out.push(0);
        }
    }

    /// Reads a response whose status is RETRY; a short one means 100 to 200 microseconds.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        if status(payload)? != Status::Retry {
            return Err(Status::ResponseFormatError);
        }
        if payload.len() < Self::FIXED_BYTES {
            return Ok(RetryResponse::new(100, 200));
        }
        let mut fields = Fields::of(&payload[4..]);
        let (min_delay_us, max_delay_us) = (fields.u32()?, fields.u32()?);
        let length = fields.u32()? as usize;
        let message = fields.bytes(length.min(fields.rest().len()))?;
        Ok(RetryResponse {
            min_delay_us,
            max_delay_us: max_delay_us.max(min_delay_us),
            message: message.strip_suffix(&[0]).unwrap_or(message),
        })
    }
}

/// A client's lease, as it travels in requests that take effect once (24 bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    pub id: u64,
    /// Cluster time, ns.
    pub expiration_ns: u64,
    /// Cluster time at which the coordinator wrote this, ns.
    pub timestamp_ns: u64,
}

impl Lease {
    fn decode(fields: &mut Fields<'_>) -> Result<Lease, Status> {
        Ok(Lease {
            id: fields.u64()?,
            expiration_ns: fields.u64()?,
            timestamp_ns: fields.u64()?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.id);
        put_u64(out, self.expiration_ns);
        put_u64(out, self.timestamp_ns);
    }
}

/// Conditions under which a request is refused (12 bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectRules {
    pub given_version: u64,
    pub doesnt_exist: bool,
    pub exists: bool,
    pub version_le_given: bool,
    pub version_ne_given: bool,
}

impl RejectRules {
    /// Holds the rules against the version an object has now; 0 = there is none.
    pub fn check(&self, version: u64) -> Result<(), Status> {
        if version == 0 {
            return if self.doesnt_exist {
                Err(Status::ObjectDoesntExist)
            } else {
                Ok(())
            };
        }
        if self.exists {
            return Err(Status::ObjectExists);
        }
        let refused = self.version_le_given && version <= self.given_version
            || self.version_ne_given && version != self.given_version;
        if refused {
            Err(Status::WrongVersion)
        } else {
            Ok(())
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Result<RejectRules, Status> {
        Ok(RejectRules {
            given_version: fields.u64()?,
            doesnt_exist: fields.bool()?,
            exists: fields.bool()?,
            version_le_given: fields.bool()?,
            version_ne_given: fields.bool()?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.given_version);
        out.extend([
            u8::from(self.doesnt_exist),
            u8::from(self.exists),
            u8::from(self.version_le_given),
            u8::from(self.version_ne_given),
        ]);
    }
}

/// A response's fields behind the status. A response that carries an error may be short: it is read as if zeros followed.
fn response_fields<'a>(
    payload: &'a [u8],
    fixed_bytes: usize,
) -> Result<(Status, Option<Fields<'a>>), Status> {
    let status = status(payload)?;
    if payload.len() >= fixed_bytes && status != Status::Retry {
        return Ok((status, Some(Fields::of(&payload[4..]))));
    }
    match status {
        Status::Ok => Err(Status::ResponseFormatError),
        _ => Ok((status, None)),
    }
}

/// In a response, whatever is missing or does not fit is the server's mistake.
fn in_response<T>(result: Result<T, Status>) -> Result<T, Status> {
    result.map_err(|_| Status::ResponseFormatError)
}

fn put_header(out: &mut Vec<u8>, opcode: Opcode, service: Service) {
    out.extend((opcode as u16).to_le_bytes());
    out.extend((service as u16).to_le_bytes());
}

fn put_status(out: &mut Vec<u8>, status: Status) {
    out.extend(status_bytes(status));
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend(value.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend(value.to_le_bytes());
}

/// A length for the wire. Every caller's bytes are bounded by [`MAX_RPC_BYTES`].
fn length_u32(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("longer than any RPC")
}

/// Length (u16) of a key. `KeysAndValue` and the clients' checks hold keys to it.
fn key_length_u16(key: &[u8]) -> u16 {
    u16::try_from(key.len()).expect("key longer than 65535 bytes")
}

#[cfg(test)]
mod tests;
