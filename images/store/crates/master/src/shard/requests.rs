//! Requests of clients: the checks, and the single-object operations.

use log::{LogPosition, Reference};
use trace::Event;
use wire::bugs::{Bug, is_planted};
use wire::entry::{ObjectView, RpcResult};
use wire::ids::ReplyTo;
use wire::keys::KeysAndValue;
use wire::opcode::{Opcode, Service};
use wire::rpc::{
    self, EchoRequest, EchoResponse, EnumerateRequest, EnumerateResponse, IncrementRequest,
    IncrementResponse, Lease, MAX_RPC_BYTES, ReadRequest, ReadResponse, RemoveRequest,
    RemoveResponse, RetryResponse, WriteRequest, WriteResponse,
};
use wire::status::Status;
use wire::time::Time;

use crate::delay::{BUSY, Delay, NOT_ENLISTED};
use crate::leases::Validity;
use crate::membership::ask_about_lease;
use crate::output::Output;
use crate::results::{Known, MAX_RPC_ID};
use crate::shard::Shard;
use crate::shard::admin::reply_message;
use crate::store::{Answer, Numbered, Outcome, Place};
use crate::tablets::Use;

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

/// How an operation that takes effect once is to go on.
enum Begin {
    Execute,
    /// It was executed before; its record is here.
    Answered(Reference),
    Refuse(Status),
    ComeAgain,
}

impl Shard {
    /// Executes a request and answers it, now or when what the answer shows is durable.
    pub fn request(&mut self, now: Time, to: ReplyTo, payload: &[u8], out: &mut impl Output) {
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
            Opcode::Read => self.read(to, payload, |object| object.value, out),
            Opcode::ReadKeysAndValue => self.read(to, payload, |object| object.content, out),
            Opcode::Write => self.write(now, to, payload, out),
            Opcode::Remove => self.remove(now, to, payload, out),
            Opcode::Increment => self.increment(now, to, payload, out),
            Opcode::Enumerate => self.enumerate(to, payload, out),
            Opcode::FillWithTestData => self.fill_with_test_data(to, payload, out),
            Opcode::MigrateTablet => self.migrate_tablet(to, payload, out),
            Opcode::GetServerStatistics => reply_message(to, &self.server_statistics(), out),
            Opcode::GetLogMetrics => reply_message(to, &self.log_metrics(), out),
            _ => self.multi_op(to, payload, out),
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
    fn echo(&self, to: ReplyTo, payload: &[u8], out: &mut impl Output) {
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

    /// READ, or READ_KEYS_AND_VALUE: what of the object goes out, `wanted` says.
    fn read(
        &mut self,
        to: ReplyTo,
        payload: &[u8],
        wanted: for<'a> fn(&ObjectView<'a>) -> &'a [u8],
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let request = ReadRequest::decode(payload)?;
        let place = Place::of(request.table_id, request.key);
        let tablets = &self.store.tablets;
        tablets.count_use(place.table_id, place.hash, Use::Read)?;
        let found = self.store.look_up(&place);
        let durable = self.durable_position();
        let (status, value) = match (found.object, request.rules.check(found.version)) {
            (None, _) => (Status::ObjectDoesntExist, &[][..]),
            (Some(_), Err(status)) => (status, &[][..]),
            (Some(at), Ok(())) => {
                let object = self.store.object(at);
                self.counters.read_bytes += object.value.len() as u64;
                (Status::Ok, wanted(&object))
            }
        };
        let fixed = ReadResponse::fixed_bytes(status, found.version, value.len() as u32);
        self.counters.reads += 1;
        self.counters.read_key_bytes += request.key.len() as u64;
        // What is long goes out from where it lies.
        if value.len() >= self.config.lend_bytes
            && found.seen <= durable
            && let Some(token) = self.store.log.token_of(value)
            && out.reply_lent(to, &fixed, token, value.len())
        {
            self.store.log.lend(token);
            return Ok(());
        }
        self.gate
            .reply(durable, found.seen, to, &[&fixed, value], out);
        Ok(())
    }

    fn write(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let request = WriteRequest::decode(payload)?;
        let place = Place::of(request.table_id, request.object.primary_key());
        let numbered = Numbered {
            lease_id: request.lease.id,
            rpc_id: request.rpc_id,
            ack_id: request.ack_id,
        };
        match self.begin(now, &request.lease, numbered, &place, out) {
            Begin::Execute => {}
            other => return self.not_executed(to, other, out),
        }
        let object = request.object;
        let outcome = self
            .store
            .write(&place, &request.rules, object, Some(numbered));
        self.count_write(&outcome, &object);
        self.answer(to, outcome, out);
        Ok(())
    }

    fn remove(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let request = RemoveRequest::decode(payload)?;
        let place = Place::of(request.table_id, request.key);
        let numbered = Numbered {
            lease_id: request.lease.id,
            rpc_id: request.rpc_id,
            ack_id: request.ack_id,
        };
        match self.begin(now, &request.lease, numbered, &place, out) {
            Begin::Execute => {}
            other => return self.not_executed(to, other, out),
        }
        let outcome = self.store.remove(&place, &request.rules, Some(numbered));
        self.count_remove(&outcome);
        self.answer(to, outcome, out);
        Ok(())
    }

    fn increment(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let request = IncrementRequest::decode(payload)?;
        let place = Place::of(request.table_id, request.key);
        let numbered = Numbered {
            lease_id: request.lease.id,
            rpc_id: request.rpc_id,
            ack_id: request.ack_id,
        };
        match self.begin(now, &request.lease, numbered, &place, out) {
            Begin::Execute => {}
            other => return self.not_executed(to, other, out),
        }
        let outcome = self
            .store
            .increment(&place, &request.rules, request.by, Some(numbered));
        self.count_increment(&outcome);
        self.answer(to, outcome, out);
        Ok(())
    }

    /// Holds a numbered RPC against what is known of its client.
    fn begin(
        &mut self,
        now: Time,
        lease: &Lease,
        numbered: Numbered,
        place: &Place<'_>,
        out: &mut impl Output,
    ) -> Begin {
        let Numbered {
            lease_id,
            rpc_id,
            ack_id,
        } = numbered;
        // First of all: answers to RPCs that came with a tablet which is not this shard's yet, or was not to be, are nobody's.
        let tablets = &self.store.tablets;
        if let Err(status) = tablets.count_use(place.table_id, place.hash, Use::Write) {
            return Begin::Refuse(status);
        }
        if rpc_id > MAX_RPC_ID {
            return Begin::Refuse(Status::RequestFormatError);
        }
        let (results, log) = (&mut self.store.keeper.results, &mut self.store.log);
        let found = results.look_up(lease_id, rpc_id, ack_id);
        let known = results.expiration_ns(lease_id).unwrap_or(0);
        let expiration_ns = lease.expiration_ns.max(known);
        let validity = self.leases.validity(now, lease_id, expiration_ns);
        // Nobody is done with an RPC before it is begun, nor after the lease has ended: whoever says so is not the client.
        if validity == Validity::Valid && ack_id < rpc_id {
            results.acknowledge(lease_id, ack_id, |record| log.kill(record));
        }
        match found {
            Known::Nothing => {}
            Known::Answered(at) => return Begin::Answered(at),
            Known::Refused => return Begin::Refuse(Status::NoTableSpace),
            Known::Stale => return Begin::Refuse(Status::StaleRpc),
            Known::Ahead => return Begin::ComeAgain,
        }
        let ask_at_ns = self.leases.ask_at_ns(now, expiration_ns);
        match validity {
            Validity::Valid
                if results.has_room(lease_id, rpc_id, self.config.max_result_slots)
                    && results.admit(lease_id, ask_at_ns, self.config.max_clients) =>
            {
                Begin::Execute
            }
            Validity::Valid => Begin::ComeAgain,
            Validity::Ended => Begin::Refuse(Status::ExpiredLease),
            Validity::Unknown => {
                ask_about_lease(&self.membership, &mut self.leases, lease_id, out);
                Begin::ComeAgain
            }
        }
    }

    fn not_executed(
        &mut self,
        to: ReplyTo,
        begin: Begin,
        out: &mut impl Output,
    ) -> Result<(), Status> {
        match begin {
            Begin::Execute => {}
            Begin::ComeAgain => self.come_again(to, BUSY, out),
            Begin::Refuse(status) => return Err(status),
            Begin::Answered(at) => {
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
        }
        Ok(())
    }

    fn answer<A: Answer>(&mut self, to: ReplyTo, outcome: Outcome<A>, out: &mut impl Output) {
        if outcome.response.status() == Status::Retry {
            return out.reply(to, &[&RetryResponse::to_bytes(BUSY.min_us, BUSY.max_us)]);
        }
        let mut durable = self.durable_position();
        if is_planted(Bug::RefuseEarly) && outcome.response.status() != Status::Ok {
            durable = LogPosition::END;
        }
        let response = outcome.response.to_bytes();
        self.gate
            .reply(durable, outcome.seen, to, &[response.as_ref()], out);
    }

    pub(crate) fn count_write(
        &mut self,
        outcome: &Outcome<WriteResponse>,
        object: &KeysAndValue<'_>,
    ) {
        if outcome.response.status == Status::Ok {
            self.counters.writes += 1;
            self.counters.written_bytes += object.encoded_bytes() as u64;
            self.counters.written_value_bytes += object.value().len() as u64;
        }
        self.count_refusal(outcome);
    }

    pub(crate) fn count_remove(&mut self, outcome: &Outcome<RemoveResponse>) {
        let removed = outcome.response.status == Status::Ok && outcome.response.version != 0;
        self.counters.removes += u64::from(removed);
        self.count_refusal(outcome);
    }

    pub(crate) fn count_increment(&mut self, outcome: &Outcome<IncrementResponse>) {
        self.counters.increments += u64::from(outcome.response.status == Status::Ok);
        self.count_refusal(outcome);
    }

    fn count_refusal<A: Answer>(&mut self, outcome: &Outcome<A>) {
        match outcome.response.status() {
            Status::Retry => self.counters.retries += 1,
            Status::NoTableSpace => self.counters.rejected_full += 1,
            _ => {}
        }
    }

    pub(crate) fn come_again(&mut self, to: ReplyTo, delay: Delay, out: &mut impl Output) {
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
