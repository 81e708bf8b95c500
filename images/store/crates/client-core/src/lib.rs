//! A client of the store, without I/O: what to send to whom, what an answer means, when to try again.
//!
//! A driver owns the sockets and the clock. It starts operations, hands in what arrived with the time, calls
//! [`Client::tick`] when that asked to be called, and carries out what [`Output`] is told. Every operation that was started
//! completes exactly once, or never if it was cancelled; it may complete before the call that starts it has returned.

#![forbid(unsafe_code)]

mod answers;
mod cache;
mod dispatch;
mod lease;
pub mod multi;
mod operations;
mod owned;
mod questions;
mod random;
mod rpc_ids;
mod sessions;
mod slab;

use core::fmt;
use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use transport::paths::Paths;
use wire::ids::{ServerId, TableId};
use wire::locator::{self, LocatorError};
use wire::rpc::{Increment, Lease, RejectRules};
use wire::status::Status;
use wire::time::Time;

pub use multi::Multi;
pub use owned::Owned;
pub use questions::Question;

/// What a client is created with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Locators of the coordinator, tried in turn.
    pub coordinator: Vec<String>,
    /// Of the random delays before requests are sent again, and of the choice between ports that are alike.
    pub seed: u64,
    /// A connection that owes answers and has said nothing for this long is given up; after half of it, it is pinged.
    pub timeout: Duration,
    /// A connection on which nothing was asked for this long is closed: whether anybody is still there, nobody would notice.
    pub idle_timeout: Duration,
    /// How long a connection may take to open.
    pub connect_timeout: Duration,
    /// Operations under way at a time; more are refused.
    pub max_operations: usize,
    /// The protocols in which the driver reaches servers, the fastest first. The coordinator is reached over `tcp` only.
    pub protocols: Vec<&'static str>,
}

impl Config {
    /// `coordinator` is a locator or a list of them, such as `tcp:host=10.0.0.1,port=11100`.
    pub fn new(coordinator: &str, seed: u64) -> Result<Config, LocatorError> {
        let list = locator::parse_list(coordinator)?;
        for locator in &list {
            locator.tcp()?;
        }
        Ok(Config {
            coordinator: list.iter().map(ToString::to_string).collect(),
            seed,
            timeout: Duration::from_millis(500),
            idle_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(2),
            max_operations: 4096,
            protocols: vec!["tcp"],
        })
    }
}

/// Names an operation; never reused within a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// What a successful operation gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Of `create_table` and `table_id`.
    Table(TableId),
    /// Of `drop_table`.
    Done,
    /// Of `read`. Of `read_keys_and_value`, with the whole object as it travels in place of the value.
    Object { version: u64, value: &'a [u8] },
    /// Of `write`: the version written. Of `remove`: the version removed, 0 if there was none.
    Version(u64),
    /// Of `increment`: version and value as they are now.
    Incremented { version: u64, new_value: [u8; 8] },
    /// Of `multi_write` and `multi_remove`: for each object, in order, its version as of `write` or `remove`, or why there is none.
    Versions(Vec<Result<u64, Error>>),
    /// Of `multi_read`: for each object, in order, version and whole object, or why it was not read.
    Objects(multi::Objects),
    /// Of `multi_increment`: for each object, in order, version and value as they are now, or why it was not changed.
    IncrementedAll(Vec<Result<(u64, [u8; 8]), Error>>),
    /// Of `enumerate`: some objects, and where and with what to go on.
    Enumerated {
        tablet_first_hash: u64,
        objects: &'a [u8],
        iterator: &'a [u8],
    },
    /// A message of its own, as the protocol has it; of `echo`, the bytes that came back.
    Message(&'a [u8]),
    /// Of `server_control`.
    Controlled {
        server_id: ServerId,
        output: &'a [u8],
    },
    /// Of `server_id`.
    Server(ServerId),
    /// Of `proxy_ping`: how long it took; `None` if there was no answer in time.
    Took(Option<Duration>),
    /// Of `control_all`: complete SERVER_CONTROL responses, back to back.
    Control {
        server_count: u32,
        response_count: u32,
        responses: &'a [u8],
    },
    /// Of `acquire_lease`.
    Lease(Lease),
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The store refused it. `version` is the object's present version where the answer tells it, else 0.
    Refused { status: Status, version: u64 },
    /// Its deadline passed. It may take effect all the same, or have done so.
    Deadline,
    /// The server that was named cannot be reached.
    Unreachable,
    /// [`Config::max_operations`] are under way.
    TooManyOperations,
    /// It cannot be sent; says why.
    Invalid(&'static str),
}

impl Error {
    fn status(status: Status) -> Error {
        Error::Refused { status, version: 0 }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused { status, version: 0 } => write!(f, "refused: {status}"),
            Error::Refused { status, version } => {
                write!(f, "refused: {status} (the object's version is {version})")
            }
            Error::Deadline => f.write_str(
                "no answer before the deadline; the operation may take effect all the same",
            ),
            Error::Unreachable => f.write_str("no connection to that server"),
            Error::TooManyOperations => {
                f.write_str("too many operations under way; wait for some to complete")
            }
            Error::Invalid(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for Error {}

/// One object of a multi-write.
#[derive(Clone, Copy, Debug)]
pub struct WriteObject<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub rules: RejectRules,
}

/// One object of a multi-read or a multi-remove.
#[derive(Clone, Copy, Debug)]
pub struct KeyObject<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub rules: RejectRules,
}

/// One object of a multi-increment.
#[derive(Clone, Copy, Debug)]
pub struct IncrementObject<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub by: Increment,
    pub rules: RejectRules,
}

/// What a driver does for the client.
pub trait Output {
    /// Opens a connection to one locator of [`Config::protocols`]; answered by [`Client::connected`] or [`Client::disconnected`]. A session
    /// whose connection failed may be asked to connect again, elsewhere.
    fn connect(&mut self, session: u64, locator: &str);
    /// Sends a request on an open connection, under this nonce.
    fn send(&mut self, session: u64, nonce: u64, payload: &[u8]);
    /// Closes the connection, open or not yet. Not reported back by [`Client::disconnected`].
    fn close(&mut self, session: u64);
    /// An operation is over.
    fn complete(&mut self, operation: OperationId, result: Result<Outcome<'_>, Error>);
}

/// What a timer is for. Timers are never taken back: one that is not needed any more does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Resume(OperationId),
    Deadline(OperationId),
    FetchTable(TableId),
    ConnectCoordinator,
    RenewLease,
    /// This session goes a slower way than there is: try the faster one.
    TryFaster(u64),
}

/// One client: its operations, its connections, and what it knows of the store.
#[derive(Debug)]
pub struct Client {
    config: Config,
    random: random::Random,
    operations: slab::Slab<operations::Operation>,
    sessions: sessions::Sessions,
    paths: Paths,
    tables: cache::Tables,
    lease: lease::LeaseAgent,
    rpc_ids: rpc_ids::RpcIds,
    /// Operations that wait for a free RPC id.
    waiting_for_rpc_id: VecDeque<OperationId>,
    /// Operations that can go on; empty between calls.
    ready: VecDeque<OperationId>,
    timers: BinaryHeap<Reverse<(Time, Timer)>>,
    /// Request buffers for reuse.
    spare_buffers: Vec<Vec<u8>>,
}

impl Client {
    pub fn new(config: Config, _now: Time) -> Client {
        Client {
            random: random::Random::new(config.seed),
            operations: slab::Slab::default(),
            sessions: sessions::Sessions::new(config.coordinator.clone()),
            paths: Paths::new(config.protocols.clone(), config.seed),
            tables: cache::Tables::default(),
            lease: lease::LeaseAgent::default(),
            rpc_ids: rpc_ids::RpcIds::default(),
            waiting_for_rpc_id: VecDeque::new(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            spare_buffers: Vec::new(),
            config,
        }
    }

    /// Operations under way.
    pub fn pending(&self) -> usize {
        self.operations.len()
    }

    /// Gives an operation up if it is still under way at `at`; it then completes with [`Error::Deadline`].
    pub fn set_deadline(&mut self, operation: OperationId, at: Time) {
        if self.operations.get(operation.0).is_some() {
            self.set_timer(at, Timer::Deadline(operation));
        }
    }

    /// Forgets an operation: it does not complete any more, but may take effect. False if it has completed before.
    pub fn cancel(&mut self, now: Time, operation: OperationId, out: &mut impl Output) -> bool {
        let cancelled = self.retire(operation).is_some();
        self.run_ready(now, out);
        cancelled
    }

    /// Does what is due: tries again, pings, gives up, renews. Returns when to call again; calling earlier does no harm.
    pub fn tick(&mut self, now: Time, out: &mut impl Output) -> Time {
        while let Some(&Reverse((at, timer))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            match timer {
                Timer::Resume(operation) => self.ready.push_back(operation),
                Timer::Deadline(operation) => {
                    if self.retire(operation).is_some() {
                        out.complete(operation, Err(Error::Deadline));
                    }
                }
                Timer::FetchTable(table) => self.fetch_table(now, table, out),
                Timer::ConnectCoordinator => self.connect_coordinator(now, out),
                Timer::RenewLease => self.renew_lease_if_due(now, out),
                Timer::TryFaster(session) => self.try_faster(now, session, out),
            }
        }
        self.check_sessions(now, out);
        self.run_ready(now, out);
        let timers = self
            .timers
            .peek()
            .map_or(Time::NEVER, |&Reverse((at, _))| at);
        timers.min(self.sessions.next_check)
    }

    fn set_timer(&mut self, at: Time, timer: Timer) {
        // An operation has one timer or two; beyond that it is those of operations that are over.
        if self.timers.len() >= 4 * self.config.max_operations + 1024 {
            let operations = &self.operations;
            self.timers.retain(|Reverse((_, timer))| match timer {
                Timer::Resume(id) | Timer::Deadline(id) => operations.get(id.0).is_some(),
                _ => true,
            });
        }
        self.timers.push(Reverse((at, timer)));
    }
}

#[cfg(test)]
mod tests;
