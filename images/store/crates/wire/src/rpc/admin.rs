//! PING and the control operations.

use super::*;
use base::ids::ServerId;

/// PING: the keep-alive of both clients and servers, answered at once whatever else is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingRequest {
    /// [`ServerId::INVALID`] when a client asks.
    pub caller: ServerId,
}

pub type PingResponse = StatusResponse;

impl PingRequest {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &[u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        Ok(PingRequest {
            caller: ServerId(fields.u64()?),
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::Ping, Service::Admin);
        put_u64(out, self.caller.0);
    }
}

/// Numbers of control operations.
pub mod control_op {
    /// Output: a text.
    pub const GET_TIME_TRACE: u32 = 1003;
    pub const LOG_TIME_TRACE: u32 = 1004;
    pub const GET_CACHE_TRACE: u32 = 1005;
    pub const LOG_CACHE_TRACE: u32 = 1006;
    /// Output: [`super::PerfStats`].
    pub const GET_PERF_STATS: u32 = 1007;
    pub const START_PERF_COUNTERS: u32 = 1008;
    pub const STOP_PERF_COUNTERS: u32 = 1009;
    /// Input: the level (u32: 1 error, 2 warning, 3 notice, 4 debug), then text without NUL.
    pub const LOG_MESSAGE: u32 = 1010;
    pub const RESET_METRICS: u32 = 1011;
    /// Backups write everything out.
    pub const QUIESCE: u32 = 1012;
}

/// SERVER_CONTROL_ALL: one control operation for every server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerControlAllRequest<'a> {
    /// See [`control_op`].
    pub control_op: u32,
    pub input: &'a [u8],
}

impl<'a> ServerControlAllRequest<'a> {
    pub const FIXED_BYTES: usize = 12;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let mut fields = Fields::of_request(payload, Self::FIXED_BYTES)?;
        let control_op = fields.u32()?;
        let input_length = fields.u32()?;
        let input = fields.bytes(input_length as usize)?;
        Ok(ServerControlAllRequest { control_op, input })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_header(out, Opcode::ServerControlAll, Service::Coordinator);
        put_u32(out, self.control_op);
        put_u32(out, length_u32(self.input));
        out.extend_from_slice(self.input);
    }
}

/// Answers SERVER_CONTROL_ALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerControlAllResponse<'a> {
    pub status: Status,
    /// Servers that were asked.
    pub server_count: u32,
    /// Responses that are here; fewer when some did not fit or did not come.
    pub response_count: u32,
    /// That many [`ServerControlResponse`]s, back to back.
    pub responses: &'a [u8],
}

impl<'a> ServerControlAllResponse<'a> {
    pub const FIXED_BYTES: usize = 16;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let Some(mut fields) = fields else {
            return Ok(ServerControlAllResponse {
                status,
                server_count: 0,
                response_count: 0,
                responses: &[],
            });
        };
        let server_count = in_response(fields.u32())?;
        let response_count = in_response(fields.u32())?;
        let length = in_response(fields.u32())?;
        let responses = in_response(fields.bytes(length as usize))?;
        Ok(ServerControlAllResponse {
            status,
            server_count,
            response_count,
            responses,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_status(out, self.status);
        put_u32(out, self.server_count);
        put_u32(out, self.response_count);
        put_u32(out, length_u32(self.responses));
        out.extend_from_slice(self.responses);
    }
}

/// One server's answer to a control operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerControlResponse<'a> {
    pub status: Status,
    pub server_id: ServerId,
    pub output: &'a [u8],
}

impl<'a> ServerControlResponse<'a> {
    pub const FIXED_BYTES: usize = 16;

    pub fn decode(payload: &'a [u8]) -> Result<Self, Status> {
        let (status, fields) = response_fields(payload, Self::FIXED_BYTES)?;
        let Some(mut fields) = fields else {
            return Ok(ServerControlResponse {
                status,
                server_id: ServerId(0),
                output: &[],
            });
        };
        let server_id = ServerId(in_response(fields.u64())?);
        let length = in_response(fields.u32())?;
        let output = in_response(fields.bytes(length as usize))?;
        Ok(ServerControlResponse {
            status,
            server_id,
            output,
        })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_status(out, self.status);
        put_u64(out, self.server_id.0);
        put_u32(out, length_u32(self.output));
        out.extend_from_slice(self.output);
    }
}
