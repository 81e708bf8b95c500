//! What answers mean.

use core::time::Duration;

use base::ids::TableId;
use base::time::Time;
use wire::rpc::{
    self, EchoResponse, EnumerateResponse, GetServerIdResponse, GetTableConfigResponse,
    IncrementResponse, MessageResponse, ProxyPingResponse, ReadResponse, RenewLeaseResponse,
    RetryResponse, ServerControlAllResponse, ServerControlResponse, TableIdResponse, WriteResponse,
};
use wire::status::Status;

use super::Client;
use crate::effects::ClientEffects;
use crate::error::Error;
use crate::operation::{Kind, ResponseKind};
use crate::operation_id::OperationId;
use crate::outcome::Outcome;
use crate::sessions::Call;
use crate::timer::Timer;

impl Client {
    /// A response. One that nobody waits for any more is dropped.
    pub fn received(
        &mut self,
        now: Time,
        session: u64,
        nonce: u64,
        payload: &[u8],
        out: &mut impl ClientEffects,
    ) {
        match self.sessions.take_call(now, session, nonce) {
            Some(Call::Operation(id)) => self.operation_answered(now, id, payload, out),
            Some(Call::Objects(id, objects)) => {
                self.objects_answered(now, id, &objects, payload);
            }
            Some(Call::TableConfig(table)) => self.table_answered(now, table, payload, out),
            Some(Call::RenewLease) => self.lease_answered(now, payload, out),
            Some(Call::KeepAlive) | None => {}
        }
        self.run_ready(now, out);
    }

    fn operation_answered(
        &mut self,
        now: Time,
        id: OperationId,
        payload: &[u8],
        out: &mut impl ClientEffects,
    ) {
        let Some(operation) = self.operations.get_mut(id.0) else {
            return;
        };
        operation.failures = 0;
        let is_on_key = matches!(operation.kind, Kind::OnKey(_) | Kind::Once(_));
        let (table, generation) = (operation.table, operation.config_generation);
        let lease_id = operation.lease_id;
        match rpc::status(payload) {
            Ok(Status::Retry) => {
                let at = now + self.retry_delay(payload);
                self.set_timer(at, Timer::Resume(id));
            }
            Ok(Status::UnknownTablet) if is_on_key => {
                self.tables.invalidate(table, generation);
                self.ready.push_back(id);
            }
            status => {
                if status == Ok(Status::ExpiredLease) && lease_id == self.lease.id() {
                    self.lease.ended();
                }
                if let Some(kind) = self.retire(id) {
                    let outcome = match kind {
                        Kind::Coordinator(answer)
                        | Kind::OnKey(answer)
                        | Kind::Once(answer)
                        | Kind::At(_, answer) => outcome(answer, payload),
                        // Answered elsewhere.
                        Kind::Lease | Kind::Multi(_) => {
                            Err(Error::status(Status::ResponseFormatError))
                        }
                    };
                    out.complete(id, outcome);
                }
            }
        }
    }

    /// How long a RETRY response asks to wait.
    pub(crate) fn retry_delay(&mut self, payload: &[u8]) -> Duration {
        let retry = RetryResponse::decode(payload).unwrap_or(RetryResponse::new(100, 200));
        self.random.delay(
            Duration::from_micros(u64::from(retry.min_delay_us)),
            Duration::from_micros(u64::from(retry.max_delay_us)),
        )
    }

    fn table_answered(
        &mut self,
        now: Time,
        table: TableId,
        payload: &[u8],
        out: &mut impl ClientEffects,
    ) {
        if rpc::status(payload) == Ok(Status::Retry) {
            let at = now + self.retry_delay(payload);
            self.set_timer(at, Timer::FetchTable(table));
            return;
        }
        let entry = self.tables.entry(table);
        entry.is_fetching = false;
        let waiting = core::mem::take(&mut entry.waiting);
        let updated = GetTableConfigResponse::decode(payload).and_then(|response| {
            if response.status == Status::Ok {
                entry.update(response.table_config)
            } else {
                Err(response.status)
            }
        });
        let generation = entry.generation;
        let is_gone = updated.is_ok() && entry.is_empty();
        match updated {
            Ok(()) => {
                self.ready.extend(waiting);
                self.run_ready(now, out);
            }
            Err(status) => {
                for id in waiting {
                    if self.retire(id).is_some() {
                        out.complete(id, Err(Error::status(status)));
                    }
                }
            }
        }
        if is_gone {
            // Whoever asks next shall not be told from memory that there is no such table.
            self.tables.invalidate(table, generation);
        }
    }

    fn lease_answered(&mut self, now: Time, payload: &[u8], out: &mut impl ClientEffects) {
        if rpc::status(payload) == Ok(Status::Retry) {
            let at = now + self.retry_delay(payload);
            self.lease.requested_at = None;
            self.lease.not_before = at;
            self.set_timer(at, Timer::RenewLease);
            return;
        }
        match RenewLeaseResponse::decode(payload) {
            Ok(response) if response.status == Status::Ok => {
                let renew_at = self.lease.granted(now, response.lease);
                self.set_timer(renew_at, Timer::RenewLease);
                self.ready.extend(self.lease.waiting.drain(..));
            }
            Ok(RenewLeaseResponse { status, .. }) | Err(status) => {
                self.lease.requested_at = None;
                for id in core::mem::take(&mut self.lease.waiting) {
                    if self.retire(id).is_some() {
                        out.complete(id, Err(Error::status(status)));
                    }
                }
            }
        }
    }
}

/// Reads an answer.
fn outcome(answer: ResponseKind, payload: &[u8]) -> Result<Outcome<'_>, Error> {
    match answer {
        ResponseKind::TableId => {
            let response = TableIdResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, 0)?;
            Ok(Outcome::Table(response.table_id))
        }
        ResponseKind::Done => {
            accepted(rpc::status(payload).map_err(Error::status)?, 0)?;
            Ok(Outcome::Done)
        }
        ResponseKind::Object => {
            let response = ReadResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, response.version)?;
            Ok(Outcome::Object {
                version: response.version,
                value: response.value,
            })
        }
        ResponseKind::Version => {
            let response = WriteResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, response.version)?;
            Ok(Outcome::Version(response.version))
        }
        ResponseKind::Increment => {
            let response = IncrementResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, response.version)?;
            Ok(Outcome::Incremented {
                version: response.version,
                new_value: response.new_value,
            })
        }
        ResponseKind::Enumerate => {
            let response = EnumerateResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, 0)?;
            Ok(Outcome::Enumerated {
                tablet_first_hash: response.tablet_first_hash,
                objects: response.objects,
                iterator: response.iterator,
            })
        }
        ResponseKind::Message => {
            let response = MessageResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, 0)?;
            Ok(Outcome::Message(response.message))
        }
        ResponseKind::Echo => {
            let response = EchoResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, 0)?;
            Ok(Outcome::Message(response.bytes))
        }
        ResponseKind::LeaseInfo => {
            let response = RenewLeaseResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, 0)?;
            Ok(Outcome::Lease(response.lease))
        }
        ResponseKind::ControlAll => {
            let response = ServerControlAllResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, 0)?;
            Ok(Outcome::Control {
                server_count: response.server_count,
                response_count: response.response_count,
                responses: response.responses,
            })
        }
        ResponseKind::Control => {
            let response = ServerControlResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, 0)?;
            Ok(Outcome::Controlled {
                server_id: response.server_id,
                output: response.output,
            })
        }
        ResponseKind::ServerId => {
            let response = GetServerIdResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, 0)?;
            Ok(Outcome::Server(response.server_id))
        }
        ResponseKind::ProxyPing => {
            let response = ProxyPingResponse::decode(payload).map_err(Error::status)?;
            accepted(response.status, 0)?;
            let in_time = response.reply_ns != ProxyPingResponse::TIMED_OUT;
            let took = in_time.then(|| Duration::from_nanos(response.reply_ns));
            Ok(Outcome::Took(took))
        }
    }
}

fn accepted(status: Status, version: u64) -> Result<(), Error> {
    match status {
        Status::Ok => Ok(()),
        status => Err(Error::Refused { status, version }),
    }
}
