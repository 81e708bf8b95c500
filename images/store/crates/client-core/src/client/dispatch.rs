//! Sending: what an operation needs before it can go out, and where it goes.

use base::ids::TableId;
use base::time::Time;
use wire::rpc::{GetTableConfigRequest, RenewLeaseRequest};
use wire::status::Status;

use super::Client;
use crate::cache::{REFETCH_DELAY, Route};
use crate::effects::ClientEffects;
use crate::error::Error;
use crate::operation::{Kind, Operation};
use crate::operation_id::OperationId;
use crate::outcome::Outcome;
use crate::sessions::{Call, Waiting};
use crate::timer::Timer;

/// Where lease id, expiration, timestamp, RPC id and ack id lie in WRITE, REMOVE and INCREMENT requests.
const LINEARIZABLE_FIELDS: core::ops::Range<usize> = 12..52;

/// What became of an attempt to find an open connection to a server.
pub enum Path {
    Open {
        session: u64,
        config_generation: u64,
    },
    /// The operation will be made ready again.
    Waits,
    /// There is no such table.
    NoTable,
}

impl Client {
    /// Lets every operation go on that can.
    pub(crate) fn run_ready(&mut self, now: Time, out: &mut impl ClientEffects) {
        while let Some(operation) = self.ready.pop_front() {
            self.dispatch(now, operation, out);
        }
    }

    fn dispatch(&mut self, now: Time, id: OperationId, out: &mut impl ClientEffects) {
        let Some(operation) = self.operations.get(id.0) else {
            return;
        };
        match operation.kind {
            Kind::Coordinator(_) => self.call_coordinator(now, Call::Operation(id), out),
            Kind::Lease => {
                if let Some(lease) = self.lease.usable(now) {
                    self.retire(id);
                    out.complete(id, Ok(Outcome::Lease(lease)));
                } else {
                    self.wait_for_lease(now, id, out);
                }
            }
            Kind::OnKey(_) => self.dispatch_to_server(now, id, out),
            Kind::Once(_) => {
                if operation.rpc_id != 0 || self.stamp(now, id, out) {
                    self.dispatch_to_server(now, id, out);
                }
            }
            Kind::At(..) => self.dispatch_at(now, id, out),
            Kind::Multi(_) => self.dispatch_multi(now, id, out),
        }
    }

    /// Sends an operation to the server that it names, when there is a connection; fails if there can be none.
    fn dispatch_at(&mut self, now: Time, id: OperationId, out: &mut impl ClientEffects) {
        let Some(Operation {
            kind: Kind::At(locator, _),
            ..
        }) = self.operations.get(id.0)
        else {
            return;
        };
        let locator = locator.clone();
        let Some(session) = self.session_to(now, &locator, out) else {
            self.retire(id);
            let why = "a server is named by a locator such as tcp:host=10.0.0.1,port=12100";
            return out.complete(id, Err(Error::Invalid(why)));
        };
        if self.sessions.is_open(session) {
            return self.send_call(now, session, Call::Operation(id), out);
        }
        let waiting = Waiting {
            operation: id,
            table: TableId(0),
            config_generation: 0,
        };
        self.sessions.wait(session, waiting);
    }

    /// Gives an operation the lease and the RPC id that it keeps from then on. False if it has to wait for them.
    fn stamp(&mut self, now: Time, id: OperationId, out: &mut impl ClientEffects) -> bool {
        self.renew_lease_if_due(now, out);
        let Some(lease) = self.lease.usable(now) else {
            self.wait_for_lease(now, id, out);
            return false;
        };
        let Some(operation) = self.operations.get_mut(id.0) else {
            return false;
        };
        let Some((rpc_id, ack_id)) = self.rpc_ids.start() else {
            self.waiting_for_rpc_id.push_back(id);
            return false;
        };
        operation.rpc_id = rpc_id;
        operation.lease_id = lease.id;
        let fields = [
            lease.id,
            lease.expiration_ns,
            lease.timestamp_ns,
            rpc_id,
            ack_id,
        ];
        let place = operation.request[LINEARIZABLE_FIELDS]
            .as_chunks_mut::<8>()
            .0;
        for (place, field) in place.iter_mut().zip(fields) {
            *place = field.to_le_bytes();
        }
        true
    }

    fn wait_for_lease(&mut self, now: Time, id: OperationId, out: &mut impl ClientEffects) {
        self.lease.waiting.push_back(id);
        self.renew_lease_if_due(now, out);
    }

    pub(crate) fn renew_lease_if_due(&mut self, now: Time, out: &mut impl ClientEffects) {
        if self.lease.is_renewal_due(now) {
            self.lease.requested_at = Some(now);
            self.call_coordinator(now, Call::RenewLease, out);
        }
    }

    fn dispatch_to_server(&mut self, now: Time, id: OperationId, out: &mut impl ClientEffects) {
        let Some(&Operation {
            table, key_hash, ..
        }) = self.operations.get(id.0)
        else {
            return;
        };
        match self.path(now, id, table, key_hash, out) {
            Path::Open {
                session,
                config_generation,
            } => {
                let Some(operation) = self.operations.get_mut(id.0) else {
                    return;
                };
                operation.config_generation = config_generation;
                self.sessions.send(
                    now,
                    session,
                    Call::Operation(id),
                    &operation.request,
                    self.config.timeout,
                    out,
                );
            }
            Path::Waits => {}
            Path::NoTable => {
                self.retire(id);
                out.complete(id, Err(Error::status(Status::TableDoesntExist)));
            }
        }
    }

    /// Finds an open connection to the server of this hash. If there is none yet, `id` is made ready when there may be.
    pub(crate) fn path(
        &mut self,
        now: Time,
        id: OperationId,
        table: TableId,
        key_hash: u64,
        out: &mut impl ClientEffects,
    ) -> Path {
        let (locator, config_generation) = match self.tables.route(table, key_hash) {
            Route::To {
                session: Some(session),
                generation,
                ..
            } if self.sessions.is_open(session) => {
                return Path::Open {
                    session,
                    config_generation: generation,
                };
            }
            Route::To {
                locator,
                generation,
                ..
            } => (locator.to_owned(), generation),
            Route::Unknown => {
                self.wait_for_table(now, id, table, out);
                return Path::Waits;
            }
            Route::Nowhere => return Path::NoTable,
        };
        let Some(session) = self.session_to(now, &locator, out) else {
            // Not a locator that this build can use; the next config may have another.
            self.tables.invalidate(table, config_generation);
            self.wait_for_table(now, id, table, out);
            return Path::Waits;
        };
        self.tables.set_session(table, key_hash, session);
        if self.sessions.is_open(session) {
            return Path::Open {
                session,
                config_generation,
            };
        }
        let waiting = Waiting {
            operation: id,
            table,
            config_generation,
        };
        self.sessions.wait(session, waiting);
        Path::Waits
    }

    fn wait_for_table(
        &mut self,
        now: Time,
        id: OperationId,
        table: TableId,
        out: &mut impl ClientEffects,
    ) {
        let entry = self.tables.entry(table);
        if !entry.waiting.contains(&id) {
            entry.waiting.push(id);
        }
        if entry.is_fetching {
            return;
        }
        entry.is_fetching = true;
        match entry.fetched_at.map(|at| at + REFETCH_DELAY) {
            Some(at) if at > now => self.set_timer(at, Timer::FetchTable(table)),
            _ => self.fetch_table(now, table, out),
        }
    }

    pub(crate) fn fetch_table(&mut self, now: Time, table: TableId, out: &mut impl ClientEffects) {
        if let Some(entry) = self.tables.get_mut(table) {
            entry.fetched_at = Some(now);
        }
        self.call_coordinator(now, Call::TableConfig(table), out);
    }

    /// Sends a call on an open session.
    pub(crate) fn send_call(
        &mut self,
        now: Time,
        session: u64,
        call: Call,
        out: &mut impl ClientEffects,
    ) {
        let timeout = self.config.timeout;
        let mut request = Vec::new();
        match call {
            Call::Operation(id) => {
                if let Some(operation) = self.operations.get(id.0) {
                    let payload = &operation.request;
                    self.sessions
                        .send(now, session, call, payload, timeout, out);
                }
                return;
            }
            Call::KeepAlive => return self.send_ping(now, session, out),
            Call::Objects(..) => return,
            Call::TableConfig(table_id) => {
                GetTableConfigRequest { table_id }.encode(&mut request);
            }
            Call::RenewLease => {
                let lease_id = self.lease.id();
                RenewLeaseRequest { lease_id }.encode(&mut request);
            }
        }
        self.sessions
            .send(now, session, call, &request, timeout, out);
    }
}
