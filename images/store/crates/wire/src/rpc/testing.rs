//! ECHO and FILL_WITH_TEST_DATA: what benchmarks and tests ask of a master.

use super::*;

/// ECHO: bytes there and bytes back; what they are does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoRequest<'a> {
    /// How many the answer is to have.
    pub echo_bytes: u32,
    pub bytes: &'a [u8],
}

impl<'a> EchoRequest<'a> {
    pub const FIXED_BYTES: usize = 12;

    /// [`Status::RequestFormatError`] if the answer would be longer than any message.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let length = fields.u32()?;
        let echo_bytes = fields.u32()?;
        let bytes = fields.bytes(length as usize)?;
        if EchoResponse::FIXED_BYTES + echo_bytes as usize > MAX_RPC_BYTES {
            return Err(Status::RequestFormatError);
        }
        Ok(EchoRequest { echo_bytes, bytes })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::Echo, Service::Master);
        put_u32(out, length_u32(self.bytes));
        put_u32(out, self.echo_bytes);
        out.extend_from_slice(self.bytes);
    }
}

/// Answers ECHO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoResponse<'a> {
    pub status: Status,
    pub bytes: &'a [u8],
}

impl<'a> EchoResponse<'a> {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let Some(mut fields) = fields else {
            return Ok(EchoResponse { status, bytes: &[] });
        };
        let length = in_response(fields.u32())?;
        in_response(fields.u32())?;
        let bytes = in_response(fields.bytes(length as usize))?;
        Ok(EchoResponse { status, bytes })
    }

    /// The part before the bytes.
    pub fn fixed_bytes(status: Status, length: u32) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&status_bytes(status));
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&Self::fixed_bytes(self.status, length_u32(self.bytes)));
        out.extend_from_slice(self.bytes);
    }
}

/// FILL_WITH_TEST_DATA: makes objects, in turn in all whole tables of the master. The key of an object is its number in its
/// table, in decimal digits; its value is bytes of 0xcc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillWithTestDataRequest {
    pub object_count: u32,
    pub object_bytes: u32,
}

impl FillWithTestDataRequest {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        Ok(FillWithTestDataRequest {
            object_count: fields.u32()?,
            object_bytes: fields.u32()?,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::FillWithTestData, Service::Master);
        put_u32(out, self.object_count);
        put_u32(out, self.object_bytes);
    }
}
