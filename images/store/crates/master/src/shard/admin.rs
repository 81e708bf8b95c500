//! The ADMIN service of a shard, and control operations.

use base::ids::ReplyTo;
use base::level::Level;
use base::time::Time;
use prost::Message;
use wire::hash::key_hash;
use wire::opcode::Opcode;
use wire::rpc::{
    self, ControlTarget, GetServerIdResponse, MessageResponse, PingRequest, ProxyPingRequest,
    ProxyPingResponse, ServerControlRequest, ServerControlResponse, control_op,
};
use wire::status::Status;

use crate::data::Access;
use crate::data::tablets::Use;
use crate::effects::ShardEffects;
use crate::reports::ClientEvent;
use crate::shard::Shard;

/// Longest text that a control operation can put into the log.
const MAX_LOG_TEXT_BYTES: usize = 4096;
const NO_TRACE: &str = "no time trace is recorded here";
/// Events that go to the log where nobody says how many: writing them takes a shard's thread a millisecond.
const LOGGED_EVENTS: &[u8] = b"last=200";

/// The parts of request and response that are always there.
fn fixed_bytes(opcode: Opcode) -> Option<(usize, usize)> {
    Some(match opcode {
        Opcode::Ping => (PingRequest::FIXED_BYTES, rpc::StatusResponse::FIXED_BYTES),
        Opcode::Kill => (rpc::BARE_REQUEST_BYTES, rpc::StatusResponse::FIXED_BYTES),
        Opcode::ProxyPing => (
            ProxyPingRequest::FIXED_BYTES,
            ProxyPingResponse::FIXED_BYTES,
        ),
        Opcode::GetMetrics | Opcode::GetServerConfig => {
            (rpc::BARE_REQUEST_BYTES, MessageResponse::FIXED_BYTES)
        }
        Opcode::GetServerId => (rpc::BARE_REQUEST_BYTES, GetServerIdResponse::FIXED_BYTES),
        Opcode::ServerControl => (
            ServerControlRequest::FIXED_BYTES,
            ServerControlResponse::FIXED_BYTES,
        ),
        _ => return None,
    })
}

impl Shard {
    /// Answered whether or not a coordinator let the shard in.
    pub(crate) fn admin_request(
        &mut self,
        now: Time,
        to: ReplyTo,
        opcode: Opcode,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) {
        let Some((request_bytes, response_bytes)) = fixed_bytes(opcode) else {
            return out.reply(to, &[&rpc::status_bytes(Status::UnimplementedRequest)]);
        };
        if payload.len() < request_bytes {
            return out.reply(to, &[&rpc::status_bytes(Status::MessageTooShort)]);
        }
        let done = match opcode {
            Opcode::Ping => self.ping(to, payload, out),
            Opcode::Kill => self.kill(out),
            Opcode::ProxyPing => self.proxy_ping(now, to, payload, out),
            Opcode::GetMetrics => {
                let metrics = self.metric_list(now, &out.driver_counters());
                reply_message(to, &metrics, out)
            }
            Opcode::GetServerConfig => reply_message(to, &self.server_config(), out),
            Opcode::GetServerId => self.get_server_id(to, out),
            _ => self.server_control(now, to, payload, out),
        };
        if let Err(status) = done {
            let error = rpc::error_response(status, payload, request_bytes, response_bytes);
            out.reply(to, &[error.as_bytes()]);
        }
    }

    /// Answered whatever else is going on: clients take a silent server for a dead one.
    fn ping(&self, to: ReplyTo, payload: &[u8], out: &mut impl ShardEffects) -> Result<(), Status> {
        let PingRequest { caller } = PingRequest::decode(payload)?;
        // Servers do not ping each other in their own name: the only one this shard knows of is itself.
        if caller.is_valid() && caller != self.server_id() {
            return Err(Status::CallerNotInCluster);
        }
        out.reply(to, &[&rpc::status_bytes(Status::Ok)]);
        Ok(())
    }

    /// No answer comes: the process ends, as if it had crashed.
    fn kill(&mut self, out: &mut impl ShardEffects) -> Result<(), Status> {
        self.test_rpc("KILL", out)?;
        out.report(ClientEvent::Killed.into());
        out.end_process();
        Ok(())
    }

    /// Whether requests that are meant for tests, and do harm elsewhere, are served.
    pub(crate) fn test_rpc(
        &mut self,
        name: &'static str,
        out: &mut impl ShardEffects,
    ) -> Result<(), Status> {
        if self.config.allow_test_rpcs {
            return Ok(());
        }
        if !core::mem::replace(&mut self.told_about_test_rpcs, true) {
            out.report(ClientEvent::TestRequestRefused { name }.into());
        }
        Err(Status::UnimplementedRequest)
    }

    fn get_server_id(&self, to: ReplyTo, out: &mut impl ShardEffects) -> Result<(), Status> {
        let mut bytes = Vec::with_capacity(GetServerIdResponse::FIXED_BYTES);
        GetServerIdResponse {
            status: Status::Ok,
            server_id: self.server_id(),
        }
        .encode(&mut bytes);
        out.reply(to, &[&bytes]);
        Ok(())
    }

    fn server_control(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) -> Result<(), Status> {
        let request = ServerControlRequest::decode(payload)?;
        match request.target {
            ControlTarget::Object => {
                let table_id = request.table_id;
                self.store.admit_use(Access {
                    table_id,
                    hash: key_hash(table_id, request.key),
                    what: Use::Locate,
                })?;
            }
            ControlTarget::Index => return Err(Status::UnknownIndexlet),
            ControlTarget::ServerId => {}
        }
        let response = self.control(now, request.control_op, request.input, out);
        out.reply(to, &[&response]);
        Ok(())
    }

    /// Carries out a control operation, whoever passed it on. Gives the complete SERVER_CONTROL response.
    pub(crate) fn control(
        &mut self,
        now: Time,
        op: u32,
        input: &[u8],
        out: &mut impl ShardEffects,
    ) -> Vec<u8> {
        let mut output = Vec::new();
        let status = match op {
            control_op::LOG_MESSAGE => log_text(input, out),
            control_op::LOG_TIME_TRACE => log_time_trace(input, out),
            control_op::GET_TIME_TRACE => {
                output = out.time_trace(input).unwrap_or(NO_TRACE.into());
                Status::Ok
            }
            control_op::LOG_CACHE_TRACE => {
                out.report(ClientEvent::NoCacheTrace.into());
                Status::Ok
            }
            control_op::GET_CACHE_TRACE => {
                output = ClientEvent::NoCacheTrace.to_string().into_bytes();
                Status::Ok
            }
            control_op::GET_PERF_STATS => {
                let stats = self.perf_stats(now, &out.driver_counters());
                output.extend_from_slice(&stats.to_bytes());
                Status::Ok
            }
            control_op::START_PERF_COUNTERS
            | control_op::STOP_PERF_COUNTERS
            | control_op::RESET_METRICS => {
                out.report(ClientEvent::CountersLeft { control_op: op }.into());
                Status::Ok
            }
            control_op::QUIESCE => {
                let has_replicas = self.config.replication.is_some();
                out.report(ClientEvent::NothingToQuiesce { has_replicas }.into());
                Status::Ok
            }
            _ => Status::UnimplementedRequest,
        };
        let mut response = Vec::with_capacity(ServerControlResponse::FIXED_BYTES + output.len());
        ServerControlResponse {
            status,
            server_id: self.server_id(),
            output: &output,
        }
        .encode(&mut response);
        response
    }
}

/// Answers with a message of its own.
pub(crate) fn reply_message(
    to: ReplyTo,
    message: &impl Message,
    out: &mut impl ShardEffects,
) -> Result<(), Status> {
    let mut bytes = Vec::new();
    MessageResponse {
        status: Status::Ok,
        message: &message.encode_to_vec(),
    }
    .encode(&mut bytes);
    out.reply(to, &[&bytes]);
    Ok(())
}

/// A line for each event.
fn log_time_trace(input: &[u8], out: &mut impl ShardEffects) -> Status {
    let input = if input.is_empty() {
        LOGGED_EVENTS
    } else {
        input
    };
    let trace = out.time_trace(input).unwrap_or(NO_TRACE.into());
    for line in String::from_utf8_lossy(&trace).lines() {
        out.report(ClientEvent::TraceLine(line.to_owned()).into());
    }
    Status::Ok
}

fn log_text(input: &[u8], out: &mut impl ShardEffects) -> Status {
    let Some((level, text)) = input.split_first_chunk::<4>() else {
        return Status::MessageTooShort;
    };
    let text = &text[..text.len().min(MAX_LOG_TEXT_BYTES)];
    let event = ClientEvent::Text {
        level: Level::nearest(u32::from_le_bytes(*level)),
        text: String::from_utf8_lossy(text).into_owned(),
    };
    out.report(event.into());
    Status::Ok
}
