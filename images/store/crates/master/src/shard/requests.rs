//! Requests of clients: the checks, and the way of an operation on one object.

use base::bugs::{Bug, is_planted};
use base::ids::ReplyTo;
use base::time::Time;
use log::{LogPosition, Reference};
use trace::Event;
use wire::entry::RpcResult;
use wire::opcode::{Opcode, Service};
use wire::rpc::{
    self, EchoRequest, EchoResponse, EnumerateRequest, EnumerateResponse, IncrementRequest,
    IncrementResponse, MAX_RPC_BYTES, ReadRequest, ReadResponse, RemoveRequest, RemoveResponse,
    RetryResponse, WriteRequest, WriteResponse,
};
use wire::status::Status;

use crate::data::{Access, Action, NotAdmitted, Operation, Outcome, Shown};
use crate::delay::{BUSY, Delay, NOT_ENLISTED};
use crate::effects::ShardEffects;
use crate::membership::ask_about_lease;
use crate::shard::Shard;
use crate::shard::admin::reply_message;
use crate::shard::codec::{Request, Shows};

/// What an ECHO is answered with.
static ECHO: [u8; MAX_RPC_BYTES] = [0; MAX_RPC_BYTES];

/// The parts of request and response that are always there, of what is served in turn.
fn fixed_bytes(opcode: Opcode) -> Option<(usize, usize)> {
    Some(match opcode {
        Opcode::Read | Opcode::ReadKeysAndValue => {
            (ReadRequest::FIXED_BYTES, ReadResponse::FIXED_BYTES)
        }
        Opcode::Write => (WriteRequest::FIXED_BYTES, WriteResponse::FIXED_BYTES),
        Opcode::Remove => (RemoveRequest::FIXED_BYTES, RemoveResponse::FIXED_BYTES),
        Opcode::Increment => (
            IncrementRequest::FIXED_BYTES,
            IncrementResponse::FIXED_BYTES,
        ),
        Opcode::MultiOp => (
            rpc::MULTI_REQUEST_FIXED_BYTES,
            rpc::MULTI_RESPONSE_FIXED_BYTES,
        ),
        Opcode::Enumerate => (
            EnumerateRequest::FIXED_BYTES,
            EnumerateResponse::FIXED_BYTES,
        ),
        Opcode::MigrateTablet => (rpc::MigrateTabletRequest::FIXED_BYTES, 4),
        Opcode::FillWithTestData => (rpc::FillWithTestDataRequest::FIXED_BYTES, 4),
        Opcode::GetServerStatistics | Opcode::GetLogMetrics => {
            (rpc::BARE_REQUEST_BYTES, rpc::MessageResponse::FIXED_BYTES)
        }
        _ => return None,
    })
}

impl Shard {
    /// Executes a request and answers it, now or when what the answer shows is durable.
    pub fn request(&mut self, now: Time, to: ReplyTo, payload: &[u8], out: &mut impl ShardEffects) {
        let header = match rpc::header(payload) {
            Ok(header) => header,
            Err(status) => return out.reply(to, &[&rpc::status_bytes(status)]),
        };
        let opcode = match (
            Service::from_u16(header.service),
            Opcode::from_u16(header.opcode),
        ) {
            (Some(Service::Master), Some(Opcode::Echo)) => {
                trace::note(Event::Request, Opcode::Echo as u64, to.nonce);
                return self.echo(to, payload, out);
            }
            (Some(Service::Admin), Some(opcode)) => {
                trace::note(Event::Request, opcode as u64, to.nonce);
                return self.admin_request(now, to, opcode, payload, out);
            }
            (Some(Service::Master), Some(opcode)) => opcode,
            (Some(Service::Master | Service::Admin), _) => {
                return out.reply(to, &[&rpc::status_bytes(Status::UnimplementedRequest)]);
            }
            _ => return out.reply(to, &[&rpc::status_bytes(Status::ServiceNotAvailable)]),
        };
        let Some((request_bytes, response_bytes)) = fixed_bytes(opcode) else {
            return out.reply(to, &[&rpc::status_bytes(Status::UnimplementedRequest)]);
        };
        trace::note(Event::Request, opcode as u64, to.nonce);
        if payload.len() < request_bytes {
            return out.reply(to, &[&rpc::status_bytes(Status::MessageTooShort)]);
        }
        if !self.is_enlisted() && !self.is_superseded() {
            return self.come_again(to, NOT_ENLISTED, out);
        }
        if self.gate.is_full() || !self.is_serving(now) {
            return self.come_again(to, BUSY, out);
        }
        let rejected_full = self.counters.rejected_full;
        let done = match opcode {
            Opcode::Enumerate => self.enumerate(to, payload, out),
            Opcode::MultiOp => self.multi_op(to, payload, out),
            Opcode::FillWithTestData => self.fill_with_test_data(now, to, payload, out),
            Opcode::MigrateTablet => self.migrate_tablet(now, to, payload, out),
            Opcode::GetServerStatistics => reply_message(to, &self.server_statistics(), out),
            Opcode::GetLogMetrics => reply_message(to, &self.log_metrics(), out),
            // Compiled for reads and for writes: the most frequent requests.
            Opcode::Read => self.operate(now, to, Opcode::Read, payload, out),
            Opcode::Write => self.operate(now, to, Opcode::Write, payload, out),
            Opcode::ReadKeysAndValue | Opcode::Remove | Opcode::Increment => {
                self.operate(now, to, opcode, payload, out)
            }
            // One that `fixed_bytes` knows, and nobody serves.
            _ => Err(Status::UnimplementedRequest),
        };
        if self.counters.rejected_full > rejected_full {
            self.fullness.refused(now);
        }
        if done == Err(Status::Retry) {
            self.come_again(to, BUSY, out);
        } else if let Err(status) = done {
            let error = rpc::error_response(status, payload, request_bytes, response_bytes);
            out.reply(to, &[error.as_bytes()]);
        }
    }

    /// Answered at once: it measures the way here and back.
    fn echo(&self, to: ReplyTo, payload: &[u8], out: &mut impl ShardEffects) {
        match EchoRequest::decode(payload) {
            Ok(request) => {
                let fixed = EchoResponse::fixed_bytes(Status::Ok, request.echo_bytes);
                // Long messages are sent from where they lie.
                let parts: &[&[u8]] = &[&fixed, &ECHO[..request.echo_bytes as usize]];
                out.reply(to, parts);
            }
            Err(status) => {
                let (request, response) = (EchoRequest::FIXED_BYTES, EchoResponse::FIXED_BYTES);
                out.reply(
                    to,
                    &[rpc::error_response(status, payload, request, response).as_bytes()],
                );
            }
        }
    }

    /// One operation on one object: admitted, planned and applied, and answered now or when what the answer shows is durable.
    #[inline(always)]
    fn operate(
        &mut self,
        now: Time,
        to: ReplyTo,
        opcode: Opcode,
        payload: &[u8],
        out: &mut impl ShardEffects,
    ) -> Result<(), Status> {
        let Request {
            operation,
            claim,
            shows,
        } = Request::decode(opcode, payload)?;
        let access = Access::of(&operation);
        let admitted = match &claim {
            Some(claim) => self.store.admit_once(now, &self.leases, access, claim),
            None => (self.store.admit_use(access)).map_err(NotAdmitted::Refused),
        };
        match admitted {
            Ok(admitted) => {
                let outcome = self.store.execute(&operation, admitted);
                self.count(&operation, &outcome);
                self.answer(to, &outcome, shows, out);
            }
            Err(NotAdmitted::Answered(at)) => self.answer_again(to, at, out),
            Err(NotAdmitted::Refused(status)) => return Err(status),
            Err(NotAdmitted::ComeAgain) => self.come_again(to, BUSY, out),
            Err(NotAdmitted::LeaseUnknown) => {
                let lease_id = claim.map_or(0, |claim| claim.lease_id);
                ask_about_lease(&self.membership, &mut self.leases, lease_id, out);
                self.come_again(to, BUSY, out);
            }
        }
        Ok(())
    }

    /// An operation without a number. One that is refused at the door is answered like any other.
    pub(super) fn execute_unnumbered(&mut self, operation: &Operation<'_>) -> Outcome {
        match self.store.admit_use(Access::of(operation)) {
            Ok(admitted) => self.store.execute(operation, admitted),
            Err(status) => Outcome::refused(&operation.action, status),
        }
    }

    #[inline]
    fn answer(
        &mut self,
        to: ReplyTo,
        outcome: &Outcome,
        shows: Shows,
        out: &mut impl ShardEffects,
    ) {
        if outcome.status == Status::Retry {
            return out.reply(to, &[&RetryResponse::to_bytes(BUSY.min_us, BUSY.max_us)]);
        }
        let mut durable = self.durable_position();
        let Shown::Object(Some(at)) = outcome.shown else {
            if is_planted(Bug::RefuseEarly) && outcome.status != Status::Ok {
                durable = LogPosition::END;
            }
            let response = outcome.response(0);
            let parts = &[response.as_bytes()];
            return self.gate.reply(durable, outcome.seen, to, parts, out);
        };
        let object = self.store.object(at);
        self.counters.read_bytes += object.value.len() as u64;
        let value = shows.of(&object);
        let response = outcome.response(value.len());
        // A long value goes out from where it lies.
        if value.len() >= self.config.lend_bytes
            && outcome.seen <= durable
            && let Some(token) = self.store.log.token_of(value)
            && out.reply_lent(to, response.as_bytes(), token, value.len())
        {
            return self.store.log.lend(token);
        }
        let parts = &[response.as_bytes(), value];
        self.gate.reply(durable, outcome.seen, to, parts, out);
    }

    /// An RPC that was executed before gets the answer that is recorded.
    fn answer_again(&mut self, to: ReplyTo, at: Reference, out: &mut impl ShardEffects) {
        self.counters.duplicates += 1;
        let record: RpcResult<'_> = self
            .store
            .log
            .entry(at)
            .decode()
            .expect("records are where they are known to be");
        let (durable, seen) = (self.durable_position(), self.store.position_seen(at));
        self.gate.reply(durable, seen, to, &[record.response], out);
    }

    /// What an operation was, and what came of it. The bytes of values that were read are counted where they are sent.
    #[inline]
    pub(super) fn count(&mut self, operation: &Operation<'_>, outcome: &Outcome) {
        let counters = &mut self.counters;
        let is_done = outcome.status == Status::Ok;
        match &operation.action {
            Action::Read => {
                counters.reads += 1;
                counters.read_key_bytes += operation.place.key.len() as u64;
            }
            Action::Write(object) if is_done => {
                counters.writes += 1;
                counters.written_bytes += object.encoded_bytes() as u64;
                counters.written_value_bytes += object.value().len() as u64;
            }
            Action::Remove if is_done => counters.removes += u64::from(outcome.version != 0),
            Action::Increment(_) if is_done => counters.increments += 1,
            Action::Write(_) | Action::Remove | Action::Increment(_) => {}
        }
        match outcome.status {
            Status::Retry => counters.retries += 1,
            Status::NoTableSpace => counters.rejected_full += 1,
            _ => {}
        }
    }

    pub(crate) fn come_again(&mut self, to: ReplyTo, delay: Delay, out: &mut impl ShardEffects) {
        self.counters.retries += 1;
        out.reply(to, &[&RetryResponse::to_bytes(delay.min_us, delay.max_us)]);
    }

    /// Up to where replies may show the log.
    pub fn durable_position(&self) -> LogPosition {
        if is_planted(Bug::OpenGateEarly) {
            return LogPosition::END;
        }
        self.store.log.durable_position()
    }
}
