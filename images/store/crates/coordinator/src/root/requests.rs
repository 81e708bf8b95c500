//! The coordinator's side of the client protocol.

use base::ids::{ReplyTo, ServerId};
use base::level::Level;
use base::time::Time;
use wire::member::{TabletOrder, TabletRange, ToShard, coordinator};
use wire::opcode::{Opcode, Service};
use wire::rpc::{self, ErrorResponse, RetryResponse, control_op};
use wire::status::Status;

use crate::directory::tables::{CreateError, Cut, SplitError, Tablet};
use crate::effects::{CoordinatorEffects, retry_response};
use crate::pending::{Goal, Operation};
use crate::reports::{ClientEvent, TableEvent};
use crate::root::Coordinator;
use crate::root::replies::{
    BUSY, NO_MASTERS, RECOVERING, Refused, TOO_MANY_LEASES, reply_ping, reply_status,
    reply_table_id, send,
};

/// The parts of request and response that are always there.
fn fixed_bytes(opcode: Opcode) -> (usize, usize) {
    match opcode {
        Opcode::Ping => (rpc::PingRequest::FIXED_BYTES, 4),
        Opcode::CreateTable => (rpc::CreateTableRequest::FIXED_BYTES, 12),
        Opcode::GetTableId => (rpc::GetTableIdRequest::FIXED_BYTES, 12),
        Opcode::DropTable => (rpc::DropTableRequest::FIXED_BYTES, 4),
        Opcode::GetTableConfig => (rpc::GetTableConfigRequest::FIXED_BYTES, 8),
        Opcode::SplitTablet => (rpc::SplitTabletRequest::FIXED_BYTES, 4),
        Opcode::RenewLease => (rpc::RenewLeaseRequest::FIXED_BYTES, 28),
        Opcode::GetLeaseInfo => (rpc::GetLeaseInfoRequest::FIXED_BYTES, 28),
        Opcode::GetServerList => (rpc::GetServerListRequest::FIXED_BYTES, 8),
        Opcode::HintServerCrashed => (rpc::HintServerCrashedRequest::FIXED_BYTES, 4),
        Opcode::SetRuntimeOption => (rpc::SetRuntimeOptionRequest::FIXED_BYTES, 4),
        Opcode::GetRuntimeOption => (rpc::GetRuntimeOptionRequest::FIXED_BYTES, 8),
        Opcode::Kill => (rpc::BARE_REQUEST_BYTES, 4),
        Opcode::GetServerId => (rpc::BARE_REQUEST_BYTES, 12),
        Opcode::GetMetrics => (rpc::BARE_REQUEST_BYTES, 8),
        Opcode::ProxyPing => (rpc::ProxyPingRequest::FIXED_BYTES, 12),
        _ => (rpc::ServerControlAllRequest::FIXED_BYTES, 16),
    }
}

/// Whether the reply to a request shows nothing of the state, so that nothing has to be noted before it leaves. A server that pings is told whether
/// it is in the store; a client is not.
pub(crate) fn shows_no_state(payload: &[u8]) -> bool {
    let opcode = rpc::header(payload).map(|header| Opcode::from_u16(header.opcode));
    match opcode {
        Ok(Some(Opcode::GetServerId)) => true,
        Ok(Some(Opcode::Ping)) => rpc::PingRequest::decode(payload)
            .is_ok_and(|request| request.caller == ServerId::INVALID),
        _ => false,
    }
}

impl Coordinator {
    /// A request of a client. Its reply may come at once or later.
    pub fn request(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) {
        self.gated(out, |it, out| it.serve(now, to, payload, out));
    }

    fn serve(&mut self, now: Time, to: ReplyTo, payload: &[u8], out: &mut impl CoordinatorEffects) {
        if let Some(why) = self.refusal() {
            let retry = retry_response(why);
            return out.reply(to, &retry);
        }
        let opcode = match self.route(payload) {
            Ok(opcode) => opcode,
            Err(status) => return out.reply(to, &rpc::status_bytes(status)),
        };
        let fixed_bytes = fixed_bytes(opcode);
        if payload.len() < fixed_bytes.0 {
            return out.reply(to, &rpc::status_bytes(Status::MessageTooShort));
        }
        let result = match opcode {
            Opcode::Ping => self.ping(to, payload, out),
            Opcode::CreateTable => self.create_table(now, to, payload, out),
            Opcode::GetTableId => self.get_table_id(to, payload, out),
            Opcode::DropTable => self.drop_table(now, to, payload, out),
            Opcode::GetTableConfig => self.get_table_config(to, payload, out),
            Opcode::SplitTablet => self.split_tablet(now, to, payload, out),
            Opcode::RenewLease => self.renew_lease(now, to, payload, out),
            Opcode::GetLeaseInfo => self.get_lease_info(now, to, payload, out),
            Opcode::GetServerList => self.get_server_list(to, payload, out),
            Opcode::HintServerCrashed => self.hint_server_crashed(now, to, payload, out),
            Opcode::SetRuntimeOption => self.set_runtime_option(payload),
            Opcode::GetRuntimeOption => self.get_runtime_option(payload),
            Opcode::Kill => self.kill(out),
            Opcode::GetServerId => self.get_server_id(to, out),
            Opcode::GetMetrics => self.get_metrics(now, to, out),
            Opcode::ProxyPing => self.proxy_ping(now, to, payload, out),
            _ => self.server_control_all(now, to, payload, out),
        };
        match result {
            Ok(()) => {}
            Err(Refused::Status(status)) => {
                let (request, response) = fixed_bytes;
                let error: ErrorResponse = rpc::error_response(status, payload, request, response);
                out.reply(to, error.as_bytes());
            }
            Err(Refused::Retry {
                min_delay_us,
                max_delay_us,
                message,
            }) => {
                let retry = RetryResponse {
                    min_delay_us,
                    max_delay_us,
                    message: message.as_bytes(),
                };
                send(to, out, |bytes| retry.encode(bytes));
            }
        }
    }

    /// The connection of a client is gone: nobody waits for its replies.
    pub fn connection_closed(&mut self, connection: u64) {
        self.pending.forget_connection(connection);
    }

    /// The generic checks, in the protocol's order.
    fn route(&self, payload: &[u8]) -> Result<Opcode, Status> {
        let header = rpc::header(payload)?;
        let opcode = Opcode::from_u16(header.opcode).ok_or(Status::UnimplementedRequest);
        match Service::from_u16(header.service) {
            Some(Service::Coordinator) => match opcode? {
                opcode @ (Opcode::CreateTable
                | Opcode::GetTableId
                | Opcode::DropTable
                | Opcode::GetTableConfig
                | Opcode::SplitTablet
                | Opcode::RenewLease
                | Opcode::GetLeaseInfo
                | Opcode::GetServerList
                | Opcode::HintServerCrashed
                | Opcode::SetRuntimeOption
                | Opcode::GetRuntimeOption
                | Opcode::ServerControlAll) => Ok(opcode),
                _ => Err(Status::UnimplementedRequest),
            },
            Some(Service::Admin) => match opcode? {
                opcode @ (Opcode::Ping
                | Opcode::ProxyPing
                | Opcode::Kill
                | Opcode::GetServerId
                | Opcode::GetMetrics) => Ok(opcode),
                _ => Err(Status::UnimplementedRequest),
            },
            _ => Err(Status::ServiceNotAvailable),
        }
    }

    fn ping(
        &self,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let caller = rpc::PingRequest::decode(payload)?.caller;
        let is_known = self
            .store
            .members
            .server(caller.index())
            .is_some_and(|server| server.id == caller);
        if caller.is_valid() && !is_known {
            return Err(Status::CallerNotInCluster.into());
        }
        reply_status(to, Status::Ok, out);
        Ok(())
    }

    fn create_table(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let request = rpc::CreateTableRequest::decode(payload)?;
        if self.pending.load() >= self.store.config.limits.max_pending_replies {
            return Err(BUSY);
        }
        if let Some(id) = self.store.tables.id_of(request.name) {
            if !self.pending.join(false, request.name, to) {
                reply_table_id(to, id, out);
            }
            return Ok(());
        }
        let up = self.store.members.up();
        let format = self.upgrades.format();
        let (name, span) = (request.name, request.server_span);
        let table = match self.store.tables.create(format, name, span, &up) {
            Ok(table) => table,
            Err(CreateError::NoServers) => return Err(NO_MASTERS),
            Err(CreateError::Limit(limit)) => {
                out.report(TableEvent::CreateRefused(limit).into());
                return Err(Status::InvalidParameter.into());
            }
        };
        let (table_id, tablets) = (table.id, table.tablets.clone());
        let goal = Goal::Create {
            name: request.name.to_vec(),
            table_id,
        };
        self.order_tablets(now, to, goal, table_id, &tablets, out);
        Ok(())
    }

    fn get_table_id(
        &self,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let request = rpc::GetTableIdRequest::decode(payload)?;
        let id = self
            .store
            .tables
            .id_of(request.name)
            .ok_or(Status::TableDoesntExist)?;
        reply_table_id(to, id, out);
        Ok(())
    }

    fn drop_table(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let request = rpc::DropTableRequest::decode(payload)?;
        if self.pending.load() >= self.store.config.limits.max_pending_replies {
            return Err(BUSY);
        }
        let Some(table) = self.store.tables.drop_table(request.name) else {
            if !self.pending.join(true, request.name, to) {
                reply_status(to, Status::Ok, out);
            }
            return Ok(());
        };
        self.movement
            .give_up_of_table(&self.store, now, &table, out);
        self.recoveries.forget_table(&self.store, &table, out);
        let goal = Goal::Drop { name: table.name };
        self.order_tablets(now, to, goal, table.id, &table.tablets, out);
        Ok(())
    }

    /// Tells the owners that are connected to take or drop these tablets, and lets the reply wait for them. An owner that
    /// is not connected learns of it from the list of its tablets when it comes back.
    fn order_tablets(
        &mut self,
        now: Time,
        to: ReplyTo,
        goal: Goal,
        table_id: u64,
        tablets: &[Tablet],
        out: &mut impl CoordinatorEffects,
    ) {
        let is_drop = matches!(goal, Goal::Drop { .. });
        let number = self.store.ledger.next_question();
        let mut asked = 0;
        for tablet in tablets {
            let Some(link) = self
                .store
                .members
                .server_mut(tablet.owner)
                .and_then(|server| server.link.as_mut())
            else {
                continue;
            };
            let sequence = link.sequence();
            link.unanswered.insert(sequence, number);
            asked += 1;
            let order = TabletOrder {
                sequence,
                tablet: TabletRange {
                    table_id,
                    start_key_hash: tablet.start_key_hash,
                    end_key_hash: tablet.end_key_hash,
                },
            };
            let kind = if is_drop {
                coordinator::Kind::DropTablet(order)
            } else {
                coordinator::Kind::TakeTablet(order)
            };
            out.send_member(link.connection, ToShard::from(kind));
        }
        let deadline = now + self.store.config.silence_timeout;
        self.pending.start(number, goal, to, asked, deadline);
        if asked == 0
            && let Some(operation) = self.pending.answered(number, |_| {})
        {
            self.conclude(operation, out);
        }
    }

    fn get_table_config(
        &self,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let request = rpc::GetTableConfigRequest::decode(payload)?;
        let table_config = self.table_config(request.table_id);
        let response = rpc::GetTableConfigResponse {
            status: Status::Ok,
            table_config: &table_config,
        };
        send(to, out, |bytes| response.encode(bytes));
        Ok(())
    }

    fn split_tablet(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let request = rpc::SplitTabletRequest::decode(payload)?;
        if self.pending.load() >= self.store.config.limits.max_pending_replies {
            return Err(BUSY);
        }
        match self.movement.split(
            &mut self.store,
            now,
            request.name,
            request.split_key_hash,
            Cut::Ordered,
            out,
        ) {
            Ok(Some(number)) => {
                let deadline = now + self.store.config.silence_timeout;
                self.pending.start(number, Goal::Split, to, 1, deadline);
                Ok(())
            }
            Ok(None) => {
                reply_status(to, Status::Ok, out);
                Ok(())
            }
            Err(SplitError::Recovering) => Err(RECOVERING),
            Err(SplitError::NoTable) => Err(Status::TableDoesntExist.into()),
            Err(SplitError::Limit(limit)) => {
                out.report(TableEvent::SplitRefused(limit).into());
                Err(Status::InvalidParameter.into())
            }
        }
    }

    fn renew_lease(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let request = rpc::RenewLeaseRequest::decode(payload)?;
        let timestamp_ns = self.store.cluster_time_ns(now);
        let (id, expiration_ns) = self
            .store
            .leases
            .renew(request.lease_id, timestamp_ns)
            .ok_or(TOO_MANY_LEASES)?;
        let response = rpc::RenewLeaseResponse {
            status: Status::Ok,
            lease: rpc::Lease {
                id,
                expiration_ns,
                timestamp_ns,
            },
        };
        send(to, out, |bytes| response.encode(bytes));
        Ok(())
    }

    fn server_control_all(
        &mut self,
        now: Time,
        to: ReplyTo,
        payload: &[u8],
        out: &mut impl CoordinatorEffects,
    ) -> Result<(), Refused> {
        let request = rpc::ServerControlAllRequest::decode(payload)?;
        match request.control_op {
            control_op::GET_TIME_TRACE..=control_op::QUIESCE => {}
            _ => return Err(Status::UnimplementedRequest.into()),
        }
        let (input_bytes, shards) = (request.input.len(), self.linked_count());
        let limits = &self.store.config.limits;
        let is_too_large = input_bytes > limits.max_control_input_bytes
            || input_bytes.saturating_mul(shards) > limits.max_control_bytes;
        if is_too_large {
            return Err(Status::RequestTooLarge.into());
        }
        if !self.has_room_for_control(input_bytes, shards) {
            return Err(BUSY);
        }
        if request.control_op == control_op::LOG_MESSAGE {
            let (level, text) = request
                .input
                .split_first_chunk::<4>()
                .ok_or(Status::MessageTooShort)?;
            let event = ClientEvent::Text {
                level: Level::nearest(u32::from_le_bytes(*level)),
                text: String::from_utf8_lossy(text).into_owned(),
            };
            out.report(event.into());
        }
        let order = (request.control_op, request.input);
        self.begin_control(now, order, |_| true, to, out);
        Ok(())
    }

    /// Answers an operation that has waited long enough.
    pub(crate) fn conclude(&mut self, operation: Operation, out: &mut impl CoordinatorEffects) {
        for to in operation.replies {
            match &operation.goal {
                Goal::Create { table_id, .. } => reply_table_id(to, *table_id, out),
                Goal::Drop { .. } | Goal::Split => reply_status(to, Status::Ok, out),
                Goal::ProxyPing { reply_ns, .. } => reply_ping(to, *reply_ns, out),
                Goal::Control {
                    server_count,
                    responses,
                    ..
                } => {
                    let all: Vec<u8> = responses.values().flatten().copied().collect();
                    let response = rpc::ServerControlAllResponse {
                        status: Status::Ok,
                        server_count: *server_count,
                        response_count: responses.len() as u32,
                        responses: &all,
                    };
                    send(to, out, |bytes| response.encode(bytes));
                }
            }
        }
    }
}
