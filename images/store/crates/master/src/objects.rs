//! Operations on one object: what is read at once, and what takes effect once.

use log::Reference;
use wire::entry::RpcResult;
use wire::ids::ReplyTo;
use wire::keys::KeysAndValue;
use wire::rpc::{
    IncrementRequest, IncrementResponse, Lease, ReadKeysAndValueRequest, ReadKeysAndValueResponse,
    ReadRequest, ReadResponse, RejectRules, RemoveRequest, RetryResponse, WriteRequest,
    WriteResponse,
};
use wire::status::Status;
use wire::time::Time;

use crate::leases::Validity;
use crate::membership::ask_about_lease;
use crate::output::Output;
use crate::requests::{BUSY, Call};
use crate::results::Known;
use crate::shard::Shard;
use crate::store::{Numbered, Outcome, Place};

/// How an operation that takes effect once is to go on.
enum Begin {
    Execute,
    /// It was executed before; its record is here.
    Answered(Reference),
    Refuse(Status),
    ComeAgain,
}

/// What of an object a read wants.
#[derive(Clone, Copy)]
enum Part {
    Value,
    KeysAndValue,
}

impl Shard {
    pub(crate) fn read(&mut self, call: Call<'_>, out: &mut impl Output) -> Result<(), Status> {
        let ReadRequest {
            table_id,
            rules,
            key,
        } = ReadRequest::decode(call.payload)?;
        self.read_part(call.to, &Place::of(table_id, key), &rules, Part::Value, out)
    }

    pub(crate) fn read_keys_and_value(
        &mut self,
        call: Call<'_>,
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let ReadKeysAndValueRequest {
            table_id,
            rules,
            key,
        } = ReadKeysAndValueRequest::decode(call.payload)?;
        let place = Place::of(table_id, key);
        self.read_part(call.to, &place, &rules, Part::KeysAndValue, out)
    }

    /// Both kinds of answers have the same fixed part.
    fn read_part(
        &mut self,
        to: ReplyTo,
        place: &Place<'_>,
        rules: &RejectRules,
        part: Part,
        out: &mut impl Output,
    ) -> Result<(), Status> {
        if !self.store.tablets.owns(place.table_id, place.hash) {
            return Err(Status::UnknownTablet);
        }
        let durable = self.durable_position();
        let found = self.store.look_up(place);
        let (status, bytes) = match (found.object, found.check_read(rules), part) {
            (Some(at), Status::Ok, Part::Value) => (Status::Ok, self.store.object(at).value),
            (Some(at), Status::Ok, Part::KeysAndValue) => (Status::Ok, self.store.content(at)),
            (_, status, _) => (status, &[][..]),
        };
        const { assert!(ReadResponse::FIXED_BYTES == ReadKeysAndValueResponse::FIXED_BYTES) };
        let fixed = ReadResponse::fixed_bytes(status, found.version, bytes.len() as u32);
        self.counters.reads += 1;
        self.counters.read_bytes += bytes.len() as u64;
        self.gate
            .reply(durable, found.seen, to, &[&fixed, bytes], out);
        Ok(())
    }

    pub(crate) fn write(&mut self, call: Call<'_>, out: &mut impl Output) -> Result<(), Status> {
        let request = WriteRequest::decode(call.payload)?;
        let place = Place::of(request.table_id, request.object.primary_key());
        let numbered = Numbered {
            lease_id: request.lease.id,
            rpc_id: request.rpc_id,
            ack_id: request.ack_id,
            response_bytes: WriteResponse::FIXED_BYTES,
        };
        match self.begin(call.now, &request.lease, numbered, &place, out) {
            Begin::Execute => {}
            other => return self.not_executed(call.to, other, out),
        }
        let object = request.object;
        let outcome = self
            .store
            .write(&place, &request.rules, object, Some(numbered));
        self.count_write(&outcome, object.encoded_bytes());
        self.answer(call.to, outcome, numbered, out);
        Ok(())
    }

    pub(crate) fn remove(&mut self, call: Call<'_>, out: &mut impl Output) -> Result<(), Status> {
        let request = RemoveRequest::decode(call.payload)?;
        let place = Place::of(request.table_id, request.key);
        let numbered = Numbered {
            lease_id: request.lease.id,
            rpc_id: request.rpc_id,
            ack_id: request.ack_id,
            response_bytes: WriteResponse::FIXED_BYTES,
        };
        match self.begin(call.now, &request.lease, numbered, &place, out) {
            Begin::Execute => {}
            other => return self.not_executed(call.to, other, out),
        }
        let outcome = self.store.remove(&place, &request.rules, Some(numbered));
        self.count_remove(&outcome);
        self.answer(call.to, outcome, numbered, out);
        Ok(())
    }

    pub(crate) fn increment(
        &mut self,
        call: Call<'_>,
        out: &mut impl Output,
    ) -> Result<(), Status> {
        let request = IncrementRequest::decode(call.payload)?;
        let place = Place::of(request.table_id, request.key);
        let numbered = Numbered {
            lease_id: request.lease.id,
            rpc_id: request.rpc_id,
            ack_id: request.ack_id,
            response_bytes: IncrementResponse::FIXED_BYTES,
        };
        match self.begin(call.now, &request.lease, numbered, &place, out) {
            Begin::Execute => {}
            other => return self.not_executed(call.to, other, out),
        }
        let (rules, by) = (&request.rules, request.by);
        let outcome = self.store.increment(&place, rules, by, Some(numbered));
        self.count_increment(&outcome, place.key);
        self.answer(call.to, outcome, numbered, out);
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
            ..
        } = numbered;
        let (results, log) = (&mut self.store.keeper.results, &mut self.store.log);
        match results.look_up(lease_id, rpc_id, ack_id, |record| log.kill(record)) {
            Known::Nothing => {}
            Known::Answered(at) => return Begin::Answered(at),
            Known::Refused => return Begin::Refuse(Status::NoTableSpace),
            Known::Stale => return Begin::Refuse(Status::StaleRpc),
            Known::Ahead => return Begin::ComeAgain,
        }
        if !self.store.tablets.owns(place.table_id, place.hash) {
            return Begin::Refuse(Status::UnknownTablet);
        }
        let known = results.expiration_ns(lease_id).unwrap_or(0);
        let expiration_ns = lease.expiration_ns.max(known);
        let ask_at_ns = self.leases.ask_at_ns(now, expiration_ns);
        match self.leases.validity(now, lease_id, expiration_ns) {
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

    fn answer(&mut self, to: ReplyTo, outcome: Outcome, numbered: Numbered, out: &mut impl Output) {
        if outcome.response.status == Status::Retry {
            return out.reply(to, &[&RetryResponse::to_bytes(BUSY.min_us, BUSY.max_us)]);
        }
        let durable = self.durable_position();
        let response = outcome.response.to_bytes();
        let response = &response[..numbered.response_bytes];
        self.gate.reply(durable, outcome.seen, to, &[response], out);
    }

    pub(crate) fn count_write(&mut self, outcome: &Outcome, bytes: usize) {
        if outcome.response.status == Status::Ok {
            self.counters.writes += 1;
            self.counters.written_bytes += bytes as u64;
        }
        self.count_refusal(outcome);
    }

    /// An increment writes a number of 8 bytes under its primary key.
    pub(crate) fn count_increment(&mut self, outcome: &Outcome, key: &[u8]) {
        let number = outcome.response.value;
        let bytes = KeysAndValue::SINGLE_KEY_HEADER_BYTES + key.len() + number.len();
        self.count_write(outcome, bytes);
    }

    pub(crate) fn count_remove(&mut self, outcome: &Outcome) {
        let removed = outcome.response.status == Status::Ok && outcome.response.version != 0;
        self.counters.removes += u64::from(removed);
        self.count_refusal(outcome);
    }

    fn count_refusal(&mut self, outcome: &Outcome) {
        match outcome.response.status {
            Status::Retry => self.counters.retries += 1,
            Status::NoTableSpace => self.counters.rejected_full += 1,
            _ => {}
        }
    }
}
