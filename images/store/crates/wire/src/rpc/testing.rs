//! ECHO and FILL_WITH_TEST_DATA: for measurements and tests.

use super::*;

/// ECHO: asks for an answer of a given length, whose content does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoRequest<'a> {
    /// At most [`EchoResponse::MAX_BYTES`].
    pub answer_bytes: u32,
    pub data: &'a [u8],
}

impl<'a> EchoRequest<'a> {
    pub const FIXED_BYTES: usize = 12;

    /// An answer that no RPC could carry is [`Status::RequestFormatError`].
    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let length = fields.u32()?;
        let answer_bytes = fields.u32()?;
        let data = fields.bytes(length as usize)?;
        if answer_bytes > EchoResponse::MAX_BYTES {
            return Err(Status::RequestFormatError);
        }
        Ok(EchoRequest { answer_bytes, data })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::Echo, Service::Master);
        put_u32(out, length_u32(self.data));
        put_u32(out, self.answer_bytes);
        out.extend_from_slice(self.data);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoResponse<'a> {
    pub status: Status,
    pub data: &'a [u8],
}

impl<'a> EchoResponse<'a> {
    pub const FIXED_BYTES: usize = 12;
    /// The longest that an answer can be.
    pub const MAX_BYTES: u32 = (MAX_RPC_BYTES - Self::FIXED_BYTES) as u32;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let Some(mut fields) = fields else {
            return Ok(EchoResponse { status, data: &[] });
        };
        let length = in_response(fields.u32())?;
        let _padding = in_response(fields.u32())?;
        let data = in_response(fields.bytes(length as usize))?;
        Ok(EchoResponse { status, data })
    }

    /// The part before the data.
    pub fn fixed_bytes(status: Status, data_bytes: u32) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&status_bytes(status));
        bytes[4..8].copy_from_slice(&data_bytes.to_le_bytes());
        bytes
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&Self::fixed_bytes(self.status, length_u32(self.data)));
        out.extend_from_slice(self.data);
    }
}

/// FILL_WITH_TEST_DATA: has a master make objects in its whole-table tablets, in turn, with decimal numbers as keys.
/// Answered with a [`StatusResponse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillWithTestDataRequest {
    pub objects: u32,
    /// Length of each value; all of its bytes are [`Self::VALUE_BYTE`].
    pub object_bytes: u32,
}

impl FillWithTestDataRequest {
    pub const FIXED_BYTES: usize = 12;
    pub const VALUE_BYTE: u8 = 0xcc;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        Ok(FillWithTestDataRequest {
            objects: fields.u32()?,
            object_bytes: fields.u32()?,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::FillWithTestData, Service::Master);
        put_u32(out, self.objects);
        put_u32(out, self.object_bytes);
    }
}
