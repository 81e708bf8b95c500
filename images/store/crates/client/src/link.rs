//! Between sockets and the client's state machine.

use std::collections::BTreeMap;
use std::time::Duration;

use client_core::{Client, OperationId, Outcome, Output};
use net::{Address, CloseReason, Handler, Io, Protocol};
use wire::ids::TableId;
use wire::locator::Locator;
use wire::rpc::Lease;
use wire::time::Time;

use crate::Error;

/// What an operation gave, without borrowing; the value of a read lies in [`Link::value`].
pub(crate) enum Answer {
    Table(TableId),
    Done,
    Version(u64),
    Versions(Vec<Result<u64, client_core::Error>>),
    Control { servers: u32, responses: u32 },
    Lease(Lease),
}

const MISMATCH: Error = Error::Invalid("the client mixed up two answers; please report this");

impl Answer {
    pub(crate) fn table(self) -> Result<TableId, Error> {
        if let Answer::Table(table) = self {
            Ok(table)
        } else {
            Err(MISMATCH)
        }
    }
    pub(crate) fn version(self) -> Result<u64, Error> {
        if let Answer::Version(version) = self {
            Ok(version)
        } else {
            Err(MISMATCH)
        }
    }
    pub(crate) fn done(self) -> Result<(), Error> {
        if let Answer::Done | Answer::Control { .. } = self {
            Ok(())
        } else {
            Err(MISMATCH)
        }
    }
    pub(crate) fn control(self) -> Result<(u32, u32), Error> {
        if let Answer::Control { servers, responses } = self {
            Ok((servers, responses))
        } else {
            Err(MISMATCH)
        }
    }
    pub(crate) fn lease(self) -> Result<Lease, Error> {
        if let Answer::Lease(lease) = self {
            Ok(lease)
        } else {
            Err(MISMATCH)
        }
    }
    pub(crate) fn versions(self) -> Result<Vec<Result<u64, Error>>, Error> {
        let Answer::Versions(versions) = self else {
            return Err(MISMATCH);
        };
        Ok(versions
            .into_iter()
            .map(|version| version.map_err(Error::from))
            .collect())
    }
}

/// The state machine and its connections.
pub(crate) struct Link {
    core: Client,
    sessions: Sessions,
    /// The bytes of the last read.
    pub(crate) value: Vec<u8>,
    result: Option<Result<Answer, client_core::Error>>,
    deadline: Time,
    overdue: bool,
    coordinator: String,
    problem: Option<String>,
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

impl Link {
    pub(crate) fn new(core: Client, coordinator: &str) -> Link {
        Link {
            core,
            sessions: Sessions::default(),
            value: Vec::new(),
            result: None,
            deadline: Time::NEVER,
            overdue: false,
            coordinator: coordinator.to_owned(),
            problem: None,
        }
    }

    pub(crate) fn begin(&mut self, deadline: Time) {
        self.result = None;
        self.deadline = deadline;
        self.overdue = false;
    }

    pub(crate) fn start(
        &mut self,
        now: Time,
        io: &mut Io,
        start: impl FnOnce(&mut Client, Time, &mut Actions<'_>) -> OperationId,
    ) -> OperationId {
        let (core, mut out) = self.split(io);
        start(core, now, &mut out)
    }

    pub(crate) fn take_result(&mut self) -> Option<Result<Answer, Error>> {
        let result = self.result.take()?;
        self.deadline = Time::NEVER;
        Some(result.map_err(Error::from))
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Gives the operation up; false if it has completed meanwhile.
    pub(crate) fn cancel(&mut self, operation: OperationId, io: &mut Io) -> bool {
        let (core, mut out) = self.split(io);
        core.cancel(net::now(), operation, &mut out)
    }

    pub(crate) fn timeout(&self, after: Duration) -> Error {
        Error::Timeout {
            after,
            coordinator: self.coordinator.clone(),
            problem: self.problem.clone(),
        }
    }

    fn split<'a>(&'a mut self, io: &'a mut Io) -> (&'a mut Client, Actions<'a>) {
        let Link {
            core,
            sessions,
            value,
            result,
            ..
        } = self;
        (
            core,
            Actions {
                io,
                sessions,
                value,
                result,
            },
        )
    }
}

impl Handler for Link {
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

pub(crate) struct Actions<'a> {
    io: &'a mut Io,
    sessions: &'a mut Sessions,
    value: &'a mut Vec<u8>,
    result: &'a mut Option<Result<Answer, client_core::Error>>,
}

impl Output for Actions<'_> {
    fn connect(&mut self, session: u64, locator: &str) {
        // A locator that cannot be read fails like a name that does not exist.
        let address = Locator::parse(locator)
            .ok()
            .and_then(|locator| {
                locator
                    .tcp()
                    .ok()
                    .map(|(host, port)| Address::new(host, port))
            })
            .unwrap_or_else(|| Address::new(locator, 0));
        let connection = self.io.connect(&address, Protocol::Rpc);
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
        _operation: OperationId,
        result: Result<Outcome<'_>, client_core::Error>,
    ) {
        // One operation is under way at a time, and one that was cancelled does not complete.
        *self.result = Some(result.map(|outcome| match outcome {
            Outcome::Table(table) => Answer::Table(table),
            Outcome::Done => Answer::Done,
            Outcome::Object { version, value } => {
                self.value.clear();
                self.value.extend_from_slice(value);
                Answer::Version(version)
            }
            Outcome::Version(version) => Answer::Version(version),
            Outcome::Versions(versions) => Answer::Versions(versions),
            Outcome::Control {
                server_count,
                response_count,
                ..
            } => Answer::Control {
                servers: server_count,
                responses: response_count,
            },
            Outcome::Lease(lease) => Answer::Lease(lease),
        }));
    }
}
