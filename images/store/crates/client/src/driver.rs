//! Between sockets and the client's state machine.

use std::collections::BTreeMap;
use std::time::Duration;

use base::time::Time;
use bytes::Bytes;
use client_core::{Client, ClientEffects, OperationId, Outcome, Owned};
use net::{Address, CloseReason, Handler, Io, Target};
use trace::Event;
use wire::locator::Locator;

use crate::Error;

/// How an operation ended.
pub(crate) type Ended = Result<Owned, client_core::Error>;

/// The state machine and its connections.
pub(crate) struct ClientDriver {
    core: Client,
    sessions: Sessions,
    pub(crate) results: Results,
    /// Of the operation that is waited for.
    deadline: Time,
    overdue: bool,
    coordinator: String,
    problem: Option<String>,
}

/// What ended and was not asked for yet.
#[derive(Default)]
pub(crate) struct Results {
    ended: BTreeMap<OperationId, Ended>,
    /// The operation that is waited for, once its id is known: its result needs no place among the others.
    awaited: Option<OperationId>,
    result: Option<Ended>,
    /// The value of the read that is waited for goes here.
    pub(crate) value: Vec<u8>,
    pub(crate) into_value: bool,
    /// The message that is being read, if its memory may be kept.
    kept: Option<Bytes>,
}

impl Results {
    fn complete(
        &mut self,
        operation: OperationId,
        result: Result<Outcome<'_>, client_core::Error>,
    ) {
        if self.awaited != Some(operation) {
            let result = self.owned(result);
            self.ended.insert(operation, result);
            return;
        }
        self.result = Some(match result {
            Ok(Outcome::Object { version, value }) if self.into_value => {
                self.value.clear();
                self.value.extend_from_slice(value);
                Ok(Owned::Version(version))
            }
            other => self.owned(other),
        });
    }

    /// A value that is most of a message stays in it.
    fn owned(&self, result: Result<Outcome<'_>, client_core::Error>) -> Ended {
        match (result, &self.kept) {
            (Ok(Outcome::Object { version, value }), Some(kept))
                if kept.as_ptr_range().contains(&value.as_ptr()) =>
            {
                Ok(Owned::Object(version, kept.slice_ref(value)))
            }
            (other, _) => other.map(Owned::from),
        }
    }

    /// How many ended and were not asked for.
    pub(crate) fn len(&self) -> usize {
        self.ended.len()
    }

    pub(crate) fn has(&self, operation: OperationId) -> bool {
        self.ended.contains_key(&operation)
    }

    /// One of them.
    pub(crate) fn first(&self) -> Option<OperationId> {
        self.ended.keys().next().copied()
    }

    pub(crate) fn take(&mut self, operation: OperationId) -> Option<Ended> {
        self.ended.remove(&operation)
    }

    pub(crate) fn take_all(&mut self) -> BTreeMap<OperationId, Ended> {
        std::mem::take(&mut self.ended)
    }
}

/// Which connection serves which session.
#[derive(Default)]
struct Sessions {
    connections: BTreeMap<u64, u64>,
    by_connection: BTreeMap<u64, (u64, String)>,
}

impl Sessions {
    fn insert(&mut self, session: u64, connection: u64, locator: &str) {
        self.connections.insert(session, connection);
        self.by_connection
            .insert(connection, (session, locator.to_owned()));
    }

    fn remove(&mut self, connection: u64) -> Option<(u64, String)> {
        let (session, locator) = self.by_connection.remove(&connection)?;
        self.connections.remove(&session);
        Some((session, locator))
    }

    fn session(&self, connection: u64) -> Option<u64> {
        self.by_connection
            .get(&connection)
            .map(|(session, _)| *session)
    }
}

impl ClientDriver {
    pub(crate) fn new(core: Client, coordinator: &str) -> ClientDriver {
        ClientDriver {
            core,
            sessions: Sessions::default(),
            results: Results::default(),
            deadline: Time::NEVER,
            overdue: false,
            coordinator: coordinator.to_owned(),
            problem: None,
        }
    }

    pub(crate) fn start(
        &mut self,
        now: Time,
        io: &mut Io,
        start: impl FnOnce(&mut Client, Time, &mut Actions<'_>) -> OperationId,
    ) -> OperationId {
        trace::record(Event::OperationStarted, 0);
        let (core, mut out) = self.split(io);
        start(core, now, &mut out)
    }

    /// Gives an operation up at `at`; it then ends with [`client_core::Error::Deadline`].
    pub(crate) fn set_deadline(&mut self, operation: OperationId, at: Time) {
        self.core.set_deadline(operation, at);
    }

    /// From now on this operation is waited for, until `deadline`.
    pub(crate) fn wait_for(&mut self, operation: OperationId, deadline: Time) {
        self.results.awaited = Some(operation);
        // It may have ended before it was known how it is called.
        self.results.result = self.results.take(operation);
        self.deadline = deadline;
        self.overdue = false;
    }

    /// [`ClientDriver::is_overdue`] is to say so from this time on.
    pub(crate) fn look_up_at(&mut self, at: Time) {
        self.deadline = at;
        self.overdue = false;
    }

    /// Whether the operation that is waited for has ended.
    pub(crate) fn has_result(&self) -> bool {
        self.results.result.is_some()
    }

    /// How the operation ended that is waited for.
    pub(crate) fn take_result(&mut self) -> Option<Ended> {
        let result = self.results.result.take()?;
        self.stop_waiting();
        Some(result)
    }

    fn stop_waiting(&mut self) {
        self.results.awaited = None;
        self.deadline = Time::NEVER;
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Gives an operation up and forgets it; false if it has ended meanwhile.
    pub(crate) fn cancel(&mut self, operation: OperationId, io: &mut Io) -> bool {
        let (core, mut out) = self.split(io);
        let cancelled = core.cancel(net::now(), operation, &mut out);
        if cancelled && self.results.awaited == Some(operation) {
            self.stop_waiting();
        }
        self.results.take(operation);
        cancelled
    }

    /// What to say of an operation that ended like this, after `timeout` at the latest.
    pub(crate) fn explain(&self, error: client_core::Error, timeout: Duration) -> Error {
        match error {
            client_core::Error::Deadline => self.timeout(timeout),
            client_core::Error::Unreachable => Error::Unreachable(self.problem.clone()),
            error => Error::from(error),
        }
    }

    pub(crate) fn timeout(&self, after: Duration) -> Error {
        Error::Timeout {
            after,
            coordinator: self.coordinator.clone(),
            problem: self.problem.clone(),
        }
    }

    fn split<'a>(&'a mut self, io: &'a mut Io) -> (&'a mut Client, Actions<'a>) {
        let ClientDriver {
            core,
            sessions,
            results,
            ..
        } = self;
        (
            core,
            Actions {
                io,
                sessions,
                results,
            },
        )
    }
}

impl Handler for ClientDriver {
    fn opened(&mut self, now: Time, connection: u64, _listener: Option<usize>, io: &mut Io) {
        self.problem = None;
        if let Some(session) = self.sessions.session(connection) {
            let (core, mut out) = self.split(io);
            core.connected(now, session, &mut out);
        }
    }

    fn frame(&mut self, now: Time, connection: u64, nonce: u64, payload: &[u8], io: &mut Io) {
        if let Some(session) = self.sessions.session(connection) {
            let (core, mut out) = self.split(io);
            core.received(now, session, nonce, payload, &mut out);
        }
    }

    fn message(
        &mut self,
        now: Time,
        connection: u64,
        nonce: u64,
        payload: Vec<u8>,
        io: &mut Io,
    ) -> Option<Vec<u8>> {
        let payload = Bytes::from(payload);
        self.results.kept = Some(payload.clone());
        self.frame(now, connection, nonce, &payload, io);
        self.results.kept = None;
        // If nobody kept any of it, the next one gets its memory.
        payload.try_into_mut().ok().map(Vec::from)
    }

    fn closed(&mut self, now: Time, connection: u64, reason: CloseReason, io: &mut Io) {
        if let Some((session, locator)) = self.sessions.remove(connection) {
            self.problem = Some(format!("{locator}: {reason}"));
            let (core, mut out) = self.split(io);
            core.disconnected(now, session, &mut out);
        }
    }

    fn woken(&mut self, _now: Time, _io: &mut Io) {}

    fn tick(&mut self, now: Time, io: &mut Io) -> Time {
        self.overdue = now >= self.deadline;
        let deadline = if self.overdue {
            Time::NEVER
        } else {
            self.deadline
        };
        let (core, mut out) = self.split(io);
        core.tick(now, &mut out).min(deadline)
    }
}

/// Carries out what the state machine asks for.
pub struct Actions<'a> {
    io: &'a mut Io,
    sessions: &'a mut Sessions,
    results: &'a mut Results,
}

impl ClientEffects for Actions<'_> {
    fn connect(&mut self, session: u64, locator: &str) {
        // A locator that cannot be read fails like a name that does not exist.
        let target = Locator::parse(locator)
            .and_then(|locator| Target::of(&locator))
            .unwrap_or_else(|_| Target::Tcp(Address::new(locator, 0)));
        let connection = self.io.connect_to(&target, false);
        self.sessions.insert(session, connection, locator);
    }

    fn send(&mut self, session: u64, nonce: u64, payload: &[u8]) {
        if let Some(connection) = self.sessions.connections.get(&session) {
            self.io.send(*connection, nonce, &[payload]);
        }
    }

    fn close(&mut self, session: u64) {
        if let Some(connection) = self.sessions.connections.get(&session).copied() {
            self.sessions.remove(connection);
            self.io.close(connection);
        }
    }

    fn complete(
        &mut self,
        operation: OperationId,
        result: Result<Outcome<'_>, client_core::Error>,
    ) {
        self.results.complete(operation, result);
        trace::record(Event::OperationCompleted, operation.0);
    }
}
